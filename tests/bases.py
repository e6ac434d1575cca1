"""Small good models, to be spoilt: NumPyro models of one argument y, and plain densities."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout


@dataclass(frozen=True)
class Model:
    """A NumPyro model and its data."""

    model: Callable[[Any], None]
    y: np.ndarray

    @property
    def name(self) -> str:
        return self.model.__name__


@dataclass(frozen=True)
class Density:
    """A plain density, its variables and its data."""

    log_density: Callable[..., Any]
    x: dict
    z: dict
    y: Any

    @property
    def name(self) -> str:
        return self.log_density.__name__


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)


def survey(y):
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    with numpyro.plate("employees", len(y)):
        coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Bernoulli(jnp.where(coin, theta, 0.5)), obs=y)


def chain(y):
    stay = numpyro.sample("stay", dist.Beta(2, 2))
    rows = jnp.array([[stay, 1 - stay], [1 - stay, stay]])

    def step(previous, y):
        state = numpyro.sample("state", dist.Categorical(rows[previous]))
        numpyro.sample("y", dist.Normal(2.0 * state, 1.0), obs=y)
        return state, None

    scan(step, 0, y)


def switch_point(y):
    early = numpyro.sample("early", dist.Gamma(2, 1))
    late = numpyro.sample("late", dist.Gamma(2, 1))
    when = numpyro.sample("when", dist.DiscreteUniform(1, 5))
    numpyro.sample("y", dist.Poisson(jnp.where(jnp.arange(6) < when, early, late)), obs=y)


def selection(y):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([3]))
    gamma = numpyro.sample("gamma", dist.Bernoulli(0.3).expand([3]))
    design = jnp.cos(jnp.arange(18.0)).reshape(6, 3)
    numpyro.sample("y", dist.Normal(design @ (gamma * beta), 1.0), obs=y)


def groups(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    level = numpyro.sample("level", dist.StudentT(3, 0, 2).expand([3]))
    with numpyro.plate("rows", len(y)):
        kind = numpyro.sample("kind", dist.Categorical(weights))
        numpyro.sample("y", dist.Laplace(level[kind], 1.0), obs=y)


def abundance(y):
    p = numpyro.sample("p", dist.Beta(4, 4))
    n = numpyro.sample("n", dist.Poisson(8.0))
    with numpyro.plate("visits", len(y)):
        numpyro.sample("y", dist.Binomial(n, p), obs=y)


def failures(y):
    rate = numpyro.sample("rate", dist.LogNormal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("machines", len(y)):
        worn = numpyro.sample("worn", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Exponential(rate[worn]), obs=y)


MODELS = (
    Model(mixture, np.array([-1.0, 0.9, 1.1, -0.8])),
    Model(survey, np.array([1, 0, 1, 1, 0])),
    Model(chain, np.cos(np.arange(5)) + 1),
    Model(switch_point, np.array([5, 7, 5, 2, 1, 0])),
    Model(selection, np.sin(np.arange(6))),
    Model(groups, np.array([0.1, 2.0, -1.4, 3.0])),
    Model(abundance, np.array([3, 5, 2])),
    Model(failures, np.array([0.2, 1.4, 0.7])),
)


def coins(x, z, y):
    honest = dist.Bernoulli(x["theta"]).log_prob(y)
    return jnp.where(z["coin"], honest, jnp.log(0.5)).sum()


def lattice(x, z, y):
    s = z["s"]
    equal = (s[1:] == s[:-1]).sum() + (s[:, 1:] == s[:, :-1]).sum()
    return x["coupling"] * equal + dist.Normal(s, 1.0).log_prob(y).sum() + dist.Normal(0, 1).log_prob(x["coupling"])


def path(x, z, y):
    rows = jax.nn.log_softmax(x["logits"])
    moves = rows[z["state"][:-1], z["state"][1:]].sum()
    return moves + dist.Normal(z["state"], 0.5).log_prob(y).sum() + dist.Normal(0, 2).log_prob(x["logits"]).sum()


def levels(x, z, y):
    prior = dist.Normal(0, 2).log_prob(x["mu"]) + dist.Gamma(2, 2).log_prob(x["sigma"])
    return prior + dist.Normal(x["mu"] + z["level"], x["sigma"]).log_prob(y).sum()


DENSITIES = (
    Density(
        coins, {"theta": (constraints.unit_interval, ())}, {"coin": sumout.finite([False, True], 4)},
        np.array([1, 0, 1, 1]),
    ),
    Density(lattice, {"coupling": (constraints.real, ())}, {"s": sumout.finite(2, (2, 3))}, np.ones((2, 3)) / 2),
    Density(path, {"logits": (constraints.real, (2, 2))}, {"state": sumout.finite(2, 5)}, np.sin(np.arange(5.0))),
    Density(
        levels, {"mu": (constraints.real, ()), "sigma": (constraints.positive, ())},
        {"level": sumout.finite([-1.5, 0.0, 2.5], 4)}, np.array([-1.0, 0.4, 2.2, 3.1]),
    ),
)  # fmt: skip
