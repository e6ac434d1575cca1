"""Run a loop for all its steps at once, as far as nothing recurs.

A `lax.scan` hands its carry from step to step, but often all of the carry can be had beforehand: a hidden Markov model
carries the state of the step before, and the states are given. So the body is run equation by equation, each for all
steps (`vmap`), as soon as its operands are there. A carry is there

- from the start if it never changes, if it counts, or if it is only added to; then

      carry_t = carry_{t−1} + term_t        becomes        terms stacked, carry_T = carry_0 + Σ_t term_t,

  so that the terms of a log density accumulated in a loop can be seen one by one;
- as soon as what it is set to is there for all steps: the same, moved on by one step.

What is never there stays a loop: a true recurrence, and what cannot be run for all steps (`steps.py`). So does, but for
its sums, a loop too large to be laid out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, jaxprs_in_params
from jax.interpreters import partial_eval

from sumout.reading.equations import is_exact, is_known
from sumout.reading.steps import Env, Steps, is_there, numpy_for, pair, read, run_for_all

MOST_ELEMENTS = 2**22


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


def run_at_once(loop: Loop, operands: Sequence[Any]) -> list[Any] | None:
    """The results of a loop with no more of it left a loop than must be; None if that is all of it."""
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
    recurring = _run_body(loop, init, env)
    found = {i: read(env, v) for i, v in enumerate(jaxpr.outvars) if i not in recurring and is_there(env, v)}
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


def _run_body(loop: Loop, init: Sequence[Any], env: Env) -> list[int]:
    """Run all that can be run for all steps, into `env`, and say which carries recur."""
    waiting = [i for i in range(loop.num_carry) if loop.carry_in[i] not in env]
    equations, progress = list(loop.body.jaxpr.eqns), loop.is_small
    while progress:
        arrived = {i: steps for i in waiting if (steps := _carry(loop, i, init[i], env)) is not None}
        env.update({loop.carry_in[i]: steps for i, steps in arrived.items()})
        waiting = [i for i in waiting if i not in arrived]
        left = [eqn for eqn in equations if not run_for_all(eqn, env, loop.length)]
        progress = bool(arrived) or len(left) < len(equations)
        equations = left
    return waiting


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
    rows, first = read(env, after).rows(loop.length), init[None]
    moved_on = [rows[1:], first] if loop.reverse else [first, rows[:-1]]
    return Steps(numpy_for(*moved_on).concatenate(moved_on), True)


def _growth(body: Jaxpr, before: Any, after: Any) -> int | None:
    """By what a carried integer grows at every step, if by a fixed number."""
    (eqn,) = [eqn for eqn in body.eqns if after in eqn.outvars] or [None]
    if eqn is None or eqn.primitive.name not in ("add", "sub") or not jnp.issubdtype(after.aval.dtype, jnp.integer):
        return None
    a, b = eqn.invars
    if eqn.primitive.name == "add" and b is before:
        a, b = b, a
    if a is not before or not isinstance(b, Literal):
        return None
    return -int(b.val) if eqn.primitive.name == "sub" else int(b.val)


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
    sizes = [int(np.prod(v.aval.shape)) for eqn in jaxpr.eqns for v in eqn.outvars]
    return max([1, *sizes, *(_largest(inner) for eqn in jaxpr.eqns for inner in jaxprs_in_params(eqn.params))])


def _only_adds(body: Jaxpr, carry_in: Any, carry_out: Any) -> bool:
    """Whether `carry_out = carry_in + …`, with neither it nor any sum on the way used for anything else."""
    if not is_exact(carry_in.aval):
        return False
    users: dict[Any, list[Any]] = {}
    for eqn in body.eqns:
        for variable in eqn.invars:
            if not isinstance(variable, Literal):
                users.setdefault(variable, []).append(eqn)
    for variable in body.outvars:
        if not isinstance(variable, Literal):
            users.setdefault(variable, []).append(None)
    variable = carry_in
    while len(users.get(variable, ())) == 1:
        (eqn,) = users[variable]
        if eqn is None:
            return variable is carry_out and variable is not carry_in
        position = eqn.invars.index(variable)
        if eqn.primitive.name not in ("add", "add_any") and not (eqn.primitive.name == "sub" and position == 0):
            return False
        if eqn.outvars[0].aval.shape != carry_in.aval.shape:
            return False
        variable = eqn.outvars[0]
    return False
