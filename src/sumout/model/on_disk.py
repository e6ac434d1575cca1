"""Rows that stay on the disk: `sumout.on_disk`, for data beyond memory.

Whatever has a shape, a type and gives rows by slices will do: a memory map of NumPy's, an array of Zarr's or HDF5's.
Parquet files come by row groups. Only minibatches can work with such rows: a program of them (`program_of_rows`) has
its model traced with a few, and knows where to read others.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np

from sumout.calls import public
from sumout.errors import FileError, ModelError, OptionError
from sumout.model.arguments import is_array, paths_of
from sumout.model.row_program import Plate

if TYPE_CHECKING:  # which takes rows on the disk among its arguments
    from sumout.model.program import Program

WINDOW = 1_013  # rows with which a model is traced; an odd number that is no batch
TOLD_APART = 64  # rows whose values go into the fingerprint
AT_ONCE = 512  # rows of a plain file that are read at once: some pages of the disk


@dataclass(frozen=True, eq=False, repr=False)
class RowsOnDisk:
    """An array of which rows are read when they are needed; made by `sumout.on_disk`.

    Attributes:
        name: what to call it in messages.
        shape: of all of it; rows lie along the first axis.
        dtype: of its elements.
        read_slice: `(start, stop) -> rows`.
        at_once: rows that come together from the disk, however few are asked for.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read_slice: Callable[[int, int], Any]
    at_once: int = AT_ONCE

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"on_disk({self.name}, shape={self.shape}, dtype={self.dtype})"

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows from one number up to another, beyond the end those from the start again."""
        if stop > len(self):
            return np.concatenate([self.read(start, len(self)), self.read(0, stop - len(self))])
        try:
            rows = np.array(self.read_slice(start, stop))
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise FileError(f"rows {start:,} to {stop:,} of {self.name} cannot be read: {error}.") from error
        if rows.shape != (stop - start, *self.shape[1:]) or rows.dtype.newbyteorder("=") != self.dtype:
            raise FileError(
                f"rows {start:,} to {stop:,} of {self.name} came as {rows.dtype} {rows.shape}, not as {self.dtype} "
                f"{(stop - start, *self.shape[1:])}: has the file changed?"
            )
        return rows.astype(self.dtype, copy=False)  # in the byte order of the machine

    @property
    def fingerprint(self) -> str:
        """Of the shape, the type and some rows, to tell other data from these without reading all."""
        numbers = np.unique(np.linspace(0, len(self) - 1, TOLD_APART).astype(int))
        content = b"".join(np.ascontiguousarray(self.read(i, i + 1)).tobytes() for i in numbers)
        return hashlib.sha256(f"{self.dtype} {self.shape} ".encode() + content).hexdigest()

    @property
    def row_bytes(self) -> int:
        """Size of a row in memory."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:]))

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OptionError(
            f"{self.name} has its {len(self):,} rows on the disk, which only minibatches read: pass it to a model, and "
            "the program to sumout.sample or sumout.maximize with minibatch={…: 1000}."
        )


@public
def on_disk(source: Any, column: str | Sequence[str] | None = None) -> RowsOnDisk:
    """Rows that are read from the disk when they are needed, to be passed to a model in the place of an array.

    `sumout.sample(program, minibatch=…)` then holds some of them in memory at a time, others as the run goes on, and
    passes over all in pieces for the mode and for the check at the end.

    Args:
        source: the path of a `.npy` file, of a folder of Zarr's, of a Parquet file or a folder of them; or an array
            that gives rows by slices (`numpy.memmap`, an array of Zarr's or h5py's).
        column: of Parquet the column, or several as the columns of a matrix; of a group of Zarr's the array.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout, tempfile
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        ...     with numpyro.plate("n", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.3))
        ...         numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
        >>> path = tempfile.mkdtemp() + "/y.npy"
        >>> rng = np.random.default_rng(0)
        >>> np.save(path, rng.normal(5.0 * (rng.random(100_000) < 0.3), 1))
        >>> program = sumout.program(mixture, sumout.on_disk(path))
        >>> result = sumout.sample(program, minibatch={"n": 1000}, draws=100, tune=100, chains=2)
        >>> sorted(round(m) for m in result.posterior.mu.mean(("chain", "draw")).values.tolist())
        [0, 5]
    """
    if isinstance(source, RowsOnDisk):
        return source
    name = f"'{source}'" if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"
    opened = _open(Path(source), column) if isinstance(source, str | os.PathLike) else _chosen(source, column, name)
    if not all(hasattr(opened, part) for part in ("shape", "dtype", "__getitem__")):
        raise OptionError(
            f"on_disk: expected a path or an array that gives rows by slices, got {type(opened).__name__}."
        )
    shape, dtype = tuple(map(int, opened.shape)), np.dtype(opened.dtype).newbyteorder("=")
    if not shape or not shape[0]:
        raise OptionError(f"on_disk: {name} has the shape {shape}: there are no rows along a first axis.")
    if dtype.kind not in "biufc":
        raise OptionError(
            f"on_disk: {name} holds {dtype}, which is no number: store numbers, for example those of categories."
        )
    chunks = getattr(opened, "shards", None) or getattr(opened, "chunks", None) or (AT_ONCE,)
    return RowsOnDisk(name, shape, dtype, lambda start, stop: opened[start:stop], int(chunks[0]))


