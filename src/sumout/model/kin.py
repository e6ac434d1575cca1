"""Programs of one model, which differ in their data: what was compiled for one can serve another.

They are held by the model itself, as an attribute of the function, and go with it: nothing is kept anywhere else. A
dictionary with weak keys would not do, as a program refers to its model. Only the last few are held.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumout.model.program import Program

MOST_KIN = 4  # programs of a model that are held, the latest first
NAME = "__sumout_programs__"


class Kin:
    """The latest programs of a model that have been sampled, the last one first.

    Attributes:
        model: the model; not of a copy, which holds nothing: what is compiled can be neither copied nor pickled.
    """

    def __init__(self, model: Any = None):
        self.model = model
        self._programs: tuple[Program, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kin, ()

    @property
    def programs(self) -> "tuple[Program, ...]":
        """The programs."""
        return self._programs

    def add(self, program: "Program") -> None:
        """Hold a program, as the latest."""
        others = tuple(other for other in self._programs if other is not program)
        self._programs = (program, *others)[:MOST_KIN]


def kin_of(model: Any) -> Kin:
    """What holds the programs of a model; a new one where it cannot have attributes, as a method cannot."""
    found = getattr(model, "__dict__", {}).get(NAME)
    if isinstance(found, Kin) and found.model is model:  # `functools.wraps` copies attributes to another function
        return found
    made = Kin(model)
    with suppress(AttributeError):
        setattr(model, NAME, made)
    return made
