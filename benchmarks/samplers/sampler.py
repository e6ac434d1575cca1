"""What an adapter takes and gives.

An adapter is a module that imports its library at once, with `load(model)`, which makes the form of the model that the
sampler takes, and `run(model, form, data, settings, variant)`, which returns a `Run`. The clock for a cold start runs
from the start of the process until `run` returns, less the seconds of `load`: it reads files of this benchmark.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.model import Draws


class CannotTakeError(Exception):
    """The sampler has no form of the model: nothing to run."""


@dataclass(frozen=True)
class Settings:
    """How much to draw."""

    chains: int = 4
    draws: int = 1_000
    tune: int = 1_000
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """A result in memory.

    Attributes:
        draws: of the continuous parameters.
        warm: gives the seconds that the draws after the warm-up take with compiled code at hand; may run them again.
        beforehand: seconds that belong to a cold start but were spent before it.
    """

    draws: Draws
    warm: Callable[[], float]
    beforehand: float = 0.0
