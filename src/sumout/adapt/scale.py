"""Scale of every coordinate from the draws of a warm-up window (Welford's running variance, slightly regularised)."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

PRIOR_DRAWS = 5.0  # weight of the prior guess of a small variance
PRIOR_VARIANCE = 1e-3


@partial(jax.tree_util.register_dataclass, data_fields=["mean", "squares", "count"], meta_fields=[])
@dataclass(frozen=True)
class RunningVariance:
    """Mean and sum of squared deviations so far."""

    mean: Float[Array, " num_x"]
    squares: Float[Array, " num_x"]
    count: Array

    @staticmethod
    def start(x: Array) -> "RunningVariance":
        """Nothing seen yet."""
        return RunningVariance(jnp.zeros_like(x), jnp.zeros_like(x), jnp.zeros((), x.dtype))

    def update(self, x: Array) -> "RunningVariance":
        """Take one more draw into account."""
        count = self.count + 1
        mean = self.mean + (x - self.mean) / count
        return RunningVariance(mean, self.squares + (x - self.mean) * (x - mean), count)

    def scale(self) -> Float[Array, " num_x"]:
        """Standard deviation of every coordinate."""
        variance = self.squares / jnp.maximum(self.count - 1, 1)
        weight = self.count / (self.count + PRIOR_DRAWS)
        return jnp.sqrt(weight * variance + (1 - weight) * PRIOR_VARIANCE)
