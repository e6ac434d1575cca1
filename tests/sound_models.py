"""A generator of good models, priors × likelihoods with laws of z and sizes in turn: the checks must be silent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

import sumout
from sumout_studies.models import STUDIES

from known_moments import KNOWN_MOMENTS
from programs import ENUMERABLE


@dataclass(frozen=True)
class Good:
    """A model of which nothing is to be said, and the plan it is checked with."""

    name: str
    make: Callable[[], Any]
    plan: dict[str, str]


PRIORS = {
    "normal": dist.Normal(0, 1),
    "wide_normal": dist.Normal(0, 1000),
    "cauchy": dist.Cauchy(0, 1),
    "student": dist.StudentT(3, 0, 2),
    "laplace": dist.Laplace(0, 1),
    "logistic": dist.Logistic(0, 1),
    "gumbel": dist.Gumbel(0, 1),
    "half_normal": dist.HalfNormal(1),
    "half_cauchy": dist.HalfCauchy(1),
    "gamma": dist.Gamma(2, 1),
    "vague_gamma": dist.Gamma(0.01, 0.01),
    "inverse_gamma": dist.InverseGamma(2, 1),
    "log_normal": dist.LogNormal(0, 1),
    "wide_log_normal": dist.LogNormal(0, 10),
    "exponential": dist.Exponential(1),
    "weibull": dist.Weibull(1, 2),
    "chi2": dist.Chi2(3),
    "pareto": dist.Pareto(1.0, 3.0),
    "uniform_probability": dist.Beta(1, 1),
    "arcsine": dist.Beta(0.5, 0.5),
    "uniform": dist.Uniform(-1, 3),
    "truncated": dist.TruncatedNormal(0, 1, low=0.5),
    "dirichlet": dist.Dirichlet(jnp.ones(3)),
    "ordered": dist.TransformedDistribution(dist.Normal(0, 3).expand([3]), OrderedTransform()),
    "correlations": dist.LKJCholesky(3, 2.0),
    "multivariate": dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.9], [0.9, 1.0]])),
    "several": dist.Normal(0, 2).expand([4]),
    "matrix": dist.Normal(0, 1).expand([2, 3]).to_event(2),
}
LATENTS = {
    "coin": dist.Bernoulli(0.4),
    "category": dist.Categorical(jnp.array([0.2, 0.3, 0.5])),
    "binomial": dist.Binomial(3, 0.3),
    "shifted": dist.DiscreteUniform(2, 5),
    "count": dist.Poisson(2.0),
    "tail": dist.Geometric(0.4),
}
LIKELIHOODS = {
    "normal": (lambda loc: dist.Normal(loc, 1.0), lambda rng, n: rng.normal(1, 2, n)),
    "student": (lambda loc: dist.StudentT(4, loc, 0.5), lambda rng, n: rng.standard_t(4, n)),
    "laplace": (lambda loc: dist.Laplace(loc, 2.0), lambda rng, n: rng.laplace(0, 2, n)),
    "poisson": (lambda loc: dist.Poisson(jnp.logaddexp(loc, 0.0)), lambda rng, n: rng.poisson(3, n)),
    "log_poisson": (lambda loc: dist.Poisson(jnp.exp(0.3 * loc)), lambda rng, n: rng.poisson(3, n)),
    "bernoulli": (lambda loc: dist.Bernoulli(logits=loc - 1), lambda rng, n: rng.integers(0, 2, n)),
    "binomial": (lambda loc: dist.Binomial(5, logits=loc - 1), lambda rng, n: rng.integers(0, 6, n)),
    "gamma": (lambda loc: dist.Gamma(2.0, jnp.logaddexp(loc, 0.0) + 0.1), lambda rng, n: rng.gamma(2, 1, n)),
}
SIZES = (1, 3, 8, 30)
METHODS = ({}, {"z": "draw"})


def _generate() -> list[Good]:
    made = []
    for i, (prior_name, prior) in enumerate(PRIORS.items()):
        for j, (kind, (likelihood, draw)) in enumerate(LIKELIHOODS.items()):
            law_name, law = list(LATENTS.items())[(i + j) % len(LATENTS)]
            size = SIZES[(i + 2 * j) % len(SIZES)]
            y = draw(np.random.default_rng(10 * i + j), size)
            model = _model(prior, law, likelihood)
            name = f"{prior_name}-{law_name}-{kind}-{size}"
            made.append(Good(name, lambda model=model, y=y: sumout.program(model, y), METHODS[(i + j // 2) % 2]))
    return made


def _model(prior: Any, law: Any, likelihood: Callable[[Any], Any]) -> Callable[[Any], None]:
    def model(y):
        x = numpyro.sample("x", prior)
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", law)
            numpyro.sample("y", likelihood(0.5 * jnp.sum(x) + z), obs=y)

    return model


GENERATED = _generate()
WRITTEN = [
    *(Good(name, make, {}) for name, make in ENUMERABLE.items() if name != "odd_values"),  # which has an idle site
    *(Good(f"drawn_{name}", case.make, dict(case.plan)) for name, case in KNOWN_MOMENTS.items()),
    *(Good(f"study_{study.name}", study.program, {}) for study in STUDIES.values()),
]
GOOD = [*GENERATED, *WRITTEN]
