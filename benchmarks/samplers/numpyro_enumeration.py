"""NumPyro's NUTS, z being enumerated by NumPyro."""

from typing import Any

import numpyro.contrib.funsor  # noqa: F401
from numpyro.infer import NUTS

from benchmarks.model import Data, Model
from benchmarks.samplers.numpyro_chains import enumerated, run_chains
from benchmarks.samplers.sampler import Run, Settings

load = enumerated


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    return run_chains(model, NUTS(form), data, settings, variant)
