"""Models of ecology as their users write them, z · p and all, each with its marginal by hand.

A value of z makes something impossible: who is not there is not seen, who is dead stays dead. `Ecology.marginal` is
p(y | x) with z summed out on paper; its sums are of probabilities, not of their logarithms: nothing in it is singular.
Data are pieces of published data sets (`data/ecology.json` names the sources), or simulated.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logit, xlog1py, xlogy
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.distributions.util import clamp_probs
from numpyro.handlers import mask

import sumout

STORED = json.loads((Path(__file__).parent / "data" / "ecology.json").read_text())
UNIT = (constraints.unit_interval, ())


def histories(name):
    """Capture histories, animals × occasions (or sites × visits)."""
    return np.array([[int(digit) for digit in history] for history in STORED[name]["histories"]])


def numbers(name, key):
    return np.array(STORED[name][key])


@dataclass(frozen=True)
class Ecology:
    """A model of ecology.

    Attributes:
        make: the program, z left in.
        priors: draws x in NumPyro, by the names the program has.
        marginal: `(x by name, counted, tilt) -> log p(y | x)`. Data that do not count (0 for 1) are taken as unknown;
            every z = 1 has its weight multiplied by exp(tilt). So differences by `counted` are the log likelihoods of
            single data, and derivatives by `tilt` the probabilities of z.
        num_data: the shape of `counted`; (n, 1) where the data of a row are one.
        num_z: the shape of `tilt`.
        data: brings what the program says about its data into the shape of `counted`; None where it says nothing.
        z: brings what the program says about its z into the shape of `tilt`; None where they are not alike.
        constant: by how much the program's log density is above the marginal's, whatever x is.
    """

    make: Callable[[], Any]
    priors: Callable[[], dict[str, Any]]
    marginal: Callable[[dict[str, Any], Any, Any], Any]
    num_data: tuple[int, ...]
    num_z: tuple[int, ...]
    data: Callable[[Mapping[str, Any]], Any] | None = field(default=lambda named: named["y"])
    z: Callable[[Mapping[str, Any]], Any] | None = field(default=lambda named: named["z"])
    constant: float = 0.0

    def by_hand(self):
        """The NumPyro model with z summed out by hand."""
        x = self.priors()
        numpyro.factor("y", self.marginal(x, np.ones(self.num_data), np.zeros(self.num_z)))


# What the marginals are made of: probabilities of what counts, 1 for what does not.


def bernoulli(p, y, counted):
    return jnp.where(counted > 0, jnp.where(y == 1, p, 1 - p), 1.0)


def binomial(total, p, y, counted):
    choose = gammaln(total + 1) - gammaln(y + 1) - gammaln(total - y + 1)
    return jnp.where(counted > 0, jnp.exp(choose) * p**y * (1 - p) ** (total - y), 1.0)


def poisson(rate, y, counted):
    return jnp.where(counted > 0, jnp.exp(y * jnp.log(rate) - rate - gammaln(y + 1)), 1.0)


def nothing(y, counted):
    """Who is not there gives zeros only."""
    return jnp.where((y > 0) & (counted > 0), 0.0, 1.0)


def either(probability, tilt, if_one, if_zero):
    return probability * jnp.exp(tilt) * if_one + (1 - probability) * if_zero


# Occupancy of sites.

SITES = histories("site_occupancy")


def occupancy_priors():
    return {"psi": numpyro.sample("psi", dist.Uniform(0, 1)), "p": numpyro.sample("p", dist.Uniform(0, 1))}


def occupancy_marginal(x, counted, tilt):
    seen = bernoulli(x["p"], SITES, counted).prod(1)
    return jnp.log(either(x["psi"], tilt, seen, nothing(SITES, counted).prod(1))).sum()


def occupancy(detect):
    """Sites × visits in plates; `detect` is the law of what is seen, given z and p."""

    def occupancy(y):
        x = occupancy_priors()
        with numpyro.plate("sites", y.shape[0], dim=-2):
            z = numpyro.sample("z", dist.Bernoulli(x["psi"]))
            with numpyro.plate("visits", y.shape[1], dim=-1):
                numpyro.sample("y", detect(z, x["p"]), obs=y)

    return lambda: sumout.program(occupancy, SITES)


def through_delta(z, p):
    return dist.Bernoulli(numpyro.sample("effective", dist.Delta(z * p)))


DETECTIONS = {
    "product": lambda z, p: dist.Bernoulli(z * p),
    "binomial": lambda z, p: dist.Binomial(1, z * p),
    "clamped": lambda z, p: dist.Bernoulli(clamp_probs(z * p)),
    "where": lambda z, p: dist.Bernoulli(jnp.where(z == 1, p, 0.0)),
    "absent": lambda z, p: dist.Bernoulli(1 - (1 - z * p)),
    "power": lambda z, p: dist.Bernoulli(1 - (1 - p) ** z),
    "power_of_zero": lambda z, p: dist.Bernoulli(p * jnp.power(0.0, 1 - z)),
    "log_of_z": lambda z, p: dist.Bernoulli(jnp.exp(jnp.log(p) + jnp.log(z))),
    "large_logit": lambda z, p: dist.Bernoulli(logits=jnp.where(z == 1, logit(p), -1e3)),
    "delta": through_delta,
    "categorical": lambda z, p: dist.Categorical(probs=jnp.stack([1 - z * p, z * p], axis=-1)),
    "log_categorical": lambda z, p: dist.Categorical(logits=jnp.log(jnp.stack([1 - z * p, z * p], axis=-1))),
    "table": lambda z, p: dist.Categorical(jnp.stack([jnp.stack([1.0, 0.0]), jnp.stack([1 - p, p])])[z]),
}


def occupancy_counts():
    """The visits of a site in one binomial."""

    def occupancy(num_seen):
        x = occupancy_priors()
        with numpyro.plate("sites", len(num_seen)):
            z = numpyro.sample("z", dist.Bernoulli(x["psi"]))
            numpyro.sample("y", dist.Binomial(SITES.shape[1], z * x["p"]), obs=num_seen)

    return sumout.program(occupancy, SITES.sum(1))


def occupancy_counts_marginal(x, counted, tilt):
    num_seen = SITES.sum(1)
    seen = binomial(SITES.shape[1], x["p"], num_seen, counted)
    return jnp.log(either(x["psi"], tilt, seen, nothing(num_seen, counted))).sum()


def occupancy_ever_seen():
    """Only whether the species was seen at all; the visits are multiplied inside of the law."""

    def occupancy(seen):
        x = occupancy_priors()
        with numpyro.plate("sites", len(seen)):
            z = numpyro.sample("z", dist.Bernoulli(x["psi"]))
            overlooked = jnp.prod(1 - z[:, None] * x["p"] * jnp.ones(3), axis=1)
            numpyro.sample("y", dist.Binomial(1, 1 - overlooked), obs=seen)

    return sumout.program(occupancy, SITES.max(1))


def occupancy_ever_seen_marginal(x, counted, tilt):
    seen = SITES.max(1)
    return jnp.log(
        either(x["psi"], tilt, bernoulli(1 - (1 - x["p"]) ** 3, seen, counted), nothing(seen, counted))
    ).sum()


def occupancy_density(log_prob):
    """As a plain density; `log_prob` is that of what was seen, given the probability."""

    def occupancy(x, z, y):
        present = jnp.where(z["z"] == 1, jnp.log(x["psi"]), jnp.log1p(-x["psi"])).sum()
        return present + log_prob(z["z"][:, None] * x["p"], y).sum()

    return lambda: sumout.density(
        occupancy, x={"psi": UNIT, "p": UNIT}, z={"z": sumout.finite(2, len(SITES))}, data=SITES
    )


LOG_PROBS = {
    "law": lambda q, y: dist.Bernoulli(q).log_prob(y),
    "switch": lambda q, y: jnp.where(y == 1, jnp.log(q), jnp.log1p(-q)),
    "log_of_switch": lambda q, y: jnp.log(jnp.where(y == 1, q, 1 - q)),
    "powers": lambda q, y: jnp.log(q**y * (1 - q) ** (1 - y)),
    "products": lambda q, y: jnp.log(y * q + (1 - y) * (1 - q)),
    "xlogy": lambda q, y: xlogy(1.0 * y, q) + xlog1py(1.0 - y, -q),
    "log_odds": lambda q, y: jnp.where(y == 1, logit(q), 0.0) + jnp.log1p(-q),
    "select": lambda q, y: jax.lax.select_n(y == 1, *jnp.broadcast_arrays(jnp.log1p(-q + 0 * y), jnp.log(q))),
    "softmax": lambda q, y: jnp.take_along_axis(
        jax.nn.log_softmax(jnp.log(jnp.stack([1 - q, q])), axis=0), y[None], axis=0
    ),
}


# Occupancy with covariates, and visits that were not made.

BEETLES = histories("beetles")
EDGE, DATES, HOURS = (numbers("beetles", key) for key in ("edge", "dates", "hours"))
MADE = np.arange(BEETLES.shape[1]) < numbers("beetles", "num_visits")[:, None]


def beetles_priors():
    return {
        name: numpyro.sample(name, dist.Normal(0, 2).expand([num]).to_event(1)) for name, num in (("a", 2), ("b", 5))
    }


def beetles_probabilities(x, edge, dates, hours):
    a, b = x["a"], x["b"]
    by_visit = b[0] + b[1] * dates + b[2] * dates**2 + b[3] * hours + b[4] * hours**2
    return jax.nn.sigmoid(a[0] + a[1] * edge), jax.nn.sigmoid(by_visit)


def beetles_marginal(x, counted, tilt):
    psi, p = beetles_probabilities(x, EDGE, DATES, HOURS)
    counted = jnp.where(MADE, counted, 0)
    seen = bernoulli(p, BEETLES, counted).prod(1)
    return jnp.log(either(psi, tilt, seen, nothing(BEETLES, counted).prod(1))).sum()


def beetles(masked):
    """`masked` draws y in one of the ways of leaving visits out."""

    def beetles(y, edge, dates, hours):
        psi, p = beetles_probabilities(beetles_priors(), edge, dates, hours)
        with numpyro.plate("sites", y.shape[0]):
            z = numpyro.sample("z", dist.Bernoulli(psi))
        masked(z, p, y)

    return lambda: sumout.program(beetles, BEETLES, EDGE, DATES, HOURS)


def masked_by_method(z, p, y):
    numpyro.sample("y", dist.Bernoulli(z[:, None] * p).mask(MADE), obs=y)


def masked_by_handler(z, p, y):
    with mask(mask=MADE):
        numpyro.sample("y", dist.Bernoulli(z[:, None] * p), obs=y)


def masked_by_product(z, p, y):
    numpyro.sample("y", dist.Bernoulli(z[:, None] * MADE * p), obs=y)


def logits_of_product(z, p, y):
    """Log odds of −∞ would be not a number in NumPyro itself."""
    numpyro.sample("y", dist.Bernoulli(logits=logit(clamp_probs(z[:, None] * p))).mask(MADE), obs=y)


# Occupancy that changes from year to year: who is gone may come again.

YEARS = numbers("dynamic_occupancy", "num_seen")


def dynamic_priors():
    return {name: numpyro.sample(name, dist.Uniform(0, 1)) for name in ("psi", "stay", "come", "p")}


def dynamic():
    """A Python loop over years."""

    def dynamic(y):
        x = dynamic_priors()
        with numpyro.plate("sites", y.shape[0]):
            z = numpyro.sample("z_0", dist.Bernoulli(x["psi"]))
            numpyro.sample("y_0", dist.Binomial(3, z * x["p"]), obs=y[:, 0])
            for t in range(1, y.shape[1]):
                z = numpyro.sample(f"z_{t}", dist.Bernoulli(z * x["stay"] + (1 - z) * x["come"]))
                numpyro.sample(f"y_{t}", dist.Binomial(3, z * x["p"]), obs=y[:, t])

    return sumout.program(dynamic, YEARS)


def dynamic_marginal(x, counted, tilt):
    absent, present = 1 - x["psi"], x["psi"]
    for t in range(YEARS.shape[1]):
        if t > 0:
            moved = present * (1 - x["stay"]) + absent * (1 - x["come"])
            absent, present = moved, present * x["stay"] + absent * x["come"]
        present = present * jnp.exp(tilt[:, t]) * binomial(3, x["p"], YEARS[:, t], counted[:, t])
        absent = absent * nothing(YEARS[:, t], counted[:, t])
    return jnp.log(absent + present).sum()


# Cormack–Jolly–Seber: survival, from the first capture on.

CAPTURES = histories("survival")
FIRST = CAPTURES.argmax(1)
IS_LATER = np.arange(CAPTURES.shape[1]) > FIRST[:, None]
BEFORE = np.log(2) * (~IS_LATER[:, 1:]).sum()  # of states that are masked, each of two values counts


def cjs_priors():
    return {"phi": numpyro.sample("phi", dist.Uniform(0, 1)), "rho": numpyro.sample("rho", dist.Uniform(0, 1))}


def cjs_marginal(x, counted, tilt, dead=0.0):
    """For animals × occasions, the first occasion left out; `dead` is the weight of being dead when first caught."""
    alive = jnp.ones(len(CAPTURES))
    for t in range(1, CAPTURES.shape[1]):
        y, counts = CAPTURES[:, t], counted[:, t - 1]
        now_dead = (dead + alive * (1 - x["phi"])) * nothing(y, counts)
        now_alive = alive * x["phi"] * jnp.exp(tilt[:, t - 1]) * bernoulli(x["rho"], y, counts)
        dead = jnp.where(IS_LATER[:, t], now_dead, dead)
        alive = jnp.where(IS_LATER[:, t], now_alive, alive)
    return jnp.log(dead + alive).sum()


def cjs_scan_marginal(x, counted, tilt):
    """The mask leaves an animal free to be dead when it is first caught, unless that is at the first occasion."""
    return cjs_marginal(x, counted, tilt, dead=np.where(FIRST > 0, 1.0, 0.0))


def cjs_scan(law):
    """As in NumPyro's example: a scan over occasions, masked until an animal has been caught."""

    def cjs(captures):
        x = cjs_priors()

        def step(carry, y):
            is_caught, z = carry
            with numpyro.plate("animals", captures.shape[0], dim=-1), mask(mask=is_caught):
                z = numpyro.sample("z", law(is_caught * x["phi"] * z + (1 - is_caught)))
                numpyro.sample("y", law(x["rho"] * z), obs=y)
            return (is_caught | y.astype(bool), z), None

        start = captures[:, 0].astype(bool), jnp.ones(captures.shape[0], int)
        scan(step, start, jnp.swapaxes(captures[:, 1:], 0, 1))

    return lambda: sumout.program(cjs, CAPTURES)


