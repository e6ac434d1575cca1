"""Evaluate factors of several sites in terms of the parts these play in them.

Let every factor of one array depend on two sites, the first and the second in ascending order: transitions between the
states of a chain, for one. To know all its values one may set the even states to a and the odd ones to b, look up each
transition by itself, and sort out which of a and b came first. Here instead every array in which each element depends
on one site only is computed twice, once with all sites at a and once with all at b. Where two such arrays meet, what
comes from the first site of the factor is taken from the first version, the rest from the second. All transitions of
a homogeneous chain are then one look-up, not one for each step. The same goes for three sites and more, which may meet
one after the other.

`assign_roles` works out, for every operand of every equation at which sites meet, which version each element is taken
from. For that it must know into which factor each element goes, its goal (`goals.py`). It gives up on arrays with an
element that goes into several factors after sites have met in it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.jaxpr.lazy_broadcast import REDUCTIONS, Spread, literal, run_equation
from sumout.jaxpr.numpy_evaluation import MOVEMENTS, follow_elements
from sumout.jaxpr.primitives import is_elementwise
from sumout.structure.interpret import Env
from sumout.structure.scopes import EMPTY, Scopes

# Into which factor does an element of an array go? Found by following a flat jaxpr from its leaves back.
#
# A goal is the number of the scope of that factor, `NOWHERE` for an element that goes into no factor in question, or
# `SEVERAL` where it goes into several, or it is not known into which.

NOWHERE = EMPTY
SEVERAL = -1
NOTHING = np.iinfo(np.int64).max  # above all numbers of scopes

Goals = np.ndarray


def find_goals(eqns: Sequence[Any], env: Env, leaves: Sequence[Var], in_question: np.ndarray) -> dict[Var, Goals]:
    """The goals of all variables that depend on z; without an entry: nowhere.

    Args:
        eqns: in the order in which they are run.
        env: what was read of their variables.
        leaves: the arrays of factors.
        in_question: for the number of each scope whether its factors are in question.
    """
    found: dict[Var, Goals] = {}
    for leaf in leaves:
        scopes = env[leaf].scopes
        found[leaf] = np.where(in_question[scopes], scopes, NOWHERE)
    for eqn in reversed(eqns):
        for operand, goal in zip(eqn.invars, hand_back(eqn, env, found), strict=True):
            if goal is not None:
                assert isinstance(operand, Var)
                found[operand] = _one_of(np.stack([found[operand], goal]), 0) if operand in found else goal
    return found


def hand_back(eqn: Any, env: Env, goals: Mapping[Var, Goals]) -> list[Goals | None]:
    """For each operand of an equation the goals its elements have by way of it; None for what does not depend on z."""
    outs = [goals.get(v, np.full(v.aval.shape, NOWHERE)) for v in eqn.outvars]
    depends = [not isinstance(v, Literal) and env[v].ids is not None for v in eqn.invars]
    if not any(depends) or not any((out != NOWHERE).any() for out in outs):
        return [np.full(v.aval.shape, NOWHERE) if on_z else None for v, on_z in zip(eqn.invars, depends, strict=True)]
    shapes = [v.aval.shape for v in eqn.invars]
    if eqn.primitive.name in MOVEMENTS:
        found = _moved(eqn, shapes, outs)
    else:
        found = [_faced(eqn, i, shapes, outs[0]) for i in range(len(shapes))]
    return [goal if on_z else None for goal, on_z in zip(found, depends, strict=True)]


def _moved(eqn: Any, shapes: list[tuple[int, ...]], outs: list[Goals]) -> list[Goals]:
    """Elements that are only moved: where they arrive."""
    numbers, arrived = follow_elements(lambda *ops: MOVEMENTS[eqn.primitive.name](*ops, **eqn.params), shapes)
    total = 1 + sum(number.size for number in numbers)
    lowest, highest = np.full(total, NOTHING), np.full(total, NOWHERE)
    for piece, out in zip(arrived, outs, strict=True):
        has_goal = out != NOWHERE
        np.minimum.at(lowest, piece[has_goal], out[has_goal])
        np.maximum.at(highest, piece[has_goal], out[has_goal])
    found = _agree(lowest, highest)
    return [np.asarray(found[number]) for number in numbers]


def _faced(eqn: Any, i: int, shapes: list[tuple[int, ...]], out: Goals) -> Goals:
    """For each element of operand `i` the goal of the result it goes into."""
    name, shape = eqn.primitive.name, shapes[i]
    if is_elementwise(eqn) and shape == out.shape:
        return out
    if name in REDUCTIONS:
        return np.broadcast_to(np.expand_dims(out, eqn.params["axes"]), shape)
    if name == "dynamic_slice" and i > 0:
        return _one_of(out.ravel(), 0)
    if name == "gather":
        found = _looked_up(eqn.params["dimension_numbers"], i, shapes, out)
        if found is not None:
            return found
    return np.full(shape, SEVERAL)


def _looked_up(numbers: Any, i: int, shapes: list[tuple[int, ...]], out: Goals) -> Goals | None:
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
    by_row = by_row.transpose([sorted(rows).index(axis) for axis in rows]).transpose(np.argsort(axes))
    placed = [shapes[0][axis] if axis in axes else 1 for axis in range(len(shapes[0]))]
    return np.broadcast_to(by_row.reshape(placed), shapes[0])


def _one_of(goals: Goals, axes: int | tuple[int, ...]) -> Goals:
    """What goes into all of these goes where?"""
    lowest = np.where(goals == NOWHERE, NOTHING, goals).min(axis=axes, initial=NOTHING)
    return _agree(lowest, goals.max(axis=axes, initial=NOWHERE))


def _agree(lowest: np.ndarray, highest: np.ndarray) -> Goals:
    """One goal, from the lowest and the highest of several; `NOTHING` stands for no goal at all."""
    return np.where(lowest == NOTHING, NOWHERE, np.where(lowest == highest, lowest, SEVERAL))


ANY = -1


@dataclass(frozen=True, eq=False)
class Roles:
    """Which version of an operand to take where sites meet.

    Attributes:
        size: how many sites meet in the factors in question.
        joint: variables in which sites have met; they have one version only.
        merges: for an equation and an operand, by number: the version of each element, size 1 along axes on which it
            does not vary.
        failed: variables that cannot be evaluated like this.
        needed: which elements of a variable the factors in question depend on; without an entry: none.
    """

    size: int
    joint: set[Var] = field(default_factory=set)
    merges: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    failed: set[Var] = field(default_factory=set)
    needed: dict[Var, np.ndarray] = field(default_factory=dict)


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


def assign_roles(closed: ClosedJaxpr, env: Env, members: Members, size: int, leaves: Sequence[Var]) -> Roles:
    """Follow a flat jaxpr, whose variables were read into `env`, and settle how its sites meet in the leaves."""
    roles = Roles(size)
    goals = find_goals(closed.jaxpr.eqns, env, leaves, members.counts == size)
    roles.needed.update((variable, goal != NOWHERE) for variable, goal in goals.items())
    for number, eqn in enumerate(closed.jaxpr.eqns):
        operands = [v for v in eqn.invars if not isinstance(v, Literal)]
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
        is_clear = all(_is_clear(goals.get(v), env[v].scopes, members) for v in outs)
        if not is_clear or not _meet(eqn, number, env, members, roles, goals):
            roles.failed.update(outs)
    return roles


def _is_clear(goal: np.ndarray | None, scopes: np.ndarray, members: Members) -> bool:
    """Whether no element that depends on a site goes into several factors."""
    return goal is None or not ((goal == SEVERAL) & (members.counts[scopes] > 0)).any()


def _meet(eqn: Any, number: int, env: Env, members: Members, roles: Roles, goals: Mapping[Var, np.ndarray]) -> bool:
    """Settle the versions of the operands of an equation at which sites meet; False if that cannot be done."""
    for i, (operand, goal) in enumerate(zip(eqn.invars, hand_back(eqn, env, goals), strict=True)):
        if goal is None or operand in roles.joint:
            continue
        part = env[operand].scopes
        if not _is_clear(goal, part, members):
            return False
        roles.merges[number, i] = _squeeze(np.where(goal == NOWHERE, ANY, members.roles(goal, part)))
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
        env[variable] = (Spread(jnp.asarray(value), variable.aval.shape),)
    for variable, source, *values in zip(jaxpr.invars, sources, *versions, strict=True):
        same = all(value is values[0] for value in values)
        env[variable] = tuple(
            Spread(jnp.asarray(value), variable.aval.shape, None if source is None else (source, number))
            for number, value in enumerate(values[:1] if same else values)
        )
    for number, eqn in enumerate(jaxpr.eqns):
        if any(v in roles.failed for v in eqn.outvars):
            continue
        operands = [(literal(v),) if isinstance(v, Literal) else env[v] for v in eqn.invars]
        if any(v in roles.joint for v in eqn.outvars):
            merged = [
                _merge(versions, roles.merges[number, i]) if (number, i) in roles.merges else versions[0]
                for i, versions in enumerate(operands)
            ]
            results = [run_equation(eqn, merged)]
        else:
            count = max((len(versions) for versions in operands), default=1)
            results = [_run(eqn, [v[r % len(v)] for v in operands], roles) for r in range(count)]
        env.update(zip(eqn.outvars, zip(*results, strict=True), strict=True))
    return env


def _run(eqn: Any, operands: list[Spread], roles: Roles) -> list[Spread]:
    """Run an equation; of a concatenation, only the operand that is needed, if it is one and does not vary."""
    if eqn.primitive.name == "concatenate" and eqn.outvars[0] in roles.needed:
        axis, (out,) = int(eqn.params["dimension"]), eqn.outvars
        rows: Any = roles.needed[out].any(axis=tuple(i for i in range(len(out.aval.shape)) if i != axis))
        ends = np.cumsum([operand.shape[axis] for operand in operands])
        used = [o for o, end in zip(operands, ends, strict=True) if rows[end - o.shape[axis] : end].any()]
        if len(used) == 1 and used[0].content.shape[axis] == 1:
            return [Spread(used[0].content, out.aval.shape)]
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
