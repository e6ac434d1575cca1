"""Sums and updates that a loop builds up step by step, each step by an equation of its own.

    s ← s + a_1,  s ← s + a_2,  …                 one sum of many terms
    v ← v.at[1].set(a_1),  v ← v.at[2].set(a_2),  …     one update at many places

JAX itself puts many arrays together a few at a time; that is one concatenation, too. Steps in between must not be
looked at by anything but the next step.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from sumout.jaxpr.numpy_evaluation import as_array, compute, is_exact_by_numpy
from sumout.jaxpr.primitives import row_of
from sumout.jaxpr.walk import Atom, variables

T = TypeVar("T")


@dataclass(frozen=True)
class Sum:
    """A sum of many terms, each with its sign."""

    result: Var
    terms: list[tuple[int, Atom]]


@dataclass(frozen=True)
class Updates:
    """An array with many of its elements, or rows, overwritten or added to.

    Attributes:
        result: the array in the end.
        base: the array as it was.
        indices: where, along the first axes, `(n, axes)`.
        updates: what is written there.
        is_added: whether it is added.
    """

    result: Var
    base: Atom
    indices: np.ndarray
    updates: list[Atom]
    is_added: bool


@dataclass
class Chains(Generic[T]):
    """What was found: chains by their last result, and the results of the steps before."""

    whole: dict[Var, T] = field(default_factory=dict)
    inner: set[Var] = field(default_factory=set)


def _count_uses(jaxpr: Jaxpr) -> Counter:
    uses = Counter(v for eqn in jaxpr.eqns for v in variables(eqn.invars))
    uses.update(variables(jaxpr.outvars))
    return uses


def _is_addition(eqn: Any) -> bool:
    out = eqn.outvars[0].aval
    is_alike = all(v.aval.shape == out.shape and v.aval.dtype == out.dtype for v in eqn.invars)
    return len(row_of(eqn).signs) == 2 and is_alike


def find_sums(jaxpr: Jaxpr, fewest: int) -> Chains[Sum]:
    """Sums of at least so many terms."""
    uses = _count_uses(jaxpr)
    additions = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if len(eqn.outvars) == 1 and _is_addition(eqn)}
    outputs = set(variables(jaxpr.outvars))
    inside = {
        v
        for eqn in additions.values()
        for v in variables(eqn.invars)
        if v in additions and uses[v] == 1 and v not in outputs
    }
    found: Chains[Sum] = Chains()
    for out, eqn in additions.items():
        if out in inside:
            continue
        terms, steps, waiting = [], [], [(1, eqn)]
        while waiting:  # no recursion: a chain may be longer than Python's stack
            sign, step = waiting.pop()
            steps.append(step)
            for own, atom in zip(row_of(step).signs, step.invars, strict=True):
                if not isinstance(atom, Literal) and atom in inside:
                    waiting.append((sign * own, additions[atom]))
                else:
                    terms.append((sign * own, atom))
        if len(terms) >= fewest:
            found.whole[out] = Sum(out, terms)
            found.inner.update(step.outvars[0] for step in steps[1:])
    return found


def join_concatenations(jaxpr: Jaxpr) -> Jaxpr:
    """The same with concatenations of concatenations as one."""
    made = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive.name == "concatenate"}
    uses, outputs = _count_uses(jaxpr), set(variables(jaxpr.outvars))
    inner: set[Var] = set()
    eqns = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "concatenate":
            atoms: list[Atom] = []
            for atom in eqn.invars:
                part = None if isinstance(atom, Literal) or atom in outputs or uses[atom] > 1 else made.get(atom)
                if part is not None and part.params["dimension"] == eqn.params["dimension"]:
                    inner.update(part.outvars)
                    atoms += part.invars
                else:
                    atoms.append(atom)
            eqn = made[eqn.outvars[0]] = eqn.replace(invars=atoms)
        eqns.append(eqn)
    return jaxpr.replace(eqns=[eqn for eqn in eqns if eqn.outvars[0] not in inner]) if inner else jaxpr


def find_updates(closed: ClosedJaxpr, fewest: int) -> Chains[Updates]:
    """Arrays of which at least so many elements are updated one by one, at known places."""
    jaxpr = closed.jaxpr
    found: Chains[Updates] = Chains()
    scatters = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.primitive.name in ("scatter", "scatter-add")}
    if len(scatters) < fewest:
        return found
    uses, known = _count_uses(jaxpr), _known_indices(closed)
    outputs = set(variables(jaxpr.outvars))
    places = {out: _place(eqn, known) for out, eqn in scatters.items()}
    following: dict[Var, Any] = {}
    for out, eqn in scatters.items():
        before = eqn.invars[0]
        if not isinstance(before, Var) or before not in scatters or uses[before] > 1 or before in outputs:
            continue
        if places[out] is not None and places[before] is not None and _is_same_kind(eqn, scatters[before]):
            following[before] = out
    for out in scatters:
        if out in following or places[out] is None:
            continue
        steps = [scatters[out]]
        while isinstance(steps[-1].invars[0], Var) and following.get(steps[-1].invars[0]) is steps[-1].outvars[0]:
            steps.append(scatters[steps[-1].invars[0]])
        steps.reverse()
        indices = np.array([places[step.outvars[0]] for step in steps])
        is_added = steps[0].primitive.name == "scatter-add"
        if len(steps) >= fewest and (is_added or len(np.unique(indices, axis=0)) == len(steps)):
            found.whole[out] = Updates(out, steps[0].invars[0], indices, [s.invars[2] for s in steps], is_added)
            found.inner.update(step.outvars[0] for step in steps[:-1])
    return found


def _place(eqn: Any, known: Mapping[Var, np.ndarray]) -> tuple[int, ...] | None:
    """Where along the first axes an update of one element, or row, is written; None if it is not of that kind."""
    numbers, (operand, indices, _) = eqn.params["dimension_numbers"], eqn.invars
    index = as_array(indices) if isinstance(indices, Literal) else known.get(indices)
    if index is None or index.ndim != 1:
        return None
    axes, rest = tuple(range(index.size)), len(operand.aval.shape) - index.size
    if numbers.inserted_window_dims != axes or numbers.scatter_dims_to_operand_dims != axes:
        return None
    if numbers.update_window_dims != tuple(range(rest)) or numbers.operand_batching_dims:
        return None
    place = tuple(int(i) for i in index)
    inside = all(0 <= i < size for i, size in zip(place, operand.aval.shape, strict=False))
    return place if inside else None


def _is_same_kind(eqn: Any, other: Any) -> bool:
    same = ("dimension_numbers", "mode")
    return eqn.primitive is other.primitive and all(eqn.params[name] == other.params[name] for name in same)


MOST_KNOWN = 64  # elements of an index


def _known_indices(closed: ClosedJaxpr) -> dict[Var, np.ndarray]:
    """The values of small integer arrays that depend on no argument."""
    jaxpr = closed.jaxpr
    known = {
        v: np.asarray(value)
        for v, value in zip(jaxpr.constvars, closed.consts, strict=True)
        if v.aval.size <= MOST_KNOWN and np.issubdtype(v.aval.dtype, np.integer)
    }
    for eqn in jaxpr.eqns:
        if len(eqn.outvars) != 1 or not eqn.invars:
            continue
        out = eqn.outvars[0].aval
        if not all(isinstance(v, Literal) or v in known for v in eqn.invars):
            continue
        if np.issubdtype(out.dtype, np.integer) and out.size <= MOST_KNOWN and is_exact_by_numpy(eqn):
            operands = [as_array(v) if isinstance(v, Literal) else known[v] for v in eqn.invars]
            known[eqn.outvars[0]] = np.asarray(compute(eqn, operands)[0])
    return known
