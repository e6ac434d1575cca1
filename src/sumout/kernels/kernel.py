"""The contract of a kernel.

A kernel is a frozen configuration that prints and hashes. Bound to a target it can start a chain and move it on. State
is what the next step needs; info is everything else, for people and diagnostics. Kernels never print, raise or loop
over draws.

To add one: a file here, a row in `names.py`, a row in the tests' tables of kernels.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array

from sumout.gradient import Target
from sumout.program import Data, Nuisance

GRADIENTS_PER_DRAW = 10
MOST_STEPS = 400
WORTH_OF_A_DRAW = 0.5  # effective draws for each draw that are enough


@dataclass(frozen=True)
class Kernel:
    """A configuration, and once bound to a target a Markov kernel."""

    name: ClassVar[str]
    is_exact: ClassVar[bool]  # leaves p(x, z|y) invariant whatever its step size
    target: Target | None = field(default=None, kw_only=True, repr=False, compare=False)

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

    def steps_when_tuned(self, states: Any, efficiency: float) -> int:
        """How many steps make a draw after the warm-up, when the user leaves it open.

        Args:
            states: of all chains.
            efficiency: effective draws for each draw in the second half of the warm-up.
        """
        del states, efficiency
        return self.steps_untuned

    def tuned(self, states: Any) -> dict[str, Array]:
        """What the warm-up has learnt, by name: for each chain a number, or a number for each coordinate of x."""
        del states
        return {}

    def spaced(self, time: float, efficiency: float) -> int:
        """So many steps that a draw is forgotten after one or two; one step takes `time` of the time for that."""
        measured = self.steps_untuned * WORTH_OF_A_DRAW / max(efficiency, 1e-9)
        return int(np.clip(np.ceil(max(1 / time, measured)), 1, MOST_STEPS))

    def init(self, key: Array, x: Array, z: Nuisance) -> Any:
        """The state of a chain that starts at `(x, z)`."""
        raise NotImplementedError

    def step(self, key: Array, state: Any, data: Data, t: Array) -> tuple[Any, Any]:
        """Step number `t`, the same number for all chains: the new state and what there is to say about it."""
        raise NotImplementedError

    def adapt(self, key: Array, state: Any, info: Any, data: Data, t: Array, length: Array) -> Any:
        """The state after step `t` of a warm-up of `length` steps, with what was learnt from the step."""
        del key, info, data, t, length
        return state
