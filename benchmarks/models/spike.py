"""Spike and slab: a regression with 50 inclusion indicators, which all meet in one likelihood.

There are 2⁵⁰ joint values of z, so nothing can be summed out by hand. Some of the coefficients are as small as their
standard error, so that it is not certain which are included.
"""

import numpy as np

from benchmarks.model import Data, Forms, Model

ROWS, COLUMNS, INCLUDED = 100, 50, 0.2


def make_data() -> Data:
    rng = np.random.default_rng(3)
    design = rng.normal(size=(ROWS, COLUMNS))
    beta = np.zeros(COLUMNS)
    beta[:10] = [1.5, -1.2, 1.0, -0.8, 0.6, -0.4, 0.3, -0.25, 0.2, -0.15]
    return {"design": design, "y": design @ beta + rng.normal(size=ROWS)}


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def left_in(design, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([COLUMNS]))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        inclusion = numpyro.sample("inclusion", dist.Bernoulli(INCLUDED).expand([COLUMNS]))
        numpyro.sample("y", dist.Normal(design @ (inclusion * beta), sigma), obs=y)

    def enumerated(design, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([COLUMNS]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("columns", COLUMNS):
            inclusion = numpyro.sample("inclusion", dist.Bernoulli(INCLUDED))
        centre = jnp.einsum("nc,...c->...n", design, inclusion * beta)
        numpyro.sample("y", dist.Normal(centre, sigma).to_event(1), obs=y)

    return Forms(left_in, enumerated=enumerated)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=COLUMNS)
        sigma = pm.HalfNormal("sigma", 1)
        inclusion = pm.Bernoulli("inclusion", INCLUDED, shape=COLUMNS)
        pm.Normal("y", data["design"] @ (inclusion * beta), sigma, observed=data["y"])
    return model


def in_bugs(data: Data) -> dict:
    return {**data, "N": ROWS, "K": COLUMNS, "included": INCLUDED}


MODEL = Model(
    name="spike",
    title="Spike and slab, 50",
    data=make_data,
    parameters=("beta", "sigma"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    bugs_data=in_bugs,
)
