"""A part of a flat program: what leads to some of its variables, with others given."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal, Var


def cut(closed: ClosedJaxpr, outputs: Sequence[Var | Literal], given: Collection[Var] = ()) -> ClosedJaxpr:
    """The equations that `outputs` need; variables in `given` are arguments, after those that there are already."""
    jaxpr, given = closed.jaxpr, list(dict.fromkeys(given))
    needed = {v for v in outputs if not isinstance(v, Literal)} - set(given)
    kept = []
    for eqn in reversed(jaxpr.eqns):
        if any(v in needed for v in eqn.outvars):
            kept.append(eqn)
            needed |= {v for v in eqn.invars if not isinstance(v, Literal)} - set(given)
    invars = [*jaxpr.invars, *(v for v in given if v not in jaxpr.invars)]
    part = jaxpr.replace(invars=invars, outvars=list(outputs), eqns=kept[::-1])
    return ClosedJaxpr(part, closed.consts)


def following(closed: ClosedJaxpr, variables: Iterable[Any]) -> set[Any]:
    """Some variables, and all that are computed from them."""
    found = set(variables)
    for eqn in closed.jaxpr.eqns:
        if any(not isinstance(v, Literal) and v in found for v in eqn.invars):
            found.update(eqn.outvars)
    return found