def cjs_loop():
    """A Python loop over occasions; before its first capture an animal is taken to be alive."""

    def cjs(captures, first):
        x = cjs_priors()
        with numpyro.plate("animals", captures.shape[0]):
            z = 1
            for t in range(1, captures.shape[1]):
                with mask(mask=t > first):
                    z = numpyro.sample(f"z_{t}", dist.Bernoulli(jnp.where(t - 1 > first, z, 1) * x["phi"]))
                    numpyro.sample(f"y_{t}", dist.Bernoulli(z * x["rho"]), obs=captures[:, t])

    return sumout.program(cjs, CAPTURES, FIRST)


def cjs_array(log_prob):
    """All states in one array, as JAGS has them."""

    def cjs(x, z, captures):
        before = jnp.where(IS_LATER[:, :-1], z["z"][:, :-1], 1)  # alive when first caught
        survival = log_prob(x["phi"] * before, z["z"][:, 1:])
        recapture = log_prob(x["rho"] * z["z"][:, 1:], captures[:, 1:])
        return jnp.where(IS_LATER[:, 1:], survival + recapture, 0.0).sum()

    z = {"z": sumout.finite(2, CAPTURES.shape)}
    return lambda: sumout.density(cjs, x={"phi": UNIT, "rho": UNIT}, z=z, data=CAPTURES)


