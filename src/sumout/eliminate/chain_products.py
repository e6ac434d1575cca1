"""Sums along many chains side by side, by products instead of exponentials.

With T_l the table of level l and S_l what it has of its own, the sum over a chain that ends in the root L is

    Z = Σ exp(S_0 + T_0 + S_1 + … + T_{L−1} + S_L) = exp(Σ c_l) · w_0 E_0 w_1 E_1 … w_L

with E = exp(T − max T), w = exp(S) / Σ exp(S) and c the logarithms of what that divides by. All exponentials are taken
outside of the loop, which is left with K² multiplications for each level and chain; where the table is one for all
levels there is one E.

No E is above 1, and the w of a level sum to 1. So no product from the left is above 1, and those from the right sum to
1 at most: nothing overflows, and what is lost at a level, as it falls below the smallest normal number ε₀, counts no
more than it did there. At each level that is up to K ε₀ of each of K numbers. So Z is off by at most K² L ε₀, and where
Z ≥ K² L ε₀ / ε that is less than its last place ε. Where Z is smaller, as in long chains, sum and derivative are taken
in logarithms. That is decided for all chains that are run side by side: so it stays a branch, of which one side is run.
What is impossible (−∞) is a factor of zero, and exact.

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

from sumout.compile.policy import NATS_A_LEVEL, WRITTEN_OUT_VALUES
from sumout.tables.logsumexp import computed_once, fold, log_sum_exp


def most_product_levels() -> int:
    """How many levels chains may have if most of their sums are to be large enough for products."""
    limits = jnp.finfo(jnp.result_type(float))
    return int(np.log(float(limits.eps) / float(limits.tiny)) / NATS_A_LEVEL)


# For each level w, E if it has its own, links and padding if not all are alike.
Levels = tuple[Array, Array | None, Array | None, Array | None]


@jax.custom_vjp
def log_totals(
    table: Float[Array, "D K J C"],
    linked: Bool[Array, "n C"] | None,
    single: Float[Array, "L K C"],
    is_padding: Bool[Array, "L C"] | None,
) -> Float[Array, " C"]:
    """For each column the logarithm of the sum over all joint values of its chain.

    Args:
        table: T, for each level but the last, or one for all of them; for each column, or one for all of them.
        linked: which cells have it; that of the others is zero. None if all have.
        single: S, for each level and column.
        is_padding: cells that are none. In its column such a cell comes before all others. None if there are none.
    """
    return _forward(computed_once(table), linked, computed_once(single), is_padding)[0]


def _forward_rule(table: Array, linked: Array | None, single: Array, is_padding: Array | None) -> tuple[Array, Any]:
    table, single = computed_once(table), computed_once(single)
    total, *kept = _forward(table, linked, single, is_padding)
    return total, (table, linked, single, is_padding, *kept)


def _backward_rule(kept: Any, gradient: Array) -> tuple[Array, None, Array, None]:
    from_table, from_single = _backward(*kept, gradient)
    return from_table, None, from_single, None


log_totals.defvjp(_forward_rule, _backward_rule)


def shifted(array: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Exponentials, of which the largest along some axes is 1; and its logarithm."""
    highest = array
    for axis in axes:
        highest = fold(jnp.maximum, jnp.max, highest, axis)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return jnp.exp(array - highest), highest.squeeze(axes)


def _levels(factors: Array, weights: Array, linked: Array | None, is_padding: Array | None) -> Levels:
    return weights[:-1], factors if len(factors) > 1 else None, linked, at(is_padding, slice(-1))


def where(mask: Array | None, one: Array, other: Any) -> Array:
    """One where the mask is, all of it if there is no mask."""
    return one if mask is None else jnp.where(mask, one, other)


def unless(mask: Array | None, one: Array, other: Any) -> Array:
    """One where the mask is not, all of it if there is no mask."""
    return one if mask is None else jnp.where(mask, other, one)


def at(mask: Array | None, level: int | slice) -> Array | None:
    """A mask of some levels, if there is one."""
    return None if mask is None else mask[level]


