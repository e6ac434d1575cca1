"""Where chains start: for each chain several short ascents from random points, of which the best is followed.

An ascent is Adam on log p(x, y) or, where z is drawn, on log p(x, z, y) with z moved before every gradient. Before x
sets out, z is equilibrated by some sweeps. Only one step is compiled, z moved and the gradient; what little remains is
NumPy's work, as a compiled ascent would take as long to compile as the loop of a kernel. Where there is much data,
modes are narrow and far apart: ascents go on for a second round there, unless enough of them have come to about the
same height by then.

A chain follows the ascent that ends highest, so that a minor mode does not trap it when one of its restarts has found a
better one. Where all ascents of a chain end clearly lower than those of another, it follows one of the other's. Ascents
are short: they are to find the right mode, not the spike of infinite density that, say, a mixture has where a component
collapses onto a point.

A chain does not start at the optimum, which would be the same for all, but on the way there, where its ascent first
came near it: chains remain over-dispersed, as r_hat wants them. In a Gaussian the log density of draws has a deviation
of √(½ num_x), and two of these are the measure of what is near and what is clearly lower. Much lower, a chain could
still slide into another mode.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from sumout.checks.not_finite import explain_no_start
from sumout.compile.ahead import Ahead, has_few_sites
from sumout.compile.policy import USUAL_CHAINS
from sumout.compile.spread import mesh_of
from sumout.errors import StartError
from sumout.kernels.leapfrog import Point
from sumout.model.arguments import as_jax
from sumout.model.initial_values import guess_x, guess_z
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.target import Target
from sumout.randomness import Key, fold_in, generator, split, words_of
from sumout.run.loop import is_small
from sumout.run.processes import ONE_PROCESS, Processes
from sumout.threads import attentive_jit, in_threads, is_left_behind

RESTARTS = 8  # ascents for each chain
SWEEPS = 10  # over z before x moves, and at the start that is chosen
FIRST_ROUND, SECOND_ROUND = 200, 800  # steps
KEPT_POINTS = 100  # about as many of each round, the last one among them
# The largest rate, reached after the first steps; Adam moves each coordinate by about as much in a step. Slow at first:
# large steps would empty one component of a mixture before it has found its place.
LEARNING_RATE, FIRST_STEPS = 0.5, 100
MEAN_MEMORY, SQUARE_MEMORY, LEAST_SPEED = 0.9, 0.999, 1e-8  # β₁, β₂ and ε of Adam


class Starts:
    """The search for starts, compiled once for a program and its target.

    Args:
        program: the program.
        target: of a plan for it.
        data: its data, where they are not where it has them itself.
    """

    def __init__(self, program: Program, target: Target, data: Data = None):
        self.program, self.target = program, target
        self._ascents = Ascents(program, target, RESTARTS, data)

    @property
    def spread(self) -> float:
        """Two deviations of the log density of draws."""
        return self._ascents.spread

    def of(self, program: Program, data: Data = None) -> "Starts":
        """The same of a program with the same code and other data; what is compiled is shared."""
        other = copy.copy(self)
        other.program = program
        other._ascents = copy.copy(self._ascents)
        other._ascents.program, other._ascents.placed = program, data
        return other

    def prepare(self, num_chains: int) -> None:
        """Begin to compile for so many chains."""
        self._ascents.prepare(num_chains)

    def find(self, key: Key, num_chains: int, processes: Processes = ONE_PROCESS) -> tuple[Point, Nuisance]:
        """For each chain a point of finite density and gradient and a z, with a leading axis of chains."""
        data = as_jax(self._ascents.data)
        keys = fold_in(np.asarray(words_of(key)), np.arange(num_chains))
        keys_ascent, keys_equilibrate = np.stack([split(key) for key in keys], axis=1)
        optima = self._ascents.run(keys_ascent, data, self._ascents.spread, processes)
        where = choose_ascents(optima.log_density, self._ascents.spread)
        points, z = jax.tree.map(lambda a: a[where], (optima.points, optima.z))
        if not np.isfinite(optima.log_density).any():
            density, restarts = self.target.log_density, f"{RESTARTS} restarts for each chain"
            raise StartError(explain_no_start(self.program, density, points.x, z, restarts))
        return points, self._ascents.equilibrate(keys_equilibrate, points.x, z, data)

    def at(self, key: Key, x: np.ndarray) -> tuple[Point, Nuisance]:
        """For each chain the point at some x, and a z that is equilibrated there."""
        data = as_jax(self.program.data)
        keys = fold_in(np.asarray(words_of(key)), np.arange(len(x)))
        keys_guess, keys_equilibrate = np.stack([split(key) for key in keys], axis=1)
        guessed = [guess_z(generator(key), self.program, 1) for key in keys_guess]
        z = self._ascents.equilibrate(keys_equilibrate, x, jax.tree.map(lambda *a: np.concatenate(a), *guessed), data)
        point: Any = (x, *self._ascents.gradients(x, z, data))
        return Point(*point), z


def choose_ascents(log_density: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Which ascent each chain follows, by chain and restart: its own highest, or another's if that is clearly higher.

    No two chains follow the same ascent while there are others as good.

    >>> chain, number = choose_ascents(np.array([[-9.0, -2.0], [-30.0, -20.0], [-3.0, -20.0]]), spread=8.0)
    >>> chain.tolist(), number.tolist()
    ([0, 0, 2], [1, 0, 0])
    """
    best = log_density.argmax(axis=1)
    is_good = log_density >= log_density.max() - spread
    lost = ~is_good.any(axis=1)
    free = is_good.copy()
    free[np.arange(len(best)), best] = False
    others = np.argwhere(free if free.any() else is_good)
    chain = np.arange(len(best))
    chain[lost], best[lost] = np.resize(others, (lost.sum(), 2)).T
    return chain, best


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Optima:
    """What ascents have found, with axes (key, restart).

    Attributes:
        points: the first of each ascent that is near its optimum.
        z: the last.
        log_density: at the optimum, −∞ where no point had a finite density and gradient.
    """

    points: Point
    z: Any
    log_density: np.ndarray


