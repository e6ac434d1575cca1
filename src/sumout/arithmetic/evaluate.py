"""A jaxpr evaluated once: by NumPy where it computes what XLA would, to the last bit, as then nothing is compiled."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval

from sumout.arithmetic.primitives import compute, is_exact_by_numpy
from sumout.errors import note_unforeseen

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
