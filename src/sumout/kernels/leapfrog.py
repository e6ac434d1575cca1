"""Leapfrog with the drifts outside: half drift, kick, half drift; one gradient a step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sumout.adapt.scale import Scale, stretch, stretch_back
from sumout.gradient import Target
from sumout.program import Data, Nuisance


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
    gradient = jax.grad(target.log_density)

    def one(_: int, point: tuple[Array, Array]) -> tuple[Array, Array]:
        x, momentum = point
        middle = x + 0.5 * step_size * stretch(scale, momentum)
        momentum = momentum + step_size * stretch_back(scale, gradient(middle, z, data))
        return middle + 0.5 * step_size * stretch(scale, momentum), momentum

    return one(0, (x, momentum)) if isinstance(num, int) and num == 1 else jax.lax.fori_loop(0, num, one, (x, momentum))


def energy_change(target: Target, before: tuple[Array, Array], after: tuple[Array, Array], z: Nuisance, data: Data):
    """Log density before and after, and the change of log density minus kinetic energy; −∞ where it is not finite."""
    log_before, log_after = (target.log_density(x, z, data) for x, _ in (before, after))
    kinetic_before, kinetic_after = (0.5 * momentum @ momentum for _, momentum in (before, after))
    change = (log_after - kinetic_after) - (log_before - kinetic_before)
    return log_before, log_after, jnp.where(jnp.isfinite(change), change, -jnp.inf)