@dataclass
class AscentState:
    """Ascents that run side by side.

    Attributes:
        x, z: where they are.
        keys: one for the restarts of a chain.
        mean, square: moments of the gradients, as Adam weighs them.
        done: steps so far.
        path: x, log density and gradient at some of the steps.
    """

    x: np.ndarray
    z: Any
    keys: Key
    mean: np.ndarray
    square: np.ndarray
    done: int = 0
    path: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)


def spread_of(program: Program, target: Target) -> float:
    """Two deviations of the log density of draws, were they from a Gaussian with as many coordinates."""
    return float(np.sqrt(2 * (program.num_x + (0 if target.is_marginalised else program.num_z))))


class Ascents:
    """Ascents from so many random points for each key, compiled once for a program and its target.

    Attributes:
        spread: two deviations of the log density of draws, were they from a Gaussian with as many coordinates; optima
            that differ by less count as equally high.
    """

    def __init__(self, program: Program, target: Target, restarts: int, data: Data = None):
        self.program, self.target, self.restarts, self.placed = program, target, restarts, data
        self.is_small = is_small(program, target)
        self.spread = spread_of(program, target)
        z_only = np.zeros(0 if target.is_marginalised else SWEEPS)  # steps in which x stays
        first, second = np.concatenate([z_only, learning_rates(FIRST_ROUND)]), learning_rates(SECOND_ROUND)
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

        self._gradient = attentive_jit(target.value_and_gradient)
        calls = 1 if self.is_small else USUAL_CHAINS
        # Of two rounds the second is seldom needed: where it is, it takes a little longer than if it had been foreseen.
        self._step = Ahead(step, times=calls * len(first))

    @property
    def data(self) -> Data:
        """From which gradients are computed."""
        return self.program.data if self.placed is None else self.placed

    def prepare(self, num_keys: int) -> None:
        """Begin to compile for so many keys."""
        x, z, data = self.program.abstract_arguments()
        data = data if self.placed is None else self.placed
        each = jax.ShapeDtypeStruct((2,), np.uint32), x, z
        num = self.restarts * self._together(num_keys)
        self._step.prepare(*jax.tree.map(lambda a: jax.ShapeDtypeStruct((num, *a.shape), a.dtype), each), data)

    def run(self, keys: Key, data: Data, below: float, processes: Processes = ONE_PROCESS) -> Optima:
        """Ascend from random points; the points are the first of each ascent `below` nats or less from its optimum."""
        together = self._together(len(keys))
        ascents = [self._start(keys[i : i + together]) for i in range(0, len(keys), together)]
        own = processes.own(ascents)
        for rates in self._rounds:
            in_threads(lambda ascent, rates=rates: self._advance(ascent, rates, data), own, self._at_once)
            of_own = [(*_near_optima(ascent.path, below), ascent.z) for ascent in own]
            found = processes.gather(of_own, len(ascents))
            points, highest, z = jax.tree.map(
                lambda *a: np.concatenate(a).reshape(len(keys), self.restarts, *a[0].shape[1:]), *found
            )
            if (highest >= highest.max() - self.spread).sum() >= max(len(keys), 2):
                break
        return Optima(points, z, highest)

    def equilibrate(self, keys: Key, x: np.ndarray, z: Any, data: Data) -> Any:
        """Values of z after some sweeps at x, for each key one x and one z."""
        if self.target.is_marginalised:
            return z
        together = self._together(len(keys))

        def some(first: int) -> Any:
            group, x_each, z_each = jax.tree.map(lambda a: a[first : first + together], (keys, x, z))
            x_each, z_each = jax.tree.map(lambda a: np.repeat(a, self.restarts, axis=0), (x_each, z_each))
            for i in range(SWEEPS):
                each = np.concatenate([split(fold_in(key, i), self.restarts) for key in group])
                z_each = self._step(each, x_each, z_each, data)[2]
            return jax.tree.map(lambda a: np.asarray(a)[:: self.restarts], z_each)

        return jax.tree.map(
            lambda *a: np.concatenate(a), *in_threads(some, range(0, len(keys), together), self._at_once)
        )

    @property
    def _at_once(self) -> int | None:
        """Calls at a time: one, if devices wait for each other in it."""
        return None if mesh_of(self.placed) is None else 1

    def gradients(self, x: np.ndarray, z: Any, data: Data) -> tuple[np.ndarray, np.ndarray]:
        """Log density and gradient at each x and z."""
        found = [self._gradient(*each, data) for each in zip(as_jax(x), _rows(as_jax(z), len(x)), strict=True)]
        value, gradient = (np.stack([np.asarray(a) for a in part]) for part in zip(*found, strict=True))
        return value, gradient

    def _together(self, num_keys: int) -> int:
        """Keys whose ascents share a call: all, where a step takes less time than the Python between two of them."""
        return num_keys if self.is_small else 1

    def _start(self, keys: Key) -> AscentState:
        """Random points for the ascents of some keys, those of each as if it were alone."""
        keys_guess, keys_steps = np.stack([split(key) for key in keys], axis=1)
        rngs = [generator(key) for key in keys_guess]
        begun = [(guess_x(rng, self.program, self.restarts), guess_z(rng, self.program, self.restarts)) for rng in rngs]
        x, z = jax.tree.map(lambda *each: np.concatenate(each), *begun)
        return AscentState(x, z, keys_steps, np.zeros_like(x), np.zeros_like(x))

    def _advance(self, ascent: AscentState, rates: np.ndarray, data: Data) -> None:
        """A step of Adam for each learning rate."""
        numbers = np.arange(ascent.done, ascent.done + len(rates))
        counters = numbers[:, None] * self.restarts + np.arange(self.restarts)
        keys_of_steps = np.concatenate([fold_in(key, counters) for key in ascent.keys], axis=1)
        step = self._step.compiled(keys_of_steps[0], ascent.x, ascent.z, data)
        for i, rate, keys in zip(numbers + 1, rates, keys_of_steps, strict=True):
            if is_left_behind():
                return
            log_density, gradient, ascent.z = step(keys, ascent.x, ascent.z, data)
            log_density, gradient = np.asarray(log_density), np.asarray(gradient)
            if (numbers[-1] + 1 - i) % (len(rates) // KEPT_POINTS) == 0:
                ascent.path.append((ascent.x, log_density, gradient))
            uphill = np.where(_is_finite(log_density, gradient)[:, None], gradient, 0.0).astype(ascent.x.dtype)
            with np.errstate(over="ignore", under="ignore"):
                ascent.mean = MEAN_MEMORY * ascent.mean + (1 - MEAN_MEMORY) * uphill
                ascent.square = SQUARE_MEMORY * ascent.square + (1 - SQUARE_MEMORY) * uphill**2
                speed = np.sqrt(ascent.square / (1 - SQUARE_MEMORY**i)) + LEAST_SPEED
                ascent.x = (ascent.x + rate * ascent.mean / (1 - MEAN_MEMORY**i) / speed).astype(ascent.x.dtype)
        ascent.done += len(rates)
        ascent.z = jax.tree.map(np.asarray, ascent.z)


def _rows(arrays: Any, num: int) -> list[Any]:
    """The first elements of all arrays, the second ones, and so on."""
    return [jax.tree.map(lambda a, i=i: a[i], arrays) for i in range(num)]


def learning_rates(num: int) -> np.ndarray:
    """Learning rates of so many steps: a linear warm-up, then cosine decay."""
    first = np.arange(FIRST_STEPS) / FIRST_STEPS
    rest = 0.5 * (1 + np.cos(np.pi * np.arange(num - FIRST_STEPS) / (num - FIRST_STEPS)))
    return LEARNING_RATE * np.concatenate([first, rest])


def _near_optima(path: Sequence[Any], below: float) -> tuple[Point, np.ndarray]:
    """Of each ascent the first point no more than so many nats below its optimum, and the log density there."""
    points: Any = [np.stack(steps) for steps in zip(*path, strict=True)]
    _, log_density, gradient = points
    finite = np.where(_is_finite(log_density, gradient), log_density, -np.inf)
    highest = finite.max(axis=0)
    where = np.argmax(finite >= highest - below, axis=0), np.arange(len(highest))
    return Point(*(part[where] for part in points)), highest


def _is_finite(log_density: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.isfinite(log_density) & np.isfinite(gradient).all(axis=-1)
