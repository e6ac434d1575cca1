"""Starts where a gradient of all rows is dear: short ascents on some of the rows, each weighed as many.

The ascents of `run/starts.py` take thousands of gradients. Where a plate has many rows that are independent given x
(`model/row_program.py`), those of a fiftieth of them do as well: each chain ascends on rows of its own, drawn at
random, and the highest points are compared on all rows. They end within √50 or so posterior deviations of the mode,
each elsewhere, so that chains are over-dispersed. A minor mode is lower by far more than what the rows that a chain has
seen leave open.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from sumout.errors import SumoutError, note_unforeseen
from sumout.kernels.leapfrog import Point
from sumout.model.arguments import as_jax
from sumout.model.program import Data, Nuisance, Program
from sumout.model.row_program import take_rows
from sumout.plan.row_sums import RowSums
from sumout.randomness import Key, fold_in, generator, split, words_of
from sumout.run.mode_search import FullData, WeighedTarget
from sumout.run.processes import ONE_PROCESS, Processes
from sumout.run.starts import RESTARTS, Ascents, Starts, choose_ascents

MANY_ROWS = 50_000  # from which to trace a program of some of them takes less time than it saves
SHARE = 50  # of the rows that a chain ascends on, one in so many
FEWEST, MOST = 2_000, 20_000  # of them
ROWS_FOR_EACH = 100  # coordinate of x; with fewer an ascent ends far from the mode of all rows
BATCH = 1_000  # rows that are evaluated at once


class RowStarts:
    """The search for starts on some of the rows; what `Starts` does it leaves to it.

    Args:
        starts: of all rows.
        sums: of some rows.
    """

    def __init__(self, starts: Starts, sums: RowSums):
        self.starts, self.sums = starts, sums
        self._full = FullData(sums, as_jax(starts.program.data))
        size = int(np.clip(sums.rows.size // SHARE, FEWEST, MOST))
        self._num = size // sums.rows.batch
        target = WeighedTarget(lambda x, z, data: sums.weighed(x, data["arrays"], data["index"])[0], sums=sums)
        program = replace(sums.rows.program, data=self._data(np.zeros((self._num, sums.rows.batch), np.int32)), free=())
        self._ascents = Ascents(program, target, RESTARTS)

    def of(self, program: Program, data: Data = None) -> "Starts | RowStarts":
        """The same of a program with the same code and other data, whose rows are read anew."""
        return make_starts(self.starts.of(program, data))

    def prepare(self, num_chains: int) -> None:
        """Begin to compile; chains ascend one by one."""
        del num_chains
        self._ascents.prepare(1)

    def find(self, key: Key, num_chains: int, processes: Processes = ONE_PROCESS) -> tuple[Point, Nuisance]:
        """For each chain a point of finite density and gradient and a z; from all rows if some do not tell any.

        Some of the rows are few enough for every process to look at by itself.
        """
        keys = fold_in(np.asarray(words_of(key)), np.arange(num_chains))
        optima = [self._ascend(key) for key in keys]
        points, highest = (np.stack(part) for part in zip(*optima, strict=True))
        if not np.isfinite(highest).any():
            return self.starts.find(key, num_chains, processes)
        values, gradients, _ = self._full.at(points)
        values = np.where(np.isfinite(values) & np.isfinite(gradients).all(axis=1), values, -np.inf)
        if not np.isfinite(values).any():
            return self.starts.find(key, num_chains, processes)
        where, _ = choose_ascents(values[:, None], self._spread)
        return self.starts.at(key, points[where])

    @property
    def _spread(self) -> float:
        """How much lower an optimum of some rows may be on all of them: four times what a Gaussian leaves open."""
        seen = self._num * self.sums.rows.batch
        return self.starts.spread + 2 * self.sums.num_x * self.sums.rows.size / seen

    def _ascend(self, key: Key) -> tuple[np.ndarray, float]:
        """The highest point of a chain's ascents on rows of its own, and the log density there by these rows."""
        key_rows, key_ascent = split(key)
        rows = self.sums.rows
        index = np.sort(generator(key_rows).integers(0, rows.size, (self._num, rows.batch)), axis=None)
        data = self._data(index.reshape(self._num, rows.batch).astype(np.int32))
        found = self._ascents.run(np.asarray(key_ascent)[None], data, below=0.0)
        best = int(np.argmax(found.log_density[0]))
        return np.asarray(found.points.x[0, best]), float(found.log_density[0, best])

    def _data(self, index: np.ndarray) -> dict:
        """What ascents take: the rows of all and which of them."""
        return {"arrays": as_jax(self.starts.program.data), "index": jnp.asarray(index)}


def make_starts(starts: Starts) -> "Starts | RowStarts":
    """The search on some rows where there are many that are independent given x, and few coordinates of x."""
    program = starts.program
    plates = {name: plate.size for name, plate in program.plates.items() if plate.size >= MANY_ROWS}
    if not plates or program.with_rows is None or program.source is not None or program.upper:
        return starts
    plate = max(plates, key=lambda name: plates[name])
    if program.num_x * ROWS_FOR_EACH > np.clip(plates[plate] // SHARE, FEWEST, MOST):
        return starts
    try:
        return RowStarts(starts, RowSums(take_rows(program, plate, BATCH)))
    except SumoutError:  # rows that depend on each other, or on more than x
        return starts
    except Exception as error:
        note_unforeseen("starts on some of the rows", error)
        return starts
