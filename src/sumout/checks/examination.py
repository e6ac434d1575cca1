"""What checks have in common: a program at some random points, evaluated once for all of them, and what they find.

x is drawn as starts are, uniformly in (−2, 2) on the real line. At every x several values of z are tried and the most
probable kept; z is not summed out, as a gradient at one z compiles sooner than that of a sum. Where the density is zero
at all of them, z is left to the sums and moves of the plan, as it is when chains are started.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import QUICK_COMPILE, Ahead
from sumout.errors import ModelError
from sumout.jaxpr.equations import traced_once
from sumout.model.arguments import as_jax
from sumout.model.initial_values import draw_z, guess_x, guess_z
from sumout.model.program import Nuisance
from sumout.plan.plan import Plan
from sumout.randomness import fold_in, new_key, split
from sumout.threads import attentive_jit

NUM_POINTS = 16  # x at which the program is evaluated
ROUNDS = 10  # more of so many points, where the first has none of positive density
VALUES_OF_Z = 16  # tried at every x
EQUILIBRATION_SWEEPS = 50  # over z at a fixed x
LARGE = 1000  # numbers in one evaluation; above, fewer values of z and fewer coordinates are looked at
MOST_COORDINATES = 64  # of x that are looked at one by one

T = TypeVar("T")
quickly = partial(attentive_jit, compiler_options=QUICK_COMPILE)


@dataclass(frozen=True)
class Finding:
    """Something wrong with a program.

    Attributes:
        message: what was seen and where, why it matters, what to change.
        error: what to raise where the program cannot be sampled at all; None for a warning.
    """

    message: str
    error: type[ModelError] | None = None


class Examination:
    """A program with a plan, evaluated at random points.

    Attributes:
        plan: what will be done with z.
        program: the plan's.
        x: the points, `(point, num_x)`.
        z: nuisance values for each, the best of those tried.
        values: log densities there.
        gradients: likewise.
        tried: log densities at all the values of z that were tried at first, `(point, value of z)`.
        tried_x: x at these points.
        tried_z: the values of z, with the axes of `tried` in front.
        is_flat: the coordinates of x whose gradient was zero wherever it was finite.
    """

    def __init__(self, plan: Plan):
        self.plan, self.program = plan, plan.structure.program
        self._evaluate = Ahead(self._each, times=NUM_POINTS * ROUNDS)
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def of(self, plan: Plan) -> "Examination":
        """The same of a plan with the same code for other data; what is compiled is shared."""
        other = copy.copy(self)
        other.plan, other.program = plan, plan.structure.program
        return other

    def compiled(self, label: Any, make: Callable[[], Callable[..., T]]) -> Callable[..., T]:
        """A function for a check, made once for all data."""
        if label not in self._compiled:
            self._compiled[label] = make()
        return self._compiled[label]

    def prepare(self) -> None:
        """Begin to compile."""
        x, z, data = self.program.abstract_arguments()
        points = jax.tree.map(lambda a: jax.ShapeDtypeStruct((NUM_POINTS, *a.shape), a.dtype), (x, z))
        self._evaluate.prepare(*points, data, np.int32(0))

    def look(self) -> "Examination":
        """Draw the points and evaluate the program there."""
        tries = max(2, VALUES_OF_Z * LARGE // max(self.size, LARGE)) if self.program.z else 1
        self.x, z = self.draw(0, tries)
        values, gradients = self.evaluate(np.repeat(self.x, tries, axis=0), _merged(z))
        self.is_flat = (gradients == 0)[_is_sound(values, gradients)].all(axis=0)
        self.tried, self.tried_x, self.tried_z = values.reshape(NUM_POINTS, tries), self.x, z
        best = np.argmax(np.where(np.isnan(self.tried), -np.inf, self.tried), axis=1)
        points = np.arange(NUM_POINTS)
        self.z = {name: value[points, best] for name, value in z.items()}
        self.values, self.gradients = self.tried[points, best], gradients[points * tries + best]
        for number in range(1, ROUNDS + 1):
            # Only a density of zero, −∞, can be mended by another z.
            if self.is_sound.any() or not (self.tried == -np.inf).any():
                break
            self.x, _ = self.draw(number, 1)
            self.z = self.equilibrate(self.x, number)
            self.values, self.gradients = self.evaluate(self.x, self.z)
            self.is_flat = (self.gradients == 0)[self.is_sound].all(axis=0)
        return self

    @property
    def is_sound(self) -> np.ndarray:
        """At which points log density and gradient are finite."""
        return _is_sound(self.values, self.gradients)

    @property
    def anchors(self) -> np.ndarray:
        """The sound points, the most probable first."""
        sound = np.flatnonzero(self.is_sound)
        return sound[np.argsort(-self.values[sound])]

    @property
    def size(self) -> int:
        """About how many numbers one evaluation handles."""
        return self.program.num_z + sum(np.size(leaf) for leaf in jax.tree.leaves(self.program.data))

    @cached_property
    def coordinates(self) -> np.ndarray:
        """The coordinates of x to look at one by one: all, or some of every site where there are many."""
        most = max(4, MOST_COORDINATES * LARGE // max(self.size, LARGE))
        each = max(1, most // max(1, len(self.program.x)))
        chosen, start = [], 0
        for site in self.program.x.values():
            chosen.append(start + np.unique(np.linspace(0, site.size - 1, min(site.size, each)).astype(int)))
            start += site.size
        return np.concatenate([np.zeros(0, int), *chosen])

    @cached_property
    def is_real(self) -> np.ndarray:
        """Which coordinates are the user's own variables, not transformed."""
        each = [np.full(site.size, site.is_real) for site in self.program.x.values()]
        return np.concatenate([np.zeros(0, bool), *each])

    def name(self, coordinate: int) -> str:
        """A coordinate of x as the user knows it, as in 'mu' or 'mu' (coordinate 3)."""
        start = 0
        for name, site in self.program.x.items():
            if coordinate < start + site.size:
                return f"'{name}'" + (f" (coordinate {coordinate - start})" if site.size > 1 else "")
            start += site.size
        raise IndexError(coordinate)

    def at(self, point: int) -> dict[str, np.ndarray]:
        """The nuisance values at a point."""
        return {name: value[point] for name, value in self.z.items()}

    def moved(self, point: int, coordinate: int, to: float) -> np.ndarray:
        """x at a point with one coordinate changed."""
        x = np.array(self.x[point])
        x[coordinate] = to
        return x

    def evaluate(self, x: np.ndarray, z: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Log density and gradient at many points, of which each has its z."""
        values, gradients = [np.zeros(0)], [np.zeros((0, self.program.num_x))]
        for start in range(0, len(x), NUM_POINTS):
            count = min(NUM_POINTS, len(x) - start)
            # Padded by repetition, so that one compiled function serves all numbers of points.
            which = np.resize(np.arange(start, start + count), NUM_POINTS)
            some = x[which], {name: value[which] for name, value in z.items()}
            arguments = as_jax((*some, self.program.data, np.int32(count)))
            both = self._evaluate(*arguments)
            values.append(np.asarray(both[0], float)[:count])
            gradients.append(np.asarray(both[1], float)[:count])
        return np.concatenate(values), np.concatenate(gradients)

    def evaluate_at(self, point: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same at many x, with z as at a point."""
        z = {name: np.broadcast_to(value, (len(x), *np.shape(value))) for name, value in self.at(point).items()}
        return self.evaluate(x, z)

    def equilibrate(self, x: np.ndarray, number: int) -> dict[str, np.ndarray]:
        """Values of z that the sums and moves of the plan lead to at every x, from other starts for another number."""
        keys = split(fold_in(new_key(2), number), len(x))
        z = self.compiled("equilibrate", self._equilibrate)(keys, x, self.program.data)
        return {name: np.asarray(value) for name, value in z.items()}

    def draw(self, number: int, tries: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Points, and for each of them so many values of z."""
        rng = np.random.default_rng(number)
        x, z = guess_x(rng, self.program, NUM_POINTS), guess_z(rng, self.program, NUM_POINTS * tries)
        return x, {name: value.reshape(NUM_POINTS, tries, *value.shape[1:]) for name, value in z.items()}

    def _each(self, xs: Array, zs: Nuisance, data: Any, count: Array) -> tuple[Array, Array]:
        """Log density and gradient at the first so many of the points."""
        value_and_gradient = traced_once(jax.value_and_grad(self.plan.structure.log_density), is_final=True)

        def one(i: Array, kept: tuple[Array, Array]) -> tuple[Array, Array]:
            z = {name: value[i] for name, value in zs.items()}
            value, gradient = value_and_gradient(xs[i], z, data)
            return kept[0].at[i].set(value), kept[1].at[i].set(gradient)

        return jax.lax.fori_loop(0, count, one, (jnp.zeros(len(xs), xs.dtype), jnp.zeros_like(xs)))

    def _equilibrate(self) -> Callable[..., Nuisance]:
        @quickly
        def equilibrate(keys: Array, xs: Array, data: Any) -> Nuisance:
            def one(key: Array, x: Array) -> Nuisance:
                key_z, key_moves, key_recover = split(key, 3)

                def move(i: Array, z: Nuisance) -> Nuisance:
                    return self.plan.sweep(fold_in(key_moves, i), x, z, data)

                sweeps = 0 if self.plan.sums_all else EQUILIBRATION_SWEEPS
                z = jax.lax.fori_loop(0, sweeps, move, draw_z(key_z, self.program, data))
                return self.plan.recover(key_recover, x, z, data)

            return jax.vmap(one)(keys, xs)

        return equilibrate


def _is_sound(values: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    return np.isfinite(values) & np.isfinite(gradients).all(axis=1)


def _merged(z: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first two axes as one."""
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in z.items()}