# Populations that are closed: animals that might be there, and those that are.


def unseen_at_first(y):
    """Whether each animal was caught on an earlier occasion."""
    return np.cumsum(y, axis=1) - y > 0


def closed_marginal(y, omega, p, counted, tilt):
    seen = bernoulli(p, y, counted).prod(1)
    return jnp.log(either(omega, tilt, seen, nothing(y, counted).prod(1))).sum()


M0 = histories("m0")


def m0_priors():
    return {"omega": numpyro.sample("omega", dist.Uniform(0, 1)), "p": numpyro.sample("p", dist.Uniform(0, 1))}


def m0():
    """One probability for all."""

    def m0(y):
        x = m0_priors()
        with numpyro.plate("animals", y.shape[0]):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            numpyro.sample("y", dist.Bernoulli(z[:, None] * x["p"]).expand([*y.shape]).to_event(1), obs=y)
        numpyro.deterministic("N", z.sum())

    return sumout.program(m0, M0)


MB = histories("mb")


def mb_priors():
    return {name: numpyro.sample(name, dist.Uniform(0, 1)) for name in ("omega", "p", "c")}


def mb():
    """Animals that have been caught before are caught with another probability."""

    def mb(y, was_caught):
        x = mb_priors()
        with numpyro.plate("animals", y.shape[0], dim=-2):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            with numpyro.plate("occasions", y.shape[1], dim=-1):
                p = (1 - was_caught) * x["p"] + was_caught * x["c"]
                numpyro.sample("y", dist.Bernoulli(z * p), obs=y)

    return sumout.program(mb, MB, unseen_at_first(MB).astype(int))


