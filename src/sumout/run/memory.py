"""A run in memory: its draws are kept until they become the result."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sumout.kernels.kernel import Kernel
from sumout.randomness import Key
from sumout.run.loop import Place, Record
from sumout.run.result import Naming, build_tree

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


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
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._parts)


class InMemory(Memory):
    """Keeps a run until it is asked for its result; as `Store` does in a folder."""

    def __init__(self, kernel: Kernel, naming: Naming, attrs: Mapping[str, Any], draws: int, key: Key):
        super().__init__(attrs["tune"])
        self.draws, self._key = draws, key
        self._kernel, self._naming, self._attrs = kernel, naming, attrs

    def place(self, like: Any) -> Place | None:
        """A run in memory always begins at the beginning."""
        del like

    def result(self, place: Place) -> "xr.DataTree":
        """What was drawn."""
        record, naming = self.record(), self._naming
        if record is None:
            raise KeyboardInterrupt("asked to stop during warm-up: there is no draw yet.")
        is_complete = place.done == self.tune + self.draws
        about = {**self._attrs, "steps": place.steps, "sampling_time": place.seconds, "complete": is_complete}
        return build_tree(
            naming.groups(record, self._key), self._kernel.tuned(place.states), naming.program.observed,
            dims=naming.dims, coordinates=naming.coordinates, about=naming.about(about),
        )  # fmt: skip
