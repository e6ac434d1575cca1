"""Run single equations of a jaxpr; what is known of counters and indices is computed at once instead of traced."""

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval

from sumout.errors import note_unforeseen
from sumout.jaxpr.numpy_evaluation import compute, is_exact_by_numpy
from sumout.jaxpr.primitives import row_of
from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.walk import body, run, variables

MOST_KNOWN = 2**17  # elements of an array of indices: beyond that it costs more to hold than to compute again


def bind(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Run one equation; always a list of results."""
    out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def traced_once(fn: Callable[..., Any], *, is_final: bool = False) -> Callable[..., Any]:
    """A function of arrays that is traced and simplified once for all arguments of the same shapes and types.

    So it is traced by `jax.jit`, but there once for each set of named axes that it is used under.

    Args:
        fn: the function.
        is_final: whether it will not be differentiated any more.
    """
    known: dict[Any, tuple[Callable[..., list[Any]], Any]] = {}

    def run(*args: Any) -> Any:
        leaves, form = jax.tree.flatten(args)
        types = tuple(map(jax.typeof, leaves))
        signature = form, types, jnp.result_type(float)
        if signature not in known:
            shapes = jax.tree.unflatten(
                form, [jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in types]
            )
            closed, result = jax.make_jaxpr(fn, return_shape=True)(*shapes)
            simple = simplify(closed, is_final=is_final)
            known[signature] = jax.jit(jaxpr_as_fun(simple)), jax.tree.structure(result)
        flat, form_of_result = known[signature]
        return jax.tree.unflatten(form_of_result, flat(*leaves))

    return run


def trace(
    eqn: Any,
    operands: Sequence[Any],
    run: Callable[[Any, Sequence[Any]], list[Any]] = bind,
    by_numpy: Callable[[Any, Sequence[Any]], list[Any]] | None = compute,
) -> list[Any]:
    """Run one equation in the trace, or now and for good if integers follow from known integers.

    Args:
        eqn: the equation.
        operands: for it.
        run: runs it by JAX.
        by_numpy: runs it by NumPy, if NumPy knows it; None to leave that to JAX, too.
    """
    if eqn.effects or not all(map(is_known, operands)) or not all(_is_index(v.aval) for v in eqn.outvars):
        return run(eqn, operands)
    if by_numpy is not None and is_exact_by_numpy(eqn):
        try:
            return by_numpy(eqn, [np.asarray(operand) for operand in operands])
        except Exception as error:
            note_unforeseen(f"{eqn.primitive.name} by NumPy", error)
    with jax.ensure_compile_time_eval():
        return [np.asarray(result) for result in run(eqn, operands)]


def is_known(value: Any) -> bool:
    """Whether a value is an integer or a truth, or an array of them, that does not wait for arguments."""
    return not isinstance(value, Tracer) and _is_index(jax.typeof(value))


def _is_index(aval: Any) -> bool:
    is_integer = aval.dtype == bool or jnp.issubdtype(aval.dtype, jnp.integer)
    return is_integer and math.prod(aval.shape) <= MOST_KNOWN


def is_exact(aval: Any) -> bool:
    """Whether sums of such numbers are sums: not so for unsigned and short integers, which wrap around."""
    dtype = aval.dtype
    return jnp.issubdtype(dtype, jnp.floating) or (jnp.issubdtype(dtype, jnp.signedinteger) and dtype.itemsize >= 4)


def used_inputs(closed: ClosedJaxpr) -> list[list[bool]]:
    """For each output, and for each input, whether the one depends on the other, or may."""
    jaxpr = closed.jaxpr
    masks = _used(jaxpr, [1 << i for i in range(len(jaxpr.invars))])
    return [[bool(mask >> i & 1) for i in range(len(jaxpr.invars))] for mask in masks]


def _used(jaxpr: Jaxpr, inputs: Sequence[int]) -> list[int]:
    """The same for a function whose own inputs depend on others: sets of these, as bits."""

    def step(eqn: Any, operands: list[int]) -> list[int]:
        row = row_of(eqn)
        if row.is_call:
            return _used(body(eqn)[0], operands)
        if not row.is_control:
            return [_union(operands)] * len(eqn.outvars)
        taken = list(dict.fromkeys(variables(eqn.invars)))
        alone = jaxpr.replace(constvars=[], invars=taken, outvars=eqn.outvars, eqns=[eqn])
        of_variable = {v: mask for v, mask in zip(eqn.invars, operands, strict=True) if not isinstance(v, Literal)}
        found = []
        for i in range(len(eqn.outvars)):
            wanted = [j == i for j in range(len(eqn.outvars))]
            is_used = partial_eval.dce_jaxpr(alone, wanted)[1]
            found.append(_union(of_variable[v] for v, used in zip(alone.invars, is_used, strict=True) if used))
        return found

    return run(jaxpr, [0] * len(jaxpr.constvars), inputs, step, lambda _: 0)


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


@contextmanager
def without_collection() -> Iterator[None]:
    """Leave garbage where it is meanwhile; of several in threads, the first to begin has it collected again.

    A third of the time in which a long program is traced would go into looking for it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
