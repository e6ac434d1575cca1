"""Compensation survey, Gaussian mixture and hidden Markov model, each in three forms.

As a NumPyro model with its discrete variables left in, as a plain density with them left in (the paper's Figures 3a, 4a
and 5a), and as a density marginalised by hand (3b, 4b, 5b). The parameters are the same throughout:

* survey: θ with a uniform prior (the paper's listing has none; without prior and Jacobian its chain drifts off);
* mixture: μ_j ~ N(0, 10), log σ_j ~ N(0, 10), equal weights;
* Markov model: logits ~ N(0, 10), rows of the transition matrix are their softmax, emission N(state, 0.5), no term for
  the first state. The paper's listing takes the logarithm of the noise in Go and the noise itself in Stan; the noise is
  0.5 here.
"""

# NumPyro types the value of a site as anything array-like.
# pyright: reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false, reportReturnType=false

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

from sumout.model.density import density
from sumout.model.numpyro import program
from sumout.model.program import Program
from sumout.model.supports import finite

NOISE = 0.5
STATES = 3


@dataclass(frozen=True)
class Exact:
    """A posterior known without sampling, stored by `benchmarks/exact_posteriors.py`.

    Attributes:
        coordinates: names of the unconstrained parameters; of the mixture, the component with the lower mean is first.
        mean: posterior mean of each.
        sd: posterior standard deviation of each.
        grid: values of each, `(coordinate, point)`, as far as its density is worth drawing.
        density: marginal posterior density at these values.
    """

    coordinates: tuple[str, ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    grid: np.ndarray
    density: np.ndarray


@dataclass(frozen=True)
class Study:
    """A model of the paper, its data and its posterior.

    Attributes:
        name: short name, also that of the data file.
        numpyro: the NumPyro model.
        mixed: the density with z left in.
        marginal: the log density of the constrained parameters with z summed out by hand.
        x: names, constraints and shapes of the parameters.
        z: name, number of values and shape of the discrete variables.
        swapped: the coordinates with the labels of two components exchanged, where labels mean nothing; None elsewhere.
    """

    name: str
    numpyro: Callable[[Array], None]
    mixed: Callable[[dict, dict, Array], Array]
    marginal: Callable[[dict, Array], Array]
    x: dict[str, Any]
    z: dict[str, Any]
    swapped: tuple[int, ...] | None = None

    @cached_property
    def exact(self) -> Exact:
        """The posterior of the unconstrained parameters, by sums and quadrature."""
        stored = json.loads(files("sumout_studies").joinpath("data", "exact.json").read_text())[self.name]
        coordinates, mean, sd = (tuple(stored[name]) for name in ("coordinates", "mean", "sd"))
        return Exact(coordinates, mean, sd, np.array(stored["grid"]), np.array(stored["density"]))

    @property
    def mean(self) -> tuple[float, ...]:
        """Exact posterior means."""
        return self.exact.mean

    @property
    def sd(self) -> tuple[float, ...]:
        """Exact posterior standard deviations."""
        return self.exact.sd

    def data(self) -> np.ndarray:
        """The observations."""
        lines = files("sumout_studies").joinpath("data", f"{self.name}.csv").read_text().split()[1:]
        values = np.array([float(line) for line in lines])
        return values.astype(int) if self.name == "survey" else values

    def program(self) -> Program:
        """The NumPyro form, ready for inference."""
        return program(self.numpyro, self.data())

    def density(self) -> Program:
        """The plain form, ready for inference."""
        supports = {name: finite(values, shape) for name, (values, shape) in self.z.items()}
        return density(self.mixed, x=self.x, z=supports, data=self.data())

    def marginal_density(self) -> Program:
        """The form marginalised by hand, ready for inference."""
        marginal = self.marginal

        def marginalised(x: dict, z: dict, y: Array) -> Array:
            del z
            return marginal(x, y)

        return density(marginalised, x=self.x, z={}, data=self.data())

    def stan(self) -> str:
        """The Stan program of the paper's appendix, put right: its parameters on the real line are x."""
        return files("sumout_studies").joinpath("stan", f"{self.name}.stan").read_text()

    def in_order(self, x: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
        """Coordinates of draws `(…, coordinate)` with the lower mean first; or those of `other`, by the order in x."""
        other = x if other is None else other
        if self.swapped is None:
            return other
        return np.where(x[..., :1] > x[..., 1:2], other[..., self.swapped], other)


def survey_numpyro(y: Array) -> None:
    """Honest answers with probability one half, coin flips otherwise."""
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    with numpyro.plate("employees", len(y)):
        coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Bernoulli(jnp.where(coin, theta, 0.5)), obs=y)


def survey_mixed(x: dict, z: dict, y: Array) -> Array:
    """The paper's Figure 3a."""
    ll = dist.Beta(1, 1).log_prob(x["theta"])
    for i in range(len(y)):
        ll += jnp.log(0.5)
        ll += jnp.where(z["coin"][i], dist.Bernoulli(x["theta"]).log_prob(y[i]), dist.Bernoulli(0.5).log_prob(y[i]))
    return ll


def survey_marginal(x: dict, y: Array) -> Array:
    """The paper's Figure 3b."""
    honest = dist.Bernoulli(x["theta"]).log_prob(y)
    random = dist.Bernoulli(0.5).log_prob(y)
    return dist.Beta(1, 1).log_prob(x["theta"]) + (jnp.logaddexp(honest, random) + jnp.log(0.5)).sum()


def gmm_numpyro(y: Array) -> None:
    """Two components of equal weight."""
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 10).expand([2]))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)


