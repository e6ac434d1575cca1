"""Of which degree is a polynomial in some numbers that a program computes from them?

A forward pass over a flat jaxpr with a small integer for every element of every array. The degree may come out higher
than it is, never lower; what is no polynomial, or might not be one, is `BEYOND`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal, Var

from sumout.jaxpr.numpy_evaluation import MOVEMENTS

BEYOND = 100

Degrees = dict[Var, np.ndarray]  # variables that are not in it have degree 0 everywhere
IsOne = Callable[[Var], np.ndarray]


def find_degrees(jaxpr: Jaxpr, given: Mapping[Var, np.ndarray], is_one: IsOne | None = None) -> Degrees:
    """The degrees of all variables.

    Args:
        jaxpr: a flat one.
        given: the degrees of some variables, taken for granted; all other arguments are constants.
        is_one: for each element of a variable, whether it depends on one of the numbers at most. With it, a product of
            several of them counts as `BEYOND`: what is of degree two is then a sum of functions of one number each.
    """
    found: Degrees = {v: degree for v, degree in given.items() if degree.any()}
    for eqn in jaxpr.eqns:
        if not any(_is_in(found, v) for v in eqn.invars):
            continue
        degrees = _rule(eqn, [_read(found, v) for v in eqn.invars])
        if is_one is not None and _multiplies(eqn, found):
            degrees = [np.where(is_one(v), d, BEYOND) for v, d in zip(eqn.outvars, degrees, strict=True)]
        for variable, degree in zip(eqn.outvars, degrees, strict=True):
            if variable not in given and np.any(degree):
                found[variable] = np.broadcast_to(np.minimum(degree, BEYOND), shape_of(variable))
    return found


def degree_of(found: Degrees, variable: Var | Literal, live: np.ndarray | None = None) -> int:
    """The highest degree among the elements of a variable, or among some of them."""
    degrees = _read(found, variable)
    return int(np.max(degrees if live is None else np.where(live, degrees, 0), initial=0))


def _is_in(found: Degrees, variable: Var | Literal) -> bool:
    return not isinstance(variable, Literal) and variable in found


def _read(found: Degrees, variable: Any) -> np.ndarray:
    return found[variable] if _is_in(found, variable) else np.zeros(shape_of(variable), np.int64)


def shape_of(variable: Any) -> tuple[int, ...]:
    """Of a variable or literal."""
    return np.shape(variable.val) if isinstance(variable, Literal) else variable.aval.shape


def _multiplies(eqn: Any, found: Degrees) -> bool:
    """Whether an equation takes products of what is not constant."""
    name = eqn.primitive.name
    return name in ("integer_pow", "square") or (
        name in ("mul", "dot_general") and all(_is_in(found, v) for v in eqn.invars)
    )


def _rule(eqn: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
    name, params, out = eqn.primitive.name, eqn.params, eqn.outvars[0].aval
    if name in MOVEMENTS:
        moved = MOVEMENTS[name](*operands, **params)
        return list(moved) if eqn.primitive.multiple_results else [moved]
    if _is_always_true(eqn):
        return [np.zeros(out.shape, np.int64)]
    if len(eqn.outvars) == 1 and jnp.issubdtype(out.dtype, jnp.floating):
        degree = _arithmetic(name, params, operands)
        if degree is not None:
            return [degree]
    return [np.full(v.aval.shape, BEYOND) for v in eqn.outvars]


def _arithmetic(name: str, params: Any, operands: list[np.ndarray]) -> np.ndarray | None:
    first, *others = operands
    if name in ("add", "add_any", "sub"):
        return np.maximum(first, others[0])
    if name in ("neg", "convert_element_type", "optimization_barrier"):
        return first
    if name == "mul":
        return first + others[0]
    if name == "dot_general":
        return np.asarray(first.max(initial=0) + others[0].max(initial=0))
    if name == "div" and not others[0].any():
        return first + others[0]
    if name == "square":
        return 2 * first
    if name == "integer_pow" and params["y"] >= 0:
        return params["y"] * first
    if name == "reduce_sum":
        return first.max(axis=tuple(params["axes"]), initial=0)
    if name == "cumsum":
        return np.asarray(first.max(initial=0))
    if name == "select_n" and not first.any():
        return np.max(np.broadcast_arrays(*others), axis=0)
    if name in ("gather", "dynamic_slice") and not any(other.any() for other in others):
        return np.asarray(first.max(initial=0))
    return None


def _is_always_true(eqn: Any) -> bool:
    """Whether an equation asks if a number is one, or is finite, as NumPyro does of values on the real line."""
    name = eqn.primitive.name
    if name == "eq":
        return eqn.invars[0] is eqn.invars[1]
    literals = [v for v in eqn.invars if isinstance(v, Literal)]
    return name == "ne" and len(literals) == 1 and bool(np.all(np.isinf(literals[0].val)))
