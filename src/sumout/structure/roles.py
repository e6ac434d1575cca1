"""Evaluate factors of several sites in terms of the parts these play in them.

Let every factor of one array depend on two sites, the first and the second in ascending order: transitions between the
states of a chain, for one. To know all its values one may set the even states to a and the odd ones to b, look up each
transition by itself, and sort out which of a and b came first. Here instead every array in which each element depends
on one site only is computed twice, once with all sites at a and once with all at b. Where two such arrays meet, what
comes from the first site of the factor is taken from the first version, the rest from the second. All transitions of
a homogeneous chain are then one look-up, not one for each step. The same goes for three sites and more, which may meet
one after the other.

`assign_roles` works out, for every operand of every equation at which sites meet, which version each element is taken
from. For that it must know into which factor each element goes, its destination. It gives up on arrays with an element
that goes into several factors after sites have met in it.

What goes into no factor in question is not needed. An array of which all that is needed comes from one operand of a
concatenation, or from one case of a known condition, is taken to be that operand: the transitions after the first step
are those of the other steps, and what a mask rules out is not there. So it stays as small as it was.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.jaxpr.lazy_broadcast import Spread, literal, run_equation, squeeze_known
from sumout.jaxpr.numpy_evaluation import compute
from sumout.jaxpr.numpy_forms import follow_elements
from sumout.jaxpr.primitives import Kind, is_elementwise, row_of
from sumout.jaxpr.walk import shape_of, variables, walk, walk_back
from sumout.structure.interpret import Env
from sumout.structure.scopes import EMPTY, Scopes

# Into which factor does an element of an array go? Found by following a flat jaxpr from its leaves back.
#
# A destination is the number of the scope of that factor, `NOWHERE` for an element that goes into no factor in
# question, or `SEVERAL` where it goes into several, or it is not known into which.

NOWHERE = EMPTY
SEVERAL = -1
NOTHING = np.iinfo(np.int64).max  # above all numbers of scopes

Destinations = np.ndarray


def find_destinations(
    eqns: Sequence[Any], env: Env, leaves: Mapping[Var, np.ndarray], in_question: np.ndarray
) -> dict[Var, Destinations]:
    """The destinations of all variables that depend on z; without an entry: nowhere.

    Args:
        eqns: in the order in which they are run.
        env: what was read of their variables.
        leaves: the arrays of factors, and which of their elements count.
        in_question: for the number of each scope whether its factors are in question.
    """
    found = {
        leaf: np.where(live & in_question[env[leaf].scopes], env[leaf].scopes, NOWHERE) for leaf, live in leaves.items()
    }
    return walk_back(eqns, found, lambda eqn, _: hand_back(eqn, env, found), lambda a, b: _one_of(np.stack([a, b]), 0))


def hand_back(eqn: Any, env: Env, destinations: Mapping[Var, Destinations]) -> list[Destinations | None]:
    """For each operand of an equation the destinations of its elements by way of it; None for what is free of z."""
    outs = [destinations.get(v, np.full(shape_of(v), NOWHERE)) for v in eqn.outvars]
    shapes, depends = [shape_of(v) for v in eqn.invars], [_depends(env, v) for v in eqn.invars]
    if not any(depends) or not any((out != NOWHERE).any() for out in outs):
        found = [np.full(shape, NOWHERE) for shape in shapes]
    elif row_of(eqn).is_movement:
        found = _moved(eqn, shapes, outs)
    else:
        found = [_faced(eqn, i, shapes, outs[0]) for i in range(len(shapes))]
        cases = _known_cases(eqn, env)
        if cases is not None:
            found[1:] = [np.where(cases == case, destination, NOWHERE) for case, destination in enumerate(found[1:])]
    return [destination if on_z else None for destination, on_z in zip(found, depends, strict=True)]


def _known_cases(eqn: Any, env: Env) -> np.ndarray | None:
    """Which case a choice takes for each element, if it depends on nothing but data."""
    if row_of(eqn).kind is not Kind.SELECT:
        return None
    which = eqn.invars[0]
    if isinstance(which, Literal) or env[which].known is None or shape_of(which) != shape_of(eqn.outvars[0]):
        return None
    return np.asarray(env[which].value).astype(np.int64)


def _depends(env: Env, atom: Any) -> bool:
    return not isinstance(atom, Literal) and env[atom].ids is not None


def _moved(eqn: Any, shapes: list[tuple[int, ...]], outs: list[Destinations]) -> list[Destinations]:
    """Elements that are only moved: where they arrive."""
    numbers, arrived = follow_elements(lambda *arrays: tuple(compute(eqn, arrays)), shapes)
    total = 1 + sum(number.size for number in numbers)
    lowest, highest = np.full(total, NOTHING), np.full(total, NOWHERE)
    for piece, out in zip(arrived, outs, strict=True):
        has_one = out != NOWHERE
        np.minimum.at(lowest, piece[has_one], out[has_one])
        np.maximum.at(highest, piece[has_one], out[has_one])
    found = _agree(lowest, highest)
    return [np.asarray(found[number]) for number in numbers]


def _faced(eqn: Any, i: int, shapes: list[tuple[int, ...]], out: Destinations) -> Destinations:
    """For each element of operand `i` the destination of the result it goes into."""
    kind, shape = row_of(eqn).kind, shapes[i]
    if is_elementwise(eqn) and shape == out.shape:
        return out
    if kind is Kind.REDUCTION or kind is Kind.POSITION:
        return np.broadcast_to(np.expand_dims(out, eqn.params["axes"]), shape)
    if kind is Kind.SLICE and i > 0:
        return _one_of(out.ravel(), 0)
    if kind is Kind.GATHER:
        found = _looked_up(eqn.params["dimension_numbers"], i, shapes, out)
        if found is not None:
            return found
    return np.full(shape, SEVERAL)


def _looked_up(numbers: Any, i: int, shapes: list[tuple[int, ...]], out: Destinations) -> Destinations | None:
    """An index goes into the window looked up with it, a row into all look-ups in it; None where it is not clear."""
    each = _one_of(out, tuple(numbers.offset_dims))
    if each.shape != shapes[1][:-1]:
        return None
    if i == 1:
        return np.broadcast_to(each[..., None], shapes[1])
    rows, axes = tuple(numbers.start_indices_batching_dims), numbers.operand_batching_dims
    if not rows:
        return None
    by_row = _one_of(each, tuple(axis for axis in range(each.ndim) if axis not in rows))
    # Batching axis rows[k] of the indices runs along with axis axes[k] of the operand: first into the order of the
    # pairs, then into that of the operand's axes, the others of size 1.
    by_row = by_row.transpose([sorted(rows).index(axis) for axis in rows]).transpose(np.argsort(axes))
    placed = [shapes[0][axis] if axis in axes else 1 for axis in range(len(shapes[0]))]
    return np.broadcast_to(by_row.reshape(placed), shapes[0])


def _one_of(destinations: Destinations, axes: int | tuple[int, ...]) -> Destinations:
    """What goes into all of these goes where?"""
    lowest = np.where(destinations == NOWHERE, NOTHING, destinations).min(axis=axes, initial=NOTHING)
    return _agree(lowest, destinations.max(axis=axes, initial=NOWHERE))


def _agree(lowest: np.ndarray, highest: np.ndarray) -> Destinations:
    """One destination, from the lowest and the highest of several; `NOTHING` stands for no destination at all."""
    return np.where(lowest == NOTHING, NOWHERE, np.where(lowest == highest, lowest, SEVERAL))


ANY = -1


@dataclass(frozen=True, eq=False)
class Roles:
    """Which version of an operand to take where sites meet.

    Attributes:
        size: how many sites meet in the factors in question.
        joint: variables in which sites have met; they have one version only.
        merges: for an equation, by its first result, and the number of an operand: the version of each element, size
            1 along axes on which it does not vary.
        failed: variables that cannot be evaluated like this.
        needed: which elements of a variable the factors in question depend on; without an entry: none.
        operands: the number of the operand that an equation, by its first result, is taken to be.
    """

    size: int
    joint: set[Var] = field(default_factory=set)
    merges: dict[tuple[Var, int], np.ndarray] = field(default_factory=dict)
    failed: set[Var] = field(default_factory=set)
    needed: dict[Var, np.ndarray] = field(default_factory=dict)
    operands: dict[Var, int] = field(default_factory=dict)


class Members:
    """The sites of every scope that count as set, in ascending order, for looking up many scopes at once."""

    def __init__(self, scopes: Scopes, is_set: np.ndarray, size: int):
        total = scopes.num_numbers
        self.counts = np.zeros(total, np.int64)
        self.first = np.full((total, size), ANY)
        numbers = np.arange(1, scopes.num_sites + 1)
        self.counts[numbers] = is_set
        self.first[numbers, 0] = np.where(is_set, np.arange(scopes.num_sites), ANY)
        for number in range(scopes.num_sites + 1, total):
            inside = [site for site in scopes.members(number) if is_set[site]]
            self.counts[number] = len(inside)
            if len(inside) <= size:
                self.first[number, : len(inside)] = sorted(inside)

    def roles(self, whole: np.ndarray, part: np.ndarray) -> np.ndarray:
        """The place of the only site of each scope `part` among the sites of `whole`; `ANY` if it is not there."""
        site = np.where(self.counts[part] == 1, self.first[part, 0], -2)
        matches = self.first[whole] == site[..., None]
        return np.where(matches.any(axis=-1), matches.argmax(axis=-1), ANY)


def assign_roles(closed: ClosedJaxpr, env: Env, members: Members, size: int, leaves: Mapping[Var, np.ndarray]) -> Roles:
    """Follow a flat jaxpr, whose variables were read into `env`, and settle how its sites meet in the leaves.

    With one site in a factor there is nothing to settle but what is needed.
    """
    roles = Roles(size)
    destinations = find_destinations(closed.jaxpr.eqns, env, leaves, members.counts == size)
    roles.needed.update((variable, destination != NOWHERE) for variable, destination in destinations.items())
    for eqn in closed.jaxpr.eqns:
        operand = _only_operand(eqn, env, roles.needed)
        if operand is not None:
            roles.operands[eqn.outvars[0]] = operand
    if size == 1:
        return roles
    for eqn in closed.jaxpr.eqns:
        operands = variables(eqn.invars)
        if any(v in roles.failed for v in operands):
            roles.failed.update(eqn.outvars)  # also those that depend on no site, as an empty slice does
            continue
        outs = [v for v in eqn.outvars if env[v].ids is not None]
        if not outs:
            continue
        has_joint = any(v in roles.joint for v in operands)
        if not has_joint and all(members.counts[env[v].scopes].max(initial=0) <= 1 for v in outs):
            continue  # every version on its own
        roles.joint.update(outs)
        is_clear = all(_is_clear(destinations.get(v), env[v].scopes, members) for v in outs)
        if not is_clear or not _meet(eqn, env, members, roles, destinations):
            roles.failed.update(outs)
    return roles


def _only_operand(eqn: Any, env: Env, needed: Mapping[Var, np.ndarray]) -> int | None:
    """The number of the operand from which all that is needed of a concatenation or a choice comes, if it is one."""
    out = eqn.outvars[0]
    if out not in needed or not needed[out].any():
        return None
    cases = _known_cases(eqn, env)
    if cases is not None:
        used = np.unique(cases[needed[out]])
        return 1 + int(used[0]) if len(used) == 1 else None
    if eqn.primitive.name != "concatenate":
        return None
    axis = int(eqn.params["dimension"])
    rows: Any = needed[out].any(axis=tuple(i for i in range(needed[out].ndim) if i != axis))
    lengths = [shape_of(operand)[axis] for operand in eqn.invars]
    used = np.unique(np.repeat(np.arange(len(lengths)), lengths)[rows])
    return int(used[0]) if len(used) == 1 else None


def _is_clear(destination: np.ndarray | None, scopes: np.ndarray, members: Members) -> bool:
    """Whether no element that depends on a site goes into several factors."""
    return destination is None or not ((destination == SEVERAL) & (members.counts[scopes] > 0)).any()


def _meet(eqn: Any, env: Env, members: Members, roles: Roles, destinations: Mapping[Var, np.ndarray]) -> bool:
    """Settle the versions of the operands of an equation at which sites meet; False if that cannot be done."""
    for i, (operand, destination) in enumerate(zip(eqn.invars, hand_back(eqn, env, destinations), strict=True)):
        if destination is None or operand in roles.joint:
            continue
        part = env[operand].scopes
        if not _is_clear(destination, part, members):
            return False
        roles.merges[eqn.outvars[0], i] = _squeeze(
            np.where(destination == NOWHERE, ANY, members.roles(destination, part))
        )
    return True


def _squeeze(roles: np.ndarray) -> np.ndarray:
    """The array with size 1 along axes on which it does not vary, where it matters at all."""
    for axis in range(roles.ndim):
        if roles.shape[axis] > 1:
            high = roles.max(axis=axis, keepdims=True)
            if ((roles == high) | (roles == ANY)).all():
                roles = high
    return roles


def evaluate_versions(
    closed: ClosedJaxpr, versions: Sequence[Sequence[Any]], roles: Roles, sources: Sequence[Hashable]
) -> dict[Var, tuple[Spread, ...]]:
    """Every variable that could be evaluated: one version for each list of arguments, or one where sites have met.

    Within a version, arguments of the same source that are one number are the same number.
    """
    jaxpr = closed.jaxpr
    env: dict[Var, tuple[Spread, ...]] = {}
    for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
        env[variable] = (Spread(jnp.asarray(squeeze_known(value)), variable.aval.shape),)
    for variable, source, *values in zip(jaxpr.invars, sources, *versions, strict=True):
        same = all(value is values[0] for value in values)
        env[variable] = tuple(
            Spread(jnp.asarray(value), variable.aval.shape, None if source is None else (source, number))
            for number, value in enumerate(values[:1] if same else values)
        )

    def step(eqn: Any, operands: list[tuple[Spread, ...]]) -> list[tuple[Spread, ...]]:
        if any(v in roles.joint for v in eqn.outvars):
            keys = [(eqn.outvars[0], i) for i in range(len(operands))]
            merged = [
                _merge(versions, roles.merges[key]) if key in roles.merges else versions[0]
                for key, versions in zip(keys, operands, strict=True)
            ]
            results = [_run(eqn, merged, roles)]
        else:
            count = max((len(versions) for versions in operands), default=1)
            results = [_run(eqn, [v[r % len(v)] for v in operands], roles) for r in range(count)]
        return list(zip(*results, strict=True))

    found = [eqn for eqn in jaxpr.eqns if roles.failed.isdisjoint(eqn.outvars)]
    return walk(found, env, step, lambda constant: (literal(constant),))


def _run(eqn: Any, operands: list[Spread], roles: Roles) -> list[Spread]:
    """Run an equation; if it is taken to be one of its operands, and this fits its shape, that is all."""
    number = roles.operands.get(eqn.outvars[0])
    if number is not None:
        operand, out = operands[number], eqn.outvars[0].aval
        if all(n in (1, whole) for n, whole in zip(operand.content.shape, out.shape, strict=True)):
            return [Spread(operand.content, out.shape, operand.source)]
    return run_equation(eqn, operands)


def _merge(versions: tuple[Spread, ...], roles: np.ndarray) -> Spread:
    """One array of several: each element from the version it is to be taken from."""
    used = np.unique(roles[roles != ANY]).tolist()
    if len(used) <= 1 or len(versions) == 1:
        return versions[used[0] % len(versions) if used else 0]
    content = versions[used[0]].content
    for role in used[1:]:
        content = jnp.where(roles == role, versions[role].content, content)
    return Spread(content, versions[0].shape)
