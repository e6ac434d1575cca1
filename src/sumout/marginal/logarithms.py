"""Sums of exponentials in logarithms, with −∞ for what is impossible, and their derivatives."""

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

MOST_WRITTEN_OUT = 4  # values that are added one by one


@jax.custom_jvp
def log_sum_exp(table: Float[Array, "*n K J"]) -> Float[Array, "*n J"]:
    """log Σ_k exp over the second axis from the end; −∞ where all terms are, with derivative zero."""
    return _log_sum_exp(table)[0]


@log_sum_exp.defjvp
def _log_sum_exp_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    total, weights = _log_sum_exp(primals[0])
    return total, (weights * tangents[0]).sum(axis=-2)


def _log_sum_exp(table: Array) -> tuple[Array, Array]:
    highest = _fold(jnp.maximum, jnp.max, table)
    highest = lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0.0))
    terms = jnp.exp(table - highest)
    total = _fold(jnp.add, jnp.sum, terms)
    weights = terms / jnp.where(total == 0, 1.0, total)
    return (jnp.log(total) + highest).squeeze(-2), weights


def _fold(two: Callable[..., Array], many: Callable[..., Array], table: Array) -> Array:
    """Reduce the second axis from the end to size 1; few values one by one, which XLA fuses with what is around."""
    if table.shape[-2] > MOST_WRITTEN_OUT:
        return many(table, axis=-2, keepdims=True)
    return reduce(two, [table[..., k : k + 1, :] for k in range(table.shape[-2])])


def log_sum_last(terms: Float[Array, "*n J K"]) -> Float[Array, "*n J"]:
    """log Σ exp over the last axis; turned round, as XLA takes the exponentials of a sum along it one by one."""
    return log_sum_exp(terms.swapaxes(-1, -2))


def log_sum_by(terms: Float[Array, " n"], owners: Int[Array, " n"], size: int) -> Float[Array, " size"]:
    """log Σ exp of the terms of each owner."""
    highest = jax.ops.segment_max(terms, owners, num_segments=size)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return jnp.log(jax.ops.segment_sum(jnp.exp(terms - highest[owners]), owners, num_segments=size)) + highest


def log_conditionals(filled: Float[Array, "L C K J"]) -> Float[Array, "L C K J"]:
    """Log probabilities of the values of each cell given its separator's; −∞ where these are impossible."""
    message = log_sum_exp(filled)
    return filled - jnp.where(jnp.isfinite(message), message, 0.0)[..., None, :]
