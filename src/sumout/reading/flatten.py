"""Trace a function to one flat jaxpr in which sums stand open.

Nested `jit` bodies are written out, an inner product becomes a sum of products, a function of a choice a choice between
few values of the function (`choices.py`), and a loop is run for all its steps at once as far as nothing recurs in it
(`loops.py`). Functions with derivative rules of their own (`custom_jvp`,
`custom_vjp`) stay whole: the factors must be differentiable as the program was.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Var

from sumout.errors import note_unforeseen
from sumout.reading.choices import Choices
from sumout.reading.equations import bind, read_variable, trace
from sumout.reading.loops import Loop, run_at_once
from sumout.reading.simplify import CALLS, simplify
from sumout.reading.singular import with_rules

MOST_TIMES = 8  # loops within loops are opened so deep


def flatten(fn: Callable[..., Any], x: Any, z: Any, data: Any) -> ClosedJaxpr:
    """The jaxpr of `fn` at arguments of these shapes, written out and without dead equations."""
    num_x, num_z = len(jax.tree.leaves(x)), len(jax.tree.leaves(z))
    closed = jax.make_jaxpr(fn)(x, z, data)
    for what, step in (("writing the program out", _retrace), ("rules at singular points", with_rules)):
        try:
            closed = step(closed, num_x, num_z)
        except Exception as error:
            note_unforeseen(what, error)
    return closed


def _retrace(closed: ClosedJaxpr, num_x: int = 0, num_z: int = 0, times: int = 1) -> ClosedJaxpr:
    """Written out; of its arguments so many are x, and so many after them z."""

    def run(*args: Any) -> list[Any]:
        choices = Choices(args[:num_x], args[num_x : num_x + num_z])
        return _run(alive.jaxpr, alive.consts, args, choices)

    args = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]
    alive = simplify(closed)
    flat = simplify(jax.make_jaxpr(run)(*args))
    # Running a loop at once may bring calls to light that were hidden in it.
    has_calls = any(eqn.primitive.name in CALLS for eqn in flat.jaxpr.eqns)
    return _retrace(flat, num_x, num_z, times + 1) if has_calls and times < MOST_TIMES else flat


def _run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], choices: Choices) -> list[Any]:
    """Run a jaxpr with its calls written out and its loops opened."""
    env: dict[Var, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    for eqn in jaxpr.eqns:
        operands = [read_variable(env, v) for v in eqn.invars]
        if eqn.primitive.name in CALLS:
            body: Any = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            jaxpr_of, consts_of = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
            results = _run(jaxpr_of, consts_of, operands, choices)
        elif eqn.primitive.name == "scan":
            results = _run_scan(eqn, operands)
        elif eqn.primitive.name == "dot_general" and _is_scalar(eqn.outvars[0]):
            results = [_inner_product(eqn, operands)]
        else:
            results = _run_choice(eqn, operands, choices) or trace(eqn, operands)
        choices.watch(eqn, operands, results)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read_variable(env, v) for v in jaxpr.outvars]


def _run_choice(eqn: Any, operands: list[Any], choices: Choices) -> list[Any] | None:
    try:
        return choices.run(eqn, operands)
    except Exception as error:
        note_unforeseen(f"{eqn.primitive.name} before a choice", error)
        return None


def _is_scalar(variable: Any) -> bool:
    return variable.aval.shape == ()


def _inner_product(eqn: Any, operands: list[Any]) -> Any:
    """A contraction to a scalar as a sum of products, so that its terms can be told apart."""
    (left, right), _ = eqn.params["dimension_numbers"]
    a, b = operands[0].transpose(left), operands[1].transpose(right)
    return jnp.sum(a * b).astype(eqn.outvars[0].aval.dtype)


def _run_scan(eqn: Any, operands: list[Any]) -> list[Any]:
    names = ("num_consts", "num_carry", "length", "reverse")
    try:
        loop = Loop(_retrace(eqn.params["jaxpr"]), *(eqn.params[name] for name in names))
        results = run_at_once(loop, operands)
    except Exception as error:
        note_unforeseen("a loop for all steps at once", error)
        results = None
    return bind(eqn, operands) if results is None else results
