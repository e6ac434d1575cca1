"""Leapfrog steps, in the two orders in which they can be taken.

`leap` has the drifts outside: half drift, kick, half drift. It reuses nothing of the step before, so that z may change
between steps. `follow` has the kicks outside, and each gradient serves the step to a point and the one from it: one
gradient a step and no density besides, for trajectories at one z.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sumout.adaptation.mass_matrix import Scale, stretch, stretch_back
from sumout.model.program import Data, Nuisance
from sumout.plan.target import Target


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
) -> tuple[Point, Array]:
    """Point and momentum (in units of the scale) after `num` steps at fixed z."""

    def kick(momentum: Array, point: Point) -> Array:
        return momentum + 0.5 * step_size * stretch_back(scale, point.gradient)

    def one(_: int, now: tuple[Point, Array]) -> tuple[Point, Array]:
        point, momentum = now
        momentum = kick(momentum, point)
        point = Point.at(target, point.x + step_size * stretch(scale, momentum), z, data)
        return point, kick(momentum, point)

    return jax.lax.fori_loop(0, num, one, (start, momentum))


def energy_change(target: Target, before: tuple[Array, Array], after: tuple[Array, Array], z: Nuisance, data: Data):
    """Log density before and after, and the change of log density minus kinetic energy; −∞ where it is not finite."""
    log_before, log_after = (target.log_density(x, z, data) for x, _ in (before, after))
    return log_before, log_after, gain((log_before, before[1]), (log_after, after[1]))


def gain(before: tuple[Array, Array], after: tuple[Array, Array]) -> Array:
    """The change of log density minus kinetic energy, from log density and momentum; −∞ where it is not finite."""
    energy_before, energy_after = (log_density - 0.5 * momentum @ momentum for log_density, momentum in (before, after))
    change = energy_after - energy_before
    return jnp.where(jnp.isfinite(change), change, -jnp.inf)
