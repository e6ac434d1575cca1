"""Run a flat jaxpr with every array kept as small as its content.

When all sites of a block take the same value at once, z is one number spread over many elements, and so is all that is
computed from it alone: `mu[z]` is one look-up, not one for each element. Arrays are therefore held as `Spread`: their
content, with size 1 along the axes on which it does not vary, and the shape they stand for. They are laid out in full
only for operations that need it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Jaxpr, Var

from sumout.jaxpr.equations import bind
from sumout.jaxpr.primitives import Kind, is_elementwise, row_of
from sumout.jaxpr.walk import arguments, shape_of, walk


@partial(jax.tree_util.register_dataclass, data_fields=["content"], meta_fields=["shape", "source"])
@dataclass(frozen=True, eq=False)
class Spread:
    """An array whose content does not vary along the axes where `content` has size 1.

    Attributes:
        content: the array, as small as may be.
        shape: what it stands for.
        source: what a single number comes from; two numbers of the same source are equal. None where it is not known.
    """

    content: Any
    shape: tuple[int, ...]
    source: Hashable = None

    @property
    def full(self) -> Any:
        """The array laid out."""
        return self.content if self.content.shape == self.shape else jnp.broadcast_to(self.content, self.shape)


def evaluate(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], given: Mapping[Var, Any] | None = None
) -> dict[Var, Spread]:
    """Every variable of a jaxpr; an argument may be given with size 1 along axes on which it does not vary.

    Variables in `given` have the value they have there.
    """
    start = {v: Spread(jnp.asarray(value), shape_of(v)) for v, value in arguments(jaxpr, consts, args).items()}
    given = given or {}

    def step(eqn: Any, operands: list[Spread]) -> list[Spread]:
        results = run_equation(eqn, operands)
        if given.keys().isdisjoint(eqn.outvars):
            return results
        pairs = zip(eqn.outvars, results, strict=True)
        return [Spread(given[v], shape_of(v)) if v in given else result for v, result in pairs]

    return walk(jaxpr.eqns, start, step, literal)


def run_equation(eqn: Any, operands: list[Spread]) -> list[Spread]:
    """The results of one equation, laid out only if need be."""
    results = _content(eqn, operands)
    if results is None:
        results = bind(eqn, [operand.full for operand in operands])
    source = _source(eqn, operands)
    return [
        Spread(result, shape_of(v), source if result.size == 1 else None)
        for v, result in zip(eqn.outvars, results, strict=True)
    ]


def _source(eqn: Any, operands: list[Spread]) -> Hashable:
    """Where the number comes from that an equation hands on as it is, or in another type."""
    row = row_of(eqn)
    sources = {operand.source for operand in operands}
    if len(sources) > 1 or sources <= {None}:
        return None
    if row.kind is Kind.CONVERSION:
        return (operands[0].source, eqn.params["new_dtype"])
    return operands[0].source if row.is_movement else None


def literal(constant: Any) -> Spread:
    """A literal of a jaxpr."""
    value = jnp.asarray(constant.val, constant.aval.dtype)
    return Spread(value, value.shape)


def _content(eqn: Any, operands: list[Spread]) -> list[Any] | None:
    """The content of the results from the content of the operands, or None if they must be laid out."""
    name, params = eqn.primitive.name, eqn.params
    first: Any = operands[0].content if operands else None
    if is_elementwise(eqn):
        return _elementwise(eqn, operands)
    if name == "broadcast_in_dim" and len(operands) == 1:
        inner = [1] * len(params["shape"])
        for size, axis in zip(first.shape, params["broadcast_dimensions"], strict=True):
            inner[axis] = size
        return [first.reshape(inner)]
    if name == "squeeze":
        return [jnp.squeeze(first, params["dimensions"])]
    if name == "expand_dims":
        return [jnp.expand_dims(first, params["dimensions"])]
    if name == "transpose":
        return [first.transpose(params["permutation"])]
    if name == "reshape" and params["dimensions"] is None:
        return _reshape(first, operands[0].shape, params["new_sizes"])
    if name == "slice":
        return [_slice(first, operands[0].shape, params)]
    if name == "concatenate":
        return _concatenate(operands, int(params["dimension"]))
    kind = row_of(eqn).kind
    if kind is Kind.REDUCTION or kind is Kind.POSITION:
        return _reduce(eqn, operands)
    return _gather(eqn, operands) if kind is Kind.GATHER else None


def _slice(content: Any, shape: tuple[int, ...], params: Any) -> Any:
    """Along axes on which nothing varies one element is as good as any."""
    starts, limits = list(params["start_indices"]), list(params["limit_indices"])
    strides = list(params["strides"] or (1,) * len(shape))
    for axis, size in enumerate(shape):
        if content.shape[axis] != size:
            kept = min(1, limits[axis] - starts[axis])
            starts[axis], limits[axis], strides[axis] = 0, kept, 1
    return lax.slice(content, starts, limits, strides)


def _concatenate(operands: list[Spread], axis: int) -> list[Any]:
    """Laid out along the axis of the concatenation, unless all are one number; along others where some operand is."""
    if all(o.content.size == 1 and o.source is not None and o.source == operands[0].source for o in operands):
        return [operands[0].content]
    sizes = [max(o.content.shape[i] for o in operands) for i in range(len(operands[0].shape))]
    pieces = []
    for operand in operands:
        wanted = [operand.shape[axis] if i == axis else size for i, size in enumerate(sizes)]
        pieces.append(jnp.broadcast_to(operand.content, wanted))
    return [jnp.concatenate(pieces, axis=axis)]


def _reduce(eqn: Any, operands: list[Spread]) -> list[Any]:
    """Laid out along the axes that are reduced."""
    (operand,) = operands
    wanted = [
        size if axis in eqn.params["axes"] else operand.content.shape[axis] for axis, size in enumerate(operand.shape)
    ]
    return bind(eqn, [jnp.broadcast_to(operand.content, wanted)])


def _elementwise(eqn: Any, operands: list[Spread]) -> list[Any]:
    shape = jnp.broadcast_shapes(*(operand.content.shape for operand in operands))
    if eqn.primitive.name == "custom_jvp_call":  # takes the shape it was made for; what is left out is not computed
        (whole,) = bind(eqn, [operand.full for operand in operands])
        return [whole[tuple(slice(int(size)) for size in shape)]]
    return bind(eqn, [o.content if o.shape == () else jnp.broadcast_to(o.content, shape) for o in operands])


def _reshape(content: Any, old: tuple[int, ...], new: tuple[int, ...]) -> list[Any] | None:
    """A reshape that only adds or removes axes of size 1 leaves the others as they are."""
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    sizes = iter(size for size, n in zip(content.shape, old, strict=True) if n != 1)
    return [content.reshape([1 if n == 1 else next(sizes) for n in new])]


def _gather(eqn: Any, operands: list[Spread]) -> list[Any] | None:
    """One index for all, or one row for all: look up there and nowhere else."""
    operand, indices = operands
    numbers = eqn.params["dimension_numbers"]
    is_one = all(size == 1 for size in indices.content.shape[:-1]) and indices.content.shape[-1] == indices.shape[-1]
    if not numbers.operand_batching_dims:
        out = bind(eqn, [operand.full, indices.content]) if is_one else None
        return out if out is not None and _fits(out[0].shape, shape_of(eqn.outvars[0])) else None
    # Along each row, as `take_along_axis` does.
    axes = numbers.start_index_map
    rest = tuple(axis for axis in range(len(operand.shape)) if axis not in axes)
    if len(axes) != 1 or numbers.collapsed_slice_dims != axes or numbers.operand_batching_dims != rest:
        return None
    batch = numbers.start_indices_batching_dims
    if list(batch) != sorted(batch) or numbers.offset_dims:
        return None
    mode = "clip" if eqn.params["mode"] == lax.GatherScatterMode.CLIP else "fill"
    is_whole = operand.content.shape[axes[0]] == operand.shape[axes[0]]
    if is_whole and operand.content.size == operand.shape[axes[0]]:
        return [jnp.take(_at_hand(operand.content.ravel()), indices.content[..., 0], mode=mode)]
    if not is_one:
        return None
    row = operand.content if is_whole else operand.full
    column = jnp.take(row, indices.content.reshape(()), axis=axes[0], mode=mode)
    sizes = iter(column.shape)
    return [column.reshape([next(sizes) if axis in batch else 1 for axis in range(len(shape_of(eqn.outvars[0])))])]


def _at_hand(row: Any) -> Any:
    """The row itself. XLA would compute an element of it anew at every look-up, but does not go back past a scatter."""
    return jnp.zeros_like(row).at[np.arange(len(row))].set(row, unique_indices=True, indices_are_sorted=True)


def _fits(content: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(content) == len(shape) and all(a in (1, b) for a, b in zip(content, shape, strict=True))
