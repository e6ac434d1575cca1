"""What a run hands on while it goes: draws, where it stands, how far it is; and its chains in groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Record:
    """What is kept of a draw; with axes (chain, draw) once collected.

    Attributes:
        x: unconstrained.
        z: all of it.
        gradient: of the target's log density at x, with a z that suits x.
        info: what the kernel said of the steps.
        number: of the draw, warm-up included.
    """

    x: Any
    z: Any
    gradient: Any
    info: Any
    number: Any


@dataclass
class Place:
    """Where a run stands: with the program and the options, all that the draws to come depend on.

    Attributes:
        groups: the states of the chains, group by group.
        done: draws so far, warm-up included.
        t: steps of the kernel so far.
        steps: of the kernel for each draw, at present.
        warm: x and its log density at the draws of the warm-up, `(chain, draw, column)`, where the number of steps will
            depend on them; in pieces.
        seconds: that the draws after the warm-up took.
    """

    groups: list[Any]
    done: int
    t: int
    steps: int
    warm: list[np.ndarray]
    seconds: float

    @property
    def states(self) -> Any:
        """Of all chains, as NumPy's arrays."""
        return jax.tree.map(np.asarray, join(self.groups))


@dataclass(frozen=True)
class Progress:
    """How far a run is: draws done (warm-up included) and the latest chunk of records."""

    done: int
    total: int
    tune: int
    latest: Record


Keep = Callable[[Place, Record], None]


def part(chains: Any, least: int) -> list[Any]:
    """Arrays with a leading axis of chains, group by group; all groups are of one size, to be compiled once."""
    num = num_chains_of(chains)
    size = next((size for size in range(least, num) if num % size == 0), num)
    return [jax.tree.map(lambda a, i=i: a[i : i + size], chains) for i in range(0, num, size)]


def join(groups: Sequence[Any]) -> Any:
    """The groups as one."""
    return groups[0] if len(groups) == 1 else jax.tree.map(lambda *parts: np.concatenate(parts), *groups)


def num_chains_of(chains: Any) -> int:
    """How many chains there are."""
    return len(jax.tree.leaves(chains)[0])
