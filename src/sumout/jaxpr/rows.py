"""Rows and windows of an array at known places, by slices and reshapes where these suffice.

A look-up at known indices would do for all of them. But the derivative of a look-up is a scatter, which XLA takes
element by element, and the array itself, or a part of it in its order, is what the program would have said had it been
written without a loop.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def take_rows(array: Any, rows: np.ndarray) -> Any:
    """Rows of an array, at known numbers."""
    size = array.shape[0]
    if np.array_equal(rows, np.arange(size)):
        return array
    run = _as_range(rows)
    if run is not None:
        return lax.slice_in_dim(array, *run)
    repeated = _as_repeated(rows)
    if repeated is None:
        return jnp.take(array, rows.astype(np.int32), axis=0, mode="clip")
    start, count, inner, outer = repeated
    part = take_rows(array, np.arange(start, start + count))
    shape = part.shape[1:]
    wide = jnp.broadcast_to(part.reshape(1, count, 1, *shape), (outer, count, inner, *shape))
    return wide.reshape(outer * count * inner, *shape)


def _as_range(rows: np.ndarray) -> tuple[int, int, int] | None:
    """First, end and step of rows that are evenly spaced in ascending order."""
    if len(rows) == 1:
        return int(rows[0]), int(rows[0]) + 1, 1
    step = int(rows[1] - rows[0])
    if step < 1 or (np.diff(rows) != step).any():
        return None
    return int(rows[0]), int(rows[-1]) + 1, step


def _as_repeated(rows: np.ndarray) -> tuple[int, int, int, int] | None:
    """First row, number of rows, and how often each, and then all, are repeated: as loops in a loop would."""
    start, count = int(rows.min()), int(rows.max() - rows.min()) + 1
    inner = int(np.argmax(rows != rows[0])) or len(rows)
    if len(rows) % (count * inner):
        return None
    outer = len(rows) // (count * inner)
    found = np.tile(np.repeat(np.arange(start, start + count), inner), outer)
    return (start, count, inner, outer) if np.array_equal(found, rows) else None


@dataclass(frozen=True)
class Windows:
    """Windows of one size: where they start, `(n, axes)`, and their shape and strides."""

    starts: np.ndarray
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def take_windows(array: Any, windows: Windows) -> Any:
    """Windows of an array, stacked along a new first axis."""
    starts, shape, strides = windows.starts, windows.shape, windows.strides
    varying = [axis for axis in range(len(shape)) if (starts[:, axis] != starts[0, axis]).any()]
    # Along the other axes all windows are the same: that part of the array first.
    for axis in range(len(shape)):
        if axis not in varying:
            first = int(starts[0, axis])
            end = first + (shape[axis] - 1) * strides[axis] + 1
            if (first, end, strides[axis]) != (0, array.shape[axis], 1):
                array = lax.slice_in_dim(array, first, end if shape[axis] else first, strides[axis], axis)
    if not varying:
        return jnp.broadcast_to(array, (len(starts), *shape))
    if all(shape[axis] == 1 for axis in varying):
        # One element along each of these axes: a row of the array that has them in front, as one.
        sizes = [array.shape[axis] for axis in varying]
        front = jnp.moveaxis(array, varying, range(len(varying))).reshape(int(np.prod(sizes)), *_others(array, varying))
        flat = np.ravel_multi_index(tuple(starts[:, axis] for axis in varying), sizes)
        return take_rows(front, flat).reshape(len(starts), *shape)
    if len(varying) == 1:
        (axis,) = varying
        along = starts[:, [axis]] + strides[axis] * np.arange(shape[axis])
        front = take_rows(jnp.moveaxis(array, axis, 0), along.ravel())
        return jnp.moveaxis(front.reshape(*along.shape, *front.shape[1:]), 1, axis + 1)
    if any(strides[axis] != 1 for axis in varying):
        raise NotImplementedError("windows with strides that start anywhere along several axes")
    moved = np.where(np.isin(np.arange(len(shape)), varying), starts, 0).astype(np.int32)
    return jax.vmap(lambda start: lax.dynamic_slice(array, tuple(start), shape))(moved)


def _others(array: Any, axes: list[int]) -> list[int]:
    return [size for axis, size in enumerate(array.shape) if axis not in axes]
