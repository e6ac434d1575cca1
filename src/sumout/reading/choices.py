"""A function of a choice between a few numbers is computed for the numbers, not for every element chosen.

    log(where(t < change, early, late)) = where(t < change, log(early), log(late))

With a hundred values of `change` and a hundred t that is two logarithms instead of ten thousand. What is computed from
such a function and data, or from several of them by one choice, is computed before the choice, too:

    y log(rate) − rate        with a rate chosen as above, is one choice between two arrays

The choice must follow from z and not from x: a choice that follows from x may be there to keep from the function what
it cannot take. The numbers must not depend on z: then all that is computed before the choice is computed once, whatever
values z takes. Nor may a number that is never chosen spoil a derivative, as 0 would in log(0 · x). So no case is made
of x and of what is not x.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sumout.reading.elementwise import is_elementwise, names_within
from sumout.reading.equations import bind

FUNCTIONS = frozenset(("exp", "expm1", "integer_pow", "lgamma", "log", "log1p", "logistic", "neg", "square", "tanh"))


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
        if not (any(choice.is_function for choice in choices) or FUNCTIONS & names_within(eqn)):
            return None
        others = {id(operand) for operand, choice in zip(operands, chosen, strict=True) if not choice}
        if others & (self._from_x | self._from_z):
            return None
        first, *rest = choices
        if any(self._are_from_x(choice.cases) != self._are_from_x(first.cases) for choice in rest):
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
        name = eqn.primitive.name
        if name == "broadcast_in_dim" and jnp.size(operands[0]) == 1:
            self._numbers[id(results[0])] = operands[0]
        if name == "select_n" and jnp.ndim(operands[0]):
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

    def _are_from_x(self, cases: Sequence[Any]) -> list[bool]:
        return [id(case) in self._from_x for case in cases]


def _is_in_place(eqn: Any) -> bool:
    """Whether it computes each element of its one result from those in the same place."""
    shapes = {v.aval.shape for v in (*eqn.invars, *eqn.outvars)}
    return len(shapes - {()}) == 1 and is_elementwise(eqn)
