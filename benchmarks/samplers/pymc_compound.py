"""PyMC's compound step, as `pm.sample` puts it together, with z left in."""

import time
from typing import Any

import pymc as pm

from benchmarks.model import Data, Model
from benchmarks.samplers.sampler import Run, Settings

CORES = 2


def load(model: Model) -> Any:
    return model.pymc


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    del variant
    first: dict[int, float] = {}
    last: dict[int, float] = {}

    def note(trace, draw):
        del trace
        if not draw.tuning:
            last[draw.chain] = time.perf_counter()
            first.setdefault(draw.chain, last[draw.chain])

    with form(data):
        trace = pm.sample(
            settings.draws, tune=settings.tune, chains=settings.chains, cores=CORES, random_seed=settings.seed,
            progressbar=False, compute_convergence_checks=False, callback=note,
        )  # fmt: skip
    draws = {name: trace.posterior[name].values for name in model.parameters}
    return Run(draws, lambda: sum(last[chain] - first[chain] for chain in first) / CORES)
