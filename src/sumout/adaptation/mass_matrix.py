"""Scale of x from the draws of a warm-up window (Welford's running covariance, slightly regularised).

A scale is one number for each coordinate, or the lower triangle of a matrix S whose S Sᵀ is the covariance: x = S u
with u of unit covariance.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

PRIOR_DRAWS = 5.0  # weight of the prior guess of a small variance
PRIOR_VARIANCE = 1e-3

Scale = Float[Array, " num_x"] | Float[Array, "num_x num_x"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunningScale:
    """Mean and sum of squared deviations (or of their products) so far."""

    mean: Float[Array, " num_x"]
    squares: Scale
    count: Array

    @staticmethod
    def start(x: Array, is_dense: bool = False) -> "RunningScale":
        """Nothing seen yet."""
        squares = jnp.zeros((x.size, x.size), x.dtype) if is_dense else jnp.zeros_like(x)
        return RunningScale(jnp.zeros_like(x), squares, jnp.zeros((), x.dtype))

    def update(self, x: Array) -> "RunningScale":
        """Take one more draw into account."""
        count = self.count + 1
        before, after = x - self.mean, x - (self.mean + (x - self.mean) / count)
        squares = before * after if self.squares.ndim == 1 else jnp.outer(before, after)
        return RunningScale(self.mean + before / count, self.squares + squares, count)

    def scale(self) -> Scale:
        """Standard deviation of every coordinate, or the triangle of the covariance."""
        variance = self.squares / jnp.maximum(self.count - 1, 1)
        weight = self.count / (self.count + PRIOR_DRAWS)
        if variance.ndim == 1:
            return jnp.sqrt(weight * variance + (1 - weight) * PRIOR_VARIANCE)
        return jnp.linalg.cholesky(weight * variance + (1 - weight) * PRIOR_VARIANCE * jnp.eye(len(variance)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunningSteepness:
    """Sum of squared gradients so far."""

    squares: Float[Array, " num_x"]
    count: Array
    damping: float = field(metadata={"static": True})

    @staticmethod
    def start(x: Array, damping: float) -> "RunningSteepness":
        """Nothing seen yet."""
        return RunningSteepness(jnp.zeros_like(x), jnp.zeros((), x.dtype), damping)

    def update(self, gradient: Array) -> "RunningSteepness":
        """Take one more gradient into account."""
        is_sound = jnp.all(jnp.isfinite(gradient))
        return RunningSteepness(self.squares + jnp.where(is_sound, gradient, 0.0) ** 2, self.count + 1, self.damping)

    def scale(self) -> Float[Array, " num_x"]:
        """One over the root mean square of the gradient."""
        return 1 / (self.damping + jnp.sqrt(self.squares / jnp.maximum(self.count, 1)))


def stretch(scale: Scale, u: Array) -> Array:
    """From coordinates of unit scale to x: S u."""
    return scale * u if scale.ndim == 1 else scale @ u


def stretch_back(scale: Scale, gradient: Array) -> Array:
    """A gradient in x as one in coordinates of unit scale: Sᵀ g."""
    return scale * gradient if scale.ndim == 1 else scale.T @ gradient


def covariance(scale: Scale) -> Scale:
    """The variances, or S Sᵀ."""
    return scale**2 if scale.ndim == 1 else scale @ scale.T
