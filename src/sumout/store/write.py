"""A run in a folder: its draws are written as they are made, and it can be gone on with.

A part holds what was drawn since the part before, named and shaped as in the result, and the place after it. A run that
ends in any way, at any instant, is gone on with from the last part; as random numbers come by counter, the draws are
those it would have made. Parts are written about every second at first, later when the run has become longer by a
hundredth, so that there are never very many.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sumout.errors import OptionError, StoreError
from sumout.kernels.kernel import Kernel
from sumout.randomness import Key
from sumout.results.data_tree import Naming
from sumout.results.record import Place, Record
from sumout.store.format import (
    ABOUT,
    FORMAT,
    OBSERVED,
    PLACE,
    SECONDS,
    STATE,
    TUNED,
    UNFINISHED,
    WARM,
    check_parts,
    differences,
    read_about,
    read_part,
    write_part,
    write_whole,
)
from sumout.store.load import load
from sumout.threads import FOR_NAMES, Stop

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


OFTEN = 1.0  # seconds between parts
GROWTH = 0.01  # parts are this much of all the time, once that is longer
MOST_BYTES = 2**24  # that wait to be written


class Store:
    """The folder of a run that is being made; made by `open_store`."""

    def __init__(self, folder: Path, kernel: Kernel, naming: Naming, tune: int, draws: int, key: Key, stop: Stop):
        self.folder, self.tune, self.draws = folder, tune, draws
        self._stop = stop
        self._kernel, self._naming, self._key = kernel, naming, key
        self._waiting: list[Record] = []
        self._warm: list[np.ndarray] = []
        self._begun = self._last = perf_counter()
        self._number = self._written = 0

    def place(self, like: Any) -> Place | None:
        """Where the run stands; None where nothing is there yet.

        Args:
            like: states of all chains, or shapes and types of them.
        """
        parts = check_parts(self.folder)
        if not parts:
            return None
        self._number = len(parts)
        last = read_part(parts[-1])
        leaves, form = jax.tree.flatten(like)
        states = jax.tree.unflatten(form, [last[f"{STATE}/{i}"] for i in range(len(leaves))])
        done, t, steps, _ = (int(number) for number in last[PLACE])
        warm: list[np.ndarray] = []
        if done <= self.tune:
            warm = [content[WARM] for content in map(read_part, parts) if WARM in content]
        self._written = done
        return Place([states], done, t, steps, warm, float(last[SECONDS]))

    def __call__(self, place: Place, records: Record) -> None:
        """Keep a chunk; write it, with those before it, when it is time."""
        if place.done > self.tune:
            self._waiting.append(records)
        elif place.warm:
            self._warm.append(place.warm[-1])
        now = perf_counter()
        is_time = now - self._last > max(OFTEN, GROWTH * (now - self._begun))
        size = sum(leaf.nbytes for leaf in jax.tree.leaves((self._waiting, self._warm)))
        if is_time or size > MOST_BYTES or place.done == self.tune:
            self.write(place)

    def write(self, place: Place) -> None:
        """Write what has not been written; nothing if the run was asked to stop and it takes too long to name it."""
        arrays: dict[str, Any] = {}
        if self._waiting:
            record = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._waiting)
            groups = self._naming.groups(record, self._key, lambda: self._stop.is_overdue(FOR_NAMES))
            if not groups or groups["sample_stats"]["lp"].shape[1] < record.number.shape[1]:
                return
            for group, named in groups.items():
                arrays.update({f"{group}/{name}": value for name, value in named.items()})
            tuned = self._kernel.tuned(place.states)
            arrays.update({f"{TUNED}/{name}": np.asarray(value) for name, value in tuned.items()})
        elif self._warm:
            arrays[WARM] = np.concatenate(self._warm, axis=1)
        for i, leaf in enumerate(jax.tree.leaves(place.states)):
            arrays[f"{STATE}/{i}"] = np.asarray(leaf)
        drawn = sum(records.x.shape[1] for records in self._waiting)
        arrays[PLACE] = np.array([place.done, place.t, place.steps, drawn])
        arrays[SECONDS] = np.array(place.seconds)
        if self._number == 0:
            observed = self._naming.program.observed
            arrays.update({f"{OBSERVED}/{name}": np.asarray(value) for name, value in observed.items()})
        write_part(self.folder, self._number, arrays)
        self._number, self._written = self._number + 1, place.done
        self._waiting, self._warm = [], []
        self._last = perf_counter()

    def result(self, place: Place) -> "xr.DataTree":
        """Write the rest, and read what is there."""
        if self._waiting or self._warm:
            self.write(place)
        if self._written <= self.tune:
            raise KeyboardInterrupt("asked to stop before a draw was written; the same call will go on from there.")
        return load(self.folder).isel(draw=slice(self.draws))


@contextmanager
def open_store(
    folder: str | os.PathLike[str],
    identity: Mapping[str, str],
    kernel: Kernel,
    naming: Naming,
    attrs: Mapping[str, Any],
    draws: int,
    key: Key,
    stop: Stop,
) -> Iterator[Store]:
    """A folder to write a run to, made if it is not there; no other process can write to it meanwhile.

    Args:
        folder: where it is.
        identity: of the run, by `identify`; must be that of the run that is there.
        kernel: of the run.
        naming: of its draws.
        attrs: what to note of the run, "tune" among it.
        draws: asked for.
        key: for what of z is drawn when draws are named.
        stop: whether the run is to stop.
    """
    path = Path(folder)
    about = path / ABOUT
    if path.exists() and not path.is_dir():
        raise OptionError(f"sample: store={str(path)!r} is a file; name a folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}.") from error
    with _locked(path):
        for rest in path.glob(f"*{UNFINISHED}"):
            rest.unlink()
        if about.exists():
            before = read_about(path)["identity"]
            if changed := differences(before, identity):
                raise StoreError(
                    f"{path} holds another run. Not as it was: {', '.join(changed)}. Use another folder for this one."
                )
        elif any(path.glob("*.npz")) or any(path.glob("*.json")):
            raise StoreError(f"{path} holds other files, and no {ABOUT}; use another folder.")
        noted = {
            "format": FORMAT,
            "identity": dict(identity),
            "draws": draws,
            "dims": naming.dims,
            "coordinates": naming.coordinates,
            "about": naming.about(attrs),
        }
        content = json.dumps(noted, indent=1) + "\n"
        if not about.exists() or about.read_text(encoding="utf-8") != content:
            write_whole(about, content.encode())
        yield Store(path, kernel, naming, attrs["tune"], draws, key, stop)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Held as long as this process lives and works in the folder."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{folder} is in use: another process is writing a run to it.") from None
        yield
