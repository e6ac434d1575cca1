"""GMM 100 × 2: a Gaussian mixture with two components of equal weight (the paper's second model).

Its labels mean nothing, so every draw is sorted by μ before it is measured, whichever sampler made it. NumPyro's
enumeration wants to be told that the means are one event.
"""

import numpy as np

from benchmarks.model import Data, Draws, Forms, Model
from benchmarks.models.studies import study_data, study_program, with_length


def make_data() -> Data:
    return {"y": study_data("gmm")}


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import logsumexp

    from sumout_studies.models import gmm_numpyro

    def enumerated(y):
        mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 10).expand([2]).to_event(1))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(2) / 2))
            numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)

    def by_hand(y):
        mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 10).expand([2]))
        each = dist.Normal(mu, sigma).log_prob(jnp.asarray(y)[:, None])
        numpyro.factor("y", logsumexp(each, axis=1).sum())

    return Forms(gmm_numpyro, by_hand, enumerated)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10, shape=2)
        sigma = pm.LogNormal("sigma", 0, 10, shape=2)
        z = pm.Bernoulli("z", 0.5, shape=len(data["y"]))
        pm.Normal("y", mu[z], sigma[z], observed=data["y"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10, shape=2)
        sigma = pm.LogNormal("sigma", 0, 10, shape=2)
        each = pm.logp(pm.Normal.dist(mu, sigma), data["y"][:, None])
        pm.Potential("y", pm.math.logsumexp(each, axis=1).sum())
    return model


def in_order(draws: Draws) -> Draws:
    """Sorted by μ, on the real line, where the exact posterior is known."""
    mu, log_sigma = np.asarray(draws["mu"], float), np.log(np.asarray(draws["sigma"], float))
    order = np.argsort(mu, axis=-1)
    return {
        "mu": np.take_along_axis(mu, order, axis=-1),
        "log sigma": np.take_along_axis(log_sigma, order, axis=-1),
    }


MODEL = Model(
    name="gmm",
    title="GMM, 100 × 2",
    data=make_data,
    parameters=("mu", "sigma"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: study_program("gmm"),
    stan_data=with_length,
    bugs_data=with_length,
    scored=in_order,
)
