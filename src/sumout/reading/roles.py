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

from sumout.reading.evaluate import Spread, literal, run_equation
from sumout.reading.goals import NOWHERE, SEVERAL, find_goals, hand_back
from sumout.reading.interpret import Env
from sumout.reading.scopes import Scopes

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
        outs = [v for v in eqn.outvars if env[v].ids is not None]
        if not outs:
            continue
        operands = [v for v in eqn.invars if not isinstance(v, Literal)]
        if any(v in roles.failed for v in operands):
            roles.failed.update(outs)
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
