"""Short ascents from random points, several at once.

Adam on log p(x, y) or, where z is drawn, on log p(x, z, y) with z moved before every gradient. Before x sets out, z is
given time to settle. Only one step is compiled, z moved and the gradient; what little remains is NumPy's work, as a
compiled climb would take as long to compile as the loop of a kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from sumout.compiling.ahead import Ahead, has_few_sites
from sumout.gradient import Target
from sumout.guesses import guess_x, guess_z
from sumout.kernels.leapfrog import Point
from sumout.program import Data, Nuisance, Program
from sumout.randomness import Key, fold_in, generator, split
from sumout.run.groups import is_small

SETTLING_SWEEPS = 10
FEW_STEPS, MANY_STEPS = 200, 1000  # of a climb; where there is much data, hills are narrow and valleys long
KEPT_POINTS = 100  # about as many of each climb, the last one among them
# Half-way, less before and after; Adam moves each coordinate by about as much in a step. Slow at first: large steps
# would empty one component of a mixture before it has found its place.
CLIMBING_RATE, FIRST_STEPS = 0.5, 100
USUAL_CHAINS = 4
MEAN_MEMORY, SQUARE_MEMORY, LEAST_SPEED = 0.9, 0.999, 1e-8  # β₁, β₂ and ε of Adam


@partial(jax.tree_util.register_dataclass, data_fields=["points", "z", "tops"], meta_fields=[])
@dataclass(frozen=True)
class Tries:
    """What some climbs came to, with a leading axis of tries.

    Attributes:
        points: the first on each way that are near its top.
        z: the last.
        tops: the highest sound log densities, −∞ where there was none.
    """

    points: Point
    z: Any
    tops: np.ndarray


class Climbs:
    """Climbs of so many tries for each key, compiled once for a program and its target."""

    def __init__(self, program: Program, target: Target, tries: int):
        self.program, self.target, self.tries = program, target, tries
        self.is_small = is_small(program, target)

        def step(keys: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Array, Nuisance]:
            def one(key: Array, x: Array, z: Nuisance) -> tuple[Array, Array, Nuisance]:
                z = target.move(key, x, z, data)
                return *target.value_and_gradient(x, z, data), z

            first_x, first_z = jax.tree.map(lambda a: a[0], (x, z))
            is_plain = target.is_still and target.is_straight(first_x, first_z, data)
            if self.is_small or is_plain:  # less to trace and to compile
                return jax.lax.map(lambda each: one(*each), (keys, x, z))
            return jax.vmap(one)(keys, x, z)

        climbs = 1 if self.is_small else USUAL_CHAINS
        self._step = Ahead(step, times=climbs * len(_rates(SETTLING_SWEEPS, program)))

    def prepare(self, num_keys: int) -> None:
        """Begin to compile for so many keys at once."""
        x, z, data = self.program.abstract_arguments()
        each = jax.ShapeDtypeStruct((2,), np.uint32), x, z
        tries = jax.tree.map(lambda a: jax.ShapeDtypeStruct((num_keys * self.tries, *a.shape), a.dtype), each)
        self._step.prepare(*tries, data)

    def together(self, num_chains: int) -> int:
        """Chains that climb in step: all of a small program, whose steps take less time than Python between them."""
        return num_chains if self.is_small else 1

    def climb(self, keys: Key, data: Data, below: float) -> list[Tries]:
        """From random points to so many nats below the top: tries of all keys in step, of each as if it were alone."""
        rates = _rates(0 if self.target.is_still else SETTLING_SWEEPS, self.program)
        begun = [self._guess(key, len(rates)) for key in keys]
        x, z, keys = jax.tree.map(lambda *each: np.concatenate(each), *begun)
        step = self._step.prepare(keys[:, 0], x, z, data).result()
        mean, square, path = np.zeros_like(x), np.zeros_like(x), []
        for i, rate in enumerate(rates):
            log_density, gradient, z = step(keys[:, i], x, z, data)
            log_density, gradient = np.asarray(log_density), np.asarray(gradient)
            if (len(rates) - 1 - i) % (len(rates) // KEPT_POINTS) == 0:
                path.append((x, log_density, gradient))
            uphill = np.where(_is_sound(log_density, gradient)[:, None], gradient, 0.0).astype(x.dtype)
            with np.errstate(over="ignore", under="ignore"):
                mean = MEAN_MEMORY * mean + (1 - MEAN_MEMORY) * uphill
                square = SQUARE_MEMORY * square + (1 - SQUARE_MEMORY) * uphill**2
                speed = np.sqrt(square / (1 - SQUARE_MEMORY ** (i + 1))) + LEAST_SPEED
                x = (x + rate * mean / (1 - MEAN_MEMORY ** (i + 1)) / speed).astype(x.dtype)
        points, tops = _near_tops([np.stack(steps) for steps in zip(*path, strict=True)], below)
        tries = Tries(points, jax.tree.map(np.asarray, z), tops)
        parts = (slice(i * self.tries, (i + 1) * self.tries) for i in range(len(begun)))
        return [jax.tree.map(lambda a, part=part: a[part], tries) for part in parts]

    def settle(self, keys: Key, x: np.ndarray, z: Any, data: Data) -> Any:
        """Z after some sweeps, one for each key, x and z."""
        if self.target.is_still:
            return z
        x, z = jax.tree.map(lambda a: np.repeat(a, self.tries, axis=0), (x, z))
        for i in range(SETTLING_SWEEPS):
            each = np.concatenate([split(fold_in(key, i), self.tries) for key in keys])
            z = self._step(each, x, z, data)[2]
        return jax.tree.map(lambda a: np.asarray(a)[:: self.tries], z)

    def _guess(self, key: Key, num_steps: int) -> tuple[np.ndarray, Any, Key]:
        """Where the tries of a key begin, and their keys, `(try, step)`."""
        key_guess, key_steps = split(key)
        rng = generator(key_guess)
        x, z = guess_x(rng, self.program, self.tries), guess_z(rng, self.program, self.tries)
        numbers = np.arange(num_steps * self.tries).reshape(num_steps, self.tries)
        return x, z, fold_in(key_steps, numbers).swapaxes(0, 1)


def _rates(settling: int, program: Program) -> np.ndarray:
    """Of each step: none while z settles, then up in a line, then down in half a wave."""
    num = FEW_STEPS if has_few_sites(program) else MANY_STEPS
    first = np.arange(FIRST_STEPS) / FIRST_STEPS
    rest = 0.5 * (1 + np.cos(np.pi * np.arange(num - FIRST_STEPS) / (num - FIRST_STEPS)))
    return CLIMBING_RATE * np.concatenate([np.zeros(settling), first, rest])


def _near_tops(path: Sequence[Any], below: float) -> tuple[Point, np.ndarray]:
    """Of ways, x and value and gradient by step and try, the first points so many nats below the tops, and the tops."""
    _, log_density, gradient = path
    sound = np.where(_is_sound(log_density, gradient), log_density, -np.inf)
    tops = sound.max(axis=0)
    where = np.argmax(sound >= tops - below, axis=0), np.arange(len(tops))
    return Point(*(part[where] for part in path)), tops


def _is_sound(log_density: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.isfinite(log_density) & np.isfinite(gradient).all(axis=-1)
