"""One rule for each kind of primitive: from the scopes of its operands to the scopes of its results.

A rule is called only when some operand depends on z. It may return more sites than the truth, never fewer. A primitive
without a rule is opaque: all its results depend on all its operands.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jax import lax

from sumout.jaxpr import numpy_forms as forms
from sumout.jaxpr.numpy_evaluation import compute
from sumout.jaxpr.primitives import Kind, row_of
from sumout.structure.scopes import EMPTY, Abstract, Ids, Scopes, dependent

CLIP, FILL = lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP

Rule = Callable[[Scopes, Any, list[Abstract]], list[Ids | None]]


def elementwise(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Each element depends on what the operands' elements at its place depend on.

    But where one factor of a product is known to be zero, or one truth of two to decide, the other has no say.
    """
    ids = None
    for operand in operands:
        ids = scopes.union(ids, operand.ids)
    by, out = row_of(eqn).absorbing, eqn.outvars[0].aval
    if by is None or (by is True and out.dtype != bool):  # of bits, True decides one only
        return [ids]
    for operand in operands:
        if operand.holds(by):
            has_say = np.broadcast_to(operand.differs(by), out.shape)
            ids = np.where(has_say, np.broadcast_to(np.asarray(ids), out.shape), EMPTY)
    return [ids]