MH = numbers("mh", "num_seen")


def mh_priors():
    return {
        "omega": numpyro.sample("omega", dist.Uniform(0, 1)),
        "mean_p": numpyro.sample("mean_p", dist.Beta(2, 2)),
        "sigma": numpyro.sample("sigma", dist.Gamma(4, 4)),
        "eps": numpyro.sample("eps", dist.Normal(0, 1).expand([len(MH)]).to_event(1)),
    }


def mh():
    """Every animal has a probability of its own."""

    def mh(num_seen):
        x = mh_priors()
        p = jax.nn.sigmoid(logit(x["mean_p"]) + x["sigma"] * x["eps"])
        with numpyro.plate("animals", len(num_seen)):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            numpyro.sample("y", dist.Binomial(5, z * p), obs=num_seen)
        numpyro.deterministic("N", z.sum())

    return sumout.program(mh, MH)


def mh_marginal(x, counted, tilt):
    p = jax.nn.sigmoid(logit(x["mean_p"]) + x["sigma"] * x["eps"])
    return jnp.log(either(x["omega"], tilt, binomial(5, p, MH, counted), nothing(MH, counted))).sum()


MTBH = histories("mtbh")


def mtbh_priors():
    return {
        "omega": numpyro.sample("omega", dist.Uniform(0, 1)),
        "mean_p": numpyro.sample("mean_p", dist.Beta(2, 2).expand([5]).to_event(1)),
        "gamma": numpyro.sample("gamma", dist.Normal(0, 1)),
        "sigma": numpyro.sample("sigma", dist.Gamma(4, 4)),
        "eps": numpyro.sample("eps", dist.Normal(0, 1).expand([len(MTBH)]).to_event(1)),
    }


