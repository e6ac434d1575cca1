"""Sums along many chains side by side, by products instead of exponentials.

With T_l the table of level l and S_l what it has of its own, the sum over a chain that ends in the root L is

    Z = Σ exp(S_0 + T_0 + S_1 + … + T_{L−1} + S_L) = exp(Σ c_l) · w_0 E_0 w_1 E_1 … w_L

with E = exp(T − max T), w = exp(S − max S) and c the maxima. All exponentials are taken outside of the loop, which is
left with K² multiplications for each level and chain; where the table is one for all levels there is one E.

Each factor is at most 1. What falls below the smallest normal number ε₀ is lost: at each level up to K ε₀ of a number
that later factors, none above 1, do not make larger. So Z is off by at most K² L ε₀, and where Z ≥ K² L ε₀ / ε that is
less than its last place ε. Where Z is smaller, as in long chains, sum and derivative are taken in logarithms. That is
decided for all chains that are run side by side: so it stays a branch, of which one side is run. What is impossible
(−∞) is a factor of zero, and exact.

With p_l the products from the left, up to level l, and λ_l those from the right, by which Z is divided, the derivative
by S_l is w_l p_l λ_l, that by T_l is w p E λ: probabilities of one value, and of a pair of values.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from sumout.compile.policy import NATS_A_LEVEL
from sumout.tables.logsumexp import log_sum_exp


def most_product_levels() -> int:
    """How many levels chains may have if most of their sums are to be large enough for products."""
    limits = jnp.finfo(jnp.result_type(float))
    return int(np.log(float(limits.eps) / float(limits.tiny)) / NATS_A_LEVEL)


Levels = tuple[Array, Array | None, Array, Array]  # for each level w, E if it has its own, links and padding


@jax.custom_vjp
def log_totals(
    table: Float[Array, "D K J C"],
    linked: Bool[Array, "n C"],
    single: Float[Array, "L K C"],
    is_padding: Bool[Array, "L C"],
) -> Float[Array, " C"]:
    """For each column the logarithm of the sum over all joint values of its chain.

    Args:
        table: T, for each level but the last, or one for all of them; for each column, or one for all of them.
        linked: which cells have it; that of the others is zero.
        single: S, for each level and column.
        is_padding: cells that are none. In its column such a cell comes before all others.
    """
    return _forward(table, linked, single, is_padding)[0]


def _forward_rule(table: Array, linked: Array, single: Array, is_padding: Array) -> tuple[Array, Any]:
    total, *kept = _forward(table, linked, single, is_padding)
    return total, (table, linked, single, is_padding, *kept)


def _backward_rule(kept: Any, gradient: Array) -> tuple[Array, None, Array, None]:
    from_table, from_single = _backward(*kept, gradient)
    return from_table, None, from_single, None


log_totals.defvjp(_forward_rule, _backward_rule)


def shifted(array: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Exponentials, of which the largest along some axes is 1; and its logarithm."""
    highest = array.max(axis=axes, keepdims=True)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return jnp.exp(array - highest), highest.squeeze(axes)


def _levels(factors: Array, weights: Array, linked: Array, is_padding: Array) -> Levels:
    return weights[:-1], factors if len(factors) > 1 else None, linked, is_padding[:-1]


@custom_vmap
def _forward(table: Array, linked: Array, single: Array, is_padding: Array) -> tuple[Array, ...]:
    """The logarithm; whether nothing that counts was lost; E, w, p and Z."""
    factors, highest = shifted(table, (1, 2))
    weights, largest = shifted(single, (1,))
    num_levels, num_values, _ = single.shape

    def step(p: Array, level: Levels) -> tuple[Array, Array]:
        weights, own, linked, is_padding = level
        passed = weights * p
        found = ((factors[0] if own is None else own) * passed[:, None]).sum(axis=0)
        found = jnp.where(linked, found, passed.sum(axis=0))
        return jnp.where(is_padding, 1.0, found), p

    p, kept = lax.scan(step, jnp.ones_like(weights[0]), _levels(factors, weights, linked, is_padding))
    p = jnp.concatenate([kept, p[None]])
    total = (p[-1] * weights[-1]).sum(axis=0)
    shift = jnp.where(linked, highest, 0.0) + largest[:-1]
    shift = jnp.where(is_padding[:-1], 0.0, shift).sum(axis=0) + largest[-1]
    limits = jnp.finfo(single.dtype)
    least = num_values**2 * num_levels * limits.tiny / limits.eps
    is_right = (is_padding[-1] | (total >= least)).all()
    found = lax.cond(
        is_right,
        lambda: jnp.where(is_padding[-1], 0.0, jnp.log(total) + shift),
        lambda: in_logarithms(table, linked, single, is_padding),
    )
    return found, is_right, factors, weights, p, total


