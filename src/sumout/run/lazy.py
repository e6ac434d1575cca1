"""Arrays that stay on the disk until they are looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from sumout.run.parts import read_part


@dataclass(frozen=True)
class Stretch:
    """A file, and how many draws it holds."""

    path: Path
    draws: int


class LazyArray(BackendArray):
    """One variable of a store, `(chain, draw, …)`, its draws in several files."""

    def __init__(self, name: str, stretches: Sequence[Stretch], like: np.ndarray):
        self._name, self._stretches = name, stretches
        self.dtype = like.dtype
        self.shape = (like.shape[0], sum(stretch.draws for stretch in stretches), *like.shape[2:])

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        chain, draw, *others = key
        if not isinstance(draw, slice):
            return self._between(draw, draw + 1)[(chain, 0, *others)]
        wanted = range(self.shape[1])[draw]
        rows = (
            self._between(min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1]) + 1) if wanted else self._between(0, 0)
        )
        return rows[(chain, slice(None, None, wanted.step), *others)]

    def _between(self, low: int, high: int) -> np.ndarray:
        """The draws from number `low` up to `high`."""
        found, start = [np.empty((self.shape[0], 0, *self.shape[2:]), self.dtype)], 0
        for stretch in self._stretches:
            first, last = max(low - start, 0), min(high - start, stretch.draws)
            if first < last:
                found.append(read_part(stretch.path, [self._name])[self._name][:, first:last])
            start += stretch.draws
        return np.concatenate(found, axis=1)


def lazy_array(name: str, stretches: Sequence[Stretch], like: np.ndarray) -> Any:
    """The array in the form that xarray takes; `like` is some of it."""
    return indexing.LazilyIndexedArray(LazyArray(name, stretches, like))
