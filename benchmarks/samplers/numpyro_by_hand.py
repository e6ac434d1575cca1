"""NumPyro's NUTS on the form with z summed out by hand."""

from typing import Any

from numpyro.infer import NUTS

from benchmarks.model import Data, Model
from benchmarks.samplers.numpyro_chains import by_hand, run_chains
from benchmarks.samplers.sampler import Run, Settings

load = by_hand


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    return run_chains(model, NUTS(form), data, settings, variant)
