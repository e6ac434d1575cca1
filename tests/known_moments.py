"""Small programs with continuous x and discrete z whose posterior moments of x are known: the judges of samplers.

`mean` and `sd` are those of every coordinate of x on the real line, in the order of the flat vector. They come from
`moments_by_hand.py`, which knows nothing of sumout and says how far they can be trusted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

import sumout
from sumout.model.program import Program

import models


@dataclass(frozen=True)
class KnownMoments:
    """A program and its posterior.

    Attributes:
        make: makes the program.
        mean: posterior mean of every unconstrained coordinate of x.
        sd: posterior standard deviation, likewise.
        plan: has z drawn site by site; counts are drawn anyway.
    """

    make: Callable[[], Program]
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    plan: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the function that makes it."""
        return self.make.__name__


PIXELS = np.array([[0.0, 0.18, 0.84, 0.47], [-0.27, -0.59, 1.04, 1.8], [-0.3, -0.37, 0.29, 1.21]])


def equal_neighbours(s):
    """How many neighbours on a lattice are equal; for NumPy and JAX, and for many lattices at once."""
    return (s[..., 1:, :] == s[..., :-1, :]).sum((-1, -2)) + (s[..., :, 1:] == s[..., :, :-1]).sum((-1, -2))


def count_lattices(rows, columns):
    """How many black and white pictures have 0, 1, 2, … equal neighbours."""
    bits = (np.arange(2 ** (rows * columns))[:, None] >> np.arange(rows * columns)) % 2
    return np.bincount(equal_neighbours(bits.reshape(-1, rows, columns)))


def log_normaliser(coupling, counts):
    """The log normalising constant of a lattice at a coupling."""
    possible = np.flatnonzero(counts)
    return jax.nn.logsumexp(jnp.log(counts[possible]) + coupling * possible)


def picture():
    """A noisy black and white picture, its coupling and its noise level unknown."""
    counts = count_lattices(*PIXELS.shape)

    def picture(x, z, y):
        coupling, noise = x["coupling"], x["noise"]
        prior = dist.Normal(0.5, 0.5).log_prob(coupling) + dist.Gamma(4, 6).log_prob(noise)
        lattice = coupling * equal_neighbours(z["s"]) - log_normaliser(coupling, counts)
        return prior + lattice + dist.Normal(z["s"], noise).log_prob(y).sum()

    x = {"coupling": (constraints.real, ()), "noise": (constraints.positive, ())}
    return sumout.density(picture, x=x, z={"s": sumout.finite(2, PIXELS.shape)}, data=PIXELS)


DESIGN = np.array(
    [
        [0.11, -0.93, -0.03, 0.7],
        [-1.34, -0.46, -1.9, -1.29],
        [-1.84, -0.24, -1.27, 0.27],
        [0.16, -0.19, -2.52, -0.54],
        [-0.05, 0.11, -1.53, -0.48],
        [-0.98, -0.81, 1.06, -0.81],
        [-0.03, 0.88, -0.58, -0.11],
        [0.11, 0.06, -1.23, 0.08],
        [1.36, -1.55, 0.86, 0.12],
        [-0.64, 2.0, 0.76, -1.2],
        [0.07, 0.58, -0.19, 0.68],
        [-0.07, 0.67, 1.44, -0.68],
    ]
)
RESPONSE = np.array([0.31, -0.84, -1.35, 0.75, 0.4, -1.97, 1.03, 1.78, 0.06, -1.86, 0.72, -2.54])


def selection():
    """Spike and slab: which of four covariates matter, with the noise unknown."""

    def selection(design, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([4]))
        sigma = numpyro.sample("sigma", dist.Gamma(3, 3))
        gamma = numpyro.sample("gamma", dist.Bernoulli(0.3).expand([4]))
        numpyro.sample("y", dist.Normal(design @ (gamma * beta), sigma), obs=y)

    return sumout.program(selection, DESIGN, RESPONSE)


SIGNAL = np.array([-0.28, 1.94, 2.75, 3.41, 2.8, 0.78])


