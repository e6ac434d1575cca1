"""The contract of a kernel.

A kernel is a frozen configuration that prints and hashes. Bound to a target it can initialise a chain and step it.
State is what the next step needs; info is everything else, for diagnostics. Kernels never print, raise or loop over
draws.

To add one: CONTRIBUTING.md has the steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array

from sumout.calls import html_of
from sumout.errors import OptionError
from sumout.kernels.leapfrog import Point
from sumout.model.program import Data, Nuisance
from sumout.plan.target import Target

CHAINS = "chains"  # name of the axis over which the chains of a run are laid out side by side
GRADIENTS_PER_DRAW = 10  # as in the paper's evaluation
DECORRELATION_TIME = 3.0  # of the dynamics, in units of the scale, after which x is about independent
MOST_STEPS = 400  # between draws
ENOUGH_EFFICIENCY = 0.5  # effective draws per draw


@dataclass(frozen=True)
class Kernel:
    """A configuration, and once bound to a target a Markov kernel. Its states have `x`, `z` and `tuning`."""

    name: ClassVar[str]
    is_exact: ClassVar[bool]  # leaves p(x, z|y) invariant whatever its step size
    moves_jointly: ClassVar[bool] = False  # coordinates of x are drawn together with z where a move can do so
    step_size: float | None = None
    target: Target | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self):
        """Check the option that all kernels have."""
        if self.step_size is not None and not self.step_size > 0:
            name = type(self).__name__
            raise OptionError(f"{name}: step_size={self.step_size!r} must be positive, or None to tune it.")

    def _repr_html_(self) -> str:
        return html_of(self)

    def bind(self, target: Target) -> "Kernel":
        """The kernel for one target."""
        return replace(self, target=target)

    @property
    def gradients_per_step(self) -> int:
        """How many gradients one step of the kernel takes."""
        return 1

    @property
    def steps_untuned(self) -> int:
        """How many steps make a draw of the warm-up, when the user leaves it open."""
        return max(1, round(GRADIENTS_PER_DRAW / self.gradients_per_step))

    def time_per_step(self, step_size: Any) -> Any:
        """How much of the decorrelation time one step covers; None where every step makes a draw."""
        del step_size

    def steps_when_tuned(self, states: Any, efficiency: Callable[[], float]) -> int:
        """How many steps make a draw after the warm-up, when the user leaves it open: enough for low autocorrelation.

        Args:
            states: of all chains.
            efficiency: computes the effective draws per draw in the second half of the warm-up.
        """
        time = self.time_per_step(float(np.exp(np.mean(np.log(states.tuning.step_size)))))
        if time is None:
            return self.steps_untuned
        measured = self.steps_untuned * ENOUGH_EFFICIENCY / max(efficiency(), 1e-9)
        return int(np.clip(np.ceil(max(1 / float(time), measured)), 1, MOST_STEPS))

    def tuned(self, states: Any) -> dict[str, Any]:
        """What the warm-up has tuned, by name: for each chain a number, or a number for each coordinate of x."""
        return {"step_size": states.tuning.step_size, "scale": states.tuning.scale}

    def init(self, key: Array, start: Point, z: Nuisance) -> Any:
        """The state of a chain that starts there, at that z."""
        raise NotImplementedError

    def step(self, key: Array, state: Any, data: Data, t: Array) -> tuple[Any, Any]:
        """Step number `t`, the same number for all chains: the new state and its info."""
        raise NotImplementedError

    def gradient(self, state: Any, z: Nuisance, data: Data) -> Array:
        """The gradient of the log density at the state's x and a z that suits it: its own, if the kernel is exact."""
        assert isinstance(self.target, Target)
        return self.target.value_and_gradient(state.x, z, data)[1]

    def adapt(self, key: Array, state: Any, info: Any, data: Data, t: Array, length: Array) -> Any:
        """The state after step `t` of a warm-up of `length` steps, its tuning updated."""
        del key, info, data, t, length
        return state


def over_chains(reduction: Callable[[Any, str], Any], value: Any) -> Any:
    """A mean or minimum over the chains that run side by side; the value itself of a chain that runs alone."""
    try:
        return reduction(value, CHAINS)
    except NameError:  # there is no such axis
        return value
