"""Trace a function to one flat jaxpr in which sums stand open.

Nested `jit` bodies are written out, an inner product becomes a sum of products, a function of a choice a choice between
few values of the function, and a loop is run for all its steps at once as far as nothing recurs in it (`scans.py`).
Functions with derivative rules of their own (`custom_jvp`, `custom_vjp`) stay whole: the factors must be differentiable
as the program was.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from sumout.errors import note_unforeseen
from sumout.jaxpr.equations import bind, trace
from sumout.jaxpr.primitives import Kind, is_elementwise, is_function, row_of
from sumout.jaxpr.scans import Loop, run_at_once
from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.singular_points import with_rules
from sumout.jaxpr.walk import body, run

# A function of a choice between a few numbers is computed for the numbers, not for every element chosen.
#
#     log(where(t < change, early, late)) = where(t < change, log(early), log(late))
#
# With a hundred values of `change` and a hundred t that is two logarithms instead of ten thousand. What is computed
# from such a function and data, or from several of them by one choice, is computed before the choice, too:
#
#     y log(rate) − rate        with a rate chosen as above, is one choice between two arrays
#
# The choice must follow from z and not from x: a choice that follows from x may be there to keep from the function
# what it cannot take. The numbers must not depend on z: then all that is computed before the choice is computed once,
# whatever values z takes. Nor may a number that is never chosen spoil a derivative, as 0 would in log(0 · x). So no
# case is made of x and of what is not x.


class _Choice(NamedTuple):
    """An array whose elements are chosen, which of the cases for each, and whether they are functions of numbers."""

    which: Any
    cases: Sequence[Any]
    is_function: bool


class Choices:
    """Watches the equations of a program as they are run, and runs some of them on the numbers chosen from.

    Args:
        x: arguments of the program that are continuous.
        z: those that are discrete.
    """

    def __init__(self, x: Sequence[Any] = (), z: Sequence[Any] = ()):
        self._from_x, self._from_z = set(map(id, x)), set(map(id, z))
        self._numbers: dict[int, Any] = {}  # of arrays that repeat one number
        self._chosen: dict[int, _Choice] = {}
        self._seen: list[Any] = []  # kept, lest an id be used again

    def run(self, eqn: Any, operands: Sequence[Any]) -> list[Any] | None:
        """The result of an equation on choices; None if it is no such equation."""
        chosen = [self._chosen.get(id(operand)) for operand in operands]
        choices = [choice for choice in chosen if choice]
        if not choices or not _is_in_place(eqn) or any(choice.which is not choices[0].which for choice in choices):
            return None
        if not (any(choice.is_function for choice in choices) or is_function(eqn)):
            return None
        others = {id(operand) for operand, choice in zip(operands, chosen, strict=True) if not choice}
        if others & (self._from_x | self._from_z):
            return None
        first, *rest = choices
        if any(self.are_from_x(choice.cases) != self.are_from_x(first.cases) for choice in rest):
            return None
        each = []
        for number in range(len(first.cases)):
            taken = [choice.cases[number] if choice else other for choice, other in zip(chosen, operands, strict=True)]
            results = bind(eqn, taken)
            self._follow(taken, results)
            each += results
        result = jax.lax.select_n(first.which, *each)
        self._chosen[id(result)] = _Choice(first.which, each, True)
        return [result]

    def watch(self, eqn: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Take note of an equation that was run."""
        self._follow(operands, results)
        if eqn.primitive.name == "broadcast_in_dim" and jnp.size(operands[0]) == 1:
            self._numbers[id(results[0])] = operands[0]
        if row_of(eqn).kind is Kind.SELECT and jnp.ndim(operands[0]):
            which, *cases = operands
            follows_from_z = id(which) in self._from_z and id(which) not in self._from_x
            if follows_from_z and all(id(case) in self._numbers and id(case) not in self._from_z for case in cases):
                self._chosen[id(results[0])] = _Choice(which, cases, False)

    def _follow(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """What comes from x or z, comes from x or z."""
        self._seen += [*operands, *results]
        for kind in (self._from_x, self._from_z):
            if any(id(operand) in kind for operand in operands):
                kind.update(map(id, results))

    def are_from_x(self, values: Sequence[Any]) -> list[bool]:
        """Which of some values are computed from x."""
        return [id(value) in self._from_x for value in values]


def _is_in_place(eqn: Any) -> bool:
    """Whether it computes each element of its one result from those in the same place."""
    shapes = {v.aval.shape for v in (*eqn.invars, *eqn.outvars)}
    return len(shapes - {()}) == 1 and is_elementwise(eqn)


MOST_TIMES = 8  # loops within loops are opened so deep


def flatten(fn: Callable[..., Any], x: Any, z: Any, data: Any) -> ClosedJaxpr:
    """The jaxpr of `fn` at arguments of these shapes, written out and without dead equations."""
    num_x, num_z = len(jax.tree.leaves(x)), len(jax.tree.leaves(z))
    closed = jax.make_jaxpr(fn)(x, z, data)
    for what, step in (("writing the program out", write_out), ("rules at singular points", with_rules)):
        try:
            closed = step(closed, num_x, num_z)
        except Exception as error:
            note_unforeseen(what, error)
    return closed


def write_out(
    closed: ClosedJaxpr, num_x: int = 0, num_z: int = 0, times: int = 1, is_body: bool = False
) -> ClosedJaxpr:
    """The program with its calls and sums written out; of its arguments so many are x, and so many after them z."""

    def run_all(*args: Any) -> list[Any]:
        if is_body:  # of a loop: what may be x, and nothing that is certain to be z
            choices = Choices([arg for arg in args if jnp.issubdtype(arg.dtype, jnp.inexact)])
        else:
            choices = Choices(args[:num_x], args[num_x : num_x + num_z])
        return _run(alive.jaxpr, alive.consts, args, choices)

    args = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]
    alive = simplify(closed)
    flat = simplify(jax.make_jaxpr(run_all)(*args))
    # Running a loop at once may bring calls to light that were hidden in it.
    has_calls = any(row_of(eqn).kind is Kind.CALL for eqn in flat.jaxpr.eqns)
    return write_out(flat, num_x, num_z, times + 1, is_body) if has_calls and times < MOST_TIMES else flat


