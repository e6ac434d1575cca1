"""Leapfrog steps, in the two orders in which they can be taken.

`leap` has the drifts outside: half drift, kick, half drift. It reuses nothing of the step before, so that z may change
between steps. `follow` has the kicks outside, and each gradient serves the step to a point and the one from it: one
gradient a step and no density besides, for trajectories at one z.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.adaptation.mass_matrix import Scale, stretch, stretch_back
from sumout.model.program import Data, Nuisance
from sumout.plan.target import Target

MANY_DATA = 10_000  # numbers, of which a log density is known to less than a thousandth of a nat in single precision
ROUNDINGS = 8  # of a log density, up to which a difference of two may be off
MOST_DIFFERENCE = 0.05  # nats between the trapezoidal rules with all points and with half of them, for Simpson's


def leap(
    target: Target,
    x: Array,
    momentum: Array,
    z: Nuisance,
    data: Data,
    step_size: Array,
    scale: Scale,
    num: int | Array = 1,
) -> tuple[Array, Array]:
    """Position and momentum (in units of the scale) after `num` steps at fixed z."""

    def one(_: int, point: tuple[Array, Array]) -> tuple[Array, Array]:
        x, momentum = point
        middle = x + 0.5 * step_size * stretch(scale, momentum)
        momentum = momentum + step_size * stretch_back(scale, target.value_and_gradient(middle, z, data)[1])
        return middle + 0.5 * step_size * stretch(scale, momentum), momentum

    return one(0, (x, momentum)) if isinstance(num, int) and num == 1 else jax.lax.fori_loop(0, num, one, (x, momentum))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Point:
    """A position, the target's log density there, and its gradient."""

    x: Float[Array, " num_x"]
    log_density: Float[Array, ""]
    gradient: Float[Array, " num_x"]

    @staticmethod
    def at(target: Target, x: Array, z: Nuisance, data: Data) -> "Point":
        """The point at x."""
        return Point(x, *target.value_and_gradient(x, z, data))


def follow(
    target: Target,
    start: Point,
    momentum: Array,
    z: Nuisance,
    data: Data,
    step_size: Array,
    scale: Scale,
    num: int | Array,
) -> tuple[Point, Array, Array]:
    """After `num` steps at fixed z: point, momentum (in units of the scale), and the change of the log density."""
    size = sum(np.size(array) for array in jax.tree.leaves(data))
    is_rounded = start.log_density.dtype == jnp.float32 and size >= MANY_DATA

    def kick(momentum: Array, point: Point) -> Array:
        return momentum + 0.5 * step_size * stretch_back(scale, point.gradient)

    def one(i: Any, now: tuple[Point, Array, Rise | None]) -> tuple[Point, Array, Rise | None]:
        before, momentum, rise = now
        momentum = kick(momentum, before)
        point = Point.at(target, before.x + step_size * stretch(scale, momentum), z, data)
        return point, kick(momentum, point), None if rise is None else rise.after(before, point, i % 2 == 1)

    begun = Rise(jnp.zeros_like(start.log_density), jnp.zeros_like(start.log_density), start) if is_rounded else None
    end, momentum, rise = jax.lax.fori_loop(0, num, one, (start, momentum, begun))
    change = end.log_density - start.log_density
    return end, momentum, change if rise is None else rise.best(start, end, change)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rise:
    """The change of the log density along a trajectory, by the trapezoidal rule from its gradients.

    In single precision the log density of a million data is known to a fraction of a nat, of ten million to some nats;
    the integral of its gradient along a trajectory is known to a thousandth of that.

    Attributes:
        fine: the integral over all points.
        coarse: over every other point.
        last: the last of these.
    """

    fine: Float[Array, ""]
    coarse: Float[Array, ""]
    last: Point

    def after(self, before: Point, point: Point, is_other: Array) -> "Rise":
        """The integral up to one more point, which may be one of every other."""
        fine, coarse = self.fine + _trapezoid(before, point), self.coarse + _trapezoid(self.last, point)
        kept = jax.tree.map(lambda a, b: jnp.where(is_other, a, b), (coarse, point), (self.coarse, self.last))
        return Rise(fine, *kept)

    def best(self, start: Point, end: Point, change: Array) -> Array:
        """The integral by Simpson's rule, if it can be told from the difference of log densities by rounding only.

        Where the two rules differ by little Simpson's is right, and so the better one for many data. For few data
        rounding is small, and the difference is taken.
        """
        coarse = self.coarse + _trapezoid(self.last, end)
        simpson = self.fine + (self.fine - coarse) / 3
        rounding = ROUNDINGS * jnp.finfo(change.dtype).eps * (jnp.abs(start.log_density) + jnp.abs(end.log_density))
        is_right = (jnp.abs(simpson - change) <= rounding) & (jnp.abs(self.fine - coarse) <= MOST_DIFFERENCE)
        return jnp.where(is_right, simpson, change)


def _trapezoid(one: Point, other: Point) -> Array:
    return 0.5 * (one.gradient + other.gradient) @ (other.x - one.x)


def energy_change(target: Target, before: tuple[Array, Array], after: tuple[Array, Array], z: Nuisance, data: Data):
    """Log density before and after, and the change of log density minus kinetic energy; −∞ where it is not finite."""
    log_before, log_after = (target.log_density(x, z, data) for x, _ in (before, after))
    return log_before, log_after, gain((log_before, before[1]), (log_after, after[1]))


def gain(before: tuple[Array, Array], after: tuple[Array, Array]) -> Array:
    """The change of log density minus kinetic energy, from log density and momentum; −∞ where it is not finite."""
    energy_before, energy_after = (log_density - 0.5 * momentum @ momentum for log_density, momentum in (before, after))
    change = energy_after - energy_before
    return jnp.where(jnp.isfinite(change), change, -jnp.inf)