def two_chains():
    """A factorial hidden Markov model: two switches add up in a noisy signal."""

    def two_chains(x, z, y):
        stay, noise, s = x["stay"], x["noise"], z["s"]
        prior = dist.Beta(3, 2).log_prob(stay) + dist.Gamma(4, 6).log_prob(noise)
        moves = jnp.where(s[:, 1:] == s[:, :-1], jnp.log(stay), jnp.log1p(-stay)).sum()
        return prior + moves + dist.Normal(s[0] + 2 * s[1], noise).log_prob(y).sum()

    x = {"stay": (constraints.unit_interval, ()), "noise": (constraints.positive, ())}
    return sumout.density(two_chains, x=x, z={"s": sumout.finite(2, (2, 6))}, data=SIGNAL)


NODES = 8
EDGES = np.array([1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1])


def blocks():
    """A stochastic block model: who belongs to the few, if friends are found rather within than between."""
    first, second = np.triu_indices(NODES, 1)

    def blocks(edges):
        within = numpyro.sample("within", dist.Beta(4, 2))
        between = numpyro.sample("between", dist.Beta(2, 4))
        with numpyro.plate("nodes", NODES):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
        same = z[first] == z[second]
        numpyro.sample("edges", dist.Bernoulli(jnp.where(same, within, between)), obs=edges)

    return sumout.program(blocks, EDGES)


VISITS = np.array([[5, 4, 5, 6], [4, 1, 4, 0], [8, 8, 5, 6]])


def abundance():
    """Unbounded counts: so many animals were seen at three places in four visits each, how many are there?"""

    def abundance(y):
        rate = numpyro.sample("rate", dist.Gamma(5, 0.5))
        p = numpyro.sample("p", dist.Beta(4, 4))
        with numpyro.plate("places", len(y)):
            n = numpyro.sample("n", dist.Poisson(rate))
            with numpyro.plate("visits", y.shape[1]):
                numpyro.sample("y", dist.Binomial(n, p), obs=y.T)

    return sumout.program(abundance, VISITS)


SHARES = np.array([0.5, 0.3, 0.2])
KNOWN = np.array([0, 0, 0, 1, 1, 1, 2, 2])
YIELDS = np.array([1.68, 1.13, 1.06, 2.09, 2.42, 1.1, -1.29, -0.25])
YIELDS_OF_UNKNOWN = np.array([-0.49, 1.59, 1.28, 0.03, 0.41, 3.05])


def missing():
    """A regression on a category that six of fourteen rows do not tell."""

    def missing(known, y, y_of_unknown):
        base = numpyro.sample("base", dist.Normal(0, 2))
        shift = numpyro.sample("shift", dist.Normal(0, 2).expand([2]))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.7))
        level = jnp.concatenate([base[None], base + shift])
        numpyro.sample("y", dist.Normal(level[known], sigma), obs=y)
        with numpyro.plate("rows", len(y_of_unknown)):
            category = numpyro.sample("category", dist.Categorical(jnp.asarray(SHARES)))
            numpyro.sample("y_of_unknown", dist.Normal(level[category], sigma), obs=y_of_unknown)

    return sumout.program(missing, KNOWN, YIELDS, YIELDS_OF_UNKNOWN)


ACCIDENTS = np.array([5, 7, 5, 5, 1, 4, 5, 2, 1, 2, 3, 1, 0, 0, 0, 0, 0, 1, 1, 1])


def switch_point():
    """Accidents in a mine: when did they become rarer?"""
    return sumout.program(models.switch_point, ACCIDENTS)


POINTS = np.array([-1.12, -0.74, -0.41, -0.03, 0.21, 0.48, 0.93, 3.05, 3.62, 4.17])


def mixture():
    """Two normals with fixed unequal weights, the rarer one above the other."""

    def mixture(x, z, y):
        mu, sigma = x["mu"], x["sigma"]
        prior = dist.Normal(0, 1).log_prob(mu[0]) + dist.Gamma(6, 2).log_prob(mu[1] - mu[0])
        prior += dist.Gamma(4, 4).log_prob(sigma)
        membership = jnp.where(z["upper"], jnp.log(0.3), jnp.log(0.7)).sum()
        return prior + membership + dist.Normal(jnp.where(z["upper"], mu[1], mu[0]), sigma).log_prob(y).sum()

    x = {"mu": (constraints.ordered_vector, (2,)), "sigma": (constraints.positive, ())}
    return sumout.density(mixture, x=x, z={"upper": sumout.finite([False, True], 10)}, data=POINTS)


CATCHES = np.array([4, 2, 0, 0, 1, 3, 0, 2, 3, 0, 1, 0])


