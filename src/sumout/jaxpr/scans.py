"""Run a loop for all its steps at once, as far as nothing recurs.

A `lax.scan` hands its carry from step to step, but often all of the carry can be had beforehand: a hidden Markov model
carries the state of the step before, and the states are given. So the body is run equation by equation, each for all
steps (`vmap`), as soon as its operands are there. A carry is there

- from the start if it never changes, if it counts, or if it is only added to; then

      carry_t = carry_{t−1} + term_t        becomes        terms stacked, carry_T = carry_0 + Σ_t term_t,

  so that the terms of a log density accumulated in a loop can be seen one by one;
- as soon as what it is set to is there for all steps: the same, moved on by one step.

What is never there stays a loop: a true recurrence, and what cannot be run for all steps. So does, but for its sums, a
loop too large to be laid out. A recurrence that continuous variables do not enter, such as q = q (1 − z), "nothing has
happened yet", is a loop of its own, and all that it is used for is run for all steps: there each step stands by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxpr_as_fun
from jax.interpreters import partial_eval

from sumout.errors import note_unforeseen
from sumout.jaxpr.equations import bind, is_exact, is_known, trace
from sumout.jaxpr.numpy_evaluation import compute
from sumout.jaxpr.primitives import Kind, row_of
from sumout.jaxpr.walk import all_equations, equations_within, following, read, variables

# Run one equation in the body of a loop for all steps at once.
#
# As a rule that is `vmap`, except where it would change what the equation means or how well it can be read. A branch
# is run for those steps that are known to take it: `vmap` would run, and differentiate, both branches for every step.
# Other branches, loops without a fixed end and primitives without a rule are not run for all steps.

FEW_STEPS = 4096  # that NumPy runs one by one; more are left to XLA, whose compilation then costs less


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


def of_literal(literal: Literal) -> Steps:
    """A literal is the same at every step."""
    aval: Any = literal.aval
    return Steps(np.asarray(literal.val, aval.dtype), False)


def run_for_all(eqn: Any, env: Env, length: int) -> bool:
    """Run an equation for all steps, into `env`, if its operands are there and it can be done."""
    if eqn.effects or not all(is_there(env, v) for v in eqn.invars):
        return False
    operands = read(env, eqn.invars, of_literal)
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
    kind = row_of(eqn).kind
    is_plain = all(map(_is_plain, equations_within(eqn)))
    if kind is Kind.BRANCH and operands[0].varies:
        return _map_branches(eqn, operands) if is_known(operands[0].value) and is_plain else None
    if kind is Kind.SLICE and (rows := _slice_rows(eqn, operands)) is not None:
        return [rows]
    if not is_plain or not (kind is Kind.BRANCH or _is_plain(eqn)):
        return None
    axes = tuple(0 if operand.varies else None for operand in operands)
    run = jax.vmap(lambda *values: bind(eqn, values), axes, axis_size=length)

    def one_by_one(eqn: Any, values: Sequence[Any]) -> list[Any]:
        rows = [[v[t] if axis == 0 else v for v, axis in zip(values, axes, strict=True)] for t in range(length)]
        return [np.stack(results) for results in zip(*(compute(eqn, row) for row in rows), strict=True)]

    values = [operand.value for operand in operands]
    return trace(eqn, values, lambda _, values: run(*values), one_by_one if length <= FEW_STEPS else None)


def _is_plain(eqn: Any) -> bool:
    """Whether there is a rule for an equation, or it can be seen into and neither branches nor loops without end."""
    row = row_of(eqn)
    return row.has_scope_rule or row.is_call or row.kind is Kind.SCAN or not eqn.invars


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


MOST_ELEMENTS = 2**22  # of one value laid out for all steps: 32 MB in double precision


@dataclass(frozen=True, eq=False)
class Loop:
    """A `lax.scan` with a flat body."""

    body: ClosedJaxpr
    num_consts: int
    num_carry: int
    length: int
    reverse: bool

    @property
    def carry_in(self) -> list[Any]:
        """The variables in which a step finds the carry."""
        return self.body.jaxpr.invars[self.num_consts : self.num_consts + self.num_carry]

    @property
    def carry_out(self) -> list[Any]:
        """The variables that a step hands on."""
        return self.body.jaxpr.outvars[: self.num_carry]

    @property
    def is_small(self) -> bool:
        """Whether every value in the body may be laid out for all steps."""
        return _largest(self.body.jaxpr) * self.length <= MOST_ELEMENTS


def run_at_once(loop: Loop, operands: Sequence[Any], is_from_x: Sequence[bool]) -> list[Any] | None:
    """The results of a loop with no more of it left a loop than must be; None if that is all of it.

    Args:
        loop: the loop.
        operands: for it.
        is_from_x: which of them follow from continuous variables, or may.
    """
    jaxpr, first_x = loop.body.jaxpr, loop.num_consts + loop.num_carry
    if loop.length == 0:
        return None
    operands = [np.asarray(value) if is_known(value) else jnp.asarray(value) for value in operands]
    init = operands[loop.num_consts : first_x]
    sums = [i for i in range(loop.num_carry) if _only_adds(jaxpr, loop.carry_in[i], loop.carry_out[i])]
    env = {
        **pair(jaxpr.constvars, loop.body.consts, varies=False),
        **pair(jaxpr.invars[: loop.num_consts], operands[: loop.num_consts], varies=False),
        **pair(jaxpr.invars[first_x:], operands[first_x:], varies=True),
        **pair([loop.carry_in[i] for i in sums], [jnp.zeros_like(init[i]) for i in sums], varies=False),
    }
    recurring = _run_body(loop, init, env, is_from_x)
    there = [i for i, v in enumerate(jaxpr.outvars) if i not in recurring and is_there(env, v)]
    found = dict(zip(there, read(env, [jaxpr.outvars[i] for i in there], of_literal), strict=True))
    if not found and len(recurring) == loop.num_carry:
        return None
    if len(found) < len(jaxpr.outvars) or jaxpr.effects:
        found |= _run_rest(loop, init, env, recurring, list(found))

    def result(i: int) -> Any:
        if i in sums:
            return init[i] + jnp.sum(found[i].rows(loop.length), axis=0, dtype=jaxpr.outvars[i].aval.dtype)
        if i < loop.num_carry and found[i].varies:
            return found[i].value[0 if loop.reverse else -1]
        return found[i].value if i < loop.num_carry else found[i].rows(loop.length)

    return [result(i) for i in range(len(jaxpr.outvars))]


def _run_body(loop: Loop, init: Sequence[Any], env: Env, is_from_x: Sequence[bool]) -> list[int]:
    """Run all that can be run for all steps, into `env`, and say which carries recur."""
    waiting = [i for i in range(loop.num_carry) if loop.carry_in[i] not in env]
    is_split = False
    equations, progress = list(loop.body.jaxpr.eqns), loop.is_small
    while progress:
        arrived = {i: steps for i in waiting if (steps := _carry(loop, i, init[i], env)) is not None}
        env.update({loop.carry_in[i]: steps for i, steps in arrived.items()})
        waiting = [i for i in waiting if i not in arrived]
        left = [eqn for eqn in equations if not run_for_all(eqn, env, loop.length)]
        progress = bool(arrived) or len(left) < len(equations)
        equations = left
        if not progress and not is_split:
            is_split = True
            apart = _free_of_x(loop, waiting, is_from_x)
            env.update(zip([loop.carry_in[i] for i in apart], _recur(loop, init, env, apart), strict=True))
            waiting = [i for i in waiting if i not in apart]
            progress = bool(apart)
    return waiting


def _free_of_x(loop: Loop, waiting: list[int], is_from_x: Sequence[bool]) -> list[int]:
    """Those of some carries that recur among themselves, without continuous variables entering."""
    jaxpr, apart = loop.body.jaxpr, list(waiting)
    while apart:
        others = [v for i, v in enumerate(loop.carry_in) if i in waiting and i not in apart]
        tainted = {v for v, is_one in zip(jaxpr.invars, is_from_x, strict=True) if is_one} | set(others)
        tainted = following(loop.body, tainted)
        kept = [i for i in apart if loop.carry_in[i] not in tainted and loop.carry_out[i] not in tainted]
        if len(kept) == len(apart):
            break
        apart = kept
    return apart


def _recur(loop: Loop, init: Sequence[Any], env: Env, apart: list[int]) -> list[Steps]:
    """Some carries as each step finds them, by a loop over nothing else."""
    if not apart:
        return []
    jaxpr = loop.body.jaxpr
    rest, _ = partial_eval.dce_jaxpr(jaxpr, [i in apart for i in range(len(jaxpr.outvars))], instantiate=True)
    run = jaxpr_as_fun(ClosedJaxpr(rest, loop.body.consts))
    used = set(variables([v for eqn in rest.eqns for v in eqn.invars]) + variables(rest.outvars))
    carried = [loop.carry_in[i] for i in apart]
    varying = [v for v in jaxpr.invars if v in env and env[v].varies and v in used]

    def step(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        local = dict(zip([*varying, *carried], [*rows, *carry], strict=True))
        operands = [local[v] if v in local else _any_step(env, v) for v in jaxpr.invars]
        return run(*operands), carry

    rows = [env[v].value for v in varying]
    _, found = lax.scan(step, [jnp.asarray(init[i]) for i in apart], rows, loop.length, reverse=loop.reverse)
    return [Steps(one, True) for one in found]


def _any_step(env: Env, variable: Any) -> Any:
    """A value that is the same at every step; zeros for one that is not looked at."""
    if variable in env and not env[variable].varies:
        return env[variable].value
    return jnp.zeros(variable.aval.shape, variable.aval.dtype)


def _carry(loop: Loop, i: int, init: Any, env: Env) -> Steps | None:
    """The i-th carry as each step finds it, if it can be told."""
    before, after = loop.carry_in[i], loop.carry_out[i]
    if after is before:
        return Steps(init, False)
    growth = _growth(loop.body.jaxpr, before, after)
    if growth is not None:
        step = np.arange(loop.length)[:: -1 if loop.reverse else 1].reshape(-1, *[1] * len(before.aval.shape))
        return Steps(init + (step * growth).astype(before.aval.dtype), True)
    if not is_there(env, after):
        return None
    (steps,) = read(env, [after], of_literal)
    rows, first = steps.rows(loop.length), init[None]
    moved_on = [rows[1:], first] if loop.reverse else [first, rows[:-1]]
    return Steps(numpy_for(*moved_on).concatenate(moved_on), True)


def _growth(body: Jaxpr, before: Any, after: Any) -> int | None:
    """By what a carried integer grows at every step, if by a fixed number."""
    (eqn,) = [eqn for eqn in body.eqns if after in eqn.outvars] or [None]
    signs = row_of(eqn).signs if eqn is not None else ()
    if eqn is None or len(signs) != 2 or not jnp.issubdtype(after.aval.dtype, jnp.integer):
        return None
    for i, other in ((0, eqn.invars[1]), (1, eqn.invars[0])):
        if eqn.invars[i] is before and signs[i] == 1 and isinstance(other, Literal):
            return signs[1 - i] * int(other.val)
    return None


def _run_rest(loop: Loop, init: Sequence[Any], env: Env, recurring: list[int], found: list[int]) -> dict[int, Steps]:
    """The results still to be found, by a loop over what they depend on."""
    jaxpr = loop.body.jaxpr
    wanted = [i for i in range(len(jaxpr.outvars)) if i not in found]
    rest, _ = partial_eval.dce_jaxpr(jaxpr, [i in wanted for i in range(len(jaxpr.outvars))], instantiate=True)
    run = jaxpr_as_fun(ClosedJaxpr(rest, loop.body.consts))
    given = {v: env[v] for v in jaxpr.invars if v in env}
    varying = [v for v in given if given[v].varies]

    def step(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        local = {v: steps.value for v, steps in given.items()}
        local.update(zip([*varying, *(loop.carry_in[i] for i in recurring)], [*rows, *carry], strict=True))
        out = dict(zip(wanted, run(*(local[v] for v in jaxpr.invars)), strict=True))
        return [out.pop(i) for i in recurring], list(out.values())

    last, rows = lax.scan(
        step, [init[i] for i in recurring], [given[v].value for v in varying], loop.length, reverse=loop.reverse
    )
    others = [i for i in wanted if i not in recurring]
    return pair(recurring, last, varies=False) | pair(others, rows, varies=True)


def _largest(jaxpr: Any) -> int:
    """The number of elements of the largest value computed in a jaxpr."""
    return max((v.aval.size for eqn in all_equations(jaxpr) for v in eqn.outvars), default=1)


def _only_adds(body: Jaxpr, carry_in: Any, carry_out: Any) -> bool:
    """Whether `carry_out = carry_in + …`, with neither it nor any sum on the way used for anything else."""
    if not is_exact(carry_in.aval):
        return False
    users: dict[Any, list[Any]] = {}
    for eqn in body.eqns:
        for variable in variables(eqn.invars):
            users.setdefault(variable, []).append(eqn)
    for variable in variables(body.outvars):
        users.setdefault(variable, []).append(None)
    variable = carry_in
    while len(users.get(variable, ())) == 1:
        (eqn,) = users[variable]
        if eqn is None:
            return variable is carry_out and variable is not carry_in
        signs, (out, *_) = row_of(eqn).signs, eqn.outvars
        if not signs or signs[eqn.invars.index(variable)] != 1 or out.aval.shape != carry_in.aval.shape:
            return False
        if out.aval.dtype != carry_in.aval.dtype:
            return False
        variable = out
    return False
