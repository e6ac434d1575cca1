"""HMM 1,000 × 8: a hidden Markov model with unknown transitions, means in order and unknown noise."""

import numpy as np

from benchmarks.model import Data, Forms, Model, stan_program
from benchmarks.models.forward import forward_in_jax, forward_in_pymc
from benchmarks.models.ordering import ordered_in_pymc

STEPS, STATES = 1_000, 8
BASE_MEAN = np.array([0.0, *(0.5,) * (STATES - 1)])
BASE_SD = np.array([1.0, *(0.3,) * (STATES - 1)])
ROWS = np.ones((STATES, STATES)) + 4 * np.eye(STATES)  # of Dirichlets: states tend to stay


def make_data() -> Data:
    rng = np.random.default_rng(7)
    rows = np.full((STATES, STATES), 0.3 / (STATES - 1)) + (0.7 - 0.3 / (STATES - 1)) * np.eye(STATES)
    states = [0]
    for _ in range(STEPS):
        states.append(rng.choice(STATES, p=rows[states[-1]]))
    return {"y": rng.normal(1.6 * np.array(states[1:]), 0.6)}


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan
    from numpyro.distributions.transforms import OrderedTransform

    def parameters():
        rows = numpyro.sample("rows", dist.Dirichlet(ROWS).to_event(1))
        mu = numpyro.sample("mu", dist.TransformedDistribution(dist.Normal(BASE_MEAN, BASE_SD), OrderedTransform()))
        return rows, mu, numpyro.sample("sigma", dist.LogNormal(-0.5, 0.5))

    def left_in(y):
        rows, mu, sigma = parameters()

        def step(previous, y):
            z = numpyro.sample("z", dist.Categorical(rows[previous]))
            numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)
            return z, None

        scan(step, 0, y)

    def drawn(y):
        rows, mu, sigma = parameters()
        z = numpyro.sample("z", dist.Categorical(jnp.ones(STATES) / STATES).expand([len(y)]))
        before = jnp.concatenate([jnp.zeros(1, z.dtype), z[:-1]])
        numpyro.factor("transitions", jnp.log(rows)[before, z].sum())
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)

    def by_hand(y):
        rows, mu, sigma = parameters()
        emission = dist.Normal(mu, sigma).log_prob(jnp.asarray(y)[:, None])
        numpyro.factor("y", forward_in_jax(rows[0], rows, emission))

    return Forms(left_in, by_hand, drawn=drawn)


def parameters_in_pymc():
    import pymc as pm

    rows = pm.Dirichlet("rows", ROWS)
    mu = pm.Deterministic("mu", ordered_in_pymc(pm.Normal("mu_base", BASE_MEAN, BASE_SD)))
    return rows, mu, pm.LogNormal("sigma", -0.5, 0.5)


def in_pymc(data: Data):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        rows, mu, sigma = parameters_in_pymc()
        z = pm.Categorical("z", p=np.full(STATES, 1 / STATES), shape=STEPS)
        before = pt.concatenate([np.zeros(1, int), z[:-1]])
        pm.Potential("transitions", pt.log(rows)[before, z].sum())
        pm.Normal("y", mu[z], sigma, observed=data["y"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm

    with pm.Model() as model:
        rows, mu, sigma = parameters_in_pymc()
        emission = pm.logp(pm.Normal.dist(mu, sigma), data["y"][:, None])
        pm.Potential("y", forward_in_pymc(rows[0], rows, emission))
    return model


def in_stan(data: Data) -> dict:
    base = {"base_mean": BASE_MEAN.tolist(), "base_sd": BASE_SD.tolist()}
    return {"T": STEPS, "K": STATES, "y": data["y"].tolist(), "prior": ROWS.tolist(), **base}


def in_bugs(data: Data) -> dict:
    return {**data, "T": STEPS, "K": STATES, "prior": ROWS, "base_mean": BASE_MEAN, "base_sd": BASE_SD}


MODEL = Model(
    name="hmm_large",
    title="HMM, 1,000 × 8",
    data=make_data,
    parameters=("rows", "mu", "sigma"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: stan_program("hmm_large"),
    stan_data=in_stan,
    bugs_data=in_bugs,
)
