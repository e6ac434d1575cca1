"""The mode of a posterior of many rows, and the curvature there, with few passes over the data.

1. Short ascents (`run/starts.py`) on a few thousand rows, each weighed as many: they tell modes apart, and end within
   √(N / rows) posterior deviations of the mode of all rows.
2. Quasi-Newton steps (BFGS) on all rows, with totals as if in double precision, whose first metric is the curvature of
   some rows: a step leaves some hundredths of the way, so that a handful of passes will do.
3. The curvature at the mode, from some rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.checks.not_finite import explain_no_start
from sumout.errors import ModelError, StartError
from sumout.model.arguments import as_jax
from sumout.model.program import Data, Nuisance
from sumout.plan.row_sums import RowSums, SumsOfPlates, curvature_of
from sumout.plan.target import Target
from sumout.randomness import Key, generator, split
from sumout.run.starts import RESTARTS, Ascents
from sumout.threads import attentive_jit

ASCENT_ROWS = 2_000  # on which ascents go: enough to tell components of a mixture apart
CURVATURE_ROWS = 20_000  # from which the curvature is estimated, to a per cent or so
MOST_PASSES = 60  # over all rows
FIRST_LOOK = 3  # optima of some rows that are compared on all
CLOSE = 1e-2  # gᵀ P⁻¹ g at which a point is the mode: a tenth of a posterior deviation
LEAST_CURVATURE = 1e-7  # of the largest, along a direction in which the density is flat or turns up
SHORTEST = 1e-4  # part of a step that is tried


@dataclass(frozen=True, eq=False)
class Mode:
    """Where the log density of all rows is highest.

    Attributes:
        x: the mode.
        log_density: there, of all rows.
        pull: gradient of the sum over all rows there.
        spread: S, with S Sᵀ the inverse of minus the Hessian.
        decrement: gᵀ P⁻¹ g there, of the gradient that is left: squared distance from the mode in deviations.
        passes: over the data that were made.
    """

    x: Float[np.ndarray, " num_x"]
    log_density: float
    pull: Float[np.ndarray, " num_x"]
    spread: Float[np.ndarray, "num_x num_x"]
    decrement: float
    passes: int

    @property
    def is_found(self) -> bool:
        """Whether the search ended at the mode."""
        return self.decrement <= CLOSE * max(1, len(self.x))


class FullData:
    """The log density of all rows, by passes over them in chunks.

    Args:
        sums: of rows.
        arrays: the data of all rows; of some, where the others are on the disk.
        pieces: gives all rows, piece by piece; None where `arrays` has all.
    """

    def __init__(self, sums: RowSums | SumsOfPlates, arrays: Data, pieces: Callable[[], Iterable[Data]] | None = None):
        self.sums, self._arrays = sums, arrays
        self._pieces = pieces or (lambda: [arrays])
        self._totals = [attentive_jit(one.totals) for one in sums.each]
        self._shared = attentive_jit(sums.each[0].shared_at)
        self._curvature = [attentive_jit(partial(curvature_of, one)) for one in sums.each]
        self._index = jnp.arange(sums.each[0].rows.batch, dtype=jnp.int32)

    def at(self, points: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log density and gradient at several points, and the part of the gradient that comes from rows: one pass."""
        xs = [jnp.asarray(point, jnp.result_type(float)) for point in np.asarray(points)]
        value, pull = np.zeros(len(xs)), np.zeros((len(xs), self.sums.num_x))
        for piece in self._pieces():
            for i, x in enumerate(xs):
                more, slope = self._of_rows(x, piece)
                value[i], pull[i] = value[i] + more, pull[i] + slope
        shared = [self._shared(x, self._arrays, self._index) for x in xs]
        values, gradients = (np.array([np.asarray(a, np.float64) for a in part]) for part in zip(*shared, strict=True))
        return value + values, pull + gradients, pull

    def first_not_finite(self, point: np.ndarray) -> tuple[int, int] | None:
        """From which row up to which there is one whose log density is not finite: those of a piece, as they are read.

        None where all are finite.
        """
        x, start = jnp.asarray(point, jnp.result_type(float)), 0
        for piece in self._pieces():
            num = self.sums.each[0].rows.num_held(piece)
            if not np.isfinite(self._of_rows(x, piece)[0]):
                return start, start + num
            start += num
        return None

    def _of_rows(self, x: Array, piece: Data) -> tuple[np.ndarray, np.ndarray]:
        """The sum over the rows of a piece, and its gradient."""
        value, gradient = np.zeros(()), np.zeros(self.sums.num_x)
        for totals in self._totals:
            (high, slope), (low, slope_low) = jax.tree.map(lambda a: np.asarray(a, np.float64), totals(x, piece))
            value, gradient = value + high + low, gradient + slope + slope_low
        return value, gradient

    def precision(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Minus the Hessian of the log density, from some rows."""
        hessian, shared = np.zeros((self.sums.num_x, self.sums.num_x)), np.zeros(())
        for one, curvature in zip(self.sums.each, self._curvature, strict=True):
            rows = one.rows
            held = rows.num_held(self._arrays)
            num = min(-(-CURVATURE_ROWS // rows.batch), -(-held // rows.batch))
            index = as_jax(rng.integers(0, held, (num, rows.batch)).astype(np.int32))
            found = curvature(jnp.asarray(x, jnp.result_type(float)), self._arrays, index)
            shared, inside = (np.asarray(part, np.float64) for part in found)
            hessian += rows.size / rows.batch * inside.mean(0)
        hessian += shared[0]
        return -0.5 * (hessian + hessian.T)


def find_mode(sums: RowSums | SumsOfPlates, data: FullData, arrays: Data, key: Key) -> Mode:
    """The highest mode that is found from several random points."""
    key_ascent, key_rows = split(key)
    rng = generator(key_rows)
    points = _first_optima(sums, arrays, key_ascent, rng)
    values, gradients, pulls = data.at(points)
    passes = 1
    if not np.isfinite(values).any():
        _refuse_rows(data, points[0])
    best = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
    x, value, gradient, pull = points[best].astype(np.float64), values[best], gradients[best], pulls[best]
    metric = _inverse(data.precision(x, rng))
    while passes < MOST_PASSES and gradient @ metric @ gradient > CLOSE:
        direction, length = metric @ gradient, 1.0
        while length >= SHORTEST:
            new = x + length * direction
            (new_value,), (new_gradient,), (new_pull,) = data.at(new[None])
            passes += 1
            # Near the mode the gain is lost in rounding, but the slope at the new point is not.
            is_flat = abs(new_gradient @ direction) < 0.5 * abs(gradient @ direction)
            if np.isfinite(new_gradient).all() and (new_value > value or (is_flat and new_value > value - 1)):
                break
            length /= 4
        else:
            break
        metric = _updated(metric, new - x, gradient - new_gradient)
        x, value, gradient, pull = new, new_value, new_gradient, new_pull
    inverse = _inverse(data.precision(x, rng))
    decrement = float(gradient @ inverse @ gradient)
    spread = np.linalg.cholesky(inverse)
    return Mode(x, float(value), pull, spread, decrement, passes)


def _refuse_rows(data: FullData, point: np.ndarray) -> None:
    """The error where some rows have no finite log density though others have, as a model sees to all it is shown."""
    found = data.first_not_finite(point)
    if found is not None:
        raise ModelError(
            f"minibatch: among rows {found[0]:,} to {found[1] - 1:,} there are some whose log density is not finite at "
            "a point where that of others is: they are missing (NaN), or lie outside the support of their law. Correct "
            "them, or mask them in the model (numpyro.handlers.mask)."
        )


def _some_rows(sums: RowSums, arrays: Data, rng: np.random.Generator) -> Array:
    """Numbers of the rows that ascents go on."""
    rows = sums.rows
    held = rows.num_held(arrays)
    num = max(1, min(ASCENT_ROWS, held) // rows.batch)
    index = np.sort(rng.integers(0, held, (num, rows.batch)), axis=None).astype(np.int32)
    return jnp.asarray(index.reshape(num, rows.batch))


def _first_optima(sums: RowSums | SumsOfPlates, arrays: Data, key: Key, rng: np.random.Generator) -> np.ndarray:
    """The highest points of ascents on some rows, the best of all first."""
    index = tuple(_some_rows(one, arrays, rng) for one in sums.each)
    data = {"arrays": arrays, "index": index[0] if isinstance(sums, RowSums) else index}
    program = replace(sums.each[0].rows.program, data=data, free=())
    target = WeighedTarget(lambda x, z, data: sums.weighed(x, data["arrays"], data["index"])[0], sums=sums)
    optima = Ascents(program, target, RESTARTS).run(np.asarray(key)[None], as_jax(data), below=0.0)
    heights, points = optima.log_density[0], np.asarray(optima.points.x[0])
    if not np.isfinite(heights).any():
        z = jax.tree.map(lambda a: a[0], optima.z)
        raise StartError(explain_no_start(program, target.log_density, optima.points.x[0], z, f"{RESTARTS} starts"))
    order = np.argsort(-np.where(np.isfinite(heights), heights, -np.inf))[:FIRST_LOOK]
    return points[order][np.isfinite(heights[order])]


@dataclass(frozen=True, eq=False)
class WeighedTarget(Target):
    """The log density of some rows, each weighed as many."""

    sums: RowSums | SumsOfPlates | None = None

    @cached_property
    def value_and_gradient(self) -> Callable[[Array, Nuisance, Data], tuple[Array, Array]]:
        """Of the batches in the data."""
        assert self.sums is not None
        weighed = self.sums.weighed
        return jax.jit(lambda x, z, data: weighed(x, data["arrays"], data["index"]))


def _inverse(precision: np.ndarray) -> np.ndarray:
    """The inverse, with directions in which the density is flat or turns up as if it fell as steeply there."""
    values, vectors = np.linalg.eigh(precision)
    floor = LEAST_CURVATURE * max(np.abs(values).max(initial=0.0), 1e-300)
    return (vectors / np.maximum(np.abs(values), floor)) @ vectors.T


def _updated(metric: np.ndarray, step: np.ndarray, fall: np.ndarray) -> np.ndarray:
    """BFGS: the metric that takes the fall of the gradient along a step to that step."""
    product = step @ fall
    if not product > 1e-10 * np.sqrt(step @ step * (fall @ fall)):
        return metric
    left = np.eye(len(step)) - np.outer(step, fall) / product
    return left @ metric @ left.T + np.outer(step, step) / product
