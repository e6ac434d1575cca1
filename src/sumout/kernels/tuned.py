"""What kernels with an accept/reject step have in common: a tuned step size and scale, learnt during warm-up."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Float

from sumout.adapt.scale import RunningScale
from sumout.adapt.warmup import Tuning
from sumout.errors import OptionError
from sumout.kernels.kernel import Kernel
from sumout.program import Data, Nuisance

FIRST_STEP_SIZE = 0.1


@partial(jax.tree_util.register_dataclass, data_fields=["x", "z", "tuning"], meta_fields=[])
@dataclass(frozen=True)
class State:
    """Position, nuisance, and what was tuned."""

    x: Float[Array, " num_x"]
    z: Nuisance
    tuning: Tuning


class Tuned(Kernel):
    """A kernel whose step size (None to tune it) is in units of a scale for each coordinate; not for use by itself."""

    is_exact = True
    step_size: float | None
    target_acceptance: float
    dense: bool

    def __post_init__(self):
        """Check the options that all such kernels have."""
        name = type(self).__name__
        if self.step_size is not None and not self.step_size > 0:
            raise OptionError(f"{name}: step_size={self.step_size!r} must be positive, or None to tune it.")
        if not 0 < self.target_acceptance < 1:
            raise OptionError(f"{name}: target_acceptance={self.target_acceptance!r} must be between 0 and 1.")

    def init(self, key: Array, x: Array, z: Nuisance) -> Any:
        """Untuned."""
        del key
        return State(x, z, Tuning.start(RunningScale.start(x, self.dense), self.step_size or FIRST_STEP_SIZE))

    def tuned(self, states: Any) -> dict[str, Array]:
        """Step size and scale."""
        return {"step_size": states.tuning.step_size, "scale": states.tuning.scale}

    def adapt(self, key: Array, state: Any, info: Any, data: Data, t: Array, length: Array) -> Any:
        """Tune step size and scale by the acceptance, unless the user gave a step size."""
        del key, data
        if self.step_size is not None:
            return state
        tuning = state.tuning.update(state.x, info.acceptance_rate, self.target_acceptance, t, length)
        return replace(state, tuning=tuning)
