"""The rows that a run of minibatches holds in memory: all of them, or a pool of those on the disk.

A pool is made of stretches of rows, shuffled by blocks: of N rows in their order each of so many equal parts gives one
stretch, from a row drawn at random on, and beyond the last row it goes on with the first; so every row is as likely.
Batches are drawn from the pool, which is renewed every few draws, while the next one is read in the background. With
control variates at the mode the gradient of a pool differs from that of all rows by little: of a batch of B rows the
noise has the variance V, of a pool of M rows V B / M.

Pools are numbered, and their numbers follow from that of the draw: draws do not depend on how they are cut into chunks,
and a stored run goes on with the same rows.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sumout.model.arguments import as_jax
from sumout.model.on_disk import RowsOnDisk
from sumout.model.program import Data
from sumout.model.row_program import RowProgram
from sumout.randomness import Key, fold_in, generator, words_of
from sumout.threads import begin, wait

EVERY = 50  # draws between two pools
BATCHES = 100  # that a pool has rows for: what all steps with it have in common is a hundredth of the noise of one
FEWEST_ROWS = 100_000  # of a pool
FEWEST_STRETCHES = 64  # of a pool, where many rows come together from the disk
PIECE_BYTES = 2**24  # of a piece of all rows, when they are passed over


@dataclass(eq=False)
class HeldRows:
    """Arrays in memory with rows of a program: all, or pools of those on the disk.

    Attributes:
        rows: the program.
    """

    rows: RowProgram
    _next: tuple[Any, "Future[Data]"] | None = field(default=None, init=False)

    def __post_init__(self):
        self._sources = {n: a for n, a in self.rows.all_rows.items() if isinstance(a, RowsOnDisk)}
        self._shared = as_jax({n: a for n, a in self.rows.all_rows.items() if n not in self._sources})

        self._size = min(max(BATCHES * self.rows.batch, FEWEST_ROWS), self.rows.size)

    @property
    def is_renewed(self) -> bool:
        """Whether other rows are held after some draws."""
        return bool(self._sources) and self._size < self.rows.size

    @cached_property
    def some(self) -> Data:
        """Some rows for what needs no more; all if they are in memory."""
        return {**self._shared, **as_jax(self._read(np.zeros(2, np.uint32), 0))}

    def at_draw(self, key: Key, draw: int) -> tuple[Data, int]:
        """The rows for a draw, and the number of the draw from which others are held."""
        number = draw // EVERY
        label = (*map(int, np.ravel(words_of(key))), number)
        found = wait(self._next[1]) if self._next is not None and self._next[0] == label else self._read(key, number)
        self._next = (*label[:-1], number + 1), begin(self._read, key, number + 1)
        return {**self._shared, **as_jax(found)}, (number + 1) * EVERY

    def pieces(self) -> Iterator[Data]:
        """All rows once, piece by piece; the next is read while one is worked on."""
        if not self._sources:
            yield self._shared
            return
        size, batch = self.rows.size, self.rows.batch
        in_piece = max(PIECE_BYTES // sum(a.row_bytes for a in self._sources.values()) // batch, 1) * batch

        def read(start: int) -> Data:
            stop = min(start + in_piece, size)
            return {name: array.read(start, stop) for name, array in self._sources.items()}

        coming = begin(read, 0)
        for start in range(0, size, in_piece):
            now, after = wait(coming), start + in_piece
            if after < size:
                coming = begin(read, after)
            yield {**self._shared, **as_jax(now)}

    def _read(self, key: Key, number: int) -> Data:
        """The rows of a pool."""
        size = self.rows.size
        if self._size == size or not self._sources:
            return {name: array.read(0, size) for name, array in self._sources.items()}
        length = max(min(max(array.at_once for array in self._sources.values()), self._size // FEWEST_STRETCHES), 1)
        num = self._size // length
        # Stretch k of num begins in the k-th part of the rows: in whole numbers, with one draw of all rows for each.
        draws = generator(fold_in(key, number)).integers(0, size, num)
        starts = (np.arange(num) * size + draws) // num
        return {
            name: np.concatenate([array.read(start, start + length) for start in map(int, starts)])
            for name, array in self._sources.items()
        }
