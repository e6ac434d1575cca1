"""A folder that one process of several writes a run to, and that all of them read."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sumout.errors import StoreError
from sumout.results.data_tree import Draws
from sumout.store.backend import Checkpoint, Run
from sumout.store.folder import FolderBackend, open_folder
from sumout.store.format import ABOUT

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


class Talk(Protocol):
    """What is needed of the processes of a run (`run/processes.py`)."""

    @property
    def is_first(self) -> bool:
        """Whether this one writes."""
        ...

    def hear(self, words: str) -> str:
        """What process 0 says, once all have come here."""
        ...

    def check_seen(self, folder: Any, is_seen: bool) -> None:
        """Raise an error if some process does not see a folder."""
        ...


class SharedFolder:
    """The trace backend of a process of several; made by `open_shared_folder`."""

    def __init__(self, inner: FolderBackend, processes: Talk):
        self._inner, self._processes = inner, processes

    @property
    def run(self) -> Run:
        """The run that is written."""
        return self._inner.run

    @run.setter
    def run(self, run: Run) -> None:
        self._inner.run = run

    def resume(self, like: Any) -> Checkpoint | None:
        """The checkpoint of the last part, which all read before the next part is written."""
        checkpoint = self._inner.resume(like)
        self._processes.hear("read")
        return checkpoint

    def record(self, checkpoint: Checkpoint, draws: Draws) -> None:
        """Keep a chunk, in the process that writes."""
        if self._processes.is_first:
            self._inner.record(checkpoint, draws)

    def result(self, checkpoint: Checkpoint) -> "xr.DataTree":
        """What is there once the rest is written."""
        if self._processes.is_first:
            self._inner.write_rest(checkpoint)
        self._inner.written = int(self._processes.hear(str(self._inner.written)))
        return self._inner.result(checkpoint)


@contextmanager
def open_shared_folder(
    folder: str | os.PathLike[str], identity: Mapping[str, str], run: Run, processes: Talk
) -> Iterator[SharedFolder]:
    """As `open_folder`, for several processes: the first one opens it, the others look at what it has made."""
    with ExitStack() as stack:
        error = None
        if processes.is_first:
            try:
                stack.enter_context(open_folder(folder, identity, run))
            except Exception as problem:
                error = problem
        words = processes.hear("" if error is None else str(error))
        if words:
            raise error or StoreError(words)
        processes.check_seen(folder, (Path(folder) / ABOUT).is_file())
        yield SharedFolder(FolderBackend(Path(folder), run), processes)
