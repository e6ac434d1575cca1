"""Run a jaxpr on sets of values: each element of each array that follows from finite sites and data (`reachable.py`).

A rule for each kind of primitive says which elements come out. What has no rule, or too many values, is unknown, and so
is all that follows from it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, Literal

from sumout.errors import note_unforeseen
from sumout.jaxpr import numpy_forms as forms
from sumout.jaxpr.equations import bind
from sumout.jaxpr.numpy_evaluation import compute, is_known_to_numpy
from sumout.jaxpr.primitives import Kind, row_of
from sumout.jaxpr.walk import arguments, body, needed, read, walk
from sumout.structure.interpret import known_results, row_at
from sumout.structure.reachable import UNKNOWN, Reachable, TooManyError
from sumout.structure.scope_rules import written_places
from sumout.structure.scopes import Abstract, constant

# An array in this pass: known (`Abstract`), of elements, or neither.
Elements = np.ndarray
Found = Abstract | Elements | None

MOST_ELEMENTS = 2**22  # of an array that is looked at
MOST_OFFSETS = 256  # elements of a window that is looked up at an unknown place

REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
CUMULATIONS = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
SCATTERS = {"scatter-add": "add", "scatter-mul": "mul", "scatter-max": "max", "scatter-min": "min"}


class ReachableReader:
    """Finds the elements of variables of a jaxpr."""

    def __init__(self, reachable: Reachable):
        self.reachable = reachable
        self._live: dict[int, tuple[Jaxpr, list[Any]]] = {}

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Found]) -> dict[Any, Found]:
        """All variables of a jaxpr."""
        if id(jaxpr) not in self._live:
            self._live[id(jaxpr)] = jaxpr, needed(jaxpr.eqns, jaxpr.outvars)
        env = arguments(jaxpr, map(constant, consts), operands)
        return walk(self._live[id(jaxpr)][1], env, self._equation, _of_literal)

    def _equation(self, eqn: Any, operands: list[Found]) -> list[Found]:
        abstract = [operand for operand in operands if isinstance(operand, Abstract)]
        if len(abstract) == len(operands):
            is_known = all(operand.known is not None for operand in abstract)
            return [*known_results(eqn, abstract)] if is_known else [None] * len(eqn.outvars)
        if all(operand is None or isinstance(operand, Abstract) for operand in operands):
            return [None] * len(eqn.outvars)
        if any(v.aval.size > MOST_ELEMENTS for v in eqn.outvars):
            return [None] * len(eqn.outvars)
        rule = RULES.get(row_of(eqn).kind)
        try:
            found = None if rule is None else rule(self, eqn, operands)
        except TooManyError:
            raise
        except Exception as error:
            note_unforeseen(f"values of {eqn.primitive.name}", error)
            found = None
        return [None] * len(eqn.outvars) if found is None else found

    def elements(self, found: Found, shape: tuple[int, ...]) -> Elements:
        """An array as elements."""
        if found is None:
            return np.full(shape, UNKNOWN)
        return self.reachable.constants(found.value) if isinstance(found, Abstract) else found

    def call(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Found]) -> list[Found]:
        """The results of a jaxpr."""
        return read(self.run(jaxpr, consts, operands), jaxpr.outvars, _of_literal)


def _of_literal(literal: Literal) -> Abstract:
    return constant(np.asarray(literal.val, literal.aval.dtype))  # pyright: ignore[reportAttributeAccessIssue]


def _all_elements(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Elements]:
    return [reader.elements(operand, v.aval.shape) for operand, v in zip(operands, eqn.invars, strict=True)]


def _as_key(eqn: Any) -> tuple[Any, ...]:
    """Equal for equations that compute the same function of the elements in one place."""
    params = tuple((name, str(value)) for name, value in sorted(eqn.params.items()) if name != "sharding")
    return eqn.primitive.name, params, *(v.aval.dtype.name for v in (*eqn.invars, *eqn.outvars))


def _evaluate(eqn: Any) -> Callable[..., np.ndarray]:
    """An equation in one place, as a function of values."""
    dtypes = [v.aval.dtype for v in eqn.invars]

    def run(*values: np.ndarray) -> np.ndarray:
        typed = [np.asarray(value).astype(dtype, copy=False) for value, dtype in zip(values, dtypes, strict=True)]
        if is_known_to_numpy(eqn):
            (result,) = compute(eqn, typed)
        else:
            with jax.ensure_compile_time_eval():
                (result,) = bind(eqn, [jnp.asarray(value) for value in typed])
        return np.asarray(result).astype(eqn.outvars[0].aval.dtype, copy=False)

    return run


def _elementwise(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found]:
    return [reader.reachable.apply(_as_key(eqn), _evaluate(eqn), _all_elements(reader, eqn, operands))]


def _select(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found]:
    which, *cases = operands
    shape = eqn.outvars[0].aval.shape
    listed = [
        np.broadcast_to(reader.elements(case, v.aval.shape), shape)
        for case, v in zip(cases, eqn.invars[1:], strict=True)
    ]
    if isinstance(which, Abstract):
        if which.known is None:
            return [None]
        chosen = np.broadcast_to(which.value, shape).astype(int)
        return [np.select([chosen == i for i in range(len(cases))], listed)]
    chosen = reader.elements(which, eqn.invars[0].aval.shape)
    found = reader.reachable.apply(_as_key(eqn), _evaluate(eqn), [chosen, *listed])
    return [_settle_known(reader, np.broadcast_to(chosen, shape), listed, found)]


def _settle_known(reader: ReachableReader, chosen: Elements, cases: Sequence[Elements], found: Elements) -> Elements:
    """Where the choice is the same for all values, the case itself, which then may be the only one that is known."""
    out = found.copy()
    for place in np.argwhere(found == UNKNOWN) if (found == UNKNOWN).any() else ():
        index = tuple(place)
        values = reader.reachable.arrays[reader.reachable.of(int(chosen[index]))[1]] if chosen[index] else None
        if values is not None and (values == values[0]).all():
            out[index] = cases[int(values[0])][index]
    return out


def _movement(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found]:
    return [*compute(eqn, _all_elements(reader, eqn, operands))]


def _reduction(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    operation = REDUCTIONS.get(eqn.primitive.name)
    if operation is None:
        return None
    (elements,), axes = _all_elements(reader, eqn, operands), eqn.params["axes"]
    kept = [axis for axis in range(elements.ndim) if axis not in axes]
    rows = elements.transpose([*kept, *axes]).reshape([*(elements.shape[axis] for axis in kept), -1])
    return [reader.reachable.fold(operation, rows)]


def _cumulation(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    operation = CUMULATIONS.get(eqn.primitive.name)
    if operation is None:
        return None
    (elements,), axis, is_reverse = _all_elements(reader, eqn, operands), eqn.params["axis"], eqn.params["reverse"]
    steps = np.moveaxis(np.flip(elements, axis) if is_reverse else elements, axis, 0).copy()
    for i in range(1, len(steps)):
        steps[i] = reader.reachable.combine(operation, steps[i - 1], steps[i])
    out = np.moveaxis(steps, 0, axis)
    return [np.flip(out, axis) if is_reverse else out]


def _contraction(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    contract, batch = eqn.params["dimension_numbers"]
    arranged = []
    for i, array in enumerate(_all_elements(reader, eqn, operands)):
        free = [axis for axis in range(array.ndim) if axis not in (*batch[i], *contract[i])]
        sizes = [int(np.prod([array.shape[a] for a in axes])) for axes in (batch[i], free, contract[i])]
        arranged.append(array.transpose([*batch[i], *free, *contract[i]]).reshape(sizes))
    left, right = arranged
    if len(left) * left.shape[1] * right.shape[1] * left.shape[2] > MOST_ELEMENTS:
        return None
    dtype = eqn.outvars[0].aval.dtype
    products = reader.reachable.apply(
        ("product", dtype.name), lambda a, b: (a * b).astype(dtype), [left[:, :, None], right[:, None]]
    )
    return [reader.reachable.fold("add", products).reshape(eqn.outvars[0].aval.shape)]


def _gather(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    operand, indices = operands
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    if isinstance(indices, Abstract) and indices.known is not None:
        return [forms.gather(reader.elements(operand, eqn.invars[0].aval.shape), indices.value, **params)]
    if not isinstance(operand, Abstract) or operand.known is None or indices is None or numbers.operand_batching_dims:
        return None
    table, sizes = operand.value, params["slice_sizes"]
    if params["mode"] == lax.GatherScatterMode.FILL_OR_DROP and not np.issubdtype(table.dtype, np.floating):
        return None
    is_filled = params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    fill = np.nan if params["fill_value"] is None else params["fill_value"]
    columns = np.moveaxis(reader.elements(indices, eqn.invars[1].aval.shape), -1, 0)
    window = [axis for axis in range(table.ndim) if axis not in numbers.collapsed_slice_dims]
    found = _look_up(reader, table, numbers.start_index_map, sizes, columns, fill if is_filled else None)
    if found is None:
        return None
    # The axes of the window come first, and belong where the equation says.
    found = found.reshape([*(sizes[axis] for axis in window), *columns.shape[1:]])
    return [np.moveaxis(found, range(len(window)), numbers.offset_dims)]


def _look_up(
    reader: ReachableReader,
    table: np.ndarray,
    axes: Sequence[int],
    sizes: Sequence[int],
    columns: np.ndarray,
    fill: float | None = None,
) -> Elements | None:
    """Windows of a known array at places that follow from elements: `(offsets, …)`; filled where these are outside."""
    if np.prod(sizes, dtype=float) > MOST_OFFSETS:
        return None
    label, found = reader.reachable.array(table), []
    for offset in np.ndindex(*sizes):

        def take(*starts: np.ndarray, offset: tuple[int, ...] = offset) -> np.ndarray:
            place = [np.full(np.shape(starts[0]), step) for step in offset]
            is_outside = np.zeros(np.shape(starts[0]), bool)
            for axis, start in zip(axes, starts, strict=True):
                last = table.shape[axis] - sizes[axis]
                is_outside |= (start < 0) | (start > last)
                place[axis] = place[axis] + np.clip(start, 0, last)
            values = table[tuple(place)]
            return values if fill is None else np.where(is_outside, fill, values).astype(table.dtype)

        key = ("look up", label, table.shape, tuple(axes), tuple(sizes), offset, str(fill))
        found.append(reader.reachable.apply(key, take, list(columns)))
    return np.stack(found)


def _window(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    operand, *starts = operands
    if all(isinstance(start, Abstract) and start.known is not None for start in starts):
        elements = reader.elements(operand, eqn.invars[0].aval.shape)
        values = [start.value for start in starts if isinstance(start, Abstract)]
        return [forms.dynamic_slice(elements, *values, **eqn.params)]
    if not isinstance(operand, Abstract) or operand.known is None or any(start is None for start in starts):
        return None
    columns = np.stack([reader.elements(start, ()) for start in starts])
    sizes = eqn.params["slice_sizes"]
    found = _look_up(reader, operand.value, range(len(sizes)), sizes, columns)
    return None if found is None else [found.reshape(sizes)]


def _window_update(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    operand, update, *starts = operands
    if not all(isinstance(start, Abstract) and start.known is not None for start in starts):
        return None
    old, new = (reader.elements(one, v.aval.shape) for one, v in zip((operand, update), eqn.invars[:2], strict=True))
    values = [start.value for start in starts if isinstance(start, Abstract)]
    return [forms.dynamic_update_slice(old, new, *values, **eqn.params)]


def _scatter(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    operand, indices, updates = operands
    if not isinstance(indices, Abstract) or indices.known is None:
        return None
    shapes = [v.aval.shape for v in eqn.invars]
    places = written_places(eqn, shapes[0], indices.value, shapes[2]).ravel()
    out, new = reader.elements(operand, shapes[0]).ravel().copy(), reader.elements(updates, shapes[2]).ravel()
    if eqn.primitive.name == "scatter" and eqn.params["update_jaxpr"] is None:
        out[places[places > 0] - 1] = new[places > 0]
        return [out.reshape(shapes[0])]
    operation = SCATTERS.get(eqn.primitive.name)
    if operation is None:
        return None
    order = np.argsort(places, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        place = places[rows[0]] - 1
        if place >= 0:
            out[place] = reader.reachable.fold(operation, np.concatenate([out[place : place + 1], new[rows]])[None])[0]
    return [out.reshape(shapes[0])]


def _barrier(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found]:
    del reader, eqn
    return list(operands)


def _enter(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found]:
    return reader.call(*body(eqn), operands)


def _branch(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found] | None:
    which, *rest = operands
    branches = eqn.params["branches"]
    if which is None:
        return None
    if isinstance(which, Abstract):
        if which.known is None:
            return None
        taken = branches[int(np.clip(which.value, 0, len(branches) - 1))]
        return reader.call(taken.jaxpr, taken.consts, rest)
    each = [reader.call(branch.jaxpr, branch.consts, rest) for branch in branches]
    found: list[Found] = []
    for out, cases in zip(eqn.outvars, zip(*each, strict=True), strict=True):
        listed = [reader.elements(case, out.aval.shape) for case in cases]
        key = ("branch", len(branches), out.aval.dtype.name)
        found.append(reader.reachable.apply(key, _choose, [reader.elements(which, ()), *listed]))
    return found


def _choose(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    return np.stack(cases)[np.clip(which.astype(int), 0, len(cases) - 1), np.arange(len(which))]


def _scan(reader: ReachableReader, eqn: Any, operands: Sequence[Found]) -> list[Found]:
    params = eqn.params
    num_consts, first_x = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, carry, xs = operands[:num_consts], list(operands[num_consts:first_x]), operands[first_x:]
    closed, rows = params["jaxpr"], {}
    for t in range(params["length"])[:: -1 if params["reverse"] else 1]:
        out = reader.call(closed.jaxpr, closed.consts, [*consts, *carry, *(_at(x, t) for x in xs)])
        carry, rows[t] = out[: params["num_carry"]], out[params["num_carry"] :]
        for value in carry:  # lest it become a tower of promises too high to climb
            if isinstance(value, Abstract) and value.known is not None and t % 5 == 0:
                value.known.settle()
    stacked: list[Found] = []
    for i, variable in enumerate(eqn.outvars[len(carry) :]):
        shape = variable.aval.shape[1:]
        each = [reader.elements(rows[t][i], shape) for t in range(len(rows))]
        stacked.append(np.stack(each) if each else None)
    return [*carry, *stacked]


def _at(stacked: Found, t: int) -> Found:
    if stacked is None:
        return None
    return row_at(stacked, t) if isinstance(stacked, Abstract) else stacked[t]


Rule = Callable[[ReachableReader, Any, Sequence[Found]], list[Found] | None]
RULES: Mapping[Kind, Rule] = {
    Kind.ELEMENTWISE: _elementwise,
    Kind.SELECT: _select,
    Kind.COPY: _elementwise,
    Kind.CONVERSION: _elementwise,
    Kind.MOVEMENT: _movement,
    Kind.REDUCTION: _reduction,
    Kind.CUMULATIVE: _cumulation,
    Kind.CONTRACTION: _contraction,
    Kind.GATHER: _gather,
    Kind.SLICE: _window,
    Kind.UPDATE: _window_update,
    Kind.SCATTER: _scatter,
    Kind.BARRIER: _barrier,
    Kind.CALL: _enter,
    Kind.RULED_CALL: _enter,
    Kind.BRANCH: _branch,
    Kind.SCAN: _scan,
}
