"""nutpie's NUTS on the PyMC form with z summed out by hand."""

import time
from typing import Any

import nutpie
import pymc  # noqa: F401

from benchmarks.model import Data, Model
from benchmarks.samplers.sampler import CannotTakeError, Run, Settings

CORES = 2
LONG = 30.0  # seconds from which one run is known well enough


def load(model: Model) -> Any:
    if model.pymc_by_hand is None:
        raise CannotTakeError("there is no form with z summed out by hand")
    return model.pymc_by_hand


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    del variant
    compiled = nutpie.compile_pymc_model(form(data))

    def sample() -> tuple[Any, float]:
        start = time.perf_counter()
        trace = nutpie.sample(
            compiled, draws=settings.draws, tune=settings.tune, chains=settings.chains, cores=CORES,
            seed=settings.seed, progress_bar=False,
        )  # fmt: skip
        return trace, time.perf_counter() - start

    trace, seconds = sample()
    draws = {name: trace.posterior[name].values for name in model.parameters}

    def warm() -> float:
        again, taken = sample() if seconds < LONG else (trace, seconds)
        steps, warmup = (float(group.n_steps.sum()) for group in (again.sample_stats, again.warmup_sample_stats))
        return taken * steps / (steps + warmup)

    return Run(draws, warm)