@custom_vmap
def _backward(
    table: Array,
    linked: Array,
    single: Array,
    is_padding: Array,
    is_right: Array,
    factors: Array,
    weights: Array,
    p: Array,
    total: Array,
    gradient: Array,
) -> tuple[Array, Array]:
    """The derivatives by table and single, from that by the logarithm."""

    def by_products() -> tuple[Array, Array]:
        def step(after: Array, level: Levels) -> tuple[Array, Array]:
            weights, own, linked, is_padding = level
            found = ((factors[0] if own is None else own) * after).sum(axis=1)
            found = weights * jnp.where(linked, found, after.sum(axis=0))
            return jnp.where(is_padding, 0.0, found), after

        share = jnp.where(is_padding[-1], 0.0, gradient / total)
        levels = _levels(factors, weights, linked, is_padding)
        first, after = lax.scan(step, weights[-1] * share, levels, reverse=True)
        from_single = p * jnp.concatenate([first[None], after])
        passed = jnp.where((linked & ~is_padding[:-1])[:, None], p[:-1] * weights[:-1], 0.0)
        return factors * _pairs(passed, after, factors.shape), from_single

    def by_logarithms() -> tuple[Array, Array]:
        def total(table: Array, single: Array) -> Array:
            return in_logarithms(table, linked, single, is_padding)

        return jax.vjp(total, table, single)[1](gradient)

    return lax.cond(is_right, by_products, by_logarithms)


def _pairs(passed: Float[Array, "n K C"], after: Float[Array, "n J C"], shape: tuple[int, ...]) -> Array:
    """Their products, summed over levels and columns that have one table in common."""
    depth, *_, columns = shape
    if columns == 1 < passed.shape[-1]:
        return jnp.einsum("nkc,njc->nkj" if depth > 1 else "nkc,njc->kj", passed, after).reshape(shape)
    pairs = passed[:, :, None] * after[:, None]
    return pairs if depth > 1 else pairs.sum(axis=0, keepdims=True)


def in_logarithms(table: Array, linked: Array, single: Array, is_padding: Array) -> Array:
    """What `log_totals` is, by exponentials."""

    def step(message: Array, level: Levels) -> tuple[Array, None]:
        single, own, linked, is_padding = level
        own = jnp.where(linked, table[0] if own is None else own, 0.0)
        found = log_sum_exp((message + single)[:, None] + own, -3)
        return jnp.where(is_padding, 0.0, found), None

    message, _ = lax.scan(step, jnp.zeros_like(single[0]), _levels(table, single, linked, is_padding))
    return jnp.where(is_padding[-1], 0.0, log_sum_exp(message + single[-1], -2))


def _batches(function: Callable[..., Any], size: int, batched: Any, arguments: tuple[Array, ...]) -> tuple[Any, Any]:
    """The results of a function for a batch of chains, which are taken as more columns, the last axis of all arrays.

    What has no axes, whether all is right, is asked of all of them. One table for all columns is one for each of them.
    """
    columns, together = max(argument.shape[-1] for argument in arguments if argument.ndim > 2), []
    for is_batched, argument in zip(batched, arguments, strict=True):
        if argument.ndim == int(is_batched):
            together.append(argument.all())
            continue
        whole = argument if is_batched else jnp.broadcast_to(argument, (size, *argument.shape))
        whole = jnp.moveaxis(jnp.broadcast_to(whole, (*whole.shape[:-1], columns)), 0, -2)
        together.append(whole.reshape(*whole.shape[:-2], -1))
    results = function(*together)
    parted = [r if r.ndim == 0 else jnp.moveaxis(r.reshape(*r.shape[:-1], size, -1), -2, 0) for r in results]
    return tuple(parted), tuple(result.ndim > 0 for result in results)


@_forward.def_vmap
def _forward_batch(size: int, batched: Any, *arguments: Array) -> tuple[Any, Any]:
    (found, is_right, factors, *others), are_batched = _batches(_forward, size, batched, arguments)
    factors = factors[..., : arguments[0].shape[-1]]  # the same in all columns if there was one for all of them
    return (found, is_right, factors, *others), are_batched


@_backward.def_vmap
def _backward_batch(size: int, batched: Any, *arguments: Array) -> tuple[Any, Any]:
    (from_table, from_single), are_batched = _batches(_backward, size, batched, arguments)
    if arguments[0].shape[-1] == 1:
        from_table = from_table.sum(axis=-1, keepdims=True)
    return (from_table, from_single), are_batched
