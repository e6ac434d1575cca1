"""Files to be written: whether they can be is seen before the work starts."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sumout.errors import FileError


def check_output(path: Path, *, force: bool, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a file that is in the way, a folder that is not there or in which nothing can be written.

    Args:
        path: the file to write.
        force: replace a file that is there already.
        inputs: files that are read, never to be replaced.
    """
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it.")
    for other in map(Path, inputs):
        if path.exists() and other.exists() and path.samefile(other):
            raise FileError(f"{path} is read from; it cannot be written to as well.")
    if path.exists() and not force:
        raise FileError(f"{path} is there already; give --force to replace it, or another name.")
    if not path.parent.is_dir():
        raise FileError(f"there is no folder {path.parent}; make it first, or write elsewhere.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(
            f"nothing can be written in {path.parent.resolve()}: {os.strerror(error.errno or 0)}."
        ) from error
