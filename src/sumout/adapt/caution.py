"""The bias meter during warm-up: where it shows draws that are too wide, tune more carefully.

    −E (x_i − E x_i) ĝ_i = 1        for every coordinate, when x comes from p(x|y) and ĝ is its stochastic gradient

In a window with n effective draws the average is known to about √(2/n), as it is on a Gaussian.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

TOLERANCE = 0.03
ERRORS = 3.0  # standard errors that the meter may be off
STEP = 0.7  # what the limits are multiplied by when it is, and divided by when it is not: early windows are no judges


@partial(jax.tree_util.register_dataclass, data_fields=["factor", "x", "gradient", "product", "count"], meta_fields=[])
@dataclass(frozen=True)
class Caution:
    """The factor by which limits are lowered, and running means of x, of the gradient and of their product."""

    factor: Float[Array, ""]
    x: Float[Array, " num_x"]
    gradient: Float[Array, " num_x"]
    product: Float[Array, " num_x"]
    count: Float[Array, ""]

    @staticmethod
    def start(x: Array) -> "Caution":
        """None yet."""
        zeros = jnp.zeros_like(x)
        return Caution(jnp.ones((), x.dtype), zeros, zeros, zeros, jnp.zeros((), x.dtype))

    def update(self, x: Array, gradient: Array) -> "Caution":
        """Take one more gradient at x into account, unless it is not finite."""
        is_sound = jnp.all(jnp.isfinite(gradient))
        weight = jnp.where(is_sound, 1 / (self.count + 1), 0.0)
        gradient = jnp.where(is_sound, gradient, 0.0)
        before = x - self.x
        centred = before * (gradient - self.gradient)
        return Caution(
            self.factor,
            self.x + weight * before,
            self.gradient + weight * (gradient - self.gradient),
            self.product + weight * ((1 - weight) * centred - self.product),
            self.count + is_sound,
        )

    def read(self, rate: Array) -> "Caution":
        """Close a window in which every step counted for `rate` effective draws, and begin a new one."""
        error = jnp.sqrt(2 / jnp.maximum(rate * self.count, 1))
        is_wide = jnp.max(-self.product, initial=0) > 1 + TOLERANCE + ERRORS * error
        fresh = jax.tree.map(jnp.zeros_like, self)
        factor = jnp.where(is_wide, STEP * self.factor, jnp.minimum(self.factor / STEP, 1.0))
        return replace(fresh, factor=factor)