def gmm_mixed(x: dict, z: dict, y: Array) -> Array:
    """The paper's Figure 4a."""
    ll = dist.Normal(0, 10).log_prob(x["mu"]).sum() + dist.LogNormal(0, 10).log_prob(x["sigma"]).sum()
    for i in range(len(y)):
        j = z["z"][i]
        ll += jnp.log(0.5) + dist.Normal(x["mu"][j], x["sigma"][j]).log_prob(y[i])
    return ll


def gmm_marginal(x: dict, y: Array) -> Array:
    """The paper's Figure 4b."""
    prior = dist.Normal(0, 10).log_prob(x["mu"]).sum() + dist.LogNormal(0, 10).log_prob(x["sigma"]).sum()
    each = dist.Normal(x["mu"], x["sigma"]).log_prob(y[:, None])
    return prior + (logsumexp(each, axis=1) + jnp.log(0.5)).sum()


def hmm_numpyro(y: Array) -> None:
    """Three states; the first is uniform, which adds a constant to the log density."""
    logits = numpyro.sample("logits", dist.Normal(0, 10).expand([STATES, STATES]))
    first = numpyro.sample("first", dist.Categorical(jnp.ones(STATES) / STATES))
    numpyro.sample("y_first", dist.Normal(first, NOISE), obs=y[0])

    def step(previous: Array, y: Array) -> tuple[Array, None]:
        state = numpyro.sample("state", dist.Categorical(logits=logits[previous]))
        numpyro.sample("y", dist.Normal(state, NOISE), obs=y)
        return state, None

    scan(step, first, y[1:])


def hmm_mixed(x: dict, z: dict, y: Array) -> Array:
    """The paper's Figure 5a."""
    ll = dist.Normal(0, 10).log_prob(x["logits"]).sum()
    log_transition = jax.nn.log_softmax(x["logits"], axis=1)
    for i in range(len(y)):
        ll += dist.Normal(z["state"][i], NOISE).log_prob(y[i])
        if i != 0:
            ll += log_transition[z["state"][i - 1], z["state"][i]]
    return ll


def hmm_marginal(x: dict, y: Array) -> Array:
    """The paper's Figure 5b: the forward pass."""
    log_transition = jax.nn.log_softmax(x["logits"], axis=1)
    emission = dist.Normal(jnp.arange(STATES), NOISE).log_prob(y[:, None])
    gamma = emission[0]
    for i in range(1, len(y)):
        gamma = emission[i] + logsumexp(gamma[:, None] + log_transition, axis=0)
    return dist.Normal(0, 10).log_prob(x["logits"]).sum() + logsumexp(gamma)


SURVEY = Study(
    name="survey",
    numpyro=survey_numpyro,
    mixed=survey_mixed,
    marginal=survey_marginal,
    x={"theta": (constraints.unit_interval, ())},
    z={"coin": (2, 60)},
)
GMM = Study(
    name="gmm",
    numpyro=gmm_numpyro,
    mixed=gmm_mixed,
    marginal=gmm_marginal,
    x={"mu": (constraints.real, (2,)), "sigma": (constraints.positive, (2,))},
    z={"z": (2, 100)},
    swapped=(1, 0, 3, 2),
)
HMM = Study(
    name="hmm",
    numpyro=hmm_numpyro,
    mixed=hmm_mixed,
    marginal=hmm_marginal,
    x={"logits": (constraints.real, (STATES, STATES))},
    z={"state": (STATES, 16)},
)
STUDIES = {study.name: study for study in (SURVEY, GMM, HMM)}
