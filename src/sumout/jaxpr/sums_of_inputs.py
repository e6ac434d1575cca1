"""Sums of two inputs of a program, and the program of their sum and one of them.

Of survivors s and recruits g a program may ask only for n = s + g, beside the law of g itself. With n an input in the
place of g, the recruits are n − s, and what the program computes from the sum it computes from one input, not from two.
Inputs may be moved, cut and converted on the way to their sum: what counts is which elements are added to which.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Var

from sumout.jaxpr.equations import bind
from sumout.jaxpr.primitives import Kind, row_of
from sumout.jaxpr.walk import arguments, read, walk


class Copy(NamedTuple):
    """An array whose elements are elements of an input: its name, and which, by their numbers in a row."""

    name: str
    elements: np.ndarray


class Added(NamedTuple):
    """An equation that adds up two inputs element by element."""

    result: Var
    terms: tuple[Copy, Copy]


@dataclass(frozen=True, eq=False)
class Tracked:
    """A value of a program, and of what it is a copy, if of an input."""

    value: Any
    copy: Copy | None = None


def find_sums(closed: ClosedJaxpr, named: Mapping[Var, str]) -> list[Added]:
    """All equations that add up two of the inputs that have names."""
    found = []

    def step(eqn: Any, operands: list[Tracked]) -> list[Tracked]:
        terms = added(eqn, operands)
        if terms is not None:
            found.append(Added(eqn.outvars[0], terms))
        return [Tracked(None, copied(eqn, operands)) for _ in eqn.outvars]

    walk(closed.jaxpr.eqns, _start(closed, named, lambda _: None), step, Tracked)
    return found


def run_with_sums(
    closed: ClosedJaxpr, named: Mapping[Var, str], args: Sequence[Any], sum_of: Callable[[Copy, Copy], Any]
) -> list[Any]:
    """The results of a program, where `sum_of` gives sums of inputs in another way; None where it does not."""
    values = arguments(closed.jaxpr, closed.consts, args)

    def step(eqn: Any, operands: list[Tracked]) -> list[Tracked]:
        terms = added(eqn, operands)
        result = None if terms is None else sum_of(*terms)
        if result is not None:
            return [Tracked(result.reshape(eqn.outvars[0].aval.shape).astype(eqn.outvars[0].aval.dtype))]
        results = bind(eqn, [operand.value for operand in operands])
        copy = copied(eqn, operands)
        return [Tracked(one, copy if len(results) == 1 else None) for one in results]

    env = walk(closed.jaxpr.eqns, _start(closed, named, values.__getitem__), step, _literal)
    return [one.value for one in read(env, closed.jaxpr.outvars, _literal)]


def _literal(literal: Any) -> Tracked:
    return Tracked(np.asarray(literal.val, literal.aval.dtype))


def _start(closed: ClosedJaxpr, named: Mapping[Var, str], value_of: Callable[[Var], Any]) -> dict[Var, Tracked]:
    def tracked(variable: Var) -> Tracked:
        shape: tuple[int, ...] = variable.aval.shape  # pyright: ignore[reportAttributeAccessIssue]
        name = named.get(variable)
        copy = None if name is None else Copy(name, np.arange(int(np.prod(shape))).reshape(shape))
        return Tracked(value_of(variable), copy)

    return {v: tracked(v) for v in (*closed.jaxpr.constvars, *closed.jaxpr.invars)}


def copied(eqn: Any, operands: Sequence[Tracked]) -> Copy | None:
    """Of what the result is a copy, if the one operand is: where elements are only moved, or become other numbers."""
    if len(operands) != 1 or operands[0].copy is None or len(eqn.outvars) != 1:
        return None
    row, copy = row_of(eqn), operands[0].copy
    if row.kind is Kind.CONVERSION:
        return copy if np.dtype(eqn.outvars[0].aval.dtype).kind in "if" else None
    if row.kind not in (Kind.MOVEMENT, Kind.COPY) or row.numpy is None:
        return None
    return Copy(copy.name, np.asarray(row.numpy(copy.elements, **eqn.params)))


def added(eqn: Any, operands: Sequence[Tracked]) -> tuple[Copy, Copy] | None:
    """The inputs that an equation adds up element by element, if it does."""
    if eqn.primitive.name != "add":
        return None
    a, b = (operand.copy for operand in operands)
    if a is None or b is None or a.name == b.name or a.elements.shape != b.elements.shape:
        return None
    return a, b


def partners(sums: Sequence[Added], name: str, other: str, size: int) -> np.ndarray | None:
    """For each element of an input the element of another that it is always added to; None where there is not one."""
    found = np.full(size, -1)
    for own, its in _terms_of(sums, name, other):
        if len(np.unique(np.stack([own, its]), axis=1).T) > len(np.unique(own)):
            return None
        if ((found[own] >= 0) & (found[own] != its)).any():
            return None
        found[own] = its
    return found if (found >= 0).all() else None


def _terms_of(sums: Sequence[Added], name: str, other: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for one in sums:
        by_name = {copy.name: copy.elements.ravel() for copy in one.terms}
        if set(by_name) == {name, other}:
            yield by_name[name], by_name[other]
