"""Columns of Parquet files as rows on the disk (`model/on_disk.py`), read by row groups with pyarrow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from sumout.errors import FileError, OptionError


@dataclass(eq=False)
class Parquet:
    """Some columns of one file or of several.

    Attributes:
        columns: their names.
        shape: rows, and columns if several were asked for.
        dtype: of all of them.
        groups: the row groups in order: file and number there.
        ends: number of the row after the last of each group.
    """

    columns: list[str]
    shape: tuple[int, ...]
    dtype: np.dtype
    groups: list[tuple[Any, int]]
    ends: np.ndarray
    _last: tuple[int, np.ndarray] | None = None  # the group that was read last: rows are mostly asked for in order
    _lock: Any = field(default_factory=Lock)

    @staticmethod
    def opened(path: Path, column: str | Sequence[str] | None) -> "Parquet":
        """The columns of a file, or of all files in a folder, in the order of their names."""
        try:
            import pyarrow.parquet as pq  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise OptionError(f"on_disk: to read '{path}' pyarrow is needed: pip install pyarrow.") from error
        files = [pq.ParquetFile(one) for one in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])]
        names = files[0].schema_arrow.names
        columns = [column] if isinstance(column, str) else list(column or ())
        unknown = [name for name in columns if any(name not in file.schema_arrow.names for file in files)]
        if unknown or not columns:
            seen = f"there is no '{unknown[0]}'" if unknown else "no column was asked for"
            raise OptionError(f"on_disk: '{path}': {seen}; by column= name one or several of: {', '.join(names)}.")
        types = [file.schema_arrow.field(name).type.to_pandas_dtype() for file in files for name in columns]
        groups = [(file, i) for file in files for i in range(file.num_row_groups)]
        ends = np.cumsum([file.metadata.row_group(i).num_rows for file, i in groups])
        num = int(ends[-1]) if len(ends) else 0
        is_number = all(np.dtype(one).kind in "biuf" for one in types)
        dtype = np.result_type(*types) if is_number else np.dtype(object)
        return Parquet(columns, (num,) if isinstance(column, str) else (num, len(columns)), dtype, groups, ends)

    @property
    def chunks(self) -> tuple[int]:
        """Rows that are read at once: of the largest group."""
        return (int(np.diff(self.ends, prepend=0).max()),)

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last = np.searchsorted(self.ends, [rows.start, rows.stop - 1], side="right")
        starts = self.ends - np.diff(self.ends, prepend=0)
        parts = [self._group(i)[max(rows.start - starts[i], 0) : rows.stop - starts[i]] for i in range(first, last + 1)]
        return np.concatenate(parts)

    def _group(self, number: int) -> np.ndarray:
        """All rows of a group."""
        with self._lock:
            if self._last is None or self._last[0] != number:
                file, index = self.groups[number]
                self._last = number, self._array(file.read_row_group(index, columns=self.columns))
            return self._last[1]

    def _array(self, table: Any) -> np.ndarray:
        for name in self.columns:
            if table.column(name).null_count:
                raise FileError(
                    f"column '{name}' has missing values: store numbers in their place, and a column that says where "
                    "they are, by which the model can mask them."
                )
        columns = [table.column(name).to_numpy().astype(self.dtype, copy=False) for name in self.columns]
        return np.stack(columns, axis=-1) if len(self.shape) > 1 else columns[0]
