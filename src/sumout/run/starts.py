"""Short ascents from random points, several at once.

Adam on log p(x, y) or, where z is drawn, on log p(x, z, y) with z moved before every gradient. Before x sets out, z is
given time to settle. Only one step is compiled, z moved and the gradient; what little remains is NumPy's work, as a
compiled climb would take as long to compile as the loop of a kernel.

Where there is much data, hills are narrow and valleys long: climbs go on for a second round there, unless enough of
them have come to about the same height by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from sumout.checks.blame import describe_failure
from sumout.compile.ahead import Ahead, has_few_sites
from sumout.errors import StartError
from sumout.kernels.leapfrog import Point
from sumout.model.arguments import as_jax
from sumout.model.initial_values import guess_x, guess_z
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.target import Target
from sumout.randomness import Key, fold_in, generator, split, words_of
from sumout.run.loop import is_small
from sumout.threads import in_threads, is_left_behind

SETTLING_SWEEPS = 10
FIRST_ROUND, SECOND_ROUND = 200, 800  # steps
KEPT_POINTS = 100  # about as many of each round, the last one among them
# Half-way, less before and after; Adam moves each coordinate by about as much in a step. Slow at first: large steps
# would empty one component of a mixture before it has found its place.
CLIMBING_RATE, FIRST_STEPS = 0.5, 100
USUAL_CHAINS = 4
MEAN_MEMORY, SQUARE_MEMORY, LEAST_SPEED = 0.9, 0.999, 1e-8  # β₁, β₂ and ε of Adam


@partial(jax.tree_util.register_dataclass, data_fields=["points", "z", "tops"], meta_fields=[])
@dataclass(frozen=True)
class Tries:
    """What some climbs came to, with axes (key, try).

    Attributes:
        points: the first on each way that are near its top.
        z: the last.
        tops: the highest sound log densities, −∞ where there was none.
    """

    points: Point
    z: Any
    tops: np.ndarray


@dataclass
class Way:
    """Tries on their way up, in step.

    Attributes:
        x, z: where they are.
        keys: of those that climb together.
        mean, square: of the gradients, as Adam weighs them.
        done: steps so far.
        path: points on the way.
    """

    x: np.ndarray
    z: Any
    keys: Key
    mean: np.ndarray
    square: np.ndarray
    done: int = 0
    path: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)


class Climbs:
    """Climbs of so many tries for each key, compiled once for a program and its target.

    Attributes:
        spread: two deviations of the log density of draws, were they from a Gaussian with as many coordinates; climbs
            whose tops differ by less count as of the same height.
    """

    def __init__(self, program: Program, target: Target, tries: int):
        self.program, self.target, self.tries = program, target, tries
        self.is_small = is_small(program, target)
        self.spread = float(np.sqrt(2 * (program.num_x + (0 if target.is_marginalised else program.num_z))))
        settling = np.zeros(0 if target.is_marginalised else SETTLING_SWEEPS)
        first, second = np.concatenate([settling, _rates(FIRST_ROUND)]), _rates(SECOND_ROUND)
        self._rounds = [first] if has_few_sites(program) else [first, second]

        def step(keys: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Array, Nuisance]:
            def one(key: Array, x: Array, z: Nuisance) -> tuple[Array, Array, Nuisance]:
                z = target.move(key, x, z, data)
                return *target.value_and_gradient(x, z, data), z

            first_x, first_z = jax.tree.map(lambda a: a[0], (x, z))
            is_plain = target.is_marginalised and target.is_loop_free(first_x, first_z, data)
            if self.is_small or is_plain:  # less to trace and to compile
                return jax.lax.map(lambda each: one(*each), (keys, x, z))
            return jax.vmap(one)(keys, x, z)

        climbs = 1 if self.is_small else USUAL_CHAINS
        self._step = Ahead(step, times=climbs * sum(map(len, self._rounds)))

    def prepare(self, num_keys: int) -> None:
        """Begin to compile for so many keys."""
        x, z, data = self.program.abstract_arguments()
        each = jax.ShapeDtypeStruct((2,), np.uint32), x, z
        num = self.tries * self._together(num_keys)
        self._step.prepare(*jax.tree.map(lambda a: jax.ShapeDtypeStruct((num, *a.shape), a.dtype), each), data)

    def climb(self, keys: Key, data: Data, below: float) -> Tries:
        """From random points up, to the first of each climb that is so many nats below its top."""
        together = self._together(len(keys))
        ways = [self._begin(keys[i : i + together]) for i in range(0, len(keys), together)]
        for rates in self._rounds:
            in_threads(lambda way, rates=rates: self._go_on(way, rates, data), ways)
            found = [(*_near_tops(way.path, below), way.z) for way in ways]
            points, tops, z = jax.tree.map(
                lambda *a: np.concatenate(a).reshape(len(keys), self.tries, *a[0].shape[1:]), *found
            )
            if (tops >= tops.max() - self.spread).sum() >= max(len(keys), 2):
                break
        return Tries(points, z, tops)

    def settle(self, keys: Key, x: np.ndarray, z: Any, data: Data) -> Any:
        """Z after some sweeps, one for each key, x and z."""
        if self.target.is_marginalised:
            return z
        together = self._together(len(keys))

        def some(first: int) -> Any:
            group, x_each, z_each = jax.tree.map(lambda a: a[first : first + together], (keys, x, z))
            x_each, z_each = jax.tree.map(lambda a: np.repeat(a, self.tries, axis=0), (x_each, z_each))
            for i in range(SETTLING_SWEEPS):
                each = np.concatenate([split(fold_in(key, i), self.tries) for key in group])
                z_each = self._step(each, x_each, z_each, data)[2]
            return jax.tree.map(lambda a: np.asarray(a)[:: self.tries], z_each)

        return jax.tree.map(lambda *a: np.concatenate(a), *in_threads(some, range(0, len(keys), together)))

    def _together(self, num_keys: int) -> int:
        """Keys whose tries climb in step: all of a small program, whose steps take less time than Python's between."""
        return num_keys if self.is_small else 1

    def _begin(self, keys: Key) -> Way:
        """Where the tries of some keys begin, those of each as if it were alone."""
        keys_guess, keys_steps = np.stack([split(key) for key in keys], axis=1)
        rngs = [generator(key) for key in keys_guess]
        begun = [(guess_x(rng, self.program, self.tries), guess_z(rng, self.program, self.tries)) for rng in rngs]
        x, z = jax.tree.map(lambda *each: np.concatenate(each), *begun)
        return Way(x, z, keys_steps, np.zeros_like(x), np.zeros_like(x))

    def _go_on(self, way: Way, rates: np.ndarray, data: Data) -> None:
        """Climb further, a step for each rate."""
        numbers = np.arange(way.done, way.done + len(rates))
        counters = numbers[:, None] * self.tries + np.arange(self.tries)
        keys_of_steps = np.concatenate([fold_in(key, counters) for key in way.keys], axis=1)
        step = self._step.compiled(keys_of_steps[0], way.x, way.z, data)
        for i, rate, keys in zip(numbers + 1, rates, keys_of_steps, strict=True):
            if is_left_behind():
                return
            log_density, gradient, way.z = step(keys, way.x, way.z, data)
            log_density, gradient = np.asarray(log_density), np.asarray(gradient)
            if (numbers[-1] + 1 - i) % (len(rates) // KEPT_POINTS) == 0:
                way.path.append((way.x, log_density, gradient))
            uphill = np.where(_is_sound(log_density, gradient)[:, None], gradient, 0.0).astype(way.x.dtype)
            with np.errstate(over="ignore", under="ignore"):
                way.mean = MEAN_MEMORY * way.mean + (1 - MEAN_MEMORY) * uphill
                way.square = SQUARE_MEMORY * way.square + (1 - SQUARE_MEMORY) * uphill**2
                speed = np.sqrt(way.square / (1 - SQUARE_MEMORY**i)) + LEAST_SPEED
                way.x = (way.x + rate * way.mean / (1 - MEAN_MEMORY**i) / speed).astype(way.x.dtype)
        way.done += len(rates)
        way.z = jax.tree.map(np.asarray, way.z)


def _rates(num: int) -> np.ndarray:
    """Of so many steps: up in a line, then down in half a wave."""
    first = np.arange(FIRST_STEPS) / FIRST_STEPS
    rest = 0.5 * (1 + np.cos(np.pi * np.arange(num - FIRST_STEPS) / (num - FIRST_STEPS)))
    return CLIMBING_RATE * np.concatenate([first, rest])


def _near_tops(path: Sequence[Any], below: float) -> tuple[Point, np.ndarray]:
    """Of each try the first point no more than so many nats below its highest, and how high that is."""
    points: Any = [np.stack(steps) for steps in zip(*path, strict=True)]
    _, log_density, gradient = points
    sound = np.where(_is_sound(log_density, gradient), log_density, -np.inf)
    tops = sound.max(axis=0)
    where = np.argmax(sound >= tops - below, axis=0), np.arange(len(tops))
    return Point(*(part[where] for part in points)), tops


def _is_sound(log_density: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.isfinite(log_density) & np.isfinite(gradient).all(axis=-1)


# Where chains start: several short ascents for each chain, the best one followed.
#
# Each try draws x and z at random and climbs (`climb.py`). The try that ends highest wins, so that a minor mode does
# not trap a chain when one of its tries has found a better one. Where all tries of a chain end clearly lower than
# those of another, it follows one of the other's. Climbs are short: they are to find the right hill, not the spike of
# infinite density that, say, a mixture has where a component collapses onto a point.
#
# A chain does not start at the top, which would be the same for all, but on the way there, where its climb first came
# near it: chains remain over-dispersed, as r_hat wants them. In a Gaussian the log density of draws has a deviation of
# √(½ num_x), and two of these are the measure of what is near and what is clearly lower. Much lower, a chain could
# still slide down another hill.

TRIES = 8


class Starts:
    """The search for starts, compiled once for a program and its target."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self._climbs = Climbs(program, target, TRIES)

    def prepare(self, num_chains: int) -> None:
        """Begin to compile for so many chains."""
        self._climbs.prepare(num_chains)

    def find(self, key: Key, num_chains: int) -> tuple[Point, Nuisance]:
        """For each chain a point of finite density and gradient and a z, with a leading axis of chains."""
        data = as_jax(self.program.data)
        keys = fold_in(np.asarray(words_of(key)), np.arange(num_chains))
        keys_climb, keys_settle = np.stack([split(key) for key in keys], axis=1)
        tries = self._climbs.climb(keys_climb, data, below=self._climbs.spread)
        where = climbs_to_follow(tries.tops, self._climbs.spread)
        points, z = jax.tree.map(lambda a: a[where], (tries.points, tries.z))
        if not np.isfinite(tries.tops).any():
            density, number = self.target.log_density, f"{TRIES} tries a chain"
            raise StartError(describe_failure(self.program, density, points.x, z, number))
        return points, self._climbs.settle(keys_settle, points.x, z, data)


def climbs_to_follow(tops: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Which climb each chain follows, by chain and try: its own highest, or another's where that is clearly higher.

    No two chains follow the same climb while there are others as good.

    >>> chain, number = climbs_to_follow(np.array([[-9.0, -2.0], [-30.0, -20.0], [-3.0, -20.0]]), spread=8.0)
    >>> chain.tolist(), number.tolist()
    ([0, 0, 2], [1, 0, 0])
    """
    best = tops.argmax(axis=1)
    is_good = tops >= tops.max() - spread
    lost = ~is_good.any(axis=1)
    free = is_good.copy()
    free[np.arange(len(tops)), best] = False
    others = np.argwhere(free if free.any() else is_good)
    chain = np.arange(len(tops))
    chain[lost], best[lost] = np.resize(others, (lost.sum(), 2)).T
    return chain, best
