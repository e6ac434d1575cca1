"""GMM 10,000 × 5: a Gaussian mixture with means in order, and unknown scales and weights."""

import numpy as np

from benchmarks.model import Data, Forms, Model, stan_program
from benchmarks.models.ordering import ordered_in_pymc

POINTS, COMPONENTS = 10_000, 5
BASE_MEAN, BASE_SD = np.array([-6.0, 1.0, 1.0, 1.0, 1.0]), np.array([3.0, 0.5, 0.5, 0.5, 0.5])


def make_data() -> Data:
    rng = np.random.default_rng(6)
    z = rng.choice(COMPONENTS, size=POINTS, p=[0.15, 0.25, 0.2, 0.1, 0.3])
    return {"y": rng.normal(np.array([-6.0, -3.0, 0.0, 3.0, 6.0])[z], np.array([0.8, 1.0, 0.9, 1.1, 1.0])[z])}


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import logsumexp
    from numpyro.distributions.transforms import OrderedTransform

    def parameters():
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(COMPONENTS)))
        mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(BASE_MEAN, BASE_SD), OrderedTransform()))
        return weights, mu, numpyro.sample("sigma", dist.LogNormal(0, 0.5).expand([COMPONENTS]).to_event(1))

    def left_in(y):
        weights, mu, sigma = parameters()
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)

    def by_hand(y):
        weights, mu, sigma = parameters()
        each = jnp.log(weights) + dist.Normal(mu, sigma).log_prob(jnp.asarray(y)[:, None])
        numpyro.factor("y", logsumexp(each, axis=1).sum())

    return Forms(left_in, by_hand)


def parameters_in_pymc():
    import pymc as pm

    weights = pm.Dirichlet("weights", np.ones(COMPONENTS))
    mu = pm.Deterministic("mu", ordered_in_pymc(pm.Normal("mu_base", BASE_MEAN, BASE_SD)))
    return weights, mu, pm.LogNormal("sigma", 0, 0.5, shape=COMPONENTS)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        weights, mu, sigma = parameters_in_pymc()
        z = pm.Categorical("z", p=weights, shape=len(data["y"]))
        pm.Normal("y", mu[z], sigma[z], observed=data["y"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm

    with pm.Model() as model:
        weights, mu, sigma = parameters_in_pymc()
        each = pm.math.log(weights) + pm.logp(pm.Normal.dist(mu, sigma), data["y"][:, None])
        pm.Potential("y", pm.math.logsumexp(each, axis=1).sum())
    return model


def in_stan(data: Data) -> dict:
    base = {"base_mean": BASE_MEAN.tolist(), "base_sd": BASE_SD.tolist()}
    return {"N": len(data["y"]), "K": COMPONENTS, "y": data["y"].tolist(), **base}


def in_bugs(data: Data) -> dict:
    return {**data, "N": len(data["y"]), "K": COMPONENTS, "base_mean": BASE_MEAN, "base_sd": BASE_SD}


MODEL = Model(
    name="gmm_large",
    title="GMM, 10,000 × 5",
    data=make_data,
    parameters=("weights", "mu", "sigma"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: stan_program("gmm_large"),
    stan_data=in_stan,
    bugs_data=in_bugs,
)
