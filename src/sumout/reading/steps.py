"""Run one equation in the body of a loop for all steps at once.

As a rule that is `vmap`, except where it would change what the equation means or how well it can be read. A branch is
run for those steps that are known to take it: `vmap` would run, and differentiate, both branches for every step. Other
branches, loops without a fixed end and primitives without a rule are not run for all steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Var, jaxpr_as_fun, jaxprs_in_params

from sumout.arithmetic.primitives import compute
from sumout.errors import note_unforeseen
from sumout.reading.equations import bind, is_known, trace
from sumout.reading.rules import RULES

FEW_STEPS = 4096  # that NumPy runs one by one
# Primitives with a body that can be seen into.
NESTED = frozenset("jit pjit closed_call core_call custom_jvp_call custom_vjp_call checkpoint remat2 scan".split())


@dataclass(frozen=True, eq=False)
class Steps:
    """A value at every step of a loop: stacked along the first axis if it varies, else one for all."""

    value: Any
    varies: bool

    def rows(self, length: int) -> Any:
        """Stacked in any case."""
        shape = (length, *jnp.shape(self.value))
        return self.value if self.varies else numpy_for(self.value).broadcast_to(self.value, shape)


Env = dict[Var, Steps]


def numpy_for(*values: Any) -> Any:
    """Where to find array functions that leave known values known."""
    return np if all(map(is_known, values)) else jnp


def pair(variables: Sequence[Any], values: Sequence[Any], varies: bool) -> dict[Any, Steps]:
    """Each variable with its value."""
    return {variable: Steps(value, varies) for variable, value in zip(variables, values, strict=True)}


def is_there(env: Env, variable: Var | Literal) -> bool:
    """Whether a value has been found."""
    return isinstance(variable, Literal) or variable in env


def read(env: Env, variable: Any) -> Steps:
    """The value of a variable or literal."""
    if isinstance(variable, Literal):
        aval: Any = variable.aval
        return Steps(np.asarray(variable.val, aval.dtype), False)
    return env[variable]


def run_for_all(eqn: Any, env: Env, length: int) -> bool:
    """Run an equation for all steps, into `env`, if its operands are there and it can be done."""
    if eqn.effects or not all(is_there(env, v) for v in eqn.invars):
        return False
    operands = [read(env, v) for v in eqn.invars]
    varies = any(operand.varies for operand in operands)
    try:
        results = _map(eqn, operands, length) if varies else trace(eqn, [o.value for o in operands])
    except Exception as error:
        note_unforeseen(f"{eqn.primitive.name} for all steps", error)
        return False
    if results is None:
        return False
    env.update(pair(eqn.outvars, results, varies))
    return True


def _map(eqn: Any, operands: list[Steps], length: int) -> list[Any] | None:
    """The stacked results of an equation, or None if all steps at once is not the same as step by step."""
    if eqn.primitive.name == "cond" and operands[0].varies:
        return _map_branches(eqn, operands) if is_known(operands[0].value) and _is_plain_within(eqn) else None
    if eqn.primitive.name == "dynamic_slice" and (rows := _slice_rows(eqn, operands)) is not None:
        return [rows]
    if not _is_plain(eqn) and not (eqn.primitive.name == "cond" and _is_plain_within(eqn)):
        return None
    axes = tuple(0 if operand.varies else None for operand in operands)
    run = jax.vmap(lambda *values: bind(eqn, values), axes, axis_size=length)

    def one_by_one(eqn: Any, values: Sequence[Any]) -> list[Any]:
        rows = [[v[t] if axis == 0 else v for v, axis in zip(values, axes, strict=True)] for t in range(length)]
        return [np.stack(results) for results in zip(*(compute(eqn, row) for row in rows), strict=True)]

    values = [operand.value for operand in operands]
    return trace(eqn, values, lambda _, values: run(*values), one_by_one if length <= FEW_STEPS else None)


def _is_plain(eqn: Any) -> bool:
    """Whether the reading has rules for an equation and for all within it, and nothing within it branches."""
    if eqn.primitive.name in RULES or not eqn.invars:
        return True
    return eqn.primitive.name in NESTED and _is_plain_within(eqn)


def _is_plain_within(eqn: Any) -> bool:
    return all(_is_plain(inner) for body in jaxprs_in_params(eqn.params) for inner in body.eqns)


def _map_branches(eqn: Any, operands: list[Steps]) -> list[Any]:
    """Each branch for the steps that are known to take it, put back in their order."""
    which, *rest = operands
    branches = eqn.params["branches"]
    taken = np.clip(which.value, 0, len(branches) - 1)
    steps = {i: np.flatnonzero(taken == i) for i in dict.fromkeys(taken.tolist())}
    axes = tuple(0 if operand.varies else None for operand in rest)

    def run(i: int) -> list[Any]:
        values = [_take(operand.value, steps[i]) if operand.varies else operand.value for operand in rest]
        return jax.vmap(jaxpr_as_fun(branches[i]), axes, axis_size=len(steps[i]))(*values)

    place = np.argsort(np.concatenate(list(steps.values())))
    return [_take(jnp.concatenate(pieces), place) for pieces in zip(*map(run, steps), strict=True)]


def _slice_rows(eqn: Any, operands: list[Steps]) -> Any | None:
    """`array[t]` for known t that count up: the rows lie side by side and need not be looked up."""
    array, *starts = operands
    moving = [axis for axis, start in enumerate(starts) if start.varies]
    shape = jnp.shape(array.value)
    one_row = tuple(1 if axis in moving else size for axis, size in enumerate(shape))
    if array.varies or len(moving) != 1 or eqn.params["slice_sizes"] != one_row:
        return None
    (axis,) = moving
    if not is_known(starts[axis].value):
        return None
    index = np.clip(starts[axis].value, 0, shape[axis] - 1)
    if not _is_run(index):
        return None
    return jnp.expand_dims(_take(jnp.moveaxis(array.value, axis, 0), index), axis + 1)


def _take(rows: Any, index: np.ndarray) -> Any:
    """Some of the rows, sliced out if they lie side by side."""
    return rows[index[0] : index[-1] + 1] if _is_run(index) else rows[index]


def _is_run(index: np.ndarray) -> bool:
    return bool((np.diff(index) == 1).all())
