"""Factorial HMM: five switches, each on or off for some time, add up in one noisy signal of 200 steps.

What each switch adds is roughly known beforehand, so that they can be told apart; how long each stays as it is, and the
noise, are unknown. By hand z is summed out over the 32 joint states.
"""

import numpy as np

from benchmarks.model import Data, Forms, Model, stan_program
from benchmarks.models.forward import forward_in_jax, forward_in_pymc

CHAINS, STEPS = 5, 200
WEIGHTS = np.array([0.7, 1.2, 2.0, 3.3, 5.4])
WEIGHT_SD = 0.3
STAY = (18.0, 2.0)
STATES = (np.arange(2**CHAINS)[:, None] >> np.arange(CHAINS)) & 1  # (joint state, chain)
IS_SAME = STATES[:, None] == STATES  # (from, to, chain)


def make_data() -> Data:
    rng = np.random.default_rng(5)
    z = np.zeros(CHAINS, int)
    weights = np.add(WEIGHTS, [0.1, -0.15, 0.2, -0.2, 0.1])
    means = []
    for _ in range(STEPS):
        z = np.where(rng.random(CHAINS) < 0.1, 1 - z, z)
        means.append(z @ weights)
    return {"y": rng.normal(means, 0.5)}


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def parameters():
        weights = numpyro.sample("weights", dist.Normal(WEIGHTS, WEIGHT_SD).to_event(1))
        stay = numpyro.sample("stay", dist.Beta(*STAY).expand([CHAINS]).to_event(1))
        return weights, stay, numpyro.sample("sigma", dist.LogNormal(-0.7, 0.5))

    def left_in(y):
        weights, stay, sigma = parameters()

        def step(previous, y):
            now = tuple(
                numpyro.sample(f"z{c}", dist.Bernoulli(jnp.where(previous[c] == 1, stay[c], 1 - stay[c])))
                for c in range(CHAINS)
            )
            numpyro.sample("y", dist.Normal(sum(weights[c] * now[c] for c in range(CHAINS)), sigma), obs=y)
            return now, None

        scan(step, (0,) * CHAINS, y)

    def drawn(y):
        weights, stay, sigma = parameters()
        z = numpyro.sample("z", dist.Bernoulli(0.5).expand([STEPS, CHAINS]))
        before = jnp.concatenate([jnp.zeros((1, CHAINS), z.dtype), z[:-1]])
        numpyro.factor("transitions", jnp.log(jnp.where(z == before, stay, 1 - stay)).sum())
        numpyro.sample("y", dist.Normal(z @ weights, sigma), obs=y)

    def by_hand(y):
        weights, stay, sigma = parameters()
        transition = jnp.where(IS_SAME, stay, 1 - stay).prod(axis=-1)
        emission = dist.Normal(STATES @ weights, sigma).log_prob(jnp.asarray(y)[:, None])
        numpyro.factor("y", forward_in_jax(transition[0], transition, emission))

    return Forms(left_in, by_hand, drawn=drawn)


def parameters_in_pymc():
    import pymc as pm

    weights = pm.Normal("weights", WEIGHTS, WEIGHT_SD)
    stay = pm.Beta("stay", *STAY, shape=CHAINS)
    return weights, stay, pm.LogNormal("sigma", -0.7, 0.5)


def in_pymc(data: Data):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        weights, stay, sigma = parameters_in_pymc()
        z = pm.Bernoulli("z", 0.5, shape=(STEPS, CHAINS))
        before = pt.concatenate([np.zeros((1, CHAINS), int), z[:-1]])
        pm.Potential("transitions", pt.log(pt.switch(pt.eq(z, before), stay, 1 - stay)).sum())
        pm.Normal("y", z @ weights, sigma, observed=data["y"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        weights, stay, sigma = parameters_in_pymc()
        transition = pt.switch(IS_SAME, stay, 1 - stay).prod(axis=-1)
        emission = pm.logp(pm.Normal.dist(pt.as_tensor(STATES.astype(float)) @ weights, sigma), data["y"][:, None])
        pm.Potential("y", forward_in_pymc(transition[0], transition, emission))
    return model


def in_stan(data: Data) -> dict:
    return {
        "C": CHAINS,
        "S": len(STATES),
        "T": STEPS,
        "y": data["y"].tolist(),
        "states": STATES.tolist(),
        "weight_mean": WEIGHTS.tolist(),
    }


def in_bugs(data: Data) -> dict:
    return {**data, "C": CHAINS, "T": STEPS, "weight_mean": WEIGHTS, "weight_sd": WEIGHT_SD}


MODEL = Model(
    name="factorial",
    title="Factorial HMM, 5 × 200",
    data=make_data,
    parameters=("weights", "stay", "sigma"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: stan_program("factorial"),
    stan_data=in_stan,
    bugs_data=in_bugs,
)
