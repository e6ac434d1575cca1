"""Survey: 60 employees answer honestly or by the flip of a coin (the paper's first model)."""

import numpy as np

from benchmarks.model import Data, Draws, Forms, Model
from benchmarks.models.studies import study_data, study_program, with_length


def make_data() -> Data:
    return {"y": study_data("survey").astype(int)}


def in_numpyro() -> Forms:
    import numpyro
    import numpyro.distributions as dist

    from sumout_studies.models import survey_numpyro

    def by_hand(y):
        theta = numpyro.sample("theta", dist.Beta(1, 1))
        numpyro.sample("y", dist.Bernoulli(0.25 + 0.5 * theta).expand([len(y)]).to_event(1), obs=y)

    return Forms(survey_numpyro, by_hand)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        theta = pm.Beta("theta", 1, 1)
        coin = pm.Bernoulli("coin", 0.5, shape=len(data["y"]))
        pm.Bernoulli("y", pm.math.switch(coin, theta, 0.5), observed=data["y"])
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm

    with pm.Model() as model:
        theta = pm.Beta("theta", 1, 1)
        pm.Bernoulli("y", 0.25 + 0.5 * theta, observed=data["y"])
    return model


def on_the_real_line(draws: Draws) -> Draws:
    """The exact posterior is known for logit θ."""
    theta = np.clip(np.asarray(draws["theta"], float), 1e-12, 1 - 1e-12)
    return {"logit theta": np.log(theta) - np.log1p(-theta)}


MODEL = Model(
    name="survey",
    title="Survey, 60",
    data=make_data,
    parameters=("theta",),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: study_program("survey"),
    stan_data=with_length,
    bugs_data=with_length,
    scored=on_the_real_line,
)
