"""Five models from ecology on published data: z left in, z summed out by hand in JAX, and in BUGS with z left in.

Data and their sources are in `ecology.json`. Capture–recapture and multistate models are those of `gradients.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from numpyro.contrib.control_flow import scan

from benchmarks import gradients

MOST_ANIMALS = 100  # at a site, for the sum by hand


@dataclass(frozen=True)
class Ecology:
    """A model in its forms.

    Attributes:
        left_in: the NumPyro model with z left in.
        by_hand: with z summed out by hand.
        data: arguments of both.
        parameters: what is compared; BUGS has the same names.
        bugs: the program.
        bugs_data: its data.
        starts: of z in BUGS.
    """

    left_in: Callable[..., None]
    by_hand: Callable[..., None]
    data: tuple[Any, ...]
    parameters: tuple[str, ...]
    bugs: str
    bugs_data: dict[str, Any]
    starts: dict[str, Any]


def read_rows(name: str) -> np.ndarray:
    """The published observations, a row for each site or animal."""
    rows = json.loads((Path(__file__).parent / "ecology.json").read_text())[name]["y"]
    return np.array([[int(digit) for digit in row] for row in rows])


def first_seen(y: np.ndarray) -> np.ndarray:
    """The first occasion on which each animal was seen."""
    return np.argmax(y > 0, axis=1)


def after_first(values: np.ndarray, first: np.ndarray) -> Any:
    """Values of the occasions after the first; the others are missing."""
    return np.ma.masked_array(values, np.arange(values.shape[1]) <= first[:, None])


def site_occupancy() -> Ecology:
    y = read_rows("site_occupancy")

    def priors():
        return numpyro.sample("psi", dist.Uniform(0, 1)), numpyro.sample("p", dist.Uniform(0, 1))

    def left_in(y):
        psi, p = priors()
        with numpyro.plate("sites", len(y), dim=-2):
            z = numpyro.sample("z", dist.Bernoulli(psi))
            with numpyro.plate("visits", y.shape[1], dim=-1):
                numpyro.sample("y", dist.Bernoulli(z * p), obs=y)

    def by_hand(y):
        psi, p = priors()
        seen = y.sum(1)
        present = jnp.log(psi) + seen * jnp.log(p) + (y.shape[1] - seen) * jnp.log1p(-p)
        numpyro.factor("y", jnp.logaddexp(present, jnp.where(seen > 0, -jnp.inf, jnp.log1p(-psi))).sum())

    bugs = """model {
        psi ~ dunif(0, 1)
        p ~ dunif(0, 1)
        for (i in 1:n) {
            z[i] ~ dbern(psi)
            for (j in 1:visits) { y[i, j] ~ dbern(z[i] * p) }
        }
    }"""
    bugs_data = {"y": y, "n": len(y), "visits": y.shape[1]}
    return Ecology(left_in, by_hand, (y,), ("psi", "p"), bugs, bugs_data, {"z": y.max(1)})


def cjs() -> Ecology:
    y = read_rows("cjs")
    y = y[first_seen(y) < y.shape[1] - 1]
    first, forms = first_seen(y), gradients.cjs(1)
    bugs = """model {
        for (t in 1:(times - 1)) { phi[t] ~ dunif(0, 1) }
        p ~ dunif(0, 1)
        for (i in 1:n) {
            z[i, first[i]] <- 1
            for (t in (first[i] + 1):times) {
                z[i, t] ~ dbern(phi[t - 1] * z[i, t - 1])
                y[i, t] ~ dbern(p * z[i, t])
            }
        }
    }"""
    bugs_data = {"y": y, "first": first + 1, "n": len(y), "times": y.shape[1]}
    starts = {"z": after_first(np.ones_like(y), first)}
    return Ecology(forms.model, forms.by_hand, (y, first), ("phi", "p"), bugs, bugs_data, starts)


def multistate() -> Ecology:
    coded = read_rows("multistate")  # 1 and 2 are places, 3 is not seen
    y = np.where(coded == 3, 0, coded)
    y = y[first_seen(y) < y.shape[1] - 1]
    first, forms = first_seen(y), gradients.multistate(1)
    start = y[np.arange(len(y)), first] - 1
    known = y.copy()
    for t in range(1, y.shape[1]):
        known[:, t] = np.where(known[:, t] == 0, known[:, t - 1], known[:, t])
    bugs = """model {
        for (k in 1:2) {
            phi[k] ~ dunif(0, 1)
            psi[k] ~ dunif(0, 1)
            p[k] ~ dunif(0, 1)
            seen[k, 1] <- 1 - p[k]
        }
        moves[1, 1] <- phi[1] * (1 - psi[1])
        moves[1, 2] <- phi[1] * psi[1]
        moves[1, 3] <- 1 - phi[1]
        moves[2, 1] <- phi[2] * psi[2]
        moves[2, 2] <- phi[2] * (1 - psi[2])
        moves[2, 3] <- 1 - phi[2]
        moves[3, 1] <- 0
        moves[3, 2] <- 0
        moves[3, 3] <- 1
        seen[1, 2] <- p[1]
        seen[1, 3] <- 0
        seen[2, 2] <- 0
        seen[2, 3] <- p[2]
        seen[3, 1] <- 1
        seen[3, 2] <- 0
        seen[3, 3] <- 0
        for (i in 1:n) {
            z[i, first[i]] <- start[i]
            for (t in (first[i] + 1):times) {
                z[i, t] ~ dcat(moves[z[i, t - 1], ])
                y[i, t] ~ dcat(seen[z[i, t], ])
            }
        }
    }"""
    bugs_data = {"y": y + 1, "first": first + 1, "start": start + 1, "n": len(y), "times": y.shape[1]}
    starts = {"z": after_first(known, first)}
    return Ecology(forms.model, forms.by_hand, (y, first, start), ("phi", "psi", "p"), bugs, bugs_data, starts)


def dynamic_occupancy() -> Ecology:
    y, days = read_rows("dynamic_occupancy"), 3
    years = y.shape[1]

    def priors():
        each = dist.Uniform(0, 1)
        psi = numpyro.sample("psi", each)
        stay = numpyro.sample("stay", each.expand([years - 1]).to_event(1))
        settle = numpyro.sample("settle", each.expand([years - 1]).to_event(1))
        return psi, stay, settle, numpyro.sample("p", each.expand([years]).to_event(1))

    def left_in(y):
        psi, stay, settle, p = priors()
        with numpyro.plate("sites", len(y)):
            z = numpyro.sample("z_1", dist.Bernoulli(psi))
            numpyro.sample("y_1", dist.Binomial(days, z * p[0]), obs=y[:, 0])

        def step(before, parts):
            y, stay, settle, p = parts
            with numpyro.plate("sites", len(y)):
                z = numpyro.sample("z", dist.Bernoulli(jnp.where(before == 1, stay, settle)))
                numpyro.sample("y", dist.Binomial(days, z * p), obs=y)
            return z, None

        scan(step, z, (y[:, 1:].T, stay, settle, p[1:]))

    def by_hand(y):
        psi, stay, settle, p = priors()
        seen = y.T
        present = jnp.exp(dist.Binomial(days, p[:, None]).log_prob(seen))

        def step(alpha, parts):
            seen, present, stay, settle = parts
            there = (alpha[0] * settle + alpha[1] * stay) * present
            return jnp.stack([(alpha[0] * (1 - settle) + alpha[1] * (1 - stay)) * (seen == 0), there]), None

        begin = jnp.stack([(1 - psi) * (seen[0] == 0), psi * present[0]])
        alpha, _ = jax.lax.scan(step, begin, (seen[1:], present[1:], stay, settle))
        numpyro.factor("y", jnp.log(alpha.sum(0)).sum())

    bugs = """model {
        psi ~ dunif(0, 1)
        for (t in 1:(years - 1)) {
            stay[t] ~ dunif(0, 1)
            settle[t] ~ dunif(0, 1)
        }
        for (t in 1:years) { p[t] ~ dunif(0, 1) }
        for (i in 1:n) {
            z[i, 1] ~ dbern(psi)
            for (t in 2:years) { z[i, t] ~ dbern(z[i, t - 1] * stay[t - 1] + (1 - z[i, t - 1]) * settle[t - 1]) }
            for (t in 1:years) { y[i, t] ~ dbin(z[i, t] * p[t], days) }
        }
    }"""
    bugs_data = {"y": y, "n": len(y), "years": years, "days": days}
    starts = {"z": (y > 0).astype(int)}
    return Ecology(left_in, by_hand, (y,), ("psi", "stay", "settle", "p"), bugs, bugs_data, starts)


def n_mixture() -> Ecology:
    y = read_rows("n_mixture")

    def priors():
        return numpyro.sample("rate", dist.Gamma(1, 0.1)), numpyro.sample("p", dist.Uniform(0, 1))

    def left_in(y):
        rate, p = priors()
        with numpyro.plate("sites", len(y), dim=-2):
            animals = numpyro.sample("animals", dist.Poisson(rate))
            with numpyro.plate("visits", y.shape[1], dim=-1):
                numpyro.sample("y", dist.Binomial(animals, p), obs=y)

    def by_hand(y):
        rate, p = priors()
        animals = jnp.arange(MOST_ANIMALS + 1)
        fits = y.max(1)[:, None] <= animals
        choose = gammaln(animals + 1) - gammaln(y[..., None] + 1) - gammaln(jnp.maximum(animals - y[..., None], 0) + 1)
        seen, trials = y.sum(1)[:, None], y.shape[1] * animals
        terms = choose.sum(1) + seen * jnp.log(p) + (trials - seen) * jnp.log1p(-p)
        terms += animals * jnp.log(rate) - rate - gammaln(animals + 1)
        numpyro.factor("y", logsumexp(jnp.where(fits, terms, -jnp.inf), axis=1).sum())

    bugs = """model {
        rate ~ dgamma(1, 0.1)
        p ~ dunif(0, 1)
        for (i in 1:n) {
            animals[i] ~ dpois(rate)
            for (j in 1:visits) { y[i, j] ~ dbin(p, animals[i]) }
        }
    }"""
    bugs_data = {"y": y, "n": len(y), "visits": y.shape[1]}
    return Ecology(left_in, by_hand, (y,), ("rate", "p"), bugs, bugs_data, {"animals": y.max(1) + 1})


MODELS = {make.__name__: make for make in (site_occupancy, cjs, multistate, dynamic_occupancy, n_mixture)}
