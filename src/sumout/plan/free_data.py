"""Which data may change from call to call: those whose values the structure of a program does not rest on.

Data are arguments of compiled code, but the reading knows their values, and uses them: an index that points from one
site to another, a mask, a zero that rules a term out. Sums and moves that were built for some data may be wrong for
others of the same shape. Here each array is hidden from the reading. Where what is found is the same (the sites that
every factor depends on, what is done with them, at what cost) it stays hidden: the array is *free*, and what is built
without a look at it is right whatever it holds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from sumout.errors import OptionError
from sumout.model.arguments import as_jax
from sumout.model.program import Data, Program
from sumout.patterns.change_points import RunningTable
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.plan import Plan, plan_for

MOST_TRIED = 16  # arrays that are hidden one by one; of more, all or none


def free_data(program: Program, overrides: Mapping[str, str] | None = None) -> Program:
    """The program with as many of its data free as can be, the same object for the same overrides of the plan."""
    if program.free or not isinstance(program.data, dict) or not program.data:
        return program
    label = ("free data", tuple(sorted((overrides or {}).items())))
    return program.remember(label, lambda: _free_data(program, overrides))


def _free_data(program: Program, overrides: Mapping[str, str] | None) -> Program:
    wanted = [name for name in program.data if name not in program.by_value]
    aim = _features(plan_for(program, overrides, NOT_CUT))

    def attempt(names: list[str]) -> Program | None:
        hidden = replace(program, free=tuple(names))
        return hidden if _is_same(_features(plan_for(hidden, overrides, NOT_CUT)), aim) else None

    found = attempt(wanted)
    if found is not None:
        return found
    names: list[str] = []
    for name in wanted if 1 < len(wanted) <= MOST_TRIED else ():
        if attempt([*names, name]) is not None:
            names.append(name)
    return replace(program, free=tuple(names))


def hide(program: Program, names: tuple[str, ...], overrides: Mapping[str, str] | None, plan: Plan) -> Plan | None:
    """The plan without a look at some of the data, if nothing that it is compared by is lost; else None."""
    hidden = plan_for(replace(program, free=names), overrides)
    return hidden if is_same_plan(hidden, plan) else None


def is_same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans agree in all that readings are compared by."""
    return _is_same(_features(one), _features(other))


def _features(plan: Plan) -> tuple[Any, ...]:
    """What two readings are compared by: scopes of the factors, what counts of them, methods, work, patterns."""
    structure = plan.structure
    scopes = structure.scopes.sorted_indices()
    methods = {name: [(c.method, c.num_sites) for c in choices] for name, choices in plan.choices.items()}
    patterns = [type(move).__name__ for move in plan.moves], [move.pattern for move in plan.moves]
    tables = sum(isinstance(made, RunningTable) for made in structure.program.memory.values())
    arrays = scopes.indptr, scopes.indices, structure.is_live
    return structure.factor_shapes, methods, plan.summing, plan.drawing, patterns, tables, arrays


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[:-1] == other[:-1] and all(map(np.array_equal, one[-1], other[-1]))


def fill_in_data(program: Program, data: Mapping[str, Any] | None) -> Data:
    """The program's data with those given in their places, which must be free, and like them in shape.

    Args:
        program: with free data.
        data: arrays by their names in `program.data`, all or some; they may be traced.
    """
    if not data:
        return program.data
    if not isinstance(data, Mapping) or not isinstance(program.data, dict) or set(data) - set(program.data):
        names = ", ".join(program.data) if isinstance(program.data, dict) else "none"
        seen = ", ".join(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
        raise OptionError(f"data: expected arrays by name, as in program.data (there: {names}), got {seen}.")
    for name, value in data.items():
        _check(program, name, value)
    given = {name: as_jax(value).astype(jnp.result_type(program.data[name])) for name, value in data.items()}
    return {**program.data, **given}


def _check(program: Program, name: str, value: Any) -> None:
    old = program.data[name]
    if jnp.shape(value) != jnp.shape(old):
        raise OptionError(
            f"data: '{name}' has the shape {jnp.shape(value)}, in the program {jnp.shape(old)}. Compiled code is for "
            "one shape: make a new program."
        )
    if name in program.free or value is old:
        return
    is_traced = isinstance(value, Tracer)
    if is_traced or not np.array_equal(np.asarray(value), np.asarray(old), equal_nan=np.asarray(old).dtype.kind == "f"):
        raise OptionError(
            f"data: the structure of '{program.name}' follows from the values of '{name}', so they "
            f"{'cannot be unknown' if is_traced else 'cannot change'}: leave '{name}' out, or make a new program."
        )
