"""Sums by owner of numbers times data: the sums of the data are taken first.

    Σ_e number(e) · weight(e) over the elements e of each owner

Where the number is one for all, or one for each owner, it stands before the sum of the weights. Where it varies from
element to element of an owner, alike for all owners, as the entries of one row do that is looked up in by all data, the
sum is a product of the numbers with a matrix of weights. Neither sums nor matrix depend on x: they are computed once.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from sumout.jaxpr.singular_points import multiply
from sumout.jaxpr.spread import Combination


def sum_combination(combination: Combination, owned: Any, size: int, dtype: Any) -> Array | None:
    """For each owner the sum of its elements; None where they had better be laid out.

    Args:
        combination: of one array.
        owned: how its elements are shared out.
        size: number of owners.
        dtype: of the sums.
    """
    weights = [jnp.broadcast_to(w, combination.shape).astype(dtype) for w in combination.weights]
    if all(number.size == 1 for number in combination.numbers):
        flat = [each.ravel() for each in weights]
        return combination.sum_by(lambda each: owned.sums(each, size), flat)
    axes = owned.summed_axes(combination.shape, size) if hasattr(owned, "summed_axes") else None
    if axes is None:
        return None
    mask = getattr(owned, "mask", None)
    cut = [owned.cut(each, combination.shape) for each in weights]
    cut = cut if mask is None else [jnp.where(mask, each, 0) for each in cut]
    numbers = [owned.cut(number, combination.shape).astype(dtype) for number in combination.numbers]
    kept = tuple(axis for axis in range(len(combination.shape)) if axis not in axes)
    parts, rows = [], []
    for number, each in zip(numbers, cut, strict=True):
        varied = [axis for axis, n in enumerate(number.shape) if n > 1]
        if not set(varied) & set(axes):
            parts.append(_before_sum(number, each, axes))
        elif set(varied) <= set(axes):
            rows.append(_as_row(number, each, axes, kept))
        else:
            return None
    found = [*parts, *([_product(rows).reshape([cut[0].shape[axis] for axis in kept])] if rows else [])]
    return owned.place(reduce(jnp.add, found), size)


def _before_sum(number: Array, weights: Array, axes: Sequence[int]) -> Array:
    """A number for each owner, times the sum of its weights; those that cancel do not make up for one of −∞."""
    number = number.squeeze(axes)
    finite, infinite = weights.sum(axes), jnp.abs(weights).sum(axes)
    return multiply(number, jnp.where(jnp.isfinite(number), finite, infinite))


def _as_row(number: Array, weights: Array, axes: Sequence[int], kept: Sequence[int]) -> tuple[Array, Array]:
    """The numbers in a row, and for each its weights for all owners."""
    order = (*axes, *kept)
    count = prod(weights.shape[axis] for axis in axes)
    row = jnp.broadcast_to(number, [n if axis in axes else 1 for axis, n in enumerate(weights.shape)])
    return row.transpose(order).ravel(), weights.transpose(order).reshape(count, -1)


def _product(rows: Sequence[tuple[Array, Array]]) -> Array:
    """Σ number · weight for all owners; −∞ where a number that is not finite counts."""
    numbers, weights = (jnp.concatenate(parts) for parts in zip(*rows, strict=True))
    is_finite = jnp.isfinite(numbers)
    finite = jnp.where(is_finite, numbers, 0.0) @ weights
    infinite = (~is_finite).astype(numbers.dtype) @ (weights != 0).astype(numbers.dtype)
    return jnp.where(infinite > 0, -jnp.inf, finite)
