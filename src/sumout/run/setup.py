"""All that is worked out and compiled to sample from a program; kept with it, so that a second run starts at once."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sumout.gradient import make_target
from sumout.guesses import guess_z
from sumout.kernels.kernel import Kernel
from sumout.kernels.names import find_kernel
from sumout.likelihood import build_likelihood
from sumout.nuisance.quadratic import QuadraticGibbs, guard_quadratic
from sumout.plan import Plan, plan_for
from sumout.program import Nuisance, Program
from sumout.randomness import Key, generator
from sumout.reading.structure import guard
from sumout.run.loop import Loop, capacity_for
from sumout.run.result import EachDraw, Naming
from sumout.run.start import Starts

GUARD_FLIPS = 4

T = TypeVar("T")


class Setup:
    """A program with a plan and a kernel, ready to run; what does not depend on the seed or on numbers of draws."""

    def __init__(self, plan: Plan, kernel: Kernel):
        self.plan, self.kernel = plan, kernel
        self.program = plan.structure.program
        target = self._kept("target", lambda: make_target(plan))
        self.starts = self._kept("starts", lambda: Starts(self.program, target))
        self.loop = Loop(kernel.bind(target), capacity_for(self.program))
        self.constrain = self.program.remember("constrain", lambda: EachDraw(self.program, self.program.constrain))

    def naming(self, log_likelihood: bool) -> Naming:
        """For the draws, with the likelihood of every datum if that is wanted."""

        def build() -> EachDraw | str:
            built = build_likelihood(self.plan)
            return built if isinstance(built, str) else EachDraw(self.program, built)

        likelihood = self._kept("likelihood", build) if log_likelihood else "not asked for"
        return Naming(self.program, self.constrain, likelihood)

    def prepare(self, chains: int, naming: Naming) -> None:
        """Begin to compile what a run of so many chains needs, in the background; what takes longest first."""
        self.loop.prepare(self.program, chains)
        self.starts.prepare()
        naming.prepare()

    def guard(self, key: Key, x: jax.Array, z: Nuisance) -> None:
        """Check the reading at a point, the first time the program is run."""
        self.program.remember("guarded", lambda: guard_reading(self.plan, key, x, z))

    def _kept(self, name: str, make: Callable[[], T]) -> T:
        """What is the same for all kernels."""
        return self.program.remember((name, id(self.plan)), make)


def set_up(program: Program, kernel: Any, wishes: Mapping[str, str] | None) -> Setup:
    """The setup for what the user asks for, the same object when the same is asked for again."""
    plan = plan_for(program, wishes)
    chosen = find_kernel(kernel, plan)
    return program.remember(("setup", id(plan), chosen), lambda: Setup(plan, chosen))


def guard_reading(plan: Plan, key: Key, x: jax.Array, z: Nuisance) -> None:
    """Change a random half of the sites, a few times over, and see that only the right factors move."""
    program = plan.structure.program
    if not program.z:
        return

    rng = generator(key)
    chosen = {name: rng.uniform(size=(GUARD_FLIPS, *program.z[name].support.shape)) < 0.5 for name in z}
    spread = {name: c.reshape(c.shape + (1,) * (1 + np.ndim(z[name]) - c.ndim)) for name, c in chosen.items()}
    others = guess_z(rng, program, GUARD_FLIPS)
    flips: Any = {name: np.where(spread[name], others[name], z[name]) for name in z}
    guard(plan.structure, x, z, flips)
    for move in plan.moves:
        if isinstance(move, QuadraticGibbs):
            here, there = (x, z), (x + 1.0, jax.tree.map(lambda a: a[0], flips))
            guard_quadratic(move, *jax.tree.map(jnp.asarray, here), *jax.tree.map(jnp.asarray, there))
