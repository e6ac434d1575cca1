"""Trace a function to one flat jaxpr in which sums stand open.

Nested `jit` bodies are written out, an inner product becomes a sum of products, and a loop that only adds to a carry,

    carry_t = carry_{t−1} + term_t        becomes        terms stacked, carry_T = carry_0 + Σ_t term_t,

so that the terms of a log density accumulated in a `lax.scan` can be seen one by one. Functions with derivative rules
of their own (`custom_jvp`, `custom_vjp`) stay whole: the factors must be differentiable as the program was.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxpr_as_fun
from jax.interpreters import partial_eval

CALLS = frozenset(("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2"))


def flatten(fn: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """The jaxpr of `fn` at arguments of these shapes, written out and without dead equations."""
    return _retrace(jax.make_jaxpr(fn)(*args))


def _retrace(closed: Any) -> ClosedJaxpr:
    args = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]
    written_out = jax.make_jaxpr(lambda *values: evaluate_written_out(closed.jaxpr, closed.consts, values))(*args)
    jaxpr = written_out.jaxpr
    live, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=[True] * len(jaxpr.invars))
    return ClosedJaxpr(live, written_out.consts)


def read_variable(env: dict[Var, Any], variable: Var | Literal) -> Any:
    """The value of a variable or literal."""
    return variable.val if isinstance(variable, Literal) else env[variable]


def bind(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Run one equation; always a list of results."""
    out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def evaluate_written_out(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Run a jaxpr with its calls written out and its accumulating loops opened."""
    env: dict[Var, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    for eqn in jaxpr.eqns:
        operands = [read_variable(env, v) for v in eqn.invars]
        if eqn.primitive.name in CALLS:
            body: Any = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            jaxpr_of, consts_of = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
            results = evaluate_written_out(jaxpr_of, consts_of, operands)
        elif eqn.primitive.name == "scan":
            results = _run_scan(eqn, operands)
        elif eqn.primitive.name == "dot_general" and _is_scalar(eqn.outvars[0]):
            results = [_inner_product(eqn, operands)]
        else:
            results = bind(eqn, operands)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read_variable(env, v) for v in jaxpr.outvars]


def _is_scalar(variable: Any) -> bool:
    return variable.aval.shape == ()


def _inner_product(eqn: Any, operands: list[Any]) -> Any:
    """A contraction to a scalar as a sum of products, so that its terms can be told apart."""
    (left, right), _ = eqn.params["dimension_numbers"]
    a, b = operands[0].transpose(left), operands[1].transpose(right)
    return jnp.sum(a * b).astype(eqn.outvars[0].aval.dtype)


def _run_scan(eqn: Any, operands: list[Any]) -> list[Any]:
    num_consts, num_carry = eqn.params["num_consts"], eqn.params["num_carry"]
    consts, init, xs = (
        operands[:num_consts],
        operands[num_consts : num_consts + num_carry],
        operands[num_consts + num_carry :],
    )
    body = _retrace(eqn.params["jaxpr"])
    adders = [
        i for i in range(num_carry) if _only_adds(body.jaxpr, body.jaxpr.invars[num_consts + i], body.jaxpr.outvars[i])
    ]
    if not adders:
        return bind(eqn, operands)
    kept = [i for i in range(num_carry) if i not in adders]

    def step(carry, x):
        full = [jnp.zeros_like(value) for value in init]
        for i, value in zip(kept, carry, strict=True):
            full[i] = value
        out = jaxpr_as_fun(body)(*consts, *full, *x)
        return [out[i] for i in kept], ([out[i] for i in adders], out[num_carry:])

    last, (terms, ys) = lax.scan(
        step, [init[i] for i in kept], list(xs), length=eqn.params["length"], reverse=eqn.params["reverse"]
    )
    carry = list(init)
    for i, value in zip(kept, last, strict=True):
        carry[i] = value
    for i, stacked in zip(adders, terms, strict=True):
        carry[i] = init[i] + jnp.sum(stacked, axis=0)
    return [*carry, *ys]


def _only_adds(body: Jaxpr, carry_in: Any, carry_out: Any) -> bool:
    """Whether `carry_out = carry_in + …`, with neither it nor any sum on the way used for anything else."""
    if not is_exact(carry_in.aval):
        return False
    users: dict[Any, list[Any]] = {}
    for eqn in body.eqns:
        for variable in eqn.invars:
            if not isinstance(variable, Literal):
                users.setdefault(variable, []).append(eqn)
    for variable in body.outvars:
        if not isinstance(variable, Literal):
            users.setdefault(variable, []).append(None)
    variable = carry_in
    while len(users.get(variable, ())) == 1:
        (eqn,) = users[variable]
        if eqn is None:
            return variable is carry_out and variable is not carry_in
        position = eqn.invars.index(variable)
        if eqn.primitive.name not in ("add", "add_any") and not (eqn.primitive.name == "sub" and position == 0):
            return False
        if eqn.outvars[0].aval.shape != carry_in.aval.shape:
            return False
        variable = eqn.outvars[0]
    return False


def is_exact(aval: Any) -> bool:
    """Whether sums of such numbers are sums: not so for unsigned and short integers, which wrap around."""
    dtype = aval.dtype
    return jnp.issubdtype(dtype, jnp.floating) or (jnp.issubdtype(dtype, jnp.signedinteger) and dtype.itemsize >= 4)