@custom_vmap
def _forward(table: Array, linked: Array | None, single: Array, is_padding: Array | None) -> tuple[Array, ...]:
    """The logarithm; whether nothing that counts was lost; E, w, p and Z."""
    factors, highest = shifted(table, (-3, -2))
    weights, largest = shifted(single, (-2,))
    whole = weights.sum(axis=1)
    whole = jnp.where(whole == 0, 1.0, whole)
    weights, largest = weights / whole[:, None], largest + jnp.log(whole)
    num_levels, num_values, _ = single.shape

    def step(p: Array, level: Levels) -> tuple[Array, Array]:
        weights, own, linked, is_padding = level
        passed = weights * p
        found = ((factors[0] if own is None else own) * passed[:, None]).sum(axis=0)
        found = found if linked is None else jnp.where(linked, found, passed.sum(axis=0))
        return unless(is_padding, found, 1.0), p

    p, kept = lax.scan(step, jnp.ones_like(weights[0]), _levels(factors, weights, linked, is_padding))
    p = jnp.concatenate([kept, p[None]])
    total = (p[-1] * weights[-1]).sum(axis=0)
    is_last_padding = at(is_padding, -1)
    shift = unless(at(is_padding, slice(-1)), where(linked, highest, 0.0) + largest[:-1], 0.0)
    shift = shift.sum(axis=0) + largest[-1]
    limits = jnp.finfo(single.dtype)
    least = num_values**2 * num_levels * limits.tiny / limits.eps
    is_right = unless(is_last_padding, total >= least, True).all()
    found = lax.cond(
        is_right,
        lambda: unless(is_last_padding, jnp.log(total) + shift, 0.0),
        lambda: in_logarithms(table, linked, single, is_padding),
    )
    return found, is_right, factors, weights, p, total


@custom_vmap
def _backward(
    table: Array,
    linked: Array | None,
    single: Array,
    is_padding: Array | None,
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
            found = weights * (found if linked is None else jnp.where(linked, found, after.sum(axis=0)))
            return unless(is_padding, found, 0.0), after

        share = unless(at(is_padding, -1), gradient / total, 0.0)
        levels = _levels(factors, weights, linked, is_padding)
        first, after = lax.scan(step, weights[-1] * share, levels, reverse=True)
        from_single = p * jnp.concatenate([first[None], after])
        passed = p[:-1] * weights[:-1]
        passed = passed if is_padding is None else jnp.where(is_padding[:-1, None], 0.0, passed)
        passed = passed if linked is None else jnp.where(linked[:, None], passed, 0.0)
        return factors * _pairs(passed, after, factors.shape), from_single

    def by_logarithms() -> tuple[Array, Array]:
        def total(table: Array, single: Array) -> Array:
            return in_logarithms(table, linked, single, is_padding)

        return jax.vjp(total, table, single)[1](gradient)

    return lax.cond(is_right, by_products, by_logarithms)


def _pairs(passed: Float[Array, "n K C"], after: Float[Array, "n J C"], shape: tuple[int, ...]) -> Array:
    """Their products, summed over levels and columns that have one table in common."""
    depth, own, joint, columns = shape
    if columns == 1 < passed.shape[-1] and own * joint > WRITTEN_OUT_VALUES:
        return jnp.einsum("nkc,njc->nkj" if depth > 1 else "nkc,njc->kj", passed, after).reshape(shape)
    pairs = passed[:, :, None] * after[:, None]
    if columns == 1 < passed.shape[-1]:
        # For so few pairs XLA's product of two stacks of matrices takes longer than that of a matrix and a vector.
        pairs = (pairs.reshape(-1, passed.shape[-1]) @ jnp.ones_like(passed[0, 0])).reshape(-1, *shape[1:])
    return pairs if depth > 1 else pairs.sum(axis=0, keepdims=True)


def in_logarithms(table: Array, linked: Array | None, single: Array, is_padding: Array | None) -> Array:
    """What `log_totals` is, by exponentials."""

    def step(message: Array, level: Levels) -> tuple[Array, None]:
        single, own, linked, is_padding = level
        own = where(linked, table[0] if own is None else own, 0.0)
        found = log_sum_exp((message + single)[:, None] + own, -3)
        return unless(is_padding, found, 0.0), None

    message, _ = lax.scan(step, jnp.zeros_like(single[0]), _levels(table, single, linked, is_padding))
    return unless(at(is_padding, -1), log_sum_exp(message + single[-1], -2), 0.0)


def _batches(function: Callable[..., Any], size: int, batched: Any, arguments: tuple[Array, ...]) -> tuple[Any, Any]:
    """The results of a function for a batch of chains, which are taken as more columns, the last axis of all arrays.

    What has no axes, whether all is right, is asked of all of them. One table for all columns is one for each of them.
    """
    columns = max(argument.shape[-1] for argument in arguments if argument is not None and argument.ndim > 2)
    together = []
    for is_batched, argument in zip(batched, arguments, strict=True):
        if argument is None:
            together.append(None)
            continue
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