def select(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """A known condition picks one case for each element; an unknown one leaves them all in."""
    condition, *cases = operands
    if condition.known is None:
        return elementwise(scopes, eqn, operands)
    shape = eqn.outvars[0].aval.shape
    chosen = np.broadcast_to(condition.value, shape).astype(int)
    return [np.select([chosen == i for i in range(len(cases))], [np.broadcast_to(c.scopes, shape) for c in cases])]


def barrier(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Each result is its operand."""
    del scopes, eqn
    return [operand.ids for operand in operands]


def movement(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Move the scopes as the elements move."""
    del scopes
    return compute(eqn, [operand.scopes for operand in operands])


def reduction(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Union over the reduced axes."""
    return [scopes.reduce(operands[0].scopes, tuple(eqn.params["axes"]))]


def cumulation(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Running union along the axis."""
    return [scopes.accumulate(operands[0].scopes, eqn.params["axis"], eqn.params["reverse"])]


def along_axis(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Sorting: every result along the axis depends on all operands along it."""
    (axis,) = (eqn.params[name] % len(operands[0].shape) for name in ("dimension", "axis") if name in eqn.params)
    ids = None
    for operand in operands:
        if operand.ids is not None:
            ids = scopes.union(ids, scopes.reduce(operand.ids, (axis,), keepdims=True))
    return [ids for _ in eqn.outvars]


def matrices(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Linear algebra on the last two axes: everything within one matrix depends on all of it."""
    ids = None
    for operand in operands:
        if operand.ids is not None:
            whole = scopes.reduce(operand.ids, (operand.ids.ndim - 2, operand.ids.ndim - 1))
            ids = scopes.union(ids, whole)
    assert ids is not None
    return [ids.reshape(ids.shape + (1,) * (len(out.aval.shape) - ids.ndim)) for out in eqn.outvars]


def triangular_solve(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Each right-hand side is solved for itself: its solution depends on all of it and on the whole matrix."""
    matrix, sides = operands
    axis = sides.scopes.ndim - (2 if eqn.params["left_side"] else 1)
    ids = None if sides.ids is None else scopes.reduce(sides.ids, (axis,), keepdims=True)
    if matrix.ids is not None:
        whole = (matrix.ids.ndim - 2, matrix.ids.ndim - 1)
        ids = scopes.union(ids, scopes.reduce(matrix.ids, whole, keepdims=True))
    return [ids]


def dot_general(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Union along the contracted axes; where the other operand is known, only along its non-zeros."""
    (contract_l, contract_r), (batch_l, batch_r) = eqn.params["dimension_numbers"]
    left, right = operands

    def arranged(array: np.ndarray, batch: tuple[int, ...], contract: tuple[int, ...]) -> np.ndarray:
        free = [axis for axis in range(array.ndim) if axis not in (*batch, *contract)]
        sizes = [int(np.prod([array.shape[a] for a in axes])) for axes in (batch, free, contract)]
        return array.transpose([*batch, *free, *contract]).reshape(sizes)

    def side(one, batch, contract, other, other_batch, other_contract) -> Ids | None:
        """Scopes (batch, free, other free) that come in through `one`."""
        if one.ids is None:
            return None
        ids = arranged(one.ids, batch, contract)
        if other.known is None or np.all(nonzero := other.differs(0)):
            return scopes.reduce(ids, (2,))[:, :, None]
        mask = arranged(nonzero, other_batch, other_contract)
        return scopes.reduce(np.where(mask[:, None, :, :], ids[:, :, None, :], EMPTY), (3,))

    from_left = side(left, batch_l, contract_l, right, batch_r, contract_r)
    from_right = side(right, batch_r, contract_r, left, batch_l, contract_l)
    if from_right is not None:
        from_right = from_right.transpose(0, 2, 1)
    ids = scopes.union(from_left, from_right)
    assert ids is not None
    shape = eqn.outvars[0].aval.shape
    free_l = int(np.prod([n for a, n in enumerate(left.shape) if a not in (*batch_l, *contract_l)]))
    free_r = int(np.prod([n for a, n in enumerate(right.shape) if a not in (*batch_r, *contract_r)]))
    return [np.broadcast_to(ids, (ids.shape[0], free_l, free_r)).reshape(shape)]


def gather(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Known indices move the scopes; an unknown one may point anywhere along its axis, and its own scope counts."""
    operand, indices = operands
    numbers = eqn.params["dimension_numbers"]
    columns = indices.columns
    ids = None
    if operand.ids is not None:
        free = tuple(axis for axis, column in zip(numbers.start_index_map, columns, strict=True) if column is None)
        reach = scopes.reduce(operand.ids, free, keepdims=True) if free else operand.ids
        anywhere = np.zeros(indices.shape[:-1], np.int64)
        known = [anywhere if column is None else column.get() for column in columns]
        index = np.stack(known, axis=-1) if known else np.zeros(indices.shape, np.int64)
        ids = forms.gather(np.broadcast_to(reach, operand.shape), index, **eqn.params)
    if indices.ids is not None:
        row = scopes.reduce(indices.ids, (indices.ids.ndim - 1,))
        ids = scopes.union(ids, np.expand_dims(row, numbers.offset_dims))
    return [ids]


def scatter(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Known indices: each place collects what is written to it. Unknown ones: any place in a batch may have it all."""
    operand, indices, updates = operands
    numbers = eqn.params["dimension_numbers"]
    if indices.known is None:
        anything = _within_batches(scopes, numbers, indices, updates)
        elsewhere = tuple(axis for axis in range(len(operand.shape)) if axis not in numbers.operand_batching_dims)
        return [scopes.union(operand.scopes, np.expand_dims(anything, elsewhere))]
    places = written_places(eqn, operand.shape, indices.value, updates.shape)
    out = operand.scopes.ravel().copy()
    if eqn.primitive.name == "scatter" and eqn.params["update_jaxpr"] is None:  # overwritten, not combined
        out[places[places > 0] - 1] = EMPTY
    written, arriving = places.ravel(), updates.scopes.ravel()
    while (found := np.flatnonzero((written > 0) & (arriving != EMPTY))).size:
        # One update a place in each round, until none is left.
        targets, first = np.unique(written[found], return_index=True)
        joined = scopes.union(out[targets - 1], arriving[found[first]])
        out[targets - 1] = joined
        written = np.delete(written, found[first])
        arriving = np.delete(arriving, found[first])
    return [out.reshape(operand.shape)]


def written_places(eqn: Any, operand: tuple[int, ...], indices: np.ndarray, updates: tuple[int, ...]) -> np.ndarray:
    """Where a scatter by known indices writes each update: the number of the place from 1, or 0 for nowhere.

    Args:
        eqn: the scatter.
        operand: shape of what is written to.
        indices: where.
        updates: shape of what is written.
    """
    numbers = eqn.params["dimension_numbers"]
    kept = set(numbers.inserted_window_dims) | set(numbers.operand_batching_dims)
    windows = iter(updates[axis] for axis in numbers.update_window_dims)
    # Where each update is written: what a gather by the same indices reads from the places numbered from 1. Zero is
    # outside, where nothing is written.
    return forms.gather(
        np.arange(1, np.prod(operand, dtype=int) + 1).reshape(operand),
        indices,
        dimension_numbers=lax.GatherDimensionNumbers(
            offset_dims=numbers.update_window_dims,
            collapsed_slice_dims=numbers.inserted_window_dims,
            start_index_map=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            start_indices_batching_dims=numbers.scatter_indices_batching_dims,
        ),
        slice_sizes=tuple(1 if axis in kept else next(windows) for axis in range(len(operand))),
        mode=eqn.params["mode"] if eqn.params["mode"] == CLIP else FILL,
    )


def _within_batches(scopes: Scopes, numbers: Any, indices: Abstract, updates: Abstract) -> Ids:
    """The union of the indices and updates of each batch of a scatter."""
    batch = numbers.scatter_indices_batching_dims
    follow = [axis for axis in range(len(updates.shape)) if axis not in numbers.update_window_dims]
    both = []
    for ids, kept in ((indices.scopes, batch), (updates.scopes, [follow[axis] for axis in batch])):
        joined = scopes.reduce(ids, tuple(axis for axis in range(ids.ndim) if axis not in kept))
        both.append(joined.transpose([sorted(kept).index(axis) for axis in kept]))
    union = scopes.union(*both)
    assert union is not None
    return union


def sliding(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """reduce_window: each result depends on all that its window covers."""
    params, ids = eqn.params, operands[0].scopes
    gaps = [dilation - 1 for dilation in params["base_dilation"]]
    config = [(*pad, gap) for pad, gap in zip(params["padding"], gaps, strict=True)]
    wide = forms.pad(ids, np.asarray(EMPTY), padding_config=config)
    shape, found = eqn.outvars[0].aval.shape, None
    for offset in np.ndindex(*params["window_dimensions"]):
        starts = [o * d for o, d in zip(offset, params["window_dilation"], strict=True)]
        along = zip(starts, params["window_strides"], shape, strict=True)
        covered = wide[tuple(slice(start, start + step * (n - 1) + 1, step) for start, step, n in along)]
        found = scopes.union(found, covered)
    return [found]


def transform(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """fft: everything along the last axes depends on all of it."""
    ids, last = operands[0].scopes, len(eqn.params["fft_lengths"])
    return [scopes.reduce(ids, tuple(range(ids.ndim - last, ids.ndim)), keepdims=True)]


def convolution(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Within one batch everything depends on the whole of it, and on all filters."""
    batched, filters = operands
    numbers, ids = eqn.params["dimension_numbers"], batched.scopes
    if eqn.params["batch_group_count"] > 1:
        return opaque(scopes, eqn, operands)
    batch, out = numbers.lhs_spec[0], numbers.out_spec[0]
    each = scopes.reduce(ids, tuple(axis for axis in range(ids.ndim) if axis != batch))
    placed = each.reshape([-1 if axis == out else 1 for axis in range(ids.ndim)])
    return [_with_all(scopes, placed, [filters.ids])]


def window(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """dynamic_slice: along an axis whose start is not known, the window may lie anywhere."""
    operand, *starts = operands
    unknown = tuple(axis for axis, start in enumerate(starts) if start.known is None)
    reach = scopes.reduce(operand.scopes, unknown, keepdims=True) if unknown else operand.scopes
    first = [np.zeros((), int) if start.known is None else start.value for start in starts]
    ids = forms.dynamic_slice(np.broadcast_to(reach, operand.shape), *first, **eqn.params)
    return [_with_all(scopes, ids, [start.ids for start in starts])]


def window_update(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """dynamic_update_slice: with an unknown start, any place may have been overwritten."""
    operand, update, *starts = operands
    if all(start.known is not None for start in starts):
        return [
            forms.dynamic_update_slice(operand.scopes, update.scopes, *(start.value for start in starts), **eqn.params)
        ]
    return [_with_all(scopes, operand.scopes, [update.ids, *(start.ids for start in starts)])]


def _with_all(scopes: Scopes, ids: Ids, others: list[Ids | None]) -> Ids:
    joined = scopes.union(ids, np.full(ids.shape, scopes.everything(others)))
    assert joined is not None
    return joined


def opaque(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Ids | None]:
    """Everything depends on everything."""
    anything = scopes.everything([operand.ids for operand in operands])
    return [np.full(out.aval.shape, anything) for out in eqn.outvars]


RULES: dict[Kind, Rule] = {
    Kind.ELEMENTWISE: elementwise,
    Kind.SELECT: select,
    Kind.COPY: elementwise,
    Kind.CONVERSION: elementwise,
    Kind.MOVEMENT: movement,
    Kind.REDUCTION: reduction,
    Kind.POSITION: reduction,
    Kind.CUMULATIVE: cumulation,
    Kind.SORT: along_axis,
    Kind.CONTRACTION: dot_general,
    Kind.GATHER: gather,
    Kind.SCATTER: scatter,
    Kind.SLICE: window,
    Kind.UPDATE: window_update,
    Kind.WINDOW: sliding,
    Kind.TRANSFORM: transform,
    Kind.CONVOLUTION: convolution,
    Kind.MATRIX: matrices,
    Kind.TRIANGULAR_SOLVE: triangular_solve,
    Kind.BARRIER: barrier,
}


def apply_rule(scopes: Scopes, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
    """The results of one equation that has a rule, with an operand that depends on z."""
    found = RULES[row_of(eqn).kind](scopes, eqn, operands)
    results = [dependent(out.aval.shape, ids) for out, ids in zip(eqn.outvars, found, strict=True)]
    if eqn.primitive.name == "concatenate" and eqn.params["dimension"] == len(results[0].shape) - 1:
        # An index array put together from columns: `table[arange(n), z]` knows its first column.
        results = [replace(results[0], parts=tuple(column for operand in operands for column in operand.columns))]
    return results