def mtbh_probabilities(x):
    was_caught = unseen_at_first(MTBH)
    return jax.nn.sigmoid(logit(x["mean_p"]) + x["sigma"] * x["eps"][:, None] + x["gamma"] * was_caught)


def mtbh():
    """Time, behaviour and heterogeneity."""

    def mtbh(y):
        x = mtbh_priors()
        with numpyro.plate("animals", y.shape[0]):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            numpyro.sample("y", dist.Bernoulli(z[:, None] * mtbh_probabilities(x)).to_event(1), obs=y)

    return sumout.program(mtbh, MTBH)


# Several species at several sites, and species nobody has seen.

SPECIES = np.concatenate([numbers("butterflies", "num_seen"), np.zeros((4, 6), int)])
NUM_VISITS = STORED["butterflies"]["num_visits"]


def species_priors():
    return {
        "omega": numpyro.sample("omega", dist.Uniform(0, 1)),
        "centre": numpyro.sample("centre", dist.Normal(0, 1.5).expand([2]).to_event(1)),
        "spread": numpyro.sample("spread", dist.Gamma(4, 4).expand([2]).to_event(1)),
        "effects": numpyro.sample("effects", dist.Normal(0, 1).expand([len(SPECIES), 2]).to_event(2)),
    }


def species_probabilities(x):
    return jax.nn.sigmoid(x["centre"] + x["spread"] * x["effects"]).T[:, :, None]


def species(is_nested):
    """An indicator w for each species, one z for each of its sites; z of a species that is not there is 0, or idle."""

    def species(y):
        x = species_priors()
        psi, p = species_probabilities(x)
        with numpyro.plate("species", y.shape[0], dim=-2):
            w = numpyro.sample("w", dist.Bernoulli(x["omega"]))
            with numpyro.plate("sites", y.shape[1], dim=-1):
                z = numpyro.sample("z", dist.Bernoulli(w * psi if is_nested else psi + 0 * y))
                numpyro.sample("y", dist.Binomial(NUM_VISITS, z * p if is_nested else w * z * p), obs=y)

    return lambda: sumout.program(species, SPECIES)


def species_marginal(is_nested):
    def marginal(x, counted, tilt):
        psi, p = species_probabilities(x)
        unseen = nothing(SPECIES, counted)
        there = either(psi, tilt, binomial(NUM_VISITS, p, SPECIES, counted), unseen).prod(1)
        elsewhere = (unseen if is_nested else either(psi, tilt, unseen, unseen)).prod(1)
        return jnp.log(x["omega"] * there + (1 - x["omega"]) * elsewhere).sum()

    return marginal


# Jolly–Seber as a restricted occupancy model: who has not come yet may come, who has left stays away.

COMING = histories("jolly_seber")


def js_priors():
    return {
        "gamma": numpyro.sample("gamma", dist.Uniform(0, 1).expand([COMING.shape[1]]).to_event(1)),
        "phi": numpyro.sample("phi", dist.Uniform(0, 1)),
        "p": numpyro.sample("p", dist.Uniform(0, 1)),
    }


def js():
    """A Python loop, with the product of all earlier 1 − z."""

    def js(y):
        x = js_priors()
        with numpyro.plate("animals", y.shape[0]):
            z, not_yet = jnp.zeros(y.shape[0], int), 1
            for t in range(y.shape[1]):
                z = numpyro.sample(f"z_{t}", dist.Bernoulli(x["phi"] * z + x["gamma"][t] * not_yet))
                not_yet = not_yet * (1 - z)
                numpyro.sample(f"y_{t}", dist.Bernoulli(z * x["p"]), obs=y[:, t])

    return sumout.program(js, COMING)


def js_scan():
    """The same through a scan."""

    def js(y):
        x = js_priors()

        def step(carry, now):
            z, not_yet = carry
            gamma, y = now
            with numpyro.plate("animals", COMING.shape[0]):
                z = numpyro.sample("z", dist.Bernoulli(x["phi"] * z + gamma * not_yet))
                numpyro.sample("y", dist.Bernoulli(z * x["p"]), obs=y)
            return (z, not_yet * (1 - z)), None

        start = jnp.zeros(y.shape[0], int), jnp.ones(y.shape[0], int)
        scan(step, start, (x["gamma"], y.T))

    return sumout.program(js, COMING)


