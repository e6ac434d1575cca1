"""What a reading knows of an array: its shape, its scopes, and its values where x and z do not enter them.

Values are found only when a rule asks for them (an index, a mask, a loop counter): most of what is known, such as the
observations, never matters for the structure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sumout.reading.scopes import EMPTY, Ids


class Lazy:
    """A value computed at most once, when first asked for.

    Args:
        compute: does it.
        roughly: does it sooner, up to rounding.
    """

    def __init__(self, compute: Callable[[], Any], roughly: Callable[[], Any] | None = None):
        self._compute: Callable[[], Any] | None = compute
        self._rough = None if roughly is None else Lazy(roughly)
        self._value: Any = None

    @property
    def is_ready(self) -> bool:
        """Whether the value is there already."""
        return self._compute is None

    def get(self) -> Any:
        """The value."""
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value

    def rough(self) -> Any:
        """The value, up to rounding if that is sooner had."""
        return self.get() if self.is_ready or self._rough is None else self._rough.get()


@dataclass(frozen=True, eq=False)
class Abstract:
    """An array as the reading sees it: no `ids` if no element depends on z, no `known` if values are not known."""

    shape: tuple[int, ...]
    ids: Ids | None = None
    known: Lazy | None = None
    parts: tuple[Lazy | None, ...] | None = None  # where only some columns (along the last axis) are known

    @property
    def scopes(self) -> Ids:
        """The scopes of all elements, zeros where there is no dependence."""
        return np.zeros(self.shape, np.int64) if self.ids is None else self.ids

    @property
    def value(self) -> Any:
        """The known values: a NumPy array, or random keys."""
        assert self.known is not None
        return self.known.get()

    def holds(self, number: Any) -> bool:
        """Whether some of the known values are that number."""
        # What is rounded elsewhere may miss the number: then more depends on more, which is never wrong.
        return self.known is not None and bool(np.any(self.known.rough() == number) and np.any(self.value == number))

    @property
    def columns(self) -> tuple[Lazy | None, ...]:
        """The known values of each column along the last axis; None for an unknown one."""
        if self.parts is not None:
            return self.parts
        known = self.known
        if known is None:
            return (None,) * self.shape[-1]
        return tuple(Lazy(lambda i=i, known=known: known.get()[..., i]) for i in range(self.shape[-1]))


def constant(value: Any) -> Abstract:
    """An array all of whose values are known."""
    array = value if jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.extended) else np.asarray(value)
    known = Lazy(lambda: array)
    known.get()
    return Abstract(np.shape(array), known=known)


def dependent(shape: tuple[int, ...], ids: Ids | None) -> Abstract:
    """An array of unknown values; scopes that turn out empty everywhere are forgotten."""
    if ids is None or not np.any(ids != EMPTY):
        return Abstract(shape)
    return Abstract(shape, np.broadcast_to(ids, shape))
