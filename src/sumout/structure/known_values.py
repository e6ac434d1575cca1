"""What a reading knows of values, and what it has asked about those of data.

Values are found only when a rule asks for them (an index, a mask, a loop counter): most of what is known, such as the
observations, never matters for the structure. A reading is a function of the answers that it got. So each question
that leads back to data is kept, with its answer (`Facts`): for other data that give the same answers the same reading
would result, and all that was built and compiled on it is right for them.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

Question = Callable[[Any], Any]


@dataclass(frozen=True)
class Holds:
    """Is some value this number?"""

    number: Any

    def __call__(self, value: Any) -> bool:
        """The answer."""
        return bool(np.any(value == self.number))


@dataclass(frozen=True)
class Differs:
    """Which values are not this number?"""

    number: Any

    def __call__(self, value: Any) -> Any:
        """The answer."""
        return np.asarray(value != self.number)


def everything(value: Any) -> Any:
    """What are the values?"""
    return value


class _Now(threading.local):
    """What a thread is computing.

    Attributes:
        asking: the values that are being computed, each for the one before it.
        other: other data, and what follows from them, by the identity of the value; None for the program's own.
    """

    def __init__(self):
        self.asking: list[Lazy] = []
        self.other: dict[int, Any] | None = None


_NOW = _Now()


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
        self._is_ready = False
        self._facts: Facts | None = None  # of the data from which it follows

    @staticmethod
    def of(value: Any, facts: "Facts | None" = None) -> "Lazy":
        """A value that is there; with facts, an array of the data."""
        made = Lazy(lambda: value)
        made._value, made._is_ready, made._facts = value, True, facts
        return made

    @property
    def is_at_hand(self) -> bool:
        """Whether the value is there already, whatever the data."""
        return self._is_ready and self._facts is None

    def get(self) -> Any:
        """The value."""
        return self.ask(everything)

    def rough(self) -> Any:
        """The value, up to rounding if that is sooner had."""
        return self.ask(everything, roughly=True)

    def ask(self, question: Question, roughly: bool = False) -> Any:
        """The answer to a question about the value, which is kept where it follows from data.

        Args:
            question: a function of the value; the same object, or an equal one, whenever it is the same question.
            roughly: whether the value may be rounded otherwise than in the program.
        """
        if roughly and self._rough is not None and not self._is_ready:
            return self._rough.ask(question)
        answer = question(self._found())
        if self._facts is not None and _NOW.other is None:
            if _NOW.asking:
                _NOW.asking[-1]._facts = self._facts
            else:
                self._facts.keep(self, question, answer)
        return answer

    def settle(self) -> None:
        """Compute the value, without asking for it."""
        self._found()
        if self._facts is not None:
            self._facts.settled.append(self)

    def _found(self) -> Any:
        other = _NOW.other
        if other is not None and not self.is_at_hand:
            if id(self) not in other:
                assert self._compute is not None
                other[id(self)] = self._compute()
            return other[id(self)]
        if not self._is_ready:
            assert self._compute is not None
            _NOW.asking.append(self)
            try:
                self._value = self._compute()
            finally:
                _NOW.asking.pop()
            self._is_ready = True
            if self._facts is None:
                self._compute = None
            elif _NOW.asking:
                _NOW.asking[-1]._facts = self._facts
        return self._value


class Facts:
    """What has been asked about data, and what was answered.

    Attributes:
        leaves: the arrays of the data, in order.
        settled: values on the way, to be computed first: they keep others from being nested too deeply.
    """

    def __init__(self, leaves: Sequence[Any]):
        self.leaves = [Lazy.of(leaf, self) for leaf in leaves]
        self.settled: list[Lazy] = []
        self._kept: dict[tuple[int, Question], tuple[Lazy, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, value: Lazy, question: Question, answer: Any) -> None:
        """Remember an answer."""
        self._kept.setdefault((id(value), question), (value, _digest(answer)))

    def are_true_of(self, leaves: Sequence[Any]) -> bool:
        """Whether all questions would have been answered alike for other data of the same shapes and types."""
        before, _NOW.other = _NOW.other, {id(mine): leaf for mine, leaf in zip(self.leaves, leaves, strict=True)}
        try:
            for value in list(self.settled):
                value.settle()
            return all(
                _digest(value.ask(question)) == answer for (_, question), (value, answer) in list(self._kept.items())
            )
        except Exception:  # what cannot be computed for them was not asked about them
            return False
        finally:
            _NOW.other = before


def _digest(answer: Any) -> bytes:
    if jax.dtypes.issubdtype(getattr(answer, "dtype", None), jax.dtypes.extended):
        answer = jax.random.key_data(answer)
    array = np.ascontiguousarray(answer)
    return hashlib.blake2b(f"{array.dtype} {array.shape} ".encode() + array.tobytes(), digest_size=16).digest()
