"""sumout with its defaults."""

from typing import Any

import sumout
from benchmarks.model import Data, Model
from benchmarks.samplers.sampler import Run, Settings


def load(model: Model) -> Any:
    return model.numpyro().left_in


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    del variant
    program = sumout.program(form, **data)
    result = sumout.sample(
        program, chains=settings.chains, draws=settings.draws, tune=settings.tune, seed=settings.seed, progress=False
    )
    posterior = result.posterior
    draws = {name: posterior[name].values for name in model.parameters}
    return Run(draws, lambda: float(posterior.attrs["sampling_time"]))
