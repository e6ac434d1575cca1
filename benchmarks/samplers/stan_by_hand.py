"""Stan's NUTS, by pystan, on a program with z summed out by hand.

A program is built once for a whole benchmark, which takes a minute and counts as part of every cold start. Each chain
says how long it sampled; two run at a time.
"""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import stan

from benchmarks.model import Data, Model
from benchmarks.samplers.sampler import CannotTakeError, Run, Settings

CORES = 2
SAMPLING = re.compile(rb"info: *([\d.]+) seconds \(Sampling\)")


def load(model: Model) -> Any:
    if model.stan is None:
        raise CannotTakeError("there is no form with z summed out by hand")
    return model.stan


def note(model: Model) -> Path:
    """Where the seconds of building are written down, beside the built program."""
    return Path(os.environ["XDG_CACHE_HOME"]) / f"{model.name}.json"


def build(model: Model, form: Any, data: Data) -> Any:
    return stan.build(form(), model.stan_data(data), random_seed=1)


def prepare(model: Model) -> None:
    """Build the program, unless it is there."""
    if not note(model).exists():
        form, data = load(model), model.data()
        start = time.perf_counter()
        build(model, form, data)
        note(model).write_text(json.dumps(time.perf_counter() - start))


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    del variant
    start = time.perf_counter()
    posterior = build(model, form, data)
    found = time.perf_counter() - start
    fit = posterior.sample(num_chains=settings.chains, num_warmup=settings.tune, num_samples=settings.draws)
    draws = {}
    for name in model.parameters:
        shape = fit.dims[fit.param_names.index(name)]
        values = np.asarray(fit[name]).reshape(*shape, settings.draws, settings.chains)  # pystan's chains alternate
        draws[name] = np.moveaxis(values, (-1, -2), (0, 1))
    seconds = sum(float(max(SAMPLING.findall(output), default=b"nan")) for output in fit.stan_outputs) / CORES
    return Run(draws, lambda: seconds, beforehand=json.loads(note(model).read_text()) - found)
