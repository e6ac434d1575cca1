"""Of which degree is a polynomial in some numbers that a program computes from them?

A forward pass over a flat jaxpr with a small integer for every element of every array. The degree may come out higher
than it is, never lower; what is no polynomial, or might not be one, is `BEYOND`.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.jaxpr.numpy_evaluation import compute
from sumout.jaxpr.primitives import Kind, Linear, row_of
from sumout.jaxpr.walk import following, shape_of, variables, walk

BEYOND = 100  # more than any degree that a pass asks for, and sums of it are far from overflowing

WHOLE = ("add", "sub", "mul", "neg", "reduce_sum", "convert_element_type")  # exact for whole numbers, too

IsOne = Callable[[Var], np.ndarray]


class Degrees(dict[Var, np.ndarray]):
    """The degrees of the elements of variables; a variable that is not in it has degree 0 everywhere."""

    def __missing__(self, variable: Var) -> np.ndarray:
        return np.zeros(shape_of(variable), np.int64)

    def highest(self, variable: Var | Literal, live: np.ndarray | bool = True) -> int:
        """The highest degree among the elements of a variable, or among some of them."""
        return 0 if isinstance(variable, Literal) else int(np.max(np.where(live, self[variable], 0), initial=0))


def find_degrees(closed: ClosedJaxpr, given: Mapping[Var, np.ndarray], is_one: IsOne | None = None) -> Degrees:
    """The degrees of all variables.

    Args:
        closed: a flat program.
        given: the degrees of some variables, taken for granted; all other arguments are constants.
        is_one: for each element of a variable, whether it depends on one of the numbers at most. With it, a product of
            several of them counts as `BEYOND`: what is of degree two is then a sum of functions of one number each.
    """
    varying = following(closed, [v for v, degree in given.items() if degree.any()])

    def step(eqn: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
        degrees = _rule(eqn, operands)
        if is_one is not None and _multiplies(eqn, operands):
            degrees = [np.where(is_one(v), d, BEYOND) for v, d in zip(eqn.outvars, degrees, strict=True)]
        return [
            given[v] if v in given else np.broadcast_to(np.minimum(degree, BEYOND), shape_of(v))
            for v, degree in zip(eqn.outvars, degrees, strict=True)
        ]

    affected = [eqn for eqn in closed.jaxpr.eqns if not varying.isdisjoint(variables(eqn.invars))]
    found = Degrees(given)
    walk(affected, found, step, lambda literal: np.zeros(shape_of(literal), np.int64))
    return found


def _multiplies(eqn: Any, operands: list[np.ndarray]) -> bool:
    """Whether an equation takes products of what is not constant."""
    row = row_of(eqn)
    return (row.power is not None or row.linear is Linear.EACH) and all(degree.any() for degree in operands)


def _rule(eqn: Any, operands: list[np.ndarray]) -> list[np.ndarray]:
    """The degrees of the results from those of the operands."""
    row, out = row_of(eqn), eqn.outvars[0].aval
    is_varying = [bool(degree.any()) for degree in operands]
    if row.is_movement:
        return compute(eqn, operands)
    if not any(is_varying) or _is_always_true(eqn):
        return [np.zeros(shape_of(v), np.int64) for v in eqn.outvars]
    if len(eqn.outvars) == 1 and (jnp.issubdtype(out.dtype, jnp.floating) or _is_exact(eqn)):
        exponent = row.exponent(eqn.params)
        if exponent is not None:
            return [exponent * operands[0]]
        if row.linear is Linear.EACH:
            return [_each(row.kind, operands)]
        if row.is_linear_in(is_varying):
            return [_together(eqn, operands)]
    return [np.full(shape_of(v), BEYOND) for v in eqn.outvars]


def _is_exact(eqn: Any) -> bool:
    """Whether whole numbers are added or multiplied, not divided or cut."""
    arrays = [*(v.aval for v in eqn.invars), eqn.outvars[0].aval]
    is_whole = all(jnp.issubdtype(aval.dtype, jnp.integer) for aval in arrays)
    return is_whole and eqn.primitive.name in WHOLE


def _each(kind: Kind, operands: list[np.ndarray]) -> np.ndarray:
    """The degree of a product is the sum of those of its factors."""
    if kind is Kind.ELEMENTWISE:
        return operands[0] + operands[1]
    return np.asarray(operands[0].max(initial=0) + operands[1].max(initial=0))


def _together(eqn: Any, operands: list[np.ndarray]) -> np.ndarray:
    """The degree of a sum is the highest of those of its terms."""
    kind = row_of(eqn).kind
    if kind is Kind.REDUCTION:
        return operands[0].max(axis=tuple(eqn.params["axes"]), initial=0)
    if row_of(eqn).is_elementwise or kind is Kind.BARRIER:
        return reduce(np.maximum, operands)
    return np.asarray(max(degree.max(initial=0) for degree in operands))


def _is_always_true(eqn: Any) -> bool:
    """Whether an equation asks if a number is one, or is finite, as NumPyro does of values on the real line."""
    name = eqn.primitive.name
    if name == "eq":
        return eqn.invars[0] is eqn.invars[1]
    literals = [v for v in eqn.invars if isinstance(v, Literal)]
    return name == "ne" and len(literals) == 1 and bool(np.all(np.isinf(literals[0].val)))
