"""Run a jaxpr on scopes instead of numbers: which sites does every element of every array depend on?

Data are known, x is not, z is what we follow. Loops are stepped through with their counters known, branches are taken
where their condition is known.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from sumout.errors import note_unforeseen
from sumout.jaxpr.equations import bind
from sumout.jaxpr.numpy_evaluation import compute, is_exact_by_numpy, is_known_to_numpy
from sumout.jaxpr.primitives import Kind, row_of
from sumout.jaxpr.walk import arguments, body, needed, opened, read, walk
from sumout.structure.known_values import Lazy
from sumout.structure.scope_rules import apply_rule, opaque
from sumout.structure.scopes import Abstract, Scopes, constant, dependent

Env = dict[Var, Abstract]

SMALL = 64  # elements that NumPy computes in less time than it takes to put off
LONGEST_LOOP = 1_000_000  # steps; a loop that has not ended by then is taken as one piece


class Reader:
    """Follows scopes through jaxprs and remembers which primitives it had no rule for, or none that worked."""

    def __init__(self, scopes: Scopes):
        self.scopes = scopes
        self.opaque: set[str] = set()
        self._live: dict[int, tuple[Jaxpr, list[Any]]] = {}

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Abstract]) -> Env:
        """All variables of the jaxpr, abstractly."""
        env = arguments(jaxpr, map(constant, consts), operands)
        return walk(self._live_equations(jaxpr), env, self._equation, _of_literal)

    def call(self, closed: ClosedJaxpr | Jaxpr, operands: Sequence[Abstract]) -> list[Abstract]:
        """The results of a jaxpr, abstractly."""
        jaxpr, consts = opened(closed)
        return read(self.run(jaxpr, consts, operands), jaxpr.outvars, _of_literal)

    def _live_equations(self, jaxpr: Jaxpr) -> list[Any]:
        if id(jaxpr) not in self._live:
            self._live[id(jaxpr)] = jaxpr, needed(jaxpr.eqns, jaxpr.outvars)
        return self._live[id(jaxpr)][1]

    def _equation(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        if all(operand.ids is None for operand in operands):
            if all(operand.known is not None for operand in operands):
                return known_results(eqn, operands)
            return [Abstract(out.aval.shape) for out in eqn.outvars]
        row = row_of(eqn)
        try:
            if row.is_control:
                return CONTROL[row.kind](self, eqn, operands)
            if row.has_scope_rule:
                return apply_rule(self.scopes, eqn, operands)
        except Exception as error:
            note_unforeseen(f"the rule for {row.name}", error)
        return self._opaque(eqn, operands)

    def _opaque(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        """Everything depends on everything, and the primitive is named."""
        self.opaque.add(eqn.primitive.name)
        found = opaque(self.scopes, eqn, operands)
        return [dependent(out.aval.shape, ids) for out, ids in zip(eqn.outvars, found, strict=True)]

    def _enter(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        jaxpr, consts = body(eqn)
        return read(self.run(jaxpr, consts, operands), jaxpr.outvars, _of_literal)

    def _solve(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        """A linear system: as it is solved."""
        lengths, first = eqn.params["const_lengths"], 0
        for name in ("matvec", "vecmat"):
            first += getattr(lengths, name)
        sides = operands[sum(lengths) :]
        return self.call(eqn.params["jaxprs"].solve, [*operands[first : first + lengths.solve], *sides])

    def _scan(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        params = eqn.params
        first_x = params["num_consts"] + params["num_carry"]
        consts, carry, xs = (
            operands[: params["num_consts"]],
            operands[params["num_consts"] : first_x],
            operands[first_x:],
        )
        order = range(params["length"])[:: -1 if params["reverse"] else 1]
        rows: dict[int, list[Abstract]] = {}
        for t in order:
            out = self.call(params["jaxpr"], [*consts, *carry, *(row_at(x, t) for x in xs)])
            carry, rows[t] = out[: params["num_carry"]], out[params["num_carry"] :]
            _settle(carry, t)
        ys = eqn.outvars[len(carry) :]
        return [*carry, *(_stack([rows[t][i] for t in range(len(rows))], y.aval.shape) for i, y in enumerate(ys))]

    def _while(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        split = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
        cond_consts, body_consts, carry = operands[: split[0]], operands[split[0] : split[1]], operands[split[1] :]
        for t in range(LONGEST_LOOP):
            (going_on,) = self.call(eqn.params["cond_jaxpr"], [*cond_consts, *carry])
            if going_on.known is None or going_on.shape:
                break
            if not going_on.value:
                return carry
            carry = self.call(eqn.params["body_jaxpr"], [*body_consts, *carry])
            _settle(carry, t)
        return self._opaque(eqn, operands)

    def _cond(self, eqn: Any, operands: list[Abstract]) -> list[Abstract]:
        which, *rest = operands
        branches = eqn.params["branches"]
        if which.known is not None:
            return self.call(branches[int(np.clip(which.value, 0, len(branches) - 1))], rest)
        each = [self.call(branch, rest) for branch in branches]
        results = []
        for out, cases in zip(eqn.outvars, zip(*each, strict=True), strict=True):
            ids = which.ids
            for case in cases:
                ids = self.scopes.union(ids, case.ids)
            results.append(dependent(out.aval.shape, ids))
        return results


CONTROL: dict[Kind, Callable[[Reader, Any, list[Abstract]], list[Abstract]]] = {
    Kind.CALL: Reader._enter,
    Kind.RULED_CALL: Reader._enter,
    Kind.LINEAR_SOLVE: Reader._solve,
    Kind.SCAN: Reader._scan,
    Kind.WHILE: Reader._while,
    Kind.BRANCH: Reader._cond,
}


def _of_literal(literal: Literal) -> Abstract:
    return constant(literal.val)


def row_at(stacked: Abstract, t: int) -> Abstract:
    """One row of an array."""
    if stacked.ids is not None:
        return dependent(stacked.shape[1:], np.asarray(stacked.ids[t]))
    known = stacked.known
    return Abstract(stacked.shape[1:], known=None if known is None else Lazy(lambda: known.get()[t]))


def _settle(carry: list[Abstract], t: int) -> None:
    """Now and then compute what a loop carries, lest it become a tower of promises too high to climb."""
    if t % 5 == 0:  # each step adds a few calls to the tower; Python's stack holds about a thousand
        for value in carry:
            if value.known is not None:
                value.known.settle()


def _stack(rows: list[Abstract], shape: tuple[int, ...]) -> Abstract:
    if all(row.ids is None for row in rows):
        if rows and all(row.known is not None for row in rows):
            return Abstract(shape, known=Lazy(lambda: np.stack([row.value for row in rows])))
        return Abstract(shape)
    return dependent(shape, np.stack([row.scopes for row in rows]))


def known_results(eqn: Any, operands: list[Abstract]) -> list[Abstract]:
    """Results of an equation whose operands are all known, to be computed when asked for."""
    shapes = [out.aval.shape for out in eqn.outvars]
    use_numpy = is_exact_by_numpy(eqn)

    def results() -> list[Any]:
        values = [operand.value for operand in operands]
        if use_numpy:
            try:
                return compute(eqn, values)
            except Exception as error:
                note_unforeseen(f"{eqn.primitive.name} by NumPy", error)
        with jax.ensure_compile_time_eval():
            return [_as_numpy(value) for value in bind(eqn, values)]

    at_hand = all(operand.known is not None and operand.known.is_at_hand for operand in operands)
    if use_numpy and at_hand and sum(np.prod(shape) for shape in shapes) <= SMALL:
        return [constant(value) for value in results()]

    def roughly() -> list[Any]:
        try:
            return compute(eqn, [operand.known.rough() for operand in operands if operand.known is not None])
        except Exception as error:
            note_unforeseen(f"{eqn.primitive.name} by NumPy", error)
            return all_of_them.get()

    all_of_them = Lazy(results, roughly if is_known_to_numpy(eqn) else None)
    each = [Lazy(lambda i=i: all_of_them.get()[i], lambda i=i: all_of_them.rough()[i]) for i in range(len(shapes))]
    return [Abstract(shape, known=known) for shape, known in zip(shapes, each, strict=True)]


def _as_numpy(value: Any) -> Any:
    return value if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended) else np.asarray(value)