def zero_inflated():
    """Anglers who caught nothing, or did not fish: some values are impossible for those with a catch."""

    def zero_inflated(x, z, y):
        idle, rate = x["idle"], x["rate"]
        prior = dist.Beta(2, 2).log_prob(idle) + dist.Gamma(2, 1).log_prob(rate)
        at_home = jnp.log(idle) + jnp.where(y == 0, 0.0, -jnp.inf)
        fishing = jnp.log1p(-idle) + dist.Poisson(rate).log_prob(y)
        return prior + jnp.where(z["at_home"], at_home, fishing).sum()

    x = {"idle": (constraints.unit_interval, ()), "rate": (constraints.positive, ())}
    return sumout.density(zero_inflated, x=x, z={"at_home": sumout.finite([False, True], 12)}, data=CATCHES)


GRADES = np.array([0.5, 0.3, 0.2])
ALTITUDE = np.linspace(-150, 150, 7)
WEIGHTS = np.array([31.4, 22.8, 7.6, 15.1, 36.0, 6.5, 30.5])


def grades():
    """Fruit of unknown grade, each 10 grams above the one below; two coordinates of x of very different scales."""

    def grades(altitude, y):
        level = numpyro.sample("level", dist.Normal(0, 20))
        slope = numpyro.sample("slope", dist.Normal(0, 0.2))
        with numpyro.plate("fruit", len(y)):
            grade = numpyro.sample("grade", dist.Categorical(jnp.asarray(GRADES)))
            numpyro.sample("y", dist.Normal(level + slope * altitude + 10.0 * grade, 4.0), obs=y)

    return sumout.program(grades, ALTITUDE, WEIGHTS)


COVER = np.linspace(-1.5, 1.5, 10)
SEEN = np.array([0, 0, 2, 0, 0, 1, 0, 3, 2, 1])


def occupancy():
    """Places where a bird lives, or was overlooked in all of three visits."""

    def occupancy(x, z, data):
        prior = dist.Normal(0, 1.5).log_prob(x["occupied"]).sum() + dist.Beta(2, 2).log_prob(x["detection"])
        logits = x["occupied"][0] + x["occupied"][1] * data["cover"]
        state = jnp.where(z["lives"], jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits))
        seen = dist.Binomial(3, x["detection"]).log_prob(data["seen"])
        unseen = jnp.where(data["seen"] == 0, 0.0, -jnp.inf)
        return prior + (state + jnp.where(z["lives"], seen, unseen)).sum()

    x = {"occupied": (constraints.real, (2,)), "detection": (constraints.unit_interval, ())}
    data = {"cover": COVER, "seen": SEEN}
    return sumout.density(occupancy, x=x, z={"lives": sumout.finite([False, True], 10)}, data=data)


KNOWN_MOMENTS = {
    case.name: case
    for case in (
        KnownMoments(picture, (0.672682, -0.727585), (0.365153, 0.253897), {"s": "gibbs"}),
        KnownMoments(
            selection,
            (0.698371, 0.007787, -0.496863, 0.495571, -0.131592),
            (0.667903, 0.943808, 0.550762, 0.781450, 0.305221),
            {"gamma": "gibbs"},
        ),
        KnownMoments(two_chains, (0.646427, -0.784828), (0.639714, 0.455676), {"s": "gibbs"}),
        KnownMoments(blocks, (0.921690, -0.701236), (0.707296, 0.654364), {"z": "gibbs"}),
        KnownMoments(abundance, (2.270870, -0.040695), (0.271664, 0.476944)),
        KnownMoments(
            missing,
            (1.056440, 0.829080, -1.494381, -0.226878),
            (0.403594, 0.635374, 0.624209, 0.258897),
            {"category": "gibbs"},
        ),
        KnownMoments(switch_point, (1.295405, -0.379031), (0.186808, 0.468513), {"when": "gibbs"}),
        KnownMoments(mixture, (-0.032532, 1.233866, -0.236401), (0.310997, 0.180703, 0.282770), {"upper": "gibbs"}),
        KnownMoments(zero_inflated, (-0.626194, 0.651954), (0.677654, 0.269360), {"at_home": "gibbs"}),
        KnownMoments(grades, (11.8413861, -0.0097319), (2.2168685, 0.0245820), {"grade": "gibbs"}),
        KnownMoments(occupancy, (0.304825, 1.392160, 0.149538), (0.837628, 0.863376, 0.520879), {"lives": "gibbs"}),
    )
}
