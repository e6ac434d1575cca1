"""Into which factor does an element of an array go? Found by following a flat jaxpr from its leaves back.

A goal is the number of the scope of that factor, `NOWHERE` for an element that goes into no factor in question, or
`SEVERAL` where it goes into several, or it is not known into which.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend.core import Literal, Var

from sumout.arithmetic.movement import MOVEMENTS, follow_elements
from sumout.reading.elementwise import is_elementwise
from sumout.reading.evaluate import REDUCTIONS
from sumout.reading.interpret import Env
from sumout.reading.scopes import EMPTY

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
