"""Jaxprs evaluated by NumPy: nothing is compiled for what is known when a program is read.

First operations that only move elements about: the same function serves the values of a known array and the numbers of
its scopes. Then single equations, and whole jaxprs where NumPy computes what XLA would, to the last bit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval
from scipy import special

from sumout.errors import note_unforeseen


def _slice(a: np.ndarray, *, start_indices, limit_indices, strides, **_: Any) -> np.ndarray:
    strides = strides or (1,) * a.ndim
    return a[tuple(slice(*bounds) for bounds in zip(start_indices, limit_indices, strides, strict=True))]


def _broadcast_in_dim(a: np.ndarray, *, shape, broadcast_dimensions, **_: Any) -> np.ndarray:
    inner = [1] * len(shape)
    for size, dim in zip(a.shape, broadcast_dimensions, strict=True):
        inner[dim] = size
    return np.broadcast_to(a.reshape(inner), shape)


def _reshape(a: np.ndarray, *, new_sizes, dimensions=None, **_: Any) -> np.ndarray:
    return (a if dimensions is None else a.transpose(dimensions)).reshape(new_sizes)


def _split(a: np.ndarray, *, sizes, axis, **_: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.split(a, np.cumsum(sizes)[:-1], axis=axis))


def _pad(a: np.ndarray, fill: np.ndarray, *, padding_config, **_: Any) -> np.ndarray:
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


def gather_windows(
    a: np.ndarray, indices: np.ndarray, *, dimension_numbers: Any, slice_sizes: Sequence[int], is_clipped: bool
) -> np.ndarray:
    """A window of `a` for each row of indices; its start is clamped to fit, or else a window that does not fit is 0."""
    numbers, where = dimension_numbers, indices.shape[:-1]
    single = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [axis for axis in range(a.ndim) if axis not in single]
    place, fits = [], np.ones(where, bool)
    for axis, size in enumerate(slice_sizes):
        start = np.zeros(where, np.int64)
        if axis in numbers.start_index_map:
            asked = indices[..., numbers.start_index_map.index(axis)].astype(np.int64)
            start = np.clip(asked, 0, a.shape[axis] - size)
            fits &= start == asked
        elif axis in numbers.operand_batching_dims:
            along = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(axis)]
            start = start + np.arange(where[along]).reshape([-1 if i == along else 1 for i in range(len(where))])
        start = start.reshape((*where, *(1 for _ in windows)))  # without axes, too
        if axis in windows:
            start = start + np.arange(size).reshape([-1 if axis == window else 1 for window in windows])
        place.append(start)
    found = np.broadcast_to(a[tuple(place)], where + tuple(slice_sizes[axis] for axis in windows))
    if not is_clipped:
        found = np.where(fits.reshape((*where, *(1 for _ in windows))), found, 0)
    return np.moveaxis(found, range(len(where), found.ndim), numbers.offset_dims)


# Primitive → function of arrays and the primitive's parameters. All operands are moved; none is an index.
MOVEMENTS: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": lambda *arrays, dimension, **_: np.concatenate(arrays, axis=dimension),
    "copy": lambda a, **_: a,
    "copy_p": lambda a, **_: a,
    "expand_dims": lambda a, *, dimensions, **_: np.expand_dims(a, dimensions),
    "pad": _pad,
    "reshape": _reshape,
    "rev": lambda a, *, dimensions, **_: np.flip(a, dimensions),
    "slice": _slice,
    "split": _split,
    "stack": lambda *arrays, axis, **_: np.stack(arrays, axis=axis),
    "squeeze": lambda a, *, dimensions, **_: np.squeeze(a, axis=dimensions),
    "tile": lambda a, *, reps, **_: np.tile(a, reps),
    "transpose": lambda a, *, permutation, **_: a.transpose(permutation),
}


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


# Equations computed by NumPy: what is known when a program is read need not be compiled to be had.
#
# `EXACT` are those that NumPy and XLA compute alike, to the last bit: movements of elements, comparisons, the
# arithmetic of counters, indices and masks. `ROUNDED` may differ in the last place: they are for constants that take
# the place of what the program would have computed, never to foretell what it will.

EXACT: dict[str, Callable[..., Any]] = {
    **MOVEMENTS,
    "abs": lambda a, **_: np.abs(a),
    "add": lambda a, b, **_: a + b,
    "and": lambda a, b, **_: a & b,
    "clamp": lambda low, a, high, **_: np.clip(a, low, high),
    "convert_element_type": lambda a, *, new_dtype, **_: np.asarray(a).astype(new_dtype),
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "eq": lambda a, b, **_: a == b,
    "floor": lambda a, **_: np.floor(a),
    "ge": lambda a, b, **_: a >= b,
    "gt": lambda a, b, **_: a > b,
    "iota": lambda *, dtype, shape, dimension, **_: np.broadcast_to(
        np.arange(shape[dimension], dtype=dtype).reshape([-1 if i == dimension else 1 for i in range(len(shape))]),
        shape,
    ),
    "le": lambda a, b, **_: a <= b,
    "lt": lambda a, b, **_: a < b,
    "max": lambda a, b, **_: np.maximum(a, b),
    "min": lambda a, b, **_: np.minimum(a, b),
    "mul": lambda a, b, **_: a * b,
    "ne": lambda a, b, **_: a != b,
    "neg": lambda a, **_: -a,
    "not": lambda a, **_: ~a,
    "or": lambda a, b, **_: a | b,
    "reduce_and": lambda a, *, axes, **_: np.all(a, axis=axes),
    "reduce_max": lambda a, *, axes, **_: np.max(a, axis=axes),
    "reduce_min": lambda a, *, axes, **_: np.min(a, axis=axes),
    "reduce_or": lambda a, *, axes, **_: np.any(a, axis=axes),
    "select_n": lambda which, *cases, **_: np.select([np.asarray(which) == i for i in range(len(cases))], cases),
    "sub": lambda a, b, **_: a - b,
}

ROUNDED: dict[str, Callable[..., Any]] = {
    "div": lambda a, b, **_: a / b,
    "erf": lambda a, **_: special.erf(a),
    "exp": lambda a, **_: np.exp(a),
    "expm1": lambda a, **_: np.expm1(a),
    "integer_pow": lambda a, *, y, **_: a**y,
    "lgamma": lambda a, **_: special.gammaln(a),
    "log": lambda a, **_: np.log(a),
    "log1p": lambda a, **_: np.log1p(a),
    "logistic": lambda a, **_: special.expit(a),
    "reduce_prod": lambda a, *, axes, **_: np.prod(a, axis=axes),
    "reduce_sum": lambda a, *, axes, **_: np.sum(a, axis=axes, dtype=np.asarray(a).dtype),
    "rsqrt": lambda a, **_: 1 / np.sqrt(a),
    "sqrt": lambda a, **_: np.sqrt(a),
    "square": lambda a, **_: a * a,
    "tanh": lambda a, **_: np.tanh(a),
}


def is_exact_by_numpy(eqn: Any) -> bool:
    """Whether NumPy computes an equation as XLA does; sums of integers, too, as both wrap around."""
    if eqn.primitive.name == "reduce_sum":
        return not np.issubdtype(eqn.outvars[0].aval.dtype, np.inexact)
    return eqn.primitive.name in EXACT and not _truncates(eqn)


def is_known_to_numpy(eqn: Any) -> bool:
    """Whether NumPy computes an equation as XLA does, up to the last place."""
    return eqn.primitive.name in ROUNDED or is_exact_by_numpy(eqn)


def compute(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an equation that NumPy knows."""
    name = eqn.primitive.name
    with np.errstate(all="ignore"):
        out = (EXACT.get(name) or ROUNDED[name])(*operands, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _truncates(eqn: Any) -> bool:
    """Whether an equation turns fractions into integers, which NumPy and XLA do differently at the extremes."""
    if eqn.primitive.name != "convert_element_type":
        return False
    old = eqn.invars[0].aval.dtype if hasattr(eqn.invars[0], "aval") else np.asarray(eqn.invars[0].val).dtype
    return np.issubdtype(old, np.floating) and not np.issubdtype(eqn.outvars[0].aval.dtype, np.floating)


# A jaxpr evaluated once: by NumPy where it computes what XLA would, to the last bit, as then nothing is compiled.

CALLS = ("jit", "pjit", "closed_call")


def evaluate(closed: ClosedJaxpr, arguments: Sequence[Any], wanted: Sequence[bool]) -> list[np.ndarray | None]:
    """Those results that are wanted, None for the others; what only these depend on is not looked at."""
    live, used = partial_eval.dce_jaxpr(closed.jaxpr, list(wanted))
    needed = [argument for argument, is_used in zip(arguments, used, strict=True) if is_used]
    results = _run_exactly(live, closed.consts, needed)
    if results is None:
        results = jax.jit(jaxpr_as_fun(ClosedJaxpr(live, closed.consts)))(*needed)
    left = iter(results)
    return [np.asarray(next(left)) if is_wanted else None for is_wanted in wanted]


def _run_exactly(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any] | None:
    """The results by NumPy; None if it does not compute what XLA would."""
    if not _is_exact(jaxpr):
        return None
    try:
        return _run(jaxpr, consts, [np.asarray(argument) for argument in arguments])
    except Exception as error:
        note_unforeseen("evaluation by NumPy", error)
        return None


def _is_exact(jaxpr: Jaxpr) -> bool:
    return all(
        _is_exact(_body(eqn)[0]) if eqn.primitive.name in CALLS else is_exact_by_numpy(eqn) for eqn in jaxpr.eqns
    )


def _run(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(np.asarray, consts), *arguments], strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val) if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        operands = [read(v) for v in eqn.invars]
        results = _run(*_body(eqn), operands) if eqn.primitive.name in CALLS else compute(eqn, operands)
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _body(eqn: Any) -> tuple[Jaxpr, Sequence[Any]]:
    body = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
