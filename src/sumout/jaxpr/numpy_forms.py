"""Primitives as functions of NumPy arrays and of the primitive's parameters, as far as NumPy has no such function.

What only moves elements about serves values and scopes alike: the numbers of the scopes of an array move as its
elements do.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax


def static_slice(a: np.ndarray, *, start_indices, limit_indices, strides, **_: Any) -> np.ndarray:
    """Every so many elements between two bounds along each axis."""
    strides = strides or (1,) * a.ndim
    return a[tuple(slice(*bounds) for bounds in zip(start_indices, limit_indices, strides, strict=True))]


def broadcast_in_dim(a: np.ndarray, *, shape, broadcast_dimensions, **_: Any) -> np.ndarray:
    """The array with its axes at given places of a larger shape, repeated along the others."""
    inner = [1] * len(shape)
    for size, dim in zip(a.shape, broadcast_dimensions, strict=True):
        inner[dim] = size
    return np.broadcast_to(a.reshape(inner), shape)


def reshape(a: np.ndarray, *, new_sizes, dimensions=None, **_: Any) -> np.ndarray:
    """The elements in their order in another shape, after a transpose if one is given."""
    return (a if dimensions is None else a.transpose(dimensions)).reshape(new_sizes)


def split(a: np.ndarray, *, sizes, axis, **_: Any) -> tuple[np.ndarray, ...]:
    """Cut into pieces along an axis."""
    return tuple(np.split(a, np.cumsum(sizes)[:-1], axis=axis))


def pad(a: np.ndarray, fill: np.ndarray, *, padding_config, **_: Any) -> np.ndarray:
    """Fill before, between and after the elements; less than none cuts off."""
    sizes = [low + high + n + max(n - 1, 0) * gap for n, (low, high, gap) in zip(a.shape, padding_config, strict=True)]
    # Negative padding cuts: lay the array out on a larger canvas, then crop.
    before = [max(-low, 0) for low, _, _ in padding_config]
    after = [max(-high, 0) for _, high, _ in padding_config]
    canvas = np.full([s + b + e for s, b, e in zip(sizes, before, after, strict=True)], fill, a.dtype)
    inside = tuple(
        slice(max(low, 0), max(low, 0) + n + max(n - 1, 0) * gap, gap + 1)
        for n, (low, _, gap) in zip(a.shape, padding_config, strict=True)
    )
    canvas[inside] = a
    return canvas[tuple(slice(b, b + s) for b, s in zip(before, sizes, strict=True))]


def dynamic_slice(a: np.ndarray, *starts: np.ndarray, slice_sizes, **_: Any) -> np.ndarray:
    """A window of `a` whose start is clamped to fit, as in JAX."""
    first = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, a.shape, slice_sizes, strict=True)]
    return a[tuple(slice(s, s + size) for s, size in zip(first, slice_sizes, strict=True))]


def dynamic_update_slice(a: np.ndarray, update: np.ndarray, *starts: np.ndarray, **_: Any) -> np.ndarray:
    """`a` with a window replaced by `update`, its start clamped to fit."""
    first = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, a.shape, update.shape, strict=True)]
    out = a.copy()
    out[tuple(slice(s, s + size) for s, size in zip(first, update.shape, strict=True))] = update
    return out


def gather(
    a: np.ndarray, indices: np.ndarray, *, dimension_numbers: Any, slice_sizes: Sequence[int], mode: Any, **_: Any
) -> np.ndarray:
    """A window of `a` for each row of indices; its start is clamped to fit, or else a window that does not fit is 0."""
    numbers, where = dimension_numbers, indices.shape[:-1]
    single = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [axis for axis in range(a.ndim) if axis not in single]
    place, fits = [], np.ones(where, bool)
    # For each axis of `a` the coordinates to look up, of shape (*where, *window) or one that broadcasts to it.
    for axis, size in enumerate(slice_sizes):
        start = np.zeros(where, np.int64)
        if axis in numbers.start_index_map:
            asked = indices[..., numbers.start_index_map.index(axis)].astype(np.int64)
            start = np.clip(asked, 0, a.shape[axis] - size)
            fits &= start == asked
        elif axis in numbers.operand_batching_dims:
            # Row b of the indices along the batching axis looks into row b of `a`.
            along = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(axis)]
            start = start + np.arange(where[along]).reshape([-1 if i == along else 1 for i in range(len(where))])
        start = start.reshape((*where, *(1 for _ in windows)))  # without axes, too
        if axis in windows:
            start = start + np.arange(size).reshape([-1 if axis == window else 1 for window in windows])
        place.append(start)
    found = np.broadcast_to(a[tuple(place)], where + tuple(slice_sizes[axis] for axis in windows))
    if mode == lax.GatherScatterMode.FILL_OR_DROP:
        found = np.where(fits.reshape((*where, *(1 for _ in windows))), found, 0)
    return np.moveaxis(found, range(len(where), found.ndim), numbers.offset_dims)


def divide(a: Any, b: Any) -> Any:
    """A quotient; of integers it is cut towards zero, and by zero −1, as XLA has it."""
    if np.issubdtype(np.asarray(a).dtype, np.inexact):
        return a / b
    whole = np.abs(a) // np.where(b == 0, 1, np.abs(b)) * np.sign(a) * np.sign(b)
    return np.where(b == 0, -1, whole).astype(np.asarray(a).dtype)


def remainder(a: Any, b: Any) -> Any:
    """With the sign of the dividend; by zero, as XLA has it, the dividend itself."""
    is_whole = np.issubdtype(np.asarray(a).dtype, np.integer)
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, np.ones_like(b), b))) if is_whole else np.fmod(a, b)


def convert(a: Any, *, new_dtype: Any, **_: Any) -> np.ndarray:
    """The same numbers in another type."""
    return np.asarray(a).astype(new_dtype)


def integer_pow(a: Any, *, y: int, **_: Any) -> Any:
    """A power."""
    return a**y


def select_n(which: Any, *cases: Any) -> Any:
    """Each element from the case that is asked for there."""
    return np.select([np.asarray(which) == i for i in range(len(cases))], cases)


def iota(*, dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> np.ndarray:
    """Numbers that count along one axis."""
    along = [-1 if axis == dimension else 1 for axis in range(len(shape))]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(along), shape)


# Which element goes where?


def trace_back(
    move: Callable[..., Any], shapes: Sequence[tuple[int, ...]], wanted: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """For operands of these shapes the elements that arrive at a wanted place (a mask for each result)."""
    numbers, arrived = follow_elements(move, shapes)
    found = np.zeros(1 + sum(number.size for number in numbers), bool)
    for piece, mask in zip(arrived, wanted, strict=True):
        found[piece[np.broadcast_to(mask, piece.shape)]] = True
    return [np.asarray(found[number]) for number in numbers]  # of a scalar NumPy would give no array


def follow_elements(
    move: Callable[..., Any], shapes: Sequence[tuple[int, ...]]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The elements of operands of these shapes numbered from 1, and the numbers that arrive in each result.

    Zero stands for what comes from no operand.
    """
    ends = np.cumsum([1, *(int(np.prod(shape)) for shape in shapes)])
    numbers = [np.arange(a, b).reshape(shape) for a, b, shape in zip(ends, ends[1:], shapes, strict=False)]
    arrived = move(*numbers)
    return numbers, [np.asarray(piece) for piece in (arrived if isinstance(arrived, tuple) else (arrived,))]
