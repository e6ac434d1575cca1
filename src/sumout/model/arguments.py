"""Arguments of a model: arrays become data, everything else stays as it is.

A model may be given arrays, numbers, strings, dicts of them. Arrays go through compiled code as arguments; the rest
(sizes, switches, names) steers Python and is part of the program. What a program is made of is copied: an array that
its owner changes later does not change it.
"""

import copy
import dis
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from sumout.errors import ModelError, OptionError

# `jnp.asarray` compiles a copy for every new shape, at some ten milliseconds each. The device's own transfer compiles
# nothing, but may share the memory of what it is given, so that whoever writes there later changes both: hence the
# copy.

T = TypeVar("T")


def as_jax(tree: T) -> T:
    """The same with every array as JAX's own, in the precision in force; nothing is compiled for that."""
    return jax.tree.map(_as_jax, tree)


def _as_jax(array: Any) -> jax.Array:
    return array if isinstance(array, jax.Array) else jax.device_put(np.array(array))


# What JAX raises when Python code asks a traced array for its values.
BY_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@dataclass(frozen=True, eq=False)
class Arguments:
    """A pytree of arguments, split into traced arrays (by path) and the rest."""

    tree: Any
    leaves: tuple[Any, ...]
    paths: tuple[str, ...]
    traced: tuple[bool, ...]

    @property
    def data(self) -> dict[str, jax.Array]:
        """The traced arrays by their paths."""
        chosen = [(p, leaf) for p, leaf, traced in zip(self.paths, self.leaves, self.traced, strict=True) if traced]
        for path, leaf in chosen:
            reject_too_large(path, leaf)
        return {path: as_jax(leaf) for path, leaf in chosen}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Paths of the arrays that are kept by value."""
        chosen = zip(self.paths, self.leaves, self.traced, strict=True)
        return tuple(path for path, leaf, traced in chosen if is_array(leaf) and not traced)

    def sort_out(self, arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Other arguments, by path: those that are data here, and the rest."""
        flat, tree = jax.tree_util.tree_flatten_with_path(arguments, is_leaf=lambda leaf: leaf is None)
        if tree != self.tree:
            raise OptionError(f"the arguments have the structure {tree}; the program was made from {self.tree}.")
        named = dict(zip(self.paths, (leaf for _, leaf in flat), strict=True))
        traced = {path for path, is_traced in zip(self.paths, self.traced, strict=True) if is_traced}
        return {p: leaf for p, leaf in named.items() if p in traced}, {
            p: leaf for p, leaf in named.items() if p not in traced
        }

    def with_arrays(self, arrays: Mapping[str, Any]) -> Any:
        """The pytree of arguments with other arrays in some places, by path, of the same shapes and types."""
        given = dict(_by_path(arrays, self.paths))
        known = {path: leaf for path, leaf in zip(self.paths, self.leaves, strict=True) if is_array(leaf)}
        placed = {path: _like(path, known.get(path), value, known) for path, value in given.items()}
        leaves = [placed.get(path, leaf) for path, leaf in zip(self.paths, self.leaves, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)

    @property
    def whole(self) -> Any:
        """The pytree of arguments as it was given."""
        return jax.tree.unflatten(self.tree, self.leaves)

    def axes_of(self, size: int) -> dict[str, int]:
        """Which arrays have so many elements along an axis, and along which: the first such."""
        arrays = {path: leaf for path, leaf in zip(self.paths, self.leaves, strict=True) if is_array(leaf)}
        return {path: leaf.shape.index(size) for path, leaf in arrays.items() if size in leaf.shape}

    def first_along(self, axes: Mapping[str, int], num: int) -> Any:
        """The pytree of arguments with the first elements only, so many, of some arrays along their axes."""
        leaves = [
            np.asarray(leaf)[(slice(None),) * axes[path] + (slice(num),)] if path in axes else leaf
            for path, leaf in zip(self.paths, self.leaves, strict=True)
        ]
        return jax.tree.unflatten(self.tree, leaves)

    def rebuild(self, data: dict[str, jax.Array]) -> Any:
        """The pytree of arguments with `data` in the place of its traced arrays, the others as NumPy arrays.

        These are copies, so that a model that works on them in place finds the same the next time it is traced.
        """
        chosen = zip(self.paths, self.leaves, self.traced, strict=True)
        return jax.tree.unflatten(self.tree, [data[path] if traced else _copied(leaf) for path, leaf, traced in chosen])


def _by_path(arrays: Mapping[str, Any], paths: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Arrays by path; what is given by the name of a whole argument is taken apart."""
    for name, value in arrays.items():
        if name in paths or not any(path.startswith(f"{name}.") for path in paths):
            yield name, value
            continue
        for path, leaf in jax.tree_util.tree_leaves_with_path({name: value}):
            yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


def _like(path: str, old: Any, value: Any, known: Mapping[str, Any]) -> Any:
    """An array that can take the place of another."""
    if old is None:
        names = ", ".join(known) or "none"
        raise OptionError(f"with_data: there is no array '{path}' among the data; the arrays are: {names}.")
    try:
        new = value if isinstance(value, jax.Array) else np.array(value)
    except ValueError as error:
        raise OptionError(f"with_data: '{path}' is no array: {error}.") from error
    if not is_array(new):
        raise OptionError(f"with_data: '{path}' is no array of numbers, but {type(value).__name__} ({new.dtype}).")
    types = [jax.dtypes.canonicalize_dtype(array.dtype) for array in (old, new)]
    if new.shape != old.shape:
        raise OptionError(
            f"with_data: '{path}' has the shape {new.shape}, in the program {old.shape}. Code is compiled for one "
            "shape: make a new program with sumout.program."
        )
    if types[0] != types[1]:
        raise OptionError(
            f"with_data: '{path}' has the type {types[1]}, in the program {types[0]}: convert it, as with "
            f"`.astype({str(types[0])!r})`, or make a new program."
        )
    return new


def _copied(leaf: Any) -> Any:
    """A leaf that nobody else can change: an array as NumPy's; other holders of arrays (a data frame) as they are."""
    if is_array(leaf):
        return np.array(leaf)
    return copy.deepcopy(leaf) if hasattr(leaf, "__array__") and not isinstance(leaf, jax.Array) else leaf


def is_array(leaf: Any) -> bool:
    """Whether a leaf is numeric array data (not a Python number, a string, a key or an object)."""
    if not isinstance(leaf, np.ndarray | jax.Array):
        return False
    return not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) and np.dtype(leaf.dtype).kind in "biufc"


def split_arguments(arguments: Any, trace: Callable[[Arguments], Any]) -> Arguments:
    """Split arguments so that as many arrays as possible are unknown when a model is traced; `trace` tries a split.

    A model may use an argument by value (`int(group.max())`, `np.log(y)`, `y[mask]`). Such an array is kept as it is;
    each of the others becomes data.
    """
    tree, named = jax.tree.structure(arguments, is_leaf=lambda leaf: leaf is None), paths_of(arguments)
    paths = tuple(named)
    for path, leaf in named.items():
        _reject_unusable(path, leaf)
    leaves = tuple(map(_on_one_device, named.values()))

    def attempt(traced: tuple[bool, ...]) -> Arguments:
        split = Arguments(tree, leaves, paths, traced)
        trace(split)
        return split

    arrays = tuple(is_array(leaf) for leaf in leaves)
    split = most_traced(attempt, arrays)
    kept = [as_jax(leaf) if traced else _copied(leaf) for leaf, traced in zip(leaves, split.traced, strict=True)]
    return replace(split, leaves=tuple(kept))


def paths_of(arguments: Any) -> dict[str, Any]:
    """The leaves of a pytree of arguments by their paths."""
    flat, _ = jax.tree_util.tree_flatten_with_path(arguments, is_leaf=lambda leaf: leaf is None)
    paths = _distinct([jax.tree_util.keystr(path, simple=True, separator=".") or "data" for path, _ in flat])
    return dict(zip(paths, (leaf for _, leaf in flat), strict=True))


class Split(Protocol):
    """What says which arrays are traced."""

    @property
    def traced(self) -> tuple[bool, ...]:
        """Of all arguments."""
        ...


S = TypeVar("S", bound=Split)


def most_traced(attempt: Callable[[tuple[bool, ...]], S], arrays: tuple[bool, ...]) -> S:
    """The split with as many of the arrays traced as can be; an attempt raises where it fails."""
    try:
        return attempt(arrays)
    except ModelError:
        raise
    except Exception:
        # An argument used by value, or a model that cannot run at all: then it fails without traced arrays, too.
        split = attempt(tuple(False for _ in arrays))
    for i in np.flatnonzero(arrays):
        try:
            split = attempt((*split.traced[:i], True, *split.traced[i + 1 :]))
        except Exception:
            continue  # this one is used by value
    return split


def _distinct(paths: list[str]) -> tuple[str, ...]:
    """Paths that read the same ({"a.b": 1, "a": {"b": 2}}), numbered."""
    seen: dict[str, int] = {}
    distinct = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        distinct.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return tuple(distinct)


def _reject_unusable(path: str, leaf: Any) -> None:
    if isinstance(leaf, np.ma.MaskedArray):
        raise ModelError(
            f"argument '{path}' is a masked array, whose mask JAX would ignore: pass values and mask apart."
        )
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        raise ModelError(
            f"argument '{path}' is spread over several processes, so that no process can read all of it: give every "
            "process the whole array, as by np.load; mesh= and shard= of sumout.sample spread it."
        )
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "biufc":
        raise ModelError(
            f"argument '{path}' is a NumPy array of type {leaf.dtype}, which JAX cannot compute with: "
            "convert it to numbers, for example with `.astype(float)` or `np.unique(..., return_inverse=True)`."
        )


def reject_too_large(path: str, leaf: Any) -> None:
    """Whole numbers that the type in force cannot hold: JAX would cut their upper digits off."""
    array = np.asarray(leaf)
    held = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.dtype.kind not in "iu" or held == array.dtype or not array.size:
        return
    ends = np.iinfo(held)
    too_large = (array < ends.min) | (array > ends.max)
    if too_large.any():
        raise ModelError(
            f"argument '{path}' holds the whole number {array[too_large][0]}, which {held}, JAX's type for it, cannot "
            'hold. Pass it as a float, allow longer numbers with jax.config.update("jax_enable_x64", True), or leave '
            "it out if nothing depends on it."
        )


def _on_one_device(leaf: Any) -> Any:
    """An array that is not spread over devices: where rows lie is said when a program is sampled."""
    return np.asarray(leaf) if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 else leaf


READERS = {"locals", "vars", "eval", "exec"}  # of any variable, without naming it


def never_read(function: Any, names: Iterable[str]) -> tuple[str, ...]:
    """Which of these arguments the code of a function nowhere reads; none where the code cannot be looked into."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or READERS & set(code.co_names):
        return ()
    read = set(code.co_cellvars)  # by functions within it
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("LOAD_"):
            # Newer versions of Python load two variables in one instruction.
            read |= set(instruction.argval if isinstance(instruction.argval, tuple) else [instruction.argval])
    return tuple(name for name in names if name in code.co_varnames and name not in read)


def watch_outside(function: Any) -> Callable[[], tuple[str, ...]]:
    """Tells which of the NumPy arrays that a function refers to, but is not given, have been changed since now."""
    function = inspect.unwrap(getattr(function, "func", getattr(function, "fn", function)))
    try:
        closed = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # no function of Python's, or one around which something has no value yet
        return tuple
    named = {**closed.globals, **closed.nonlocals}
    seen = [(name, array, _digest(array)) for name, array in named.items() if isinstance(array, np.ndarray)]
    return lambda: tuple(name for name, array, digest in seen if _digest(array) != digest)


def _digest(array: np.ndarray) -> bytes:
    return hashlib.blake2b(array.tobytes(), digest_size=16).digest()
