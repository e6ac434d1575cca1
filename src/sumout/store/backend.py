"""Trace backends: what becomes of the draws while a run goes on, and the one that keeps them in memory.

The loop hands every chunk of draws to a backend, with a checkpoint: together with the program and the options, all that
later draws depend on. `MemoryBackend` here keeps them until they become the result, `FolderBackend` (`folder.py`)
writes both to a folder, from which the run can be resumed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from sumout.compile.policy import WAITING_BYTES
from sumout.kernels.kernel import Kernel
from sumout.randomness import Key
from sumout.results.data_tree import Draws, Groups, PostProcessing, build_tree
from sumout.threads import SECONDS_FOR_POSTPROCESSING, Stop

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

ENOUGH = 4  # blocks of draws that are post-processed at a time, at least
SELDOM = 5.0  # seconds between; a short run is post-processed in one piece


@dataclass
class Checkpoint:
    """Where a run stands.

    Attributes:
        groups: the states of the chains, group by group.
        done: draws so far, warm-up included.
        t: kernel steps so far.
        steps: kernel steps for each draw, at present.
        warm: x and its log density at the draws of the warm-up, `(chain, draw, column)`, where the number of steps will
            depend on them; in pieces.
        seconds: that the draws after the warm-up took.
        upper: where sums over counts are cut, by name.
    """

    groups: list[Any]
    done: int
    t: int
    steps: int
    warm: list[np.ndarray]
    seconds: float
    upper: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def states(self) -> Any:
        """Of all chains, as NumPy arrays."""
        return jax.tree.map(np.asarray, join_chains(self.groups))


class TraceBackend(Protocol):
    """What the loop and `sumout.sample` need of a place for draws."""

    run: "Run"  # changed where tables become longer while it goes on

    def resume(self, like: Any) -> Checkpoint | None:
        """The checkpoint to go on from, None for a run from its start; `like` are states, or their shapes and types."""
        ...

    def record(self, checkpoint: Checkpoint, draws: Draws) -> None:
        """Keep a chunk of draws, of the warm-up too, and the checkpoint after it, which the loop goes on changing."""
        ...

    def result(self, checkpoint: Checkpoint) -> "xr.DataTree":
        """The run so far; KeyboardInterrupt if it was stopped before there is a draw."""
        ...


class DrawBuffer:
    """Collects the draws after the warm-up."""

    def __init__(self, tune: int):
        self.tune = tune
        self._chunks: list[Draws] = []

    def record(self, checkpoint: Checkpoint, draws: Draws) -> None:
        """Keep them, unless they are of the warm-up."""
        if checkpoint.done > self.tune:
            self._chunks.append(draws)

    def collected(self) -> Draws | None:
        """All of them; None if there are none."""
        return jax.tree.map(lambda *parts: _joined(parts), *self._chunks) if self._chunks else None


@dataclass(frozen=True)
class Run:
    """What a backend knows of the run whose draws it keeps.

    Attributes:
        kernel: that makes the draws.
        postprocess: of its draws.
        attrs: of the result, "tune" among them.
        draws: asked for, after the warm-up.
        key: for what of z is drawn in post-processing.
        stop: whether the run is to stop.
    """

    kernel: Kernel
    postprocess: PostProcessing
    attrs: Mapping[str, Any]
    draws: int
    key: Key
    stop: Stop

    def process(self, draws: Draws) -> Groups:
        """The draws as named arrays; only the first of them, or none, if the run was stopped too long ago."""
        is_over = lambda: self.stop.is_overdue(SECONDS_FOR_POSTPROCESSING)  # noqa: E731
        return self.postprocess.groups(draws, self.key, is_over)


class MemoryBackend(DrawBuffer):
    """Keeps a run in memory.

    Draws are post-processed as they come, so that there is little left to do, or to lose, when a run is stopped.
    """

    def __init__(self, run: Run):
        super().__init__(run.attrs["tune"])
        self.run = run
        self._groups: Groups = {}  # with room for all draws, of which memory is taken as they are filled in
        self._filled = 0
        self._last = perf_counter()

    def resume(self, like: Any) -> Checkpoint | None:
        """A run in memory always begins at its start."""
        del like

    def record(self, checkpoint: Checkpoint, draws: Draws) -> None:
        """Keep them, and now and then post-process whole blocks of them, once there are enough."""
        super().record(checkpoint, draws)
        if checkpoint.done <= self.tune:
            self._last = perf_counter()
        is_time = perf_counter() - self._last > SELDOM
        block, waiting = self.run.postprocess.block, sum(chunk.number.size for chunk in self._chunks)
        is_much = sum(leaf.nbytes for leaf in jax.tree.leaves(self._chunks)) > WAITING_BYTES
        if (is_much or (is_time and waiting >= ENOUGH * block)) and self.run.postprocess.is_ready:
            self._process(block // math.gcd(block, len(draws.number)))

    def _process(self, multiple: int = 1) -> None:
        """Post-process a multiple of so many draws."""
        draws = self.collected()
        num = 0 if draws is None else draws.number.shape[1] // multiple * multiple
        if num:
            self._chunks = [jax.tree.map(lambda a: a[:, num:], draws)]
            groups = self.run.process(jax.tree.map(lambda a: a[:, :num], draws))
            made = groups["sample_stats"]["lp"].shape[1] if groups else 0
            if made < num:
                self._chunks = []  # there must be no gap
            self._fill(groups, made)
            self._last = perf_counter()

    def _fill(self, groups: Groups, made: int) -> None:
        """Put draws behind those that are there."""
        if made == self.run.draws:
            self._groups, self._filled = groups, made
            return
        for group, named in groups.items():  # not by JAX, which would sort the names
            rooms = self._groups.setdefault(group, {})
            for name, value in named.items():
                if name not in rooms:
                    rooms[name] = np.empty((len(value), self.run.draws, *value.shape[2:]), value.dtype)
                rooms[name][:, self._filled : self._filled + made] = value
        self._filled += made

    def result(self, checkpoint: Checkpoint) -> "xr.DataTree":
        """What was drawn."""
        self._process()
        if not self._filled:
            raise KeyboardInterrupt(
                "interrupted during warm-up: there is no draw yet."
                if checkpoint.done <= self.tune
                else "interrupted before a draw was post-processed: there is nothing to return."
            )
        groups = {
            group: {name: value[:, : self._filled] for name, value in named.items()}
            for group, named in self._groups.items()
        }
        run, postprocess = self.run, self.run.postprocess
        is_complete = self._filled == run.draws
        ended = {"steps": checkpoint.steps, "sampling_time": checkpoint.seconds, "complete": is_complete}
        program = postprocess.program
        return build_tree(
            groups, run.kernel.tuned(checkpoint.states), postprocess.observed,
            constant=program.constant, coords=program.coords, dims=postprocess.dims,
            coordinates=postprocess.coordinates, attrs=postprocess.attrs({**run.attrs, **ended}),
        )  # fmt: skip


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Draws after draws."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def split_chains(chains: Any, least: int) -> list[Any]:
    """Arrays with a leading axis of chains, group by group; all groups are of one size, to be compiled once."""
    num = num_chains_of(chains)
    size = next((size for size in range(least, num) if num % size == 0), num)
    return [jax.tree.map(lambda a, i=i: a[i : i + size], chains) for i in range(0, num, size)]


def join_chains(groups: Sequence[Any]) -> Any:
    """The groups as one."""
    return groups[0] if len(groups) == 1 else jax.tree.map(lambda *parts: np.concatenate(parts), *groups)


def num_chains_of(chains: Any) -> int:
    """How many chains there are."""
    return len(jax.tree.leaves(chains)[0])