def _run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], choices: Choices) -> list[Any]:
    """Run a jaxpr with its calls written out and its loops opened."""

    def step(eqn: Any, operands: list[Any]) -> list[Any]:
        kind = row_of(eqn).kind
        if kind is Kind.CALL:
            results = _run(*body(eqn), operands, choices)
        elif kind is Kind.SCAN:
            results = _run_scan(eqn, operands, choices.are_from_x(operands))
        elif kind is Kind.CONTRACTION and _is_scalar(eqn.outvars[0]):
            results = [_inner_product(eqn, operands)]
        else:
            results = _run_choice(eqn, operands, choices) or trace(eqn, operands)
        choices.watch(eqn, operands, results)
        return results

    return run(jaxpr, consts, args, step)


def _run_choice(eqn: Any, operands: list[Any], choices: Choices) -> list[Any] | None:
    try:
        return choices.run(eqn, operands)
    except Exception as error:
        note_unforeseen(f"{eqn.primitive.name} before a choice", error)
        return None


def _is_scalar(variable: Any) -> bool:
    return variable.aval.shape == ()


def _inner_product(eqn: Any, operands: list[Any]) -> Any:
    """A contraction to a scalar as a sum of products, so that its terms can be told apart."""
    (left, right), _ = eqn.params["dimension_numbers"]
    a, b = operands[0].transpose(left), operands[1].transpose(right)
    return jnp.sum(a * b).astype(eqn.outvars[0].aval.dtype)


def _run_scan(eqn: Any, operands: list[Any], is_from_x: list[bool]) -> list[Any]:
    names = ("num_consts", "num_carry", "length", "reverse")
    try:
        loop = Loop(write_out(eqn.params["jaxpr"], is_body=True), *(eqn.params[name] for name in names))
        results = run_at_once(loop, operands, is_from_x)
    except Exception as error:
        note_unforeseen("a loop for all steps at once", error)
        results = None
    return bind(eqn, operands) if results is None else results
