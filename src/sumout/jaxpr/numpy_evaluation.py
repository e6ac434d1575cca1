"""Jaxprs evaluated by NumPy: nothing is compiled for what is known when a program is read.

Movements of elements, comparisons and the arithmetic of counters, indices and masks NumPy and XLA compute alike, to the
last bit. What is rounded may differ in the last place: it is for constants that take the place of what the program
would have computed, never to foretell what it will.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval

from sumout.errors import note_unforeseen
from sumout.jaxpr.primitives import Kind, row_of
from sumout.jaxpr.walk import body, run


def is_exact_by_numpy(eqn: Any) -> bool:
    """Whether NumPy computes an equation as XLA does; so it does sums of integers, which wrap around in both."""
    row = row_of(eqn)
    is_rounded = row.is_rounded and np.issubdtype(eqn.outvars[0].aval.dtype, np.inexact)
    return row.numpy is not None and not is_rounded and not _truncates(eqn)


def is_known_to_numpy(eqn: Any) -> bool:
    """Whether NumPy computes an equation as XLA does, up to the last place."""
    return row_of(eqn).numpy is not None and not _truncates(eqn)


def compute(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an equation that NumPy knows."""
    function = row_of(eqn).numpy
    assert function is not None
    with np.errstate(all="ignore"):
        out = function(*operands, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _truncates(eqn: Any) -> bool:
    """Whether an equation turns fractions into integers, which NumPy and XLA do differently at the extremes."""
    if row_of(eqn).kind is not Kind.CONVERSION:
        return False
    old, new = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
    return np.issubdtype(old, np.floating) and not np.issubdtype(new, np.floating)


def evaluate(
    closed: ClosedJaxpr, arguments: Sequence[Any], wanted: Sequence[bool], is_rounded: bool = False
) -> list[np.ndarray | None]:
    """Those results that are wanted, None for the others; what only these depend on is not looked at.

    By NumPy where it computes what XLA would, to the last bit, as then nothing is compiled; or up to the last place, if
    results may be rounded.
    """
    live, used = partial_eval.dce_jaxpr(closed.jaxpr, list(wanted))
    needed = [argument for argument, is_used in zip(arguments, used, strict=True) if is_used]
    results = _run_by_numpy(live, closed.consts, needed, is_known_to_numpy if is_rounded else is_exact_by_numpy)
    if results is None:
        results = jax.jit(jaxpr_as_fun(ClosedJaxpr(live, closed.consts)))(*needed)
    left = iter(results)
    return [np.asarray(next(left)) if is_wanted else None for is_wanted in wanted]


def _run_by_numpy(
    jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any], is_right: Callable[[Any], bool]
) -> list[Any] | None:
    """The results by NumPy; None if it does not compute all equations as is right."""
    if not _is_right_in_all(jaxpr, is_right):
        return None
    try:
        return _run(jaxpr, consts, arguments)
    except Exception as error:
        note_unforeseen("evaluation by NumPy", error)
        return None


LONGEST_SCAN = 1000  # steps that take less time one by one than to be compiled


def _is_right_in_all(jaxpr: Jaxpr, is_right: Callable[[Any], bool]) -> bool:
    def is_right_in(eqn: Any) -> bool:
        if _is_short_scan(eqn):
            return _is_right_in_all(eqn.params["jaxpr"].jaxpr, is_right)
        return _is_right_in_all(body(eqn)[0], is_right) if row_of(eqn).is_call else is_right(eqn)

    return all(map(is_right_in, jaxpr.eqns))


def _is_short_scan(eqn: Any) -> bool:
    return row_of(eqn).kind is Kind.SCAN and 0 < eqn.params["length"] <= LONGEST_SCAN


def _run(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    def step(eqn: Any, operands: list[Any]) -> list[Any]:
        if _is_short_scan(eqn):
            return _scan(eqn, operands)
        return _run(*body(eqn), operands) if row_of(eqn).is_call else compute(eqn, operands)

    return run(jaxpr, map(_as_numpy, consts), map(_as_numpy, arguments), step, as_array)


def _scan(eqn: Any, operands: list[Any]) -> list[Any]:
    """A loop, step by step."""
    params, closed = eqn.params, eqn.params["jaxpr"]
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    first = num_consts + num_carry
    consts, carry, xs = operands[:num_consts], operands[num_consts:first], operands[first:]
    rows: dict[int, list[Any]] = {}
    for t in range(params["length"])[:: -1 if params["reverse"] else 1]:
        out = _run(closed.jaxpr, closed.consts, [*consts, *carry, *(x[t] for x in xs)])
        carry, rows[t] = out[:num_carry], out[num_carry:]
    return [*carry, *(np.stack(each) for each in zip(*(rows[t] for t in sorted(rows)), strict=True))]


def _as_numpy(value: Any) -> Any:
    """An array as NumPy's; keys, which NumPy cannot hold, as they are: nothing that it computes looks at them."""
    return value if jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.extended) else np.asarray(value)


def as_array(literal: Literal) -> np.ndarray:
    """What a literal is in a pass over NumPy arrays."""
    return np.asarray(literal.val)
