"""Bugs planted in a kernel: the summary of the run must complain of each. (Those that make another target of the
posterior, as a wrong Jacobian does, no meter can see; `test_geweke.py` does.)
"""

import warnings
from dataclasses import dataclass

import jax
import pytest

import sumout
from sumout.errors import SamplingWarning
from sumout.plan.target import GradientEstimate
from sumout_studies.models import STUDIES

STEP = 0.1  # of a Survey chain, as tuned, in units of x


@dataclass(frozen=True)
class StaleZ(sumout.SplitSGHMC):
    """z is never drawn afresh for the gradient."""

    def estimate(self, key, x, z, data):
        log_density, gradient = jax.value_and_grad(self.target.log_density)(x, z, data)
        return GradientEstimate(gradient, z, log_density, 0 * gradient)


@dataclass(frozen=True)
class TooMuchNoise(sumout.SplitSGHMC):
    """The injected noise has twice its variance."""

    def room(self, state, estimate):
        room, noise = super().room(state, estimate)
        return 2 * room, noise


RUNS = {
    "no noise correction": (sumout.SplitSGHMC(step_size=4 * STEP, noise=0.0, num_samples=1), "biased: wider"),
    "stale z": (StaleZ(step_size=STEP), "chains disagree"),  # each is narrow, around the z it was left with
    "wrong noise scale": (TooMuchNoise(step_size=STEP), "biased: wider"),
    "a step four times too large": (sumout.SGHMC(step_size=4 * STEP), "biased: wider"),
}


QUICK = {"wrong noise scale"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.calibration) for name in RUNS]
)
def test_planted_bugs_are_complained_of(name):
    kernel, words = RUNS[name]
    program = STUDIES["survey"].program()
    result = sumout.sample(program, kernel, plan={"coin": "draw"}, draws=1000, steps=20, log_likelihood=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        sumout.summary(result)
    text = " ".join(str(warning.message) for warning in caught)
    assert words in text