def _open(path: Path, column: str | Sequence[str] | None) -> Any:
    """What a path holds, by its name and what is there."""
    if not path.exists():
        raise FileError(f"on_disk: there is no '{path}'.")
    is_parquet = path.suffix in (".parquet", ".pq") or (path.is_dir() and any(path.glob("*.parquet")))
    if is_parquet:
        from sumout.model.parquet import Parquet  # pyarrow takes a while to import

        return _with_message(path, lambda: Parquet.opened(path, column))
    if path.is_dir():
        zarr = _import_zarr(path)
        return _chosen(_with_message(path, lambda: zarr.open(str(path), mode="r")), column, f"'{path}'")
    if path.suffix != ".npy":
        raise OptionError(f"on_disk: '{path}' is no .npy file, no Parquet and no folder of Zarr's: open it yourself.")
    return _chosen(_with_message(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False)), column, f"'{path}'")


def _import_zarr(path: Path) -> Any:
    try:
        import zarr  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise OptionError(f"on_disk: to read the folder '{path}' Zarr is needed: pip install zarr.") from error
    return zarr


def _with_message(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (OptionError, FileError):
        raise
    except Exception as error:  # whatever a library says of a file that it cannot read
        raise FileError(f"on_disk: '{path}' cannot be read: {error}.") from error


def _chosen(source: Any, column: str | Sequence[str] | None, name: str) -> Any:
    """The array itself, or one of a group."""
    is_group = not hasattr(source, "shape") and hasattr(source, "keys")
    if is_group:
        names = ", ".join(map(str, source.keys())) or "none"
        if not isinstance(column, str) or column not in source:
            raise OptionError(f"on_disk: {name} holds several arrays: name one by column=, of: {names}.")
        return source[column]
    if column is not None:
        raise OptionError(f"on_disk: {name} is one array, without columns: leave column out.")
    return source


def is_on_disk(arguments: Any) -> bool:
    """Whether any of the arguments is an array on the disk."""
    return any(isinstance(leaf, RowsOnDisk) for leaf in jax.tree.leaves(arguments))


@dataclass(frozen=True, eq=False)
class Rows:
    """Arguments of a model some of which have rows on the disk.

    Attributes:
        arguments: as they were given; an array in memory with as many rows counts as one on the disk.
        size: how many rows there are.
    """

    arguments: Any
    size: int

    @staticmethod
    def among(arguments: Any, of_rows: Callable[[str], bool] | None = None) -> "Rows":
        """The rows among some arguments.

        Args:
            arguments: a pytree.
            of_rows: whether the array of a path has rows; None if that follows from how long it is.
        """
        paths = paths_of(arguments)
        sizes = {p: len(leaf) for p, leaf in paths.items() if isinstance(leaf, RowsOnDisk)}
        size = next(iter(sizes.values()))
        for path, other in sizes.items():
            if other != size:
                raise ModelError(
                    f"the arrays on the disk have different numbers of rows: '{next(iter(sizes))}' {size:,}, "
                    f"'{path}' {other:,}."
                )

        def as_rows(path: str, leaf: Any) -> Any:
            if isinstance(leaf, RowsOnDisk) or not is_array(leaf):
                return leaf
            has_rows = size in leaf.shape if of_rows is None else of_rows(path)
            if has_rows and leaf.shape[:1] != (size,):
                raise ModelError(
                    f"'{path}', of shape {leaf.shape}, has its rows along another axis than the first, along which "
                    f"the {size:,} rows on the disk lie: transpose it."
                )
            return on_disk(np.asarray(leaf)) if has_rows else leaf

        leaves = [as_rows(path, leaf) for path, leaf in paths.items()]
        return Rows(jax.tree.unflatten(jax.tree.structure(arguments, is_leaf=_is_none), leaves), size)

    def first(self, num: int) -> Any:
        """The arguments with the first rows only, so many, in memory."""
        return jax.tree.map(lambda leaf: leaf.read(0, num) if isinstance(leaf, RowsOnDisk) else leaf, self.arguments)

    @property
    def window(self) -> int:
        """How many rows the model is traced with."""
        return min(WINDOW, self.size)

    @property
    def axes(self) -> dict[str, int]:
        """Of the arrays of rows, by path, along which axis."""
        return {path: 0 for path, leaf in paths_of(self.arguments).items() if isinstance(leaf, RowsOnDisk)}

    def program(self, few: "Program", with_rows: Callable[[str, int], Any], chosen: Sequence[str]) -> "Program":
        """A program of all rows, from that of a few.

        Args:
            few: the program of the window.
            with_rows: how to make others (`Program.with_rows`).
            chosen: names of the plates that have these rows.
        """
        sources = {p: leaf for p, leaf in paths_of(self.arguments).items() if isinstance(leaf, RowsOnDisk)}
        plates: Mapping[str, Plate] = {
            name: replace(plate, size=self.size) if name in chosen else plate for name, plate in few.plates.items()
        }
        made = replace(
            few, data={**few.data, **sources}, few=few, plates=plates, with_rows=with_rows, observed={},
            with_arrays=lambda arrays: made.refuse_on_disk(), arguments_as_data=None, predictor=None,
        )  # fmt: skip
        return made


def _is_none(leaf: Any) -> bool:
    return leaf is None
