"""Data as they come: pandas and polars columns and frames, xarray arrays and lists of numbers, as arrays.

JAX computes with arrays only. A Series becomes one, a frame a mapping of its columns that knows the names a frame has
for them, or an array of two dimensions; which of the two a model can work with shows when it is run. What is no holder
of numbers (text, a frame that a model uses by pandas' own means) stays as it is.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sumout.errors import ModelError

T = TypeVar("T")
S = TypeVar("S")

NUMERIC = "biufc"


class Columns:
    """The columns of a frame as arrays, by name: `frame["y"]`, `frame.y`, `frame[["a", "b"]]`, `len(frame)`."""

    def __init__(self, columns: dict[str, Any]):
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self._columns)

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, list):
            return jnp.stack([jnp.asarray(self._columns[one]) for one in name], axis=-1)
        return self._columns[name]

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"a table of the columns {', '.join(columns)} has no '{name}'")
        return columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), len(self._columns)


def _flatten_with_keys(table: Columns) -> tuple[list[Any], tuple[str, ...]]:
    names = tuple(table.columns)
    return [(jax.tree_util.DictKey(name), table[name]) for name in names], names


jax.tree_util.register_pytree_with_keys(
    Columns, _flatten_with_keys, lambda names, values: Columns(dict(zip(names, values, strict=True)))
)

Conversion = Callable[[Any], Any]


def conversions(arguments: Any) -> list[Conversion]:
    """The ways to turn arguments into arrays that are worth a try, the best first; the last leaves them as they are."""
    kinds = {_kind(node) for node in jax.tree.leaves(arguments, is_leaf=_is_holder)}
    if "frame" in kinds:
        return [_convert(as_columns), _convert(as_matrix), _keep]
    return [_convert(as_matrix), _keep] if "array" in kinds else [_keep]


def first_that_works(arguments: T, attempt: Callable[[T], S]) -> tuple[Conversion, S]:
    """The first conversion with which an attempt raises no error of a model, and what the attempt returned."""
    ways = conversions(arguments)
    first: ModelError | None = None
    for convert in ways:
        try:
            return convert, attempt(convert(arguments))
        except ModelError as error:
            first = first or error
    assert first is not None
    raise first


def as_arrays(arguments: Any) -> Any:
    """Arguments with all holders of numbers as arrays."""
    return _convert(as_matrix)(arguments)


def _keep(arguments: Any) -> Any:
    return arguments


def _convert(of_frame: Callable[[Any], Any]) -> Conversion:
    def one(node: Any) -> Any:
        kind = _kind(node)
        return of_frame(node) if kind == "frame" else _as_array(node) if kind == "array" else node

    return lambda arguments: jax.tree.map(one, arguments, is_leaf=lambda node: node is None or _is_holder(node))


def as_columns(frame: Any) -> Columns:
    """A frame as its columns; those that hold no numbers as they are."""
    columns = {str(name): frame[name] for name in frame.columns}
    return Columns({n: _as_array(c) if _numbers(c) is not None else _Opaque(c) for n, c in columns.items()})


class _Opaque:
    """A column of text, which no pytree looks into."""

    def __init__(self, column: Any):
        self.column = column

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["column"], name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.column)

    def __len__(self) -> int:
        return len(self.column)


def as_matrix(frame: Any) -> Any:
    """A frame as an array of two dimensions, if it holds numbers."""
    found = _numbers(frame)
    return frame if found is None else found


def _kind(node: Any) -> str:
    """What a node is: a "frame", another holder of numbers that should be an "array", or nothing of the kind."""
    if isinstance(node, list):
        return "array" if _numbers(node) is not None else ""
    if not hasattr(node, "__array__") or isinstance(node, np.ndarray | np.generic | jax.Array):
        return ""
    if hasattr(node, "columns") and len(getattr(node, "shape", ())) == 2:
        return "frame"
    return "array" if _numbers(node) is not None else ""


def _is_holder(node: Any) -> bool:
    return _kind(node) != ""


def _as_array(node: Any) -> np.ndarray:
    found = _numbers(node)
    assert found is not None
    return found


def _numbers(node: Any) -> np.ndarray | None:
    """The numbers that a holder holds; None if it holds anything else."""
    if isinstance(node, list) and (not node or not _is_nest_of_numbers(node)):
        return None
    try:
        array = np.array(node)
        if array.dtype == object and not isinstance(node, list):  # with pandas' own mark for what is missing
            array = np.array(node.to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError, AttributeError):
        return None
    return array if array.dtype.kind in NUMERIC else None


def _is_nest_of_numbers(node: Any) -> bool:
    """Whether a list holds numbers only, or lists and tuples of them."""
    if isinstance(node, list | tuple):
        return all(map(_is_nest_of_numbers, node))
    return isinstance(node, bool | int | float | complex | np.generic)
