"""Log-sum-exp with −∞ for what is impossible, and draws by the inverse of the distribution function."""

from collections.abc import Callable
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sumout.compile.policy import ONE_PASS_VALUES, WRITTEN_OUT_DRAW, WRITTEN_OUT_LONE_DRAW, WRITTEN_OUT_VALUES
from sumout.randomness import uniform


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def log_sum_exp(table: Float[Array, "..."], axis: int = -2) -> Float[Array, "..."]:
    """log Σ exp over an axis, counted from the end; −∞ where all terms are, with derivative zero."""
    return _log_sum_exp(table, axis)[0]


@log_sum_exp.defjvp
def _log_sum_exp_jvp(axis: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    log_total, shares = _log_sum_exp(primals[0], axis)
    return log_total, (shares * tangents[0]).sum(axis=axis)


def _log_sum_exp(table: Array, axis: int) -> tuple[Array, Array]:
    """The sums, and the share that each term has in its own.

    The table of a block, `(K, n)`, is large, and is gone through in stages (`scale_weights`). Those of cells are small,
    a step of a loop each, and best fused with the rest of that step. Either way takes longer for the other kind.
    """
    if table.ndim == 2:
        highest = _highest(table)[None]
        weights, total = scale_weights(table)
        total = total[None]
    else:
        highest = fold(jnp.maximum, jnp.max, table, axis)
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        weights = jnp.exp(table - highest)
        total = fold(jnp.add, jnp.sum, weights, axis)
    return (jnp.log(total) + highest).squeeze(axis), weights / jnp.where(total == 0, 1.0, total)


def fold(two: Callable[..., Array], many: Callable[..., Array], table: Array, axis: int) -> Array:
    """Reduce an axis to size 1; few values one by one."""
    length = table.shape[axis]
    if length > WRITTEN_OUT_VALUES:
        return many(table, axis=axis, keepdims=True)
    return reduce(two, [jax.lax.slice_in_dim(table, k, k + 1, axis=axis % table.ndim) for k in range(length)])


@jax.custom_jvp
def computed_once(table: Float[Array, "..."]) -> Float[Array, "..."]:
    """The same table, which XLA computes once for all that is made of it.

    XLA computes what is cheap again for each use of it, however much that adds up to, and drops barriers before it
    decides so. A quotient is not cheap to it. Here it divides by one, but for +∞, which no table contains.
    """
    return table / jnp.where(table == jnp.inf, jnp.nan, 1.0)


computed_once.defjvp(lambda primals, tangents: (computed_once(*primals), tangents[0]))


def log_sum_by(terms: Float[Array, " n"], owners: Int[Array, " n"], size: int) -> Float[Array, " size"]:
    """log Σ exp of the terms of each owner."""
    highest = jax.ops.segment_max(terms, owners, num_segments=size)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return jnp.log(jax.ops.segment_sum(jnp.exp(terms - highest[owners]), owners, num_segments=size)) + highest


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
    if _is_written_out(weights):
        running, which = jnp.zeros_like(total), jnp.zeros(total.shape, int)
        for k in range(num_values - 1):
            running = running + weights[k]
            which = which + (running <= level * total)
    else:
        which = (jnp.cumsum(weights[:-1], axis=0) <= level * total).sum(axis=0)
    return jnp.where(total > 0, which, jnp.floor(level * num_values).astype(which.dtype))


def scale_weights(log_weights: Float[Array, "K n"]) -> tuple[Float[Array, "K n"], Float[Array, " n"]]:
    """Weights, the largest of every column being 1, and their sums.

    A few values are best handled in one pass over the columns, with sums written out: on CPUs XLA's own reduction over
    a short first axis is several times slower. For many values each stage is a pass of its own, or XLA would compute
    the table again in every stage.
    """
    num_values = log_weights.shape[0]
    stage = (lambda array: array) if num_values <= ONE_PASS_VALUES else jax.lax.optimization_barrier
    log_weights = stage(log_weights)
    weights = stage(jnp.exp(log_weights - _highest(log_weights)))
    total = reduce(jnp.add, weights) if _is_written_out(weights) else weights.sum(axis=0)
    return weights, stage(total)


def _is_written_out(weights: Float[Array, "K n"]) -> bool:
    """Whether their running sums are."""
    return len(weights) <= (WRITTEN_OUT_DRAW if weights.size > len(weights) else WRITTEN_OUT_LONE_DRAW)


def _highest(log_weights: Float[Array, "K n"]) -> Float[Array, " n"]:
    """The largest of every column; 0 where there is none."""
    few = log_weights.shape[0] <= ONE_PASS_VALUES
    highest = reduce(jnp.maximum, log_weights) if few else jnp.max(log_weights, axis=0)
    return jnp.where(highest == -jnp.inf, 0.0, highest)
