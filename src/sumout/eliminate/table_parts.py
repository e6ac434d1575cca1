"""Tables of cells in parts, which add up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.compile.policy import FEW_AXES, SELECTED_ENTRIES


@partial(jax.tree_util.register_dataclass, data_fields=["content", "mask"], meta_fields=["levels"])
@dataclass(frozen=True, eq=False)
class Part:
    """A part of the tables that depends on some of the separator.

    Attributes:
        content: `(levels or 1, K, …, K, columns or 1)` with an axis for each site of the cell and of its separator, of
            size 1 along those on which it does not vary.
        mask: `(levels or 1, columns)` which cells have it; in the others it is zero. None if all have.
        levels: the first level it is needed for and the first for which it is not any more; elsewhere it is zero.
    """

    content: Float[Array, "depth *axes columns"]
    mask: Any
    levels: tuple[int, int]

    @property
    def table(self) -> Float[Array, "depth *axes columns"]:
        """The part in all columns."""
        if self.mask is None:
            return self.content
        mask = self.mask.reshape(len(self.mask), *(1,) * (self.content.ndim - 2), -1)
        return jnp.where(mask, self.content, 0.0)

    def plus(self, other: "Part") -> "Part":
        """The sum of two parts along the same axes; what is one for all columns of a level stays so."""
        levels = min(self.levels[0], other.levels[0]), max(self.levels[1], other.levels[1])
        both = self._by_level(other)
        if both is None:
            return Part(self.table + other.table, None, levels)
        return Part(both, self.mask | other.mask, levels)

    def _by_level(self, other: "Part") -> Array | None:
        """The sum, a table for each level, if both have one and no level has them in different columns."""
        parts = (self, other)
        if any(not isinstance(part.mask, np.ndarray) or part.content.shape[-1] > 1 for part in parts):
            return None
        own, its = (part.mask for part in parts)
        has_both = own.any(axis=1) & its.any(axis=1)
        if len(own) != len(its) or (own != its).any(axis=1)[has_both].any():
            return None
        shape = (-1, *(1,) * (self.content.ndim - 1))
        contents = [jnp.where(part.mask.any(axis=1).reshape(shape), part.content, 0.0) for part in parts]
        return contents[0] + contents[1]


@partial(jax.tree_util.register_dataclass, data_fields=["single", "joint"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of all cells in parts, which add up.

    Attributes:
        single: what depends on the cell's own sites alone.
        joint: what depends on its separator as well. Roots have no separator: what stands there does not count.
    """

    single: Float[Array, "levels own columns"]
    joint: tuple[Part, ...]


def add_parts(parts: Sequence[Array], sizes: tuple[int, ...]) -> Float[Array, "depth entries C"]:
    """The sum of parts `(depth or 1, *axes, columns)`, of size 1 along axes on which they do not vary.

    Args:
        parts: at least one.
        sizes: of all axes.
    """
    is_small = sum(prod(part.shape[1:-1]) for part in parts) <= min(SELECTED_ENTRIES, prod(sizes) // 2)
    if is_small and len(sizes) > FEW_AXES:
        return _select(parts, sizes)
    whole = reduce(_add, parts)
    depth, columns = len(whole), whole.shape[-1]
    return jnp.broadcast_to(whole, (depth, *sizes, columns)).reshape(depth, -1, columns)


def _select(parts: Sequence[Array], sizes: tuple[int, ...]) -> Float[Array, "depth entries C"]:
    """The sum of parts that are small beside it, by a product with a matrix of zeros and ones.

    Arrays with many axes are slow to add up: XLA computes each index at length, and anew for each use of the sum.
    """
    rows = []
    for part in parts:
        axes = part.shape[1:-1]
        place = np.arange(prod(axes)).reshape(axes)
        rows.append(np.broadcast_to(place, sizes).ravel() == np.arange(place.size)[:, None])
    depth, columns = max(len(part) for part in parts), parts[0].shape[-1]
    flat = [jnp.broadcast_to(part, (depth, *part.shape[1:])).reshape(depth, -1, columns) for part in parts]
    terms = jnp.concatenate(flat, axis=1)
    matrix = np.concatenate(rows).T.astype(terms.dtype)
    is_impossible = terms == -jnp.inf  # zero times this would be no number
    finite = matrix @ jnp.where(is_impossible, 0.0, terms)
    return jnp.where(matrix @ is_impossible.astype(terms.dtype) > 0, -jnp.inf, finite)


def _add(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """The sum of two arrays of as many axes, of size 1 where one does not vary.

    Axes along which the same of them vary are made one: of arrays with many axes XLA computes each index at length.
    """
    sizes = list(zip(a.shape, b.shape, strict=True))
    runs = [list(axes) for _, axes in groupby(sizes, key=lambda pair: (pair[0] > 1, pair[1] > 1))]
    merged = [one.reshape([prod(pair[i] for pair in axes) for axes in runs]) for i, one in enumerate((a, b))]
    return (merged[0] + merged[1]).reshape([max(pair) for pair in sizes])
