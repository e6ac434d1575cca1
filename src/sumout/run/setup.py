"""All that is worked out and compiled to sample from a program; kept with it, so that a second run starts at once."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from sumout.doctor.check import examine
from sumout.doctor.guard import Guard
from sumout.gradient import make_target
from sumout.kernels.kernel import Kernel
from sumout.kernels.names import find_kernel
from sumout.likelihood import build_likelihood
from sumout.plan import Plan, plan_for
from sumout.program import Nuisance, Program
from sumout.randomness import Key
from sumout.run.groups import ALONE, SIDE_BY_SIDE, is_small
from sumout.run.loop import Loop, capacity_for
from sumout.run.result import Naming
from sumout.run.start import Starts

T = TypeVar("T")


class Setup:
    """A program with a plan and a kernel, ready to run; what does not depend on the seed or on numbers of draws."""

    def __init__(self, plan: Plan, kernel: Kernel):
        self.plan, self.kernel = plan, kernel
        self.program = plan.structure.program
        self._target = target = self._kept("target", lambda: make_target(plan))
        self.starts = self._kept("starts", lambda: Starts(self.program, target))
        is_alone = is_small(self.program, target) or target.is_straight(*self.program.abstract_arguments())
        group = ALONE if is_alone else SIDE_BY_SIDE
        self.loop = Loop(kernel.bind(target), capacity_for(self.program), group)
        self._guard = self._kept("guard", lambda: Guard(plan))

    def naming(self, log_likelihood: bool) -> Naming:
        """For the draws, with the likelihood of every datum if that is wanted."""
        likelihood = (
            self._kept("likelihood", lambda: build_likelihood(self.plan)) if log_likelihood else "not asked for"
        )
        return self._kept(("naming", log_likelihood), lambda: Naming(self.program, likelihood))

    def prepare(self, chains: int, naming: Naming) -> None:
        """Begin to compile what a run of so many chains needs, in the background; what it waits for longest first."""
        if not self._target.is_still:  # then climbs take their time
            self.starts.prepare(chains)
        self.loop.prepare(self.program, chains)
        examine(self.plan).prepare()
        self._guard.prepare()
        self.starts.prepare(chains)
        naming.prepare()

    def guard(self, key: Key, x: jax.Array, z: Nuisance) -> None:
        """Check the reading at a point, the first time the program is run with this plan."""
        self._kept("guarded", lambda: self._guard.compare(key, x, z))

    def _kept(self, name: Any, make: Callable[[], T]) -> T:
        """What is the same for all kernels."""
        return self.program.remember((name, id(self.plan)), make)


def set_up(program: Program, kernel: Any, wishes: Mapping[str, str] | None) -> Setup:
    """The setup for what the user asks for, the same object when the same is asked for again."""
    plan = plan_for(program, wishes)
    chosen = find_kernel(kernel, plan)
    return program.remember(("setup", id(plan), chosen), lambda: Setup(plan, chosen))
