"""HMM 16 × 3: a hidden Markov model with unknown transitions (the paper's third model).

NumPyro's enumeration wants to be told that the logits are one event, and its samplers of z do not look into a scan.
"""

import numpy as np

from benchmarks.model import Data, Forms, Model
from benchmarks.models.forward import forward_in_jax, forward_in_pymc
from benchmarks.models.studies import study_data, study_program, with_length

NOISE, STATES = 0.5, 3


def make_data() -> Data:
    return {"y": study_data("hmm")}


def in_numpyro() -> Forms:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    from sumout_studies.models import hmm_numpyro

    def enumerated(y):
        logits = numpyro.sample("logits", dist.Normal(0, 10).expand([STATES, STATES]).to_event(2))
        first = numpyro.sample("first", dist.Categorical(jnp.ones(STATES) / STATES))
        numpyro.sample("y_first", dist.Normal(first, NOISE), obs=y[0])

        def step(previous, y):
            z = numpyro.sample("z", dist.Categorical(logits=logits[previous]))
            numpyro.sample("y", dist.Normal(z, NOISE), obs=y)
            return z, None

        scan(step, first, y[1:])

    def drawn(y):
        logits = numpyro.sample("logits", dist.Normal(0, 10).expand([STATES, STATES]))
        z = numpyro.sample("z", dist.Categorical(jnp.ones(STATES) / STATES).expand([len(y)]))
        numpyro.factor("transitions", jax.nn.log_softmax(logits, axis=1)[z[:-1], z[1:]].sum())
        numpyro.sample("y", dist.Normal(z, NOISE), obs=y)

    def by_hand(y):
        logits = numpyro.sample("logits", dist.Normal(0, 10).expand([STATES, STATES]))
        emission = dist.Normal(jnp.arange(STATES), NOISE).log_prob(jnp.asarray(y)[:, None])
        numpyro.factor("y", forward_in_jax(jnp.ones(STATES) / STATES, jax.nn.softmax(logits, axis=1), emission))

    return Forms(hmm_numpyro, by_hand, enumerated, drawn)


def in_pymc(data: Data):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        logits = pm.Normal("logits", 0, 10, shape=(STATES, STATES))
        z = pm.Categorical("z", p=np.full(STATES, 1 / STATES), shape=len(data["y"]))
        pm.Potential("transitions", pt.special.log_softmax(logits, axis=1)[z[:-1], z[1:]].sum())
        pm.Normal("y", z, NOISE, observed=data["y"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        logits = pm.Normal("logits", 0, 10, shape=(STATES, STATES))
        emission = pm.logp(pm.Normal.dist(np.arange(STATES), NOISE), data["y"][:, None])
        first = np.full(STATES, 1 / STATES)
        pm.Potential("y", forward_in_pymc(first, pt.special.softmax(logits, axis=1), emission))
    return model


def in_bugs(data: Data) -> dict:
    return {**with_length(data), "K": STATES, "noise": NOISE}


MODEL = Model(
    name="hmm",
    title="HMM, 16 × 3",
    data=make_data,
    parameters=("logits",),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: study_program("hmm"),
    stan_data=with_length,
    bugs_data=in_bugs,
)
