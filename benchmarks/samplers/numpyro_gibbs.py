"""NumPyro's DiscreteHMCGibbs: NUTS on x in turns with one site of z after the other."""

from typing import Any

from numpyro.infer import NUTS, DiscreteHMCGibbs

from benchmarks.model import Data, Model
from benchmarks.samplers.numpyro_chains import drawn, run_chains
from benchmarks.samplers.sampler import Run, Settings

load = drawn


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    return run_chains(model, DiscreteHMCGibbs(NUTS(form)), data, settings, variant)
