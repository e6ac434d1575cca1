"""Geweke's joint distribution test (2004): does a Markov kernel leave the posterior alone, whatever the data?

    marginal-conditional    x, z ~ p(x, z), y ~ p(y|x, z), afresh for every draw
    successive-conditional  (a) a few steps of the kernel on (x, z) given y, (b) y ~ p(y|x, z), again and again

Both draw from p(x, z, y) if the kernel is right, and then all their means agree. The chains of the second start from
exact draws, so that they are stationary from the start: no burn-in, and every deviation is a fault. They are many and
independent, so that the spread of their means is the Monte Carlo error.

Prior and simulator of a model are written by hand, for NumPyro programs, too: a fault of the front end shows as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logit
from numpyro.distributions import constraints

import sumout
from sumout.model.program import Program

from known_moments import count_lattices, equal_neighbours, log_normaliser

NUM_CHAINS = 500
NUM_ROUNDS = 200
NUM_EXACT = 100_000


@dataclass(frozen=True, eq=False)
class Joint:
    """A model of which x, z and y can be drawn together.

    Attributes:
        make: makes the program, with any data.
        prior: `key -> (x on the real line, z)`.
        simulate: `(key, x on the real line, z) -> y`, to be put in the place of the data called `observed`.
        observed: the name of y among the program's data.
        plan: has z drawn site by site; counts are drawn anyway.
    """

    make: Callable[[], Program]
    prior: Callable[[Any], tuple[Any, dict[str, Any]]]
    simulate: Callable[[Any, Any, dict[str, Any]], Any]
    observed: str = "y"
    plan: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Chain:
    """A Markov kernel, as the test sees it.

    Attributes:
        init: `(key, x, z, data) -> state`.
        advance: `(key, state, data, t) -> state`, t the number of the step.
        read: `(key, state, data) -> (x, z)`; the key is for z that was summed out.
        renew: `(state, data) -> state`, when the data have changed.
    """

    init: Callable[[Any, Any, Any, Any], Any]
    advance: Callable[[Any, Any, Any, Any], Any]
    read: Callable[[Any, Any, Any], tuple[Any, Any]] = lambda key, state, data: (state.x, state.z)
    renew: Callable[[Any, Any], Any] = lambda state, data: state


def compare(
    joint: Joint, program: Program, chain: Chain, *, num_steps=2, seed=0, num_chains=NUM_CHAINS, num_rounds=NUM_ROUNDS
) -> dict[str, float]:
    """For every statistic the difference of the two simulators' means in standard errors."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), num_chains)
    starts, exact = draw_exactly(joint, seed, num_chains)

    def successive(key, x, z, y):
        def one(carry, t):
            state, y = carry
            data = program.data | {joint.observed: y}
            key_steps, key_read, key_y = jax.random.split(jax.random.fold_in(key, t), 3)

            def step(i, state):
                return chain.advance(jax.random.fold_in(key_steps, i), state, data, t * num_steps + i)

            state = jax.lax.fori_loop(0, num_steps, step, chain.renew(state, data))
            x, z = chain.read(key_read, state, data)
            y = joint.simulate(key_y, x, z)
            return (state, y), measure(x, z, y)

        start = chain.init(jax.random.fold_in(key, num_rounds), x, z, program.data | {joint.observed: y})
        statistics = jax.lax.scan(one, (start, y), jnp.arange(num_rounds))[1]
        return jax.tree.map(lambda values: values.mean(axis=0), statistics)

    scores = jax.tree.map(_scores, exact, jax.jit(jax.vmap(successive))(keys, *starts))
    return {f"{name}[{i}]": float(score) for name, each in scores.items() for i, score in enumerate(each)}


@cache
def draw_exactly(joint: Joint, seed: int, num_chains: int):
    """Starts of chains, and the statistics of other exact draws."""

    def draw(key):
        key_prior, key_y = jax.random.split(key)
        x, z = joint.prior(key_prior)
        return x, z, joint.simulate(key_y, x, z)

    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), num_chains + NUM_EXACT)
    draws = jax.jit(jax.vmap(draw))(keys)
    starts, others = (jax.tree.map(lambda a, part=part: a[part], draws) for part in np.s_[:num_chains, num_chains:])
    return starts, jax.jit(jax.vmap(measure))(*others)


def worst(scores: dict[str, float]) -> float:
    """The largest deviation; NaN counts as infinite."""
    return float(np.nan_to_num(np.abs(list(scores.values())), nan=np.inf).max())


