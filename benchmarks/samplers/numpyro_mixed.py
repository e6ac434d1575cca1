"""NumPyro's MixedHMC: moves of z within the trajectories of x."""

from typing import Any

from numpyro.infer import HMC, MixedHMC

from benchmarks.model import Data, Model
from benchmarks.samplers.numpyro_chains import drawn, run_chains
from benchmarks.samplers.sampler import Run, Settings

LENGTH = 1.2  # of a trajectory, in scales of the posterior, as in NumPyro's own example

load = drawn


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    return run_chains(model, MixedHMC(HMC(form, trajectory_length=LENGTH)), data, settings, variant)
