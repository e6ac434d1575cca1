"""The contract of patterns: special structure for which a step of the work on z costs less.

A pattern is matched against a subject: one step of the work as it would be done without patterns. What matches takes
the place of that step, gives the same answer, and says what it costs. There is no one type of subject, as the steps see
different things: the first three the program, the fourth a graph alone, the last tables alone.

    subject       without a pattern                                       a match has
    BlockTable    factors are evaluated at every value of a block         table(x, z, data)
    SiteScan      factors are evaluated for one colour after the other    all that a NuisanceMove has
    Candidates    sites are joined where a factor depends on them         the program cut at states
    Elimination   sites are summed out one by one                         cells
    ChainSum      messages are log-sum-exps, level by level               last_message(table, single, is_padding)

To add a pattern: a class with `name`, `subject` and `match` in a file of its own, and a place in `PATTERNS`
(`registry.py`). For a step of another kind, such as a sum over counts or a loop that is rolled up again, add its
subject here, and let `find_match` be asked where that step is built.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sumout.moves.move import NuisanceMove
from sumout.structure.structure import Structure
from sumout.tables.blocks import Block


class Match(Protocol):
    """What takes the place of a step."""

    @property
    def cost(self) -> float:
        """Elements of arrays that are computed each time. Of several matches the one that costs least is taken."""
        ...


class Pattern(Protocol):
    """Recognises special structure."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def subject(self) -> type:
        """The type of the subjects it can be matched against."""
        ...

    def match(self, subject: Any) -> Any | None:
        """A `Match`; None where the structure is another, or nothing would be gained."""
        ...


@dataclass(frozen=True, eq=False)
class BlockTable:
    """The log weights of the values of a block; `values` and `allowed` are `(K, n)`, or `(K, 1)` for all alike."""

    block: Block
    values: np.ndarray
    allowed: np.ndarray


@dataclass(frozen=True, eq=False)
class SiteScan:
    """A Gibbs sweep over sites of many colours: their numbers, ascending; `values` and `allowed` as for a block."""

    structure: Structure
    sites: np.ndarray
    values: np.ndarray
    allowed: np.ndarray
    by_colour: NuisanceMove


@dataclass(frozen=True, eq=False)
class Candidates:
    """The sites of a program that may be summed out, a mask."""

    structure: Structure
    candidates: np.ndarray


@dataclass(frozen=True, eq=False)
class Elimination:
    """Summing out a connected graph of sites, numbered from 0, with up to K values; the order found is so wide."""

    num_sites: int
    edges: np.ndarray
    num_values: int
    width: int


@dataclass(frozen=True, eq=False)
class Cells:
    """What matches an `Elimination`: sites that are summed out together, and the entries of all their tables.

    Each site is in exactly one cell, and the cells, joined where their sites are, are a tree. Whether that takes less
    time than site by site is decided by levels and entries (`eliminate/components.py`).

    Attributes:
        cells: `(cells, m)` numbers of sites, −1 for none.
        cost: entries.
    """

    cells: np.ndarray
    cost: float


@dataclass(frozen=True, eq=False)
class ChainSum:
    """Sums along chains, side by side: how many cells these have, how many joint values each, how wide separators."""

    num_cells: int
    num_values: int
    width: int
