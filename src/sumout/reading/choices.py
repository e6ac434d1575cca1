"""A function of a choice between a few numbers is computed for the numbers, not for every element chosen.

    log(where(t < change, early, late)) = where(t < change, log(early), log(late))

With a hundred values of `change` and a hundred t that is two logarithms instead of ten thousand. The choice must follow
from z and not from x: a choice that follows from x may be there to keep from the function what it cannot take. The
numbers must not depend on z, nor may what else the function takes: then all that is computed before the choice is
computed once, whatever values z takes.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sumout.reading.elementwise import is_elementwise, names_within
from sumout.reading.equations import bind

FUNCTIONS = frozenset(("exp", "expm1", "integer_pow", "lgamma", "log", "log1p", "logistic", "neg", "square", "tanh"))


class Choices:
    """Watches the equations of a program as they are run, and runs some of them on the numbers chosen from.

    Args:
        x: arguments of the program that are continuous.
        z: those that are discrete.
    """

    def __init__(self, x: Sequence[Any] = (), z: Sequence[Any] = ()):
        self._from_x, self._from_z = set(map(id, x)), set(map(id, z))
        self._numbers: dict[int, Any] = {}  # of arrays that repeat one number
        self._chosen: dict[int, tuple[Any, list[Any]]] = {}  # of arrays chosen from such: which, and the arrays
        self._seen: list[Any] = []  # kept, lest an id be used again

    def run(self, eqn: Any, operands: Sequence[Any]) -> list[Any] | None:
        """The result of an equation on a choice; None if it is no such equation."""
        places = [i for i, operand in enumerate(operands) if id(operand) in self._chosen]
        if len(places) != 1 or not _is_function(eqn):
            return None
        place = places[0]
        if any(id(other) in self._from_z for i, other in enumerate(operands) if i != place):
            return None
        which, cases = self._chosen[id(operands[place])]
        each = [bind(eqn, [*operands[:place], case, *operands[place + 1 :]])[0] for case in cases]
        return [jax.lax.select_n(which, *each)]

    def watch(self, eqn: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Take note of an equation that was run."""
        self._seen += [*operands, *results]
        for kind in (self._from_x, self._from_z):
            if any(id(operand) in kind for operand in operands):
                kind.update(map(id, results))
        name = eqn.primitive.name
        if name == "broadcast_in_dim" and jnp.size(operands[0]) == 1:
            self._numbers[id(results[0])] = operands[0]
        if name == "select_n" and jnp.ndim(operands[0]):
            which, *cases = operands
            follows_from_z = id(which) in self._from_z and id(which) not in self._from_x
            if follows_from_z and all(id(case) in self._numbers and id(case) not in self._from_z for case in cases):
                self._chosen[id(results[0])] = which, cases


def _is_function(eqn: Any) -> bool:
    """Whether it computes each element of its one result from those in the same place, and is worth the trouble."""
    shapes = {v.aval.shape for v in (*eqn.invars, *eqn.outvars)}
    return len(shapes) == 1 and is_elementwise(eqn) and bool(FUNCTIONS & names_within(eqn))