def measure(x, z, y) -> dict[str, Any]:
    """Statistics of a joint draw: moments of x, z and y, and products across them."""
    y = y.ravel() / (1 + jnp.abs(y.ravel()))  # bounded, lest a heavy tail drown everything else
    named = {"x": x, "xx": x**2, "x x next": x[1:] * x[:-1], "y": y, "yy": y**2, "x mean y": x * y.mean()}
    for name, values in z.items():
        s = values.ravel().astype(float)
        named |= {
            name: s,
            f"{name}²": s**2,
            f"{name} {name} next": s[1:] * s[:-1],
            f"{name} total²": s.sum()[None] ** 2,
        }
        named |= {f"x mean {name}": x * s.mean(), f"mean {name} y": s.mean() * y}
        if s.size == y.size:
            named[f"{name} y"] = s * y
    return {name: jnp.atleast_1d(values) for name, values in named.items()}


def _scores(one_by_one, by_chain):
    variance = one_by_one.var(axis=0) / len(one_by_one) + by_chain.var(axis=0, ddof=1) / len(by_chain)
    difference = by_chain.mean(axis=0) - one_by_one.mean(axis=0)
    return jnp.where(difference == 0, 0.0, difference / jnp.sqrt(variance))


def _gamma(key, shape):
    """Gamma with a whole shape, as a sum of waiting times: JAX's own sampler takes seconds to compile."""
    return jax.random.exponential(key, (shape,)).sum()


def _beta(key, a, b):
    key_a, key_b = jax.random.split(key)
    first = _gamma(key_a, a)
    return first / (first + _gamma(key_b, b))


def _poisson(key, rate, num, most):
    """How many events there are before time `rate`."""
    return (jnp.cumsum(jax.random.exponential(key, (most, num)), axis=0) < rate).sum(axis=0)


def _mixture() -> Joint:
    """Four points of two normals, their share and their common scale unknown."""

    def mixture(y):
        share = numpyro.sample("share", dist.Beta(2, 3))
        mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0))
        sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 0.4))
        with numpyro.plate("points", 4):
            z = numpyro.sample("z", dist.Bernoulli(share))
            numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)

    def prior(key):
        key_share, key_normal, key_z = jax.random.split(key, 3)
        share = _beta(key_share, 2, 3)
        normal = jax.random.normal(key_normal, (3,)) * jnp.array([1.0, 1.0, 0.4]) + jnp.array([-1.0, 1.0, 0.0])
        return jnp.append(logit(share), normal), {"z": jax.random.bernoulli(key_z, share, (4,)).astype(int)}

    def simulate(key, x, z):
        return jnp.where(z["z"] == 1, x[2], x[1]) + jnp.exp(x[3]) * jax.random.normal(key, (4,))

    return Joint(lambda: sumout.program(mixture, np.zeros(4)), prior, simulate, plan={"z": "gibbs"})


def _chain() -> Joint:
    """A hidden Markov model of two states, the chance to stay and the height of the upper state unknown."""
    length = 5

    def chain(x, z, data):
        stay, height, s = x["stay"], x["height"], z["s"]
        prior = dist.Beta(3, 2).log_prob(stay) + dist.Gamma(3, 2).log_prob(height)
        moves = jnp.where(s[1:] == s[:-1], jnp.log(stay), jnp.log1p(-stay)).sum()
        return prior + moves + dist.Normal(height * s, 0.7).log_prob(data["y"]).sum()

    def prior(key):
        key_stay, key_height, key_first, key_moves = jax.random.split(key, 4)
        stay, height = _beta(key_stay, 3, 2), _gamma(key_height, 3) / 2
        first = jax.random.bernoulli(key_first, 0.5, (1,))
        turns = ~jax.random.bernoulli(key_moves, stay, (length - 1,))
        s = jnp.cumsum(jnp.concatenate([first, turns]).astype(int)) % 2
        return jnp.stack([logit(stay), jnp.log(height)]), {"s": s}

    def simulate(key, x, z):
        return jnp.exp(x[1]) * z["s"] + 0.7 * jax.random.normal(key, (length,))

    def make():
        x = {"stay": (constraints.unit_interval, ()), "height": (constraints.positive, ())}
        return sumout.density(chain, x=x, z={"s": sumout.finite(2, length)}, data={"y": np.zeros(length)})

    return Joint(make, prior, simulate, plan={"s": "gibbs"})


def _selection() -> Joint:
    """Spike and slab: two correlated covariates, each in or out."""
    design = np.array([[1.0, 0.8], [-0.5, 0.2], [0.3, -1.1], [-1.2, -0.7]])

    def selection(design, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([2]))
        gamma = numpyro.sample("gamma", dist.Bernoulli(0.4).expand([2]))
        numpyro.sample("y", dist.Normal(design @ (gamma * beta), 0.6), obs=y)

    def prior(key):
        key_beta, key_gamma = jax.random.split(key)
        return 1.5 * jax.random.normal(key_beta, (2,)), {
            "gamma": jax.random.bernoulli(key_gamma, 0.4, (2,)).astype(int)
        }

    def simulate(key, x, z):
        return jnp.asarray(design) @ (z["gamma"] * x) + 0.6 * jax.random.normal(key, (4,))

    return Joint(lambda: sumout.program(selection, design, np.zeros(4)), prior, simulate, plan={"gamma": "gibbs"})


