"""The trace backend that writes a run to a folder, from which it can be resumed.

A part holds the draws since the part before, named and shaped as in the result, and the checkpoint after them. A run
that ends in any way, at any instant, is resumed from the last part; as random numbers come by counter, the draws are
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
from sumout.results.data_tree import Draws
from sumout.store.backend import Checkpoint, Run
from sumout.store.format import (
    ABOUT,
    CHECKPOINT,
    CONSTANT,
    COORDS,
    ENDS,
    FORMAT,
    OBSERVED,
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

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

OFTEN = 1.0  # seconds between parts, at least
GROWTH = 0.01  # of the time so far, once that is longer
MOST_BYTES = 2**24  # that wait to be written


class FolderBackend:
    """Writes a run to a folder; made by `open_folder`.

    Attributes:
        written: draws so far that are in the folder, warm-up included.
    """

    def __init__(self, folder: Path, run: Run):
        self.folder, self.run, self.tune = folder, run, run.attrs["tune"]
        self._waiting: list[Draws] = []
        self._warm: list[np.ndarray] = []
        self._begun = self._last = perf_counter()
        self._number = self.written = 0

    def resume(self, like: Any) -> Checkpoint | None:
        """The checkpoint of the last part; None where nothing is there yet."""
        parts = check_parts(self.folder)
        if not parts:
            return None
        self._number = len(parts)
        last = read_part(parts[-1])
        leaves, form = jax.tree.flatten(like)
        states = jax.tree.unflatten(form, [last[f"{STATE}/{i}"] for i in range(len(leaves))])
        done, t, steps, _ = (int(number) for number in last[CHECKPOINT])
        warm: list[np.ndarray] = []
        if done <= self.tune:
            warm = [content[WARM] for content in map(read_part, parts) if WARM in content]
        self.written = done
        upper = {name.removeprefix(f"{ENDS}/"): end for name, end in last.items() if name.startswith(f"{ENDS}/")}
        return Checkpoint([states], done, t, steps, warm, float(last[SECONDS]), upper)

    def record(self, checkpoint: Checkpoint, draws: Draws) -> None:
        """Keep a chunk; write it, with those before it, when it is time."""
        if checkpoint.done > self.tune:
            self._waiting.append(draws)
        elif checkpoint.warm:
            self._warm.append(checkpoint.warm[-1])
        now = perf_counter()
        is_time = now - self._last > max(OFTEN, GROWTH * (now - self._begun))
        size = sum(leaf.nbytes for leaf in jax.tree.leaves((self._waiting, self._warm)))
        if is_time or size > MOST_BYTES or checkpoint.done == self.tune:
            self.write(checkpoint)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write what has not been written; nothing if the run is to stop and post-processing takes too long."""
        arrays: dict[str, Any] = {}
        if self._waiting:
            draws = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._waiting)
            groups = self.run.process(draws)
            if not groups or groups["sample_stats"]["lp"].shape[1] < draws.number.shape[1]:
                return
            for group, named in groups.items():
                arrays.update({f"{group}/{name}": value for name, value in named.items()})
            tuned = self.run.kernel.tuned(checkpoint.states)
            arrays.update({f"{TUNED}/{name}": np.asarray(value) for name, value in tuned.items()})
        elif self._warm:
            arrays[WARM] = np.concatenate(self._warm, axis=1)
        for i, leaf in enumerate(jax.tree.leaves(checkpoint.states)):
            arrays[f"{STATE}/{i}"] = np.asarray(leaf)
        drawn = sum(draws.x.shape[1] for draws in self._waiting)
        arrays[CHECKPOINT] = np.array([checkpoint.done, checkpoint.t, checkpoint.steps, drawn])
        arrays[SECONDS] = np.array(checkpoint.seconds)
        arrays.update({f"{ENDS}/{name}": np.asarray(end) for name, end in checkpoint.upper.items()})
        if self._number == 0:
            program, observed = self.run.postprocess.program, self.run.postprocess.observed
            for group, known in ((OBSERVED, observed), (CONSTANT, program.constant), (COORDS, program.coords)):
                arrays.update({f"{group}/{name}": np.asarray(value) for name, value in known.items()})
        write_part(self.folder, self._number, arrays)
        self._number, self.written = self._number + 1, checkpoint.done
        self._waiting, self._warm = [], []
        self._last = perf_counter()

    def write_rest(self, checkpoint: Checkpoint) -> None:
        """Write what waits to be written."""
        if self._waiting or self._warm:
            self.write(checkpoint)

    def result(self, checkpoint: Checkpoint) -> "xr.DataTree":
        """Write the rest, and read what is there."""
        self.write_rest(checkpoint)
        if self.written <= self.tune:
            raise KeyboardInterrupt("interrupted before a draw was written; the same call will resume the run.")
        from sumout.store.load import load  # xarray takes half a second to import

        return load(self.folder).isel(draw=slice(self.run.draws))


@contextmanager
def open_folder(folder: str | os.PathLike[str], identity: Mapping[str, str], run: Run) -> Iterator[FolderBackend]:
    """A folder to write a run to, made if it is not there; no other process can write to it meanwhile.

    Args:
        folder: where it is.
        identity: of the run, by `identify`; must be that of the run that is there.
        run: to be written, or resumed.
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
                    f"{path} holds another run, which this call cannot resume: it differs in {', '.join(changed)}. Use "
                    "another folder for this one."
                )
        elif any(path.glob("*.npz")) or any(path.glob("*.json")):
            raise StoreError(f"{path} holds other files, and no {ABOUT}; use another folder.")
        noted = {
            "format": FORMAT,
            "identity": dict(identity),
            "draws": run.draws,
            "dims": run.postprocess.dims,
            "coordinates": run.postprocess.coordinates,
            "about": run.postprocess.attrs(run.attrs),
        }
        content = json.dumps(noted, indent=1) + "\n"
        if not about.exists() or about.read_text(encoding="utf-8") != content:
            write_whole(about, content.encode())
        yield FolderBackend(path, run)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock on the folder, held as long as this process lives and works in it."""
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
