"""When a site runs through its values, at which of them does each element of an array change?

    where(t < change, early, late)        changes at the value t + 1, and only there, whatever `early` and `late` are

What follows from z and data alone, such as `t < change`, is looked at for one value after the other. From there on the
changes are followed through the program as scopes are (`structure/interpret.py`): what is computed from elements that
change at some values, changes at no others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Var, jaxpr_as_fun

from sumout.errors import note_unforeseen
from sumout.jaxpr.walk import cut, following, walk_back
from sumout.structure.interpret import Reader
from sumout.structure.scopes import EMPTY, Abstract, Scopes, constant, dependent

NEVER = 0  # the first value is where all begins: nothing changes there
MOST_LOOKED_AT = 10**8  # elements of arrays, over all values: more would take long before anything is sampled


def find_changes(
    closed: ClosedJaxpr, targets: Sequence[Var], sites: Mapping[Var, np.ndarray], known: Mapping[Var, Abstract]
) -> list[np.ndarray | None]:
    """For each target the number of the value at which each element changes, or `NEVER`; None if one changes twice.

    Args:
        closed: a flat program.
        targets: variables of it.
        sites: arguments that run through their values, with a leading axis of values.
        known: arguments whose values are known. The others are not, and do not change.
    """
    if not targets or not sites:
        return [None] * len(targets)
    try:
        return _find_changes(closed, targets, sites, known)
    except Exception as error:
        note_unforeseen("finding where elements change", error)
        return [None] * len(targets)


def _find_changes(
    closed: ClosedJaxpr, targets: Sequence[Var], sites: Mapping[Var, np.ndarray], known: Mapping[Var, Abstract]
) -> list[np.ndarray | None]:
    num_values = len(next(iter(sites.values())))
    edge = _edge(closed, targets, sites, known)
    if num_values * sum(v.aval.size for v in edge) > MOST_LOOKED_AT:
        return [None] * len(targets)
    scopes = Scopes(num_values)
    changing = dict(zip(edge, _look(closed, edge, sites, known, scopes), strict=True))
    part = cut(closed, targets, edge)
    operands = [changing.get(v) or known.get(v) or Abstract(v.aval.shape) for v in part.jaxpr.invars]
    env = Reader(scopes).run(part.jaxpr, part.consts, operands)
    found = [env[target].scopes for target in targets]
    return [None if (ids > num_values).any() else np.where(ids == EMPTY, NEVER, ids - 1) for ids in found]


def _edge(
    closed: ClosedJaxpr, targets: Sequence[Var], sites: Mapping[Var, np.ndarray], known: Mapping[Var, Abstract]
) -> list[Any]:
    """The last variables on the way to the targets that follow from the sites and from what is known, and no more."""
    moving = following(closed, sites)
    unknown = following(closed, [v for v in closed.jaxpr.invars if v not in sites and v not in known])
    edge: list[Any] = []

    def step(eqn: Any, wanted: list[bool | None]) -> list[bool | None]:
        moved = [v for v, is_wanted in zip(eqn.outvars, wanted, strict=True) if is_wanted and v in moving]
        edge.extend(v for v in moved if v not in unknown)
        return [True if any(v in unknown for v in moved) else None] * len(eqn.invars)

    needed = walk_back(closed.jaxpr.eqns, dict.fromkeys(targets, True), step, lambda one, _: one)
    return edge + [v for v in sites if v in needed]


def _look(
    closed: ClosedJaxpr,
    edge: Sequence[Any],
    sites: Mapping[Var, np.ndarray],
    known: Mapping[Var, Abstract],
    scopes: Scopes,
) -> list[Abstract]:
    """The variables for one value after the other: where each element changes, as scopes."""
    many = scopes.number(frozenset((0, 1)))  # which of them does not matter
    before, found = None, [np.full(v.aval.shape, EMPTY) for v in edge]
    for number, values in enumerate(_values(closed, edge, sites, known)):
        for ids, old, new in zip(found, before or values, values, strict=True):
            changed = old != new
            ids[changed] = np.where(ids[changed] == EMPTY, number + 1, many)
        before = values
    return [dependent(ids.shape, ids) for ids in found]


def _values(
    closed: ClosedJaxpr, edge: Sequence[Any], sites: Mapping[Var, np.ndarray], known: Mapping[Var, Abstract]
) -> Iterator[list[np.ndarray]]:
    """The variables at one value after the other: by NumPy if that is certain to be the same, as the program if not."""
    part = cut(closed, edge)
    atoms = [v for eqn in part.jaxpr.eqns for v in (*eqn.invars, *eqn.outvars)]
    by_numpy = all(not jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in atoms)
    needed = [v for v in part.jaxpr.invars if v in sites or v in known]
    reader, run = Reader(Scopes(0)), _compiled(part, needed)
    typed = {v: _typed(v, known[v].value) for v in needed if v in known}
    for number in range(len(next(iter(sites.values())))):
        arguments = {v: sites[v][number] if v in sites else typed[v] for v in needed}
        if by_numpy:
            env = reader.run(part.jaxpr, part.consts, [_argument(v, arguments) for v in part.jaxpr.invars])
            yield [env[v].value for v in edge]
        else:
            yield [np.asarray(value) for value in run(*arguments.values())]


def _compiled(part: ClosedJaxpr, given: Sequence[Any]) -> Callable[..., list[Any]]:
    """A part of a program as a function of some arguments; it needs no others."""

    def run(*values: Any) -> list[Any]:
        named = dict(zip(given, values, strict=True))
        arguments = [named.get(v, jnp.zeros(v.aval.shape, v.aval.dtype)) for v in part.jaxpr.invars]
        return jaxpr_as_fun(part)(*arguments)

    return jax.jit(run)


def _argument(variable: Any, known: Mapping[Any, Any]) -> Abstract:
    return constant(_typed(variable, known[variable])) if variable in known else Abstract(variable.aval.shape)


def _typed(variable: Any, value: Any) -> Any:
    """As the program has it: a fraction in single precision may be another number in double."""
    dtype = variable.aval.dtype
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
    return value if is_key else np.asarray(value).astype(dtype, copy=False)