def js_array():
    """All states in one array."""

    def js(x, z, y):
        z = z["z"]
        earlier = jnp.concatenate([jnp.zeros((len(z), 1), int), z[:, :-1]], axis=1)
        not_yet = jnp.cumprod(1 - earlier, axis=1)
        enters = dist.Bernoulli(x["phi"] * earlier + x["gamma"] * not_yet).log_prob(z)
        return enters.sum() + dist.Bernoulli(z * x["p"]).log_prob(y).sum()

    x = {"gamma": (constraints.unit_interval, (COMING.shape[1],)), "phi": UNIT, "p": UNIT}
    return sumout.density(js, x=x, z={"z": sumout.finite(2, COMING.shape)}, data=COMING)


def js_marginal(x, counted, tilt):
    waiting, alive, left = jnp.ones(len(COMING)), 0.0, 0.0
    for t in range(COMING.shape[1]):
        unseen = nothing(COMING[:, t], counted[:, t])
        left = (left + alive * (1 - x["phi"])) * unseen
        alive = alive * x["phi"] + waiting * x["gamma"][t]
        alive = alive * jnp.exp(tilt[:, t]) * bernoulli(x["p"], COMING[:, t], counted[:, t])
        waiting = waiting * (1 - x["gamma"][t]) * unseen
    return jnp.log(waiting + alive + left).sum()


# Regressions with more zeros than there should be.

RNG = np.random.default_rng(19)
COVARIATE = np.linspace(-1, 1, 40).round(2)
CATCH = RNG.binomial(1, 0.6, 40) * RNG.poisson(np.exp(0.8 + 0.7 * COVARIATE))
TRIALS = RNG.integers(1, 8, 40)
HATCHED = RNG.binomial(1, 0.7, 40) * RNG.binomial(TRIALS, 0.5 + 0.2 * COVARIATE)


def inflated_priors():
    return {
        "a": numpyro.sample("a", dist.Normal(0, 1.5).expand([2]).to_event(1)),
        "b": numpyro.sample("b", dist.Normal(0, 1.5).expand([2]).to_event(1)),
    }


def inflated_predictors(x, covariate):
    """The probability of being there, and the linear predictor of how much then."""
    return jax.nn.sigmoid(x["a"][0] + x["a"][1] * covariate), x["b"][0] + x["b"][1] * covariate


def inflated(law, y):
    def inflated(y, covariate, trials):
        there, predictor = inflated_predictors(inflated_priors(), covariate)
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(there))
            numpyro.sample("y", law(z, predictor, trials), obs=y)

    return lambda: sumout.program(inflated, y, COVARIATE, TRIALS)


POISSONS = {
    "product": lambda z, predictor, _: dist.Poisson(z * jnp.exp(predictor)),
    "where": lambda z, predictor, _: dist.Poisson(jnp.where(z, jnp.exp(predictor), 0.0)),
    "log_of_z": lambda z, predictor, _: dist.Poisson(jnp.exp(predictor + jnp.log(z))),
    "power_of_zero": lambda z, predictor, _: dist.Poisson(jnp.exp(predictor) * jnp.power(0.0, 1.0 - z)),
    "power": lambda z, predictor, _: dist.Poisson(jnp.exp(predictor) ** z - (1 - z)),
}
BINOMIALS = {
    "product": lambda z, predictor, trials: dist.Binomial(trials, z * jax.nn.sigmoid(predictor)),
    "trials": lambda z, predictor, trials: dist.Binomial(trials * z, jax.nn.sigmoid(predictor)),
    "logits": lambda z, predictor, trials: dist.Binomial(trials, logits=jnp.where(z == 1, predictor, -1e3)),
}


def inflated_poisson_density():
    """A plain density with the logarithm of z · rate."""

    def inflated(x, z, data):
        y = data["y"]
        there, predictor = inflated_predictors(x, data["covariate"])
        prior = dist.Normal(0, 1.5).log_prob(jnp.concatenate([x["a"], x["b"]])).sum()
        rate = z["z"] * jnp.exp(predictor)
        state = jnp.where(z["z"] == 1, jnp.log(there), jnp.log1p(-there))
        return prior + (state + xlogy(1.0 * y, rate) - rate - gammaln(y + 1.0)).sum()

    x = {"a": (constraints.real, (2,)), "b": (constraints.real, (2,))}
    return sumout.density(
        inflated, x=x, z={"z": sumout.finite(2, len(CATCH))}, data={"y": CATCH, "covariate": COVARIATE}
    )


def inflated_poisson_marginal(x, counted, tilt):
    there, predictor = inflated_predictors(x, COVARIATE)
    return jnp.log(either(there, tilt, poisson(jnp.exp(predictor), CATCH, counted), nothing(CATCH, counted))).sum()


def inflated_binomial_marginal(x, counted, tilt):
    there, predictor = inflated_predictors(x, COVARIATE)
    each = binomial(TRIALS, jax.nn.sigmoid(predictor), HATCHED, counted)
    return jnp.log(either(there, tilt, each, nothing(HATCHED, counted))).sum()


# Counts of an abundance that is not known, at sites of which some are not lived in.

