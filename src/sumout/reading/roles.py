"""Evaluate factors of several sites in terms of the parts these play in them.

Let every factor of one array depend on two sites, the first and the second in ascending order: transitions between the
states of a chain, for one. To know all its values one may set the even states to a and the odd ones to b, look up each
transition by itself, and sort out which of a and b came first. Here instead every array in which each element depends
on one site only is computed twice, once with all sites at a and once with all at b. Where two such arrays meet, what
comes from the first site of the meeting is taken from the first version, the rest from the second. All transitions of
a homogeneous chain are then one look-up, not one for each step. The same goes for three sites and more.

`assign_roles` works out, for every operand of every equation at which sites meet, which version each element is taken
from. It gives up on arrays that come out of an equation it cannot see through.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.reading.evaluate import REDUCTIONS, Spread, literal, run_equation
from sumout.reading.interpret import Env
from sumout.reading.movement import MOVEMENTS, trace_back
from sumout.reading.rules import ELEMENTWISE
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
        if not _meet(eqn, number, env, members, roles):
            roles.failed.update(outs)
    for leaf in leaves:
        roles.needed[leaf] = members.counts[env[leaf].scopes] == size
    for eqn in reversed(closed.jaxpr.eqns):
        _need(eqn, env, roles.needed)
    return roles


def _need(eqn: Any, env: Env, needed: dict[Var, np.ndarray]) -> None:
    """Pass on from the results of an equation to its operands which elements are needed."""
    wanted = [np.asarray(needed.get(v, False)) for v in eqn.outvars]
    if not any(mask.any() for mask in wanted):
        return
    moved = None
    if eqn.primitive.name in MOVEMENTS:
        shapes = [np.shape(v.val) if isinstance(v, Literal) else v.aval.shape for v in eqn.invars]
        moved = trace_back(lambda *operands: MOVEMENTS[eqn.primitive.name](*operands, **eqn.params), shapes, wanted)
    for i, operand in enumerate(eqn.invars):
        if isinstance(operand, Literal) or env[operand].ids is None:
            continue
        shape = env[operand].shape
        if moved is not None:
            mask = moved[i]
        elif eqn.primitive.name in ELEMENTWISE and wanted[0].shape == shape:
            mask = wanted[0]
        elif eqn.primitive.name == "gather":
            mask = _looked_up(eqn.params["dimension_numbers"], i, wanted[0], [v.aval.shape for v in eqn.invars])
        else:
            mask = np.ones(shape, bool)
        needed[operand] = needed[operand] | mask if operand in needed else mask


def _looked_up(numbers: Any, i: int, wanted: np.ndarray, shapes: list[tuple[int, ...]]) -> np.ndarray:
    """The indices of a gather with which something wanted is looked up, or the rows in which it is."""
    each: Any = wanted.any(axis=tuple(numbers.offset_dims))
    if i == 1 and each.shape == shapes[1][:-1]:
        return np.broadcast_to(each[..., None], shapes[1])
    rows, axes = numbers.start_indices_batching_dims, numbers.operand_batching_dims
    if i == 0 and rows:
        by_row = each.any(axis=tuple(axis for axis in range(each.ndim) if axis not in rows))
        by_row = by_row.transpose([sorted(rows).index(axis) for axis in rows]).transpose(np.argsort(axes))
        placed = [shapes[0][axis] if axis in axes else 1 for axis in range(len(shapes[0]))]
        return np.broadcast_to(by_row.reshape(placed), shapes[0])
    return np.ones(shapes[i], bool)


def _meet(eqn: Any, number: int, env: Env, members: Members, roles: Roles) -> bool:
    """Settle the versions of the operands of an equation at which sites meet; False if that cannot be done."""
    name = eqn.primitive.name
    if name in MOVEMENTS:
        for i, operand in enumerate(eqn.invars):
            if not isinstance(operand, Literal) and operand not in roles.joint and env[operand].ids is not None:
                roles.merges[number, i] = np.full((1,) * len(env[operand].shape), ANY)
        return True
    for i, operand in enumerate(eqn.invars):
        if isinstance(operand, Literal) or env[operand].ids is None:
            continue
        whole = _facing(eqn, i, env)
        if whole is None:
            return False
        part = env[operand].scopes
        matters = members.counts[whole] == roles.size
        if operand in roles.joint:
            counts = members.counts[part]
            if (matters & (counts > 0) & (counts < roles.size)).any():
                return False  # it was evaluated without regard to this meeting
        else:
            roles.merges[number, i] = _squeeze(np.where(matters, members.roles(whole, part), ANY))
    return True


def _facing(eqn: Any, i: int, env: Env) -> np.ndarray | None:
    """For each element of operand `i` the scope of the result it goes into; None if it goes into several."""
    name, out = eqn.primitive.name, env[eqn.outvars[0]].scopes
    shape = env[eqn.invars[i]].shape
    if name in ELEMENTWISE:
        return out if shape == out.shape else None
    if name in REDUCTIONS:
        return np.broadcast_to(np.expand_dims(out, eqn.params["axes"]), shape)
    if name == "dynamic_slice" and i > 0:
        return out.ravel()[0] if out.size and (out == out.ravel()[0]).all() else None
    if name == "gather":
        return _facing_look_up(eqn.params["dimension_numbers"], i, out, [env[v].shape for v in eqn.invars])
    return None


def _facing_look_up(numbers: Any, i: int, out: np.ndarray, shapes: list[tuple[int, ...]]) -> np.ndarray | None:
    """As `_facing`, for a gather: an index goes into the window looked up with it, a row into all look-ups in it."""
    batch = tuple(axis for axis in range(out.ndim) if axis not in numbers.offset_dims)
    windows = out.transpose(*batch, *numbers.offset_dims).reshape(*(out.shape[axis] for axis in batch), -1)
    if windows.shape[-1] == 0 or (windows != windows[..., :1]).any() or windows.shape[:-1] != shapes[1][:-1]:
        return None
    each = windows[..., 0]
    if i == 1:
        return np.broadcast_to(each[..., None], shapes[1])
    rows = tuple(numbers.start_indices_batching_dims)
    others = tuple(axis for axis in range(each.ndim) if axis not in rows)
    by_row = each.transpose(*rows, *others).reshape(*(each.shape[axis] for axis in rows), -1)
    if not rows or by_row.shape[-1] == 0 or (by_row != by_row[..., :1]).any():
        return None
    axes = numbers.operand_batching_dims
    by_row = by_row[..., 0].transpose(np.argsort(axes))
    placed = [shapes[0][axis] if axis in axes else 1 for axis in range(len(shapes[0]))]
    return np.broadcast_to(by_row.reshape(placed), shapes[0])


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
