"""Draws and sums over tables of log weights, a column for each site."""

from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sumout.randomness import uniform

FEW = 8  # values
MOST_WRITTEN_OUT = 64


def draw(key: Array, log_weights: Float[Array, "K n"]) -> Array:
    """An index for every column, by one uniform each; never one of probability zero, or of none (NaN)."""
    log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    return invert(log_weights, uniform(key, log_weights.shape[1:], log_weights.dtype))


def invert(log_weights: Float[Array, "K n"], level: Float[Array, " n"]) -> Array:
    """For every column the index at which the running sum of its weights passes `level` times their total.

    Where all weights are zero (an unlucky start), any index is as good as another.
    """
    weights, total = scale_weights(log_weights)
    num_values = len(weights)
    if num_values <= MOST_WRITTEN_OUT:
        running, which = jnp.zeros_like(total), jnp.zeros(total.shape, int)
        for k in range(num_values - 1):
            running = running + weights[k]
            which = which + (running <= level * total)
    else:
        which = (jnp.cumsum(weights[:-1], axis=0) <= level * total).sum(axis=0)
    return jnp.where(total > 0, which, jnp.floor(level * num_values).astype(which.dtype))


@jax.custom_jvp
def log_sum_columns(log_weights: Float[Array, "K n"]) -> Float[Array, " n"]:
    """log Σ_k exp for every column; −∞, with derivative zero, where all weights are zero."""
    _, total = scale_weights(log_weights)
    return jnp.log(total) + _highest(log_weights)


@log_sum_columns.defjvp
def _log_sum_columns_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    weights, total = scale_weights(primals[0])
    shares = weights / jnp.where(total == 0, 1.0, total)
    return jnp.log(total) + _highest(primals[0]), (shares * tangents[0]).sum(axis=0)


def scale_weights(log_weights: Float[Array, "K n"]) -> tuple[Float[Array, "K n"], Float[Array, " n"]]:
    """Weights, the largest of every column being 1, and their sums.

    A few values are best handled in one pass over the columns, with sums written out: on CPUs XLA's own reduction over
    a short first axis is several times slower. For many values each stage is a pass of its own, or XLA would compute
    the table again in every stage.
    """
    num_values = log_weights.shape[0]
    stage = (lambda array: array) if num_values <= FEW else jax.lax.optimization_barrier
    log_weights = stage(log_weights)
    weights = stage(jnp.exp(log_weights - _highest(log_weights)))
    total = reduce(jnp.add, weights) if num_values <= MOST_WRITTEN_OUT else weights.sum(axis=0)
    return weights, stage(total)


def _highest(log_weights: Float[Array, "K n"]) -> Float[Array, " n"]:
    """The largest of every column; 0 where there is none."""
    few = log_weights.shape[0] <= FEW
    highest = reduce(jnp.maximum, log_weights) if few else jnp.max(log_weights, axis=0)
    return jnp.where(highest == -jnp.inf, 0.0, highest)
