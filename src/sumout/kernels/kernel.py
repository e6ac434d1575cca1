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


@dataclass(frozen=True)
class Kernel:
    """A configuration, and once bound to a target a Markov kernel."""

    name: ClassVar[str]
    target: Target | None = field(default=None, kw_only=True, repr=False, compare=False)

    def bind(self, target: Target) -> "Kernel":
        """The kernel for one target."""
        return replace(self, target=target)

    @property
    def gradients_per_step(self) -> int:
        """How many gradient steps one step of the kernel takes."""
        return 1

    def steps_per_draw(self, steps: int) -> int:
        """How many steps of the kernel come to `steps` gradient steps."""
        return max(1, round(steps / self.gradients_per_step))

    def init(self, x: Array, z: Nuisance) -> Any:
        """The state of a chain that starts at `(x, z)`."""
        raise NotImplementedError

    def step(self, key: Array, state: Any, data: Data) -> tuple[Any, Any]:
        """One step: the new state and what there is to say about it."""
        raise NotImplementedError

    def adapt(self, key: Array, state: Any, info: Any, data: Data, t: Array, length: Array) -> Any:
        """The state after step `t` of a warm-up of `length` steps, with what was learnt from the step."""
        del key, info, data, t, length
        return state