COUNTS = numbers("abundance", "counts")
MOST = 20


def abundance_priors():
    return {
        "omega": numpyro.sample("omega", dist.Uniform(0, 1)),
        "rate": numpyro.sample("rate", dist.Gamma(4, 1.5)),
        "p": numpyro.sample("p", dist.Beta(6, 4)),
    }


def observe_counts(n, p, y):
    with numpyro.plate("visits", y.shape[0], dim=-2):
        numpyro.sample("y", dist.Binomial(n, p), obs=y)


def abundance_uniform():
    """The abundance uniform to a bound, its law as a factor."""

    def abundance(y):
        x = abundance_priors()
        with numpyro.plate("sites", y.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            n = numpyro.sample("n", dist.DiscreteUniform(0, MOST))
            numpyro.factor("law", dist.Poisson(z * x["rate"]).log_prob(n))
            observe_counts(n, x["p"], y)

    return sumout.program(abundance, COUNTS.T)


def abundance_category():
    """The abundance a category, with the probabilities of a Poisson law that ends at a bound."""

    def abundance(y):
        x = abundance_priors()
        with numpyro.plate("sites", y.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            laws = dist.Poisson((z * x["rate"])[:, None]).log_prob(jnp.arange(MOST + 1))
            n = numpyro.sample("n", dist.Categorical(logits=laws))
            observe_counts(n, x["p"], y)

    return sumout.program(abundance, COUNTS.T)


def abundance_binomial():
    """So many of a known number of places are lived in, and none where z is 0."""

    def abundance(y):
        x = abundance_priors()
        with numpyro.plate("sites", y.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            n = numpyro.sample("n", dist.Binomial(8, z * x["rate"] / (1 + x["rate"])))
            observe_counts(n, x["p"], y)

    return sumout.program(abundance, COUNTS.T)


def abundance_counts():
    """The abundance a count without a bound, which can only be drawn."""

    def abundance(y):
        x = abundance_priors()
        with numpyro.plate("sites", y.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(x["omega"]))
            n = numpyro.sample("n", dist.Poisson(z * x["rate"]))
            observe_counts(n, x["p"], y)

    return sumout.program(abundance, COUNTS.T)


def abundance_marginal(law, most):
    """`law` gives the probabilities of n = 0, 1, … where the site is lived in."""

    def marginal(x, counted, tilt):
        n = jnp.arange(most + 1)[:, None, None]
        possible = jnp.maximum(n - COUNTS.T, 0)
        choose = jnp.exp(gammaln(n + 1) - gammaln(COUNTS.T + 1) - gammaln(possible + 1))
        each = jnp.where(n >= COUNTS.T, choose * x["p"] ** COUNTS.T * (1 - x["p"]) ** possible, 0.0)
        observed = jnp.where(counted > 0, each, 1.0).prod(1)
        lived_in = (law(x, jnp.arange(most + 1))[:, None] * observed).sum(0)
        return jnp.log(either(x["omega"], tilt, lived_in, observed[0])).sum()

    return marginal


def poisson_law(x, n):
    return poisson(x["rate"], n, jnp.ones(n.shape))


def bounded_poisson_law(x, n):
    return poisson_law(x, n) / poisson_law(x, n).sum()


def binomial_law(x, n):
    return binomial(8, x["rate"] / (1 + x["rate"]), n, jnp.ones(n.shape))


def stacked(letter, count, first=0):
    """Arrays z_0, z_1, … as columns of one."""
    return lambda named: jnp.stack([jnp.asarray(named[f"{letter}_{t}"]) for t in range(first, count)], axis=1)


def _collect() -> dict[str, Ecology]:
    one_each = {"num_data": (40,), "num_z": (40,)}
    num_sites = len(SITES)
    found = {
        f"occupancy_{name}": Ecology(
            occupancy(detect), occupancy_priors, occupancy_marginal, SITES.shape, (num_sites,),
            z=lambda named: named["z"][:, 0],
        )
        for name, detect in DETECTIONS.items()
    }  # fmt: skip
    found |= {
        f"occupancy_density_{name}": Ecology(
            occupancy_density(log_prob), occupancy_priors, occupancy_marginal, SITES.shape, (num_sites,), data=None
        )
        for name, log_prob in LOG_PROBS.items()
    }
    found["occupancy_counts"] = Ecology(
        occupancy_counts, occupancy_priors, occupancy_counts_marginal, (num_sites,), (num_sites,)
    )
    found["occupancy_ever_seen"] = Ecology(
        occupancy_ever_seen, occupancy_priors, occupancy_ever_seen_marginal, (num_sites,), (num_sites,)
    )
    masks = (masked_by_method, masked_by_handler, masked_by_product, logits_of_product)
    found |= {
        f"beetles_{way.__name__}": Ecology(
            beetles(way), beetles_priors, beetles_marginal, BEETLES.shape, (len(BEETLES),)
        )
        for way in masks
    }
    num_years = YEARS.shape[1]
    found["dynamic"] = Ecology(
        dynamic, dynamic_priors, dynamic_marginal, YEARS.shape, YEARS.shape,
        data=stacked("y", num_years), z=stacked("z", num_years),
    )  # fmt: skip
    later = (len(CAPTURES), CAPTURES.shape[1] - 1)
    laws = {"": dist.Bernoulli, "_clamped": lambda p: dist.Bernoulli(clamp_probs(p))}
    found |= {
        f"cjs_scan{name}": Ecology(
            cjs_scan(law), cjs_priors, cjs_scan_marginal, later, later,
            data=lambda named: jnp.asarray(named["y"]).T, z=lambda named: jnp.asarray(named["z"]).T,
            constant=BEFORE - np.log(2) * (FIRST > 0).sum(),
        )
        for name, law in laws.items()
    }  # fmt: skip
    found["cjs_loop"] = Ecology(
        cjs_loop, cjs_priors, cjs_marginal, later, later,
        data=stacked("y", CAPTURES.shape[1], 1), z=stacked("z", CAPTURES.shape[1], 1), constant=BEFORE,
    )  # fmt: skip
    found |= {
        f"cjs_array_{name}": Ecology(
            cjs_array(LOG_PROBS[name]), cjs_priors, cjs_marginal, later, later,
            data=None, z=lambda named: named["z"][:, 1:], constant=BEFORE + np.log(2) * len(CAPTURES),
        )
        for name in ("law", "switch")
    }  # fmt: skip
    found["m0"] = Ecology(
        m0, m0_priors, lambda x, *rest: closed_marginal(M0, x["omega"], x["p"], *rest), (len(M0), 1), (len(M0),),
        data=lambda named: named["y"][:, None],
    )  # fmt: skip
    found["mb"] = Ecology(
        mb, mb_priors,
        lambda x, *rest: closed_marginal(MB, x["omega"], jnp.where(unseen_at_first(MB), x["c"], x["p"]), *rest),
        MB.shape, (len(MB),), z=lambda named: named["z"][:, 0],
    )  # fmt: skip
    found["mh"] = Ecology(mh, mh_priors, mh_marginal, MH.shape, MH.shape)
    found["mtbh"] = Ecology(
        mtbh, mtbh_priors, lambda x, *rest: closed_marginal(MTBH, x["omega"], mtbh_probabilities(x), *rest),
        (len(MTBH), 1), (len(MTBH),), data=lambda named: named["y"][:, None],
    )  # fmt: skip
    found |= {
        f"species_{'nested' if nested else 'product'}": Ecology(
            species(nested), species_priors, species_marginal(nested), SPECIES.shape, SPECIES.shape,
            data=(lambda named: named["y"]) if nested else None,
        )
        for nested in (True, False)
    }  # fmt: skip
    found["js_loop"] = Ecology(
        js, js_priors, js_marginal, COMING.shape, COMING.shape, data=stacked("y", 4), z=stacked("z", 4)
    )
    found["js_scan"] = Ecology(
        js_scan, js_priors, js_marginal, COMING.shape, COMING.shape,
        data=lambda named: jnp.asarray(named["y"]).T, z=lambda named: jnp.asarray(named["z"]).T,
    )  # fmt: skip
    found["js_array"] = Ecology(js_array, js_priors, js_marginal, COMING.shape, COMING.shape, data=None)
    found |= {
        f"inflated_poisson_{name}": Ecology(
            inflated(law, CATCH), inflated_priors, inflated_poisson_marginal, **one_each
        )
        for name, law in POISSONS.items()
    }
    found["inflated_poisson_density"] = Ecology(
        inflated_poisson_density, inflated_priors, inflated_poisson_marginal, **one_each, data=None
    )
    found |= {
        f"inflated_binomial_{name}": Ecology(
            inflated(law, HATCHED), inflated_priors, inflated_binomial_marginal, **one_each
        )
        for name, law in BINOMIALS.items()
    }
    visits, sites = COUNTS.T.shape, (len(COUNTS),)
    found["abundance_uniform"] = Ecology(
        abundance_uniform, abundance_priors, abundance_marginal(poisson_law, MOST), visits, sites,
        constant=-np.log(MOST + 1) * len(COUNTS),
    )  # fmt: skip
    found["abundance_category"] = Ecology(
        abundance_category, abundance_priors, abundance_marginal(bounded_poisson_law, MOST), visits, sites
    )
    found["abundance_binomial"] = Ecology(
        abundance_binomial, abundance_priors, abundance_marginal(binomial_law, 8), visits, sites
    )
    return found


ECOLOGY = _collect()
DRAWN = {
    "abundance_counts": Ecology(
        abundance_counts, abundance_priors, abundance_marginal(poisson_law, 60), COUNTS.T.shape, (len(COUNTS),)
    )
}
