"""What stands in the folder of a stored run.

run/run.json                      what the run is: its identity, options and names
run/part-000000-1b2e77a0.npz      draws, and the checkpoint after them; here also the data, for the result
run/part-000001-….npz             …

The name of a part ends in the CRC-32 of its bytes, which tells whether it still is what was written. A file is written
under another name, flushed to the disk and then renamed, so that it appears whole or not at all. Nothing in it is code.
"""

import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sumout.errors import StoreError
from sumout.model.on_disk import RowsOnDisk
from sumout.model.program import Program

FORMAT = 1
ABOUT = "run.json"
# Arrays in a part beside the draws; in the checkpoint stand draws, kernel steps, steps a draw, and draws in this part.
STATE, WARM, CHECKPOINT, SECONDS, TUNED = "state", "warm", "place", "seconds", "tuned"
ENDS = "count_ends"  # of sums over counts that were cut
OBSERVED, CONSTANT, COORDS = "observed_data", "constant_data", "coords"
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
            f"{path} cannot be written: {error.strerror}. All before it is safe; the same call will resume the run."
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
    """The arrays of a part, or some of them."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in (content.files if names is None else names)}
    except Exception as error:  # a file that has been tampered with can break the reading anywhere
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    """The error for a part that is not as it was written."""
    return StoreError(
        f"{path} is damaged. sumout.load(…, skip_damaged=True) reads all the others; to have its draws made anew, "
        "delete it and all parts after it, and call sumout.sample with the same store again."
    )


def read_about(folder: Path) -> dict[str, Any]:
    """What the run in a folder is."""
    path = folder / ABOUT
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{folder} holds no run: {path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged: it is not JSON ({error}).") from error
    needed = {"format": int, "identity": dict, "draws": int, "dims": dict, "coordinates": list, "about": dict}
    if not isinstance(noted, dict) or any(not isinstance(noted.get(name), kind) for name, kind in needed.items()):
        raise StoreError(f"{path} is damaged: something is missing from it.")
    if noted["format"] != FORMAT:
        raise StoreError(f"{path} has format {noted['format']}; this version of sumout reads format {FORMAT}.")
    return noted


def check_parts(folder: Path) -> list[Path]:
    """All parts, in order; an error if one is missing or damaged."""
    found = list_parts(folder)
    for number in range(max(found, default=-1) + 1):
        if number not in found:
            raise StoreError(f"{folder}: part {number} is missing; sumout.load(…, skip_damaged=True) reads the others.")
        if not is_sound(found[number]):
            raise damaged(found[number])
    return list(found.values())


def identify(program: Program, options: Mapping[str, Any]) -> dict[str, str]:
    """What a run can only be resumed with: all that its draws depend on, by name, each as a digest or the value itself.

    Args:
        program: whose draws they are.
        options: of the run, by name.
    """
    found = {"the model": _digest_of_code(program)}
    for path, array in jax.tree_util.tree_leaves_with_path(program.data):
        found[f"the data '{_name(path)}'"] = _digest_of_array(array)
    found.update({name: repr(value) for name, value in options.items()})
    found["precision"] = "double" if jax.config.jax_enable_x64 else "single"  # pyright: ignore[reportAttributeAccessIssue]
    found.update({f"the version of {package}": version(package) for package in ("sumout", "jax", "numpyro")})
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What has changed, in words."""
    said = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None or new is None:
            said.append(f"{name}, which {'was not there' if old is None else 'is no longer there'}")
        elif name.startswith("the data") or name == "the model":
            said.append(name)
        else:
            said.append(f"{name} ({new}, was {old})")
    return said


def _digest_of_code(program: Program) -> str:
    """Of the density and of the named values, as traced: constants in the code included."""
    program = program.few or program
    arguments = program.abstract_arguments()
    texts = [jax.jit(fn).lower(*arguments).as_text() for fn in (program.log_density, program.constrain)]
    return _digest("\n".join(texts).encode())


def _digest_of_array(array: Any) -> str:
    if isinstance(array, RowsOnDisk):
        return array.fingerprint
    values = np.ascontiguousarray(array)
    return _digest(f"{values.dtype} {values.shape} ".encode() + values.tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) or "data"
