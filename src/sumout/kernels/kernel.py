"""The contract of a kernel.

A kernel is a frozen configuration that prints and hashes. Bound to a target it can start a chain and move it on. State
is what the next step needs; info is everything else, for people and diagnostics. Kernels never print, raise or loop
over draws.

To add one: a file here, a row in `names.py`, a row in the tests' tables of kernels.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from jaxtyping import Array

from sumout.gradient import Target
from sumout.program import Data, Nuisance

GRADIENTS_PER_DRAW = 10


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

    def steps_when_tuned(self, states: Any) -> int:
        """How many steps make a draw after the warm-up, when the user leaves it open; `states` of all chains."""
        del states
        return self.steps_untuned

    def init(self, x: Array, z: Nuisance) -> Any:
        """The state of a chain that starts at `(x, z)`."""
        raise NotImplementedError

    def step(self, key: Array, state: Any, data: Data, t: Array) -> tuple[Any, Any]:
        """Step number `t`, the same number for all chains: the new state and what there is to say about it."""
        raise NotImplementedError

    def adapt(self, key: Array, state: Any, info: Any, data: Data, t: Array, length: Array) -> Any:
        """The state after step `t` of a warm-up of `length` steps, with what was learnt from the step."""
        del key, info, data, t, length
        return state
