"""Files of arrays by name: each appears whole or not at all, and its name tells whether it still is what was written.

    part-000012-1b2e77a0.npz        the twelfth part; the CRC-32 of its bytes

A file is written under another name, flushed to the disk and then renamed. Nothing in it is code.
"""

import io
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sumout.errors import StoreError

NAME = re.compile(r"part-(?P<number>\d{6,})-(?P<checksum>[0-9a-f]{8})\.npz")
UNFINISHED = ".unfinished"
PIECE = 2**20  # bytes read at a time


def write_part(folder: Path, number: int, arrays: Mapping[str, Any]) -> Path:
    """Write a file that holds these arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    content = buffer.getbuffer()
    path = folder / f"part-{number:06d}-{zlib.crc32(content):08x}.npz"
    write_whole(path, content)
    return path


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file such that it is there whole or not at all, whatever happens meanwhile."""
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise StoreError(
            f"{path} cannot be written: {error.strerror}. All before it is safe; the same call will go on from there."
        ) from error


def _flush_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows, where folders cannot be flushed
        return
    handle = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def list_parts(folder: Path) -> dict[int, Path]:
    """The files, by number, in order."""
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = NAME.fullmatch(path.name)
        if match is None:
            continue
        number = int(match["number"])
        if number in found:
            raise StoreError(f"{found[number]} and {path} have the same number; one of them does not belong there.")
        found[number] = path
    return dict(sorted(found.items()))


def is_sound(path: Path) -> bool:
    """Whether the file is still as it was written."""
    match = NAME.fullmatch(path.name)
    if match is None:
        return False
    checksum = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                checksum = zlib.crc32(piece, checksum)
    except OSError:
        return False
    return checksum == int(match["checksum"], 16)


def read_part(path: Path, names: list[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file, or some of them."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in (content.files if names is None else names)}
    except Exception as error:  # a file that has been tampered with can break the reading anywhere
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    """What to say of a file that is not as it was written."""
    return StoreError(
        f"{path} is damaged. sumout.load(…, skip_damaged=True) reads all the others; to have its draws made anew, "
        "delete it and all parts after it, and call sumout.sample with the same store again."
    )
