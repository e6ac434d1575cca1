"""A run in memory: its draws are kept until they become the result."""

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sumout.compile.policy import BLOCK
from sumout.kernels.kernel import Kernel
from sumout.randomness import Key
from sumout.results.data_tree import Groups, Naming, build_tree
from sumout.results.record import Place, Record
from sumout.threads import FOR_NAMES, Stop

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


ENOUGH = 4 * BLOCK  # draws of all chains that are named at a time, at least
SELDOM = 5.0  # seconds between; a short run is named in one piece


class Memory:
    """Keeps the records of the draws after the warm-up."""

    def __init__(self, tune: int):
        self.tune = tune
        self._parts: list[Record] = []

    def __call__(self, place: Place, records: Record) -> None:
        """Keep them, unless they are of the warm-up."""
        if place.done > self.tune:
            self._parts.append(records)

    def record(self) -> Record | None:
        """All of them; None if there are none."""
        if not self._parts:
            return None
        return jax.tree.map(lambda *parts: _joined(parts), *self._parts)


class InMemory(Memory):
    """Keeps a run until it is asked for its result; as `Store` does in a folder.

    Draws are named as they come, so that there is little left to do, or to lose, when a run is stopped.
    """

    def __init__(self, kernel: Kernel, naming: Naming, attrs: Mapping[str, Any], draws: int, key: Key, stop: Stop):
        super().__init__(attrs["tune"])
        self.draws, self._key, self._stop = draws, key, stop
        self._kernel, self._naming, self._attrs = kernel, naming, attrs
        self._named: list[Groups] = []
        self._last = perf_counter()

    def place(self, like: Any) -> Place | None:
        """A run in memory always begins at the beginning."""
        del like

    def __call__(self, place: Place, records: Record) -> None:
        """Keep them, and now and then name whole blocks of them, once there are enough."""
        super().__call__(place, records)
        if place.done <= self.tune:
            self._last = perf_counter()
        is_time = perf_counter() - self._last > SELDOM
        if is_time and sum(part.number.size for part in self._parts) >= ENOUGH and self._naming.is_ready:
            self._name(BLOCK // math.gcd(BLOCK, len(records.number)))

    def _name(self, multiple: int = 1) -> None:
        """Name a multiple of so many draws; only the first of them if the run was asked to stop too long ago."""
        record = self.record()
        num = 0 if record is None else record.number.shape[1] // multiple * multiple
        if num:
            now = jax.tree.map(lambda a: a[:, :num], record)
            self._parts = [jax.tree.map(lambda a: a[:, num:], record)]
            groups = self._naming.groups(now, self._key, lambda: self._stop.is_overdue(FOR_NAMES))
            self._named += [groups] if groups else []
            if not groups or groups["sample_stats"]["lp"].shape[1] < num:
                self._parts = []  # there must be no gap
            self._last = perf_counter()

    def result(self, place: Place) -> "xr.DataTree":
        """What was drawn."""
        self._name()
        if not self._named:
            raise KeyboardInterrupt(
                "asked to stop during warm-up: there is no draw yet."
                if place.done <= self.tune
                else "asked to stop before a draw was named: there is nothing to return."
            )
        naming = self._naming
        groups: Groups = {  # not by JAX, which would sort the names
            group: {name: _joined([part[group][name] for part in self._named]) for name in named}
            for group, named in self._named[0].items()
        }
        is_complete = groups["sample_stats"]["lp"].shape[1] == self.draws
        about = {**self._attrs, "steps": place.steps, "sampling_time": place.seconds, "complete": is_complete}
        return build_tree(
            groups, self._kernel.tuned(place.states), naming.program.observed,
            dims=naming.dims, coordinates=naming.coordinates, about=naming.about(about),
        )  # fmt: skip


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Draws after draws."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