def _inclusions() -> Joint:
    """Spike and slab: so many covariates that they meet in a quadratic form, with coefficients as partners."""
    design = np.random.default_rng(0).normal(size=(7, 5))

    def inclusions(design, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1.5).expand([5]))
        sigma = numpyro.sample("sigma", dist.LogNormal(-0.5, 0.5))
        gamma = numpyro.sample("gamma", dist.Bernoulli(0.4).expand([5]))
        numpyro.sample("y", dist.Normal(design @ (gamma * beta), sigma), obs=y)

    def prior(key):
        key_beta, key_sigma, key_gamma = jax.random.split(key, 3)
        log_sigma = -0.5 + 0.5 * jax.random.normal(key_sigma, (1,))
        x = jnp.concatenate([1.5 * jax.random.normal(key_beta, (5,)), log_sigma])
        return x, {"gamma": jax.random.bernoulli(key_gamma, 0.4, (5,)).astype(int)}

    def simulate(key, x, z):
        return jnp.asarray(design) @ (z["gamma"] * x[:5]) + jnp.exp(x[5]) * jax.random.normal(key, (7,))

    return Joint(lambda: sumout.program(inclusions, design, np.zeros(7)), prior, simulate, plan={"gamma": "gibbs"})


def _abundance() -> Joint:
    """Unbounded counts at two places, of which a binomial share is seen in two visits."""
    most = 40  # n is above once in a billion draws

    def abundance(y):
        rate = numpyro.sample("rate", dist.Gamma(4, 1))
        p = numpyro.sample("p", dist.Beta(2, 2))
        with numpyro.plate("places", 2):
            n = numpyro.sample("n", dist.Poisson(rate))
            with numpyro.plate("visits", 2):
                numpyro.sample("y", dist.Binomial(n, p), obs=y)

    def prior(key):
        key_rate, key_p, key_n = jax.random.split(key, 3)
        rate, p = _gamma(key_rate, 4), _beta(key_p, 2, 2)
        return jnp.stack([jnp.log(rate), logit(p)]), {"n": _poisson(key_n, rate, 2, most)}

    def simulate(key, x, z):
        is_seen = jax.random.bernoulli(key, jax.nn.sigmoid(x[1]), (most, 2, 2))
        return (is_seen & (jnp.arange(most)[:, None, None] < z["n"])).sum(axis=0)

    return Joint(lambda: sumout.program(abundance, np.zeros((2, 2), int)), prior, simulate)


def _picture() -> Joint:
    """A lattice of two by three with unknown coupling and contrast."""
    shape = (2, 3)
    counts = count_lattices(*shape)
    bits = (np.arange(64)[:, None] >> np.arange(6)) % 2
    states = bits.reshape(-1, *shape)

    def picture(x, z, data):
        prior = dist.Normal(0.4, 0.6).log_prob(x["coupling"]) + dist.Gamma(3, 2).log_prob(x["contrast"])
        lattice = x["coupling"] * equal_neighbours(z["s"]) - log_normaliser(x["coupling"], counts)
        return prior + lattice + dist.Normal(x["contrast"] * z["s"], 1.0).log_prob(data["y"]).sum()

    def prior(key):
        key_coupling, key_contrast, key_s = jax.random.split(key, 3)
        coupling = 0.4 + 0.6 * jax.random.normal(key_coupling)
        contrast = _gamma(key_contrast, 3) / 2
        which = jax.random.categorical(key_s, coupling * equal_neighbours(states))
        return jnp.stack([coupling, jnp.log(contrast)]), {"s": jnp.asarray(states)[which]}

    def simulate(key, x, z):
        return jnp.exp(x[1]) * z["s"] + jax.random.normal(key, shape)

    def make():
        x = {"coupling": (constraints.real, ()), "contrast": (constraints.positive, ())}
        return sumout.density(picture, x=x, z={"s": sumout.finite(2, shape)}, data={"y": np.zeros(shape)})

    return Joint(make, prior, simulate, plan={"s": "gibbs"})


JOINTS = {
    "mixture": _mixture(),
    "chain": _chain(),
    "selection": _selection(),
    "inclusions": _inclusions(),
    "abundance": _abundance(),
    "picture": _picture(),
}
