"""Data in files: names and numbers, nothing else.

An item is read when a model asks for it, so that a file may hold other columns, with text in them, too.
"""

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sumout.errors import FileError

MISSING = {"", "na", "n/a", "nan", "null", "none", "."}
WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Item:
    """One name in a file, and how to read what it stands for."""

    source: Path
    read: Callable[[], Any]
    is_only_column: bool = False


def read_files(paths: Iterable[str]) -> dict[str, Item]:
    """All names in the files."""
    found: dict[str, Item] = {}
    for given in paths:
        path = Path(given)
        reader = READERS.get(path.suffix.lower())
        if reader is None:
            raise FileError(f"{path}: data are read from files that end in {', '.join(READERS)}.")
        if not path.is_file():
            raise FileError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; it should be a file of data.")
        try:
            items = reader(path)
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read: {_reason(error)}.") from error
        for name, item in items.items():
            if name in found:
                raise FileError(f"'{name}' is both in {found[name].source} and in {path}; rename it in one of them.")
            found[name] = item
    return found


def _reason(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8, the encoding that sumout expects"
    return error.strerror or str(error)


def _read_csv(path: Path) -> dict[str, Item]:
    """The columns of a table with a header; commas, semicolons or tabs between them."""
    text = path.read_text(encoding="utf-8-sig")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for row in reader:
            rows.append((reader.line_num, row))
    except csv.Error as error:
        raise FileError(f"{path}, line {reader.line_num}: {error}.") from error
    while rows and not rows[-1][1]:
        rows.pop()  # blank lines at the end
    if len(rows) < 2:
        raise FileError(f"{path}: expected a header and at least one row of numbers below it.")
    names = [name.strip() for name in rows.pop(0)[1]]
    _check_header(path, names)
    for line, row in rows:
        if len(row) != len(names) and not (len(names) == 1 and not row):
            raise FileError(
                f"{path}, line {line}: there are {len(row)} cells where the header has {len(names)} "
                "(a comma too many, one left out, or decimal commas? Numbers are written as 1.5)."
            )
    return {
        name: Item(
            path, partial(_numbers, path, name, [(n, row[j] if row else "") for n, row in rows]), len(names) == 1
        )
        for j, name in enumerate(names)
    }


def _check_header(path: Path, names: list[str]) -> None:
    if all(_is_number(name) for name in names):
        raise FileError(f"{path}: the first line, {', '.join(names)}, looks like data; it should name the columns.")
    for j, name in enumerate(names):
        if not name:
            raise FileError(
                f"{path}: column {j + 1} has no name; name it, or leave it out (pandas: to_csv(…, index=False))."
            )
        if name in names[:j]:
            raise FileError(f"{path}: two columns have the name '{name}'.")


def _numbers(path: Path, name: str, cells: list[tuple[int, str]]) -> np.ndarray:
    """One column, as integers if all its cells are whole numbers."""
    for row, (line, cell) in enumerate(cells, start=1):
        where = f"{path}, column '{name}', row {row} (line {line})"
        if cell.strip().lower() in MISSING:
            raise FileError(
                f"{where}: {f'{cell.strip()!r} stands for no value' if cell.strip() else 'the cell is empty'}. Leave "
                "the row out, or fill it in; a missing value can be a variable of the model."
            )
        if not _is_number(cell):
            hint = " (write decimals with a point)" if _is_number(cell.replace(",", ".")) else ""
            raise FileError(f"{where}: {cell.strip()!r} is not a number{hint}.")
    texts = [cell.strip() for _, cell in cells]
    if all(WHOLE.fullmatch(text) for text in texts):
        try:
            return np.array([int(text) for text in texts], np.int64)
        except OverflowError:
            pass  # as floats, then
    return np.array([float(text) for text in texts])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _read_npz(path: Path) -> dict[str, Item]:
    """The arrays in a file of `numpy.savez`."""
    if not zipfile.is_zipfile(path):
        raise FileError(f"{path} is not an npz file, or is damaged; write one with numpy.savez.")
    with np.load(path, allow_pickle=False) as file:
        return {name: Item(path, partial(_npz_array, path, name)) for name in file.files}


def _npz_array(path: Path, name: str) -> Any:
    try:
        with np.load(path, allow_pickle=False) as file:
            array = file[name]
    except Exception as error:  # a damaged file can break the reading anywhere
        if "allow_pickle" in str(error):
            raise FileError(
                f"{path}: '{name}' holds Python objects, which can run code when they are loaded; sumout reads only "
                "numbers. Save arrays of numbers, not of objects."
            ) from error
        raise FileError(f"{path}: '{name}' cannot be read, the file is damaged ({error}).") from error
    return _checked(path, name, array)


def _read_json(path: Path) -> dict[str, Item]:
    """The members of an object, each a number or lists of numbers."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=partial(_members, path))
    except json.JSONDecodeError as error:
        raise FileError(f"{path}, line {error.lineno}: this is not JSON: {error.msg}.") from error
    except RecursionError as error:
        raise FileError(f"{path}: its lists are nested too deeply.") from error
    if not isinstance(content, dict):
        raise FileError(f'{path}: expected an object with names, such as {{"y": [1.5, 2.5]}}.')
    return {name: Item(path, partial(_json_array, path, name, value)) for name, value in content.items()}


def _members(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise FileError(f"{path}: '{next(n for n in names if names.count(n) > 1)}' is there twice.")
    return members


def _json_array(path: Path, name: str, value: Any) -> Any:
    try:
        array = np.array(value)
    except ValueError as error:
        raise FileError(f"{path}: the lists in '{name}' are not all of the same length.") from error
    return _checked(path, name, array)


def _checked(path: Path, name: str, array: Any) -> Any:
    """An array of numbers; a single number as Python's own, as it may be a size or a switch."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        raise FileError(f"{path}: '{name}' is not made of numbers only (no text, no null, no objects).")
    return array.item() if array.ndim == 0 else array


READERS: dict[str, Callable[[Path], dict[str, Item]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".npz": _read_npz,
    ".json": _read_json,
}
