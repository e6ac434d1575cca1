"""Which values can be reached: elements of arrays that follow from finite sites, as functions of few variables.

    q_t = q_{t−1} (1 − z_t)        q_t ∈ {0, 1}, whatever T is

An element that follows from one variable is known by the values it has for each value of that one. One that follows
from several is a variable itself: a function of these, its parents, known by a table, with the values that come out. So
a program of z and data becomes a graph of variables with few values each, found by running it on sets of values. What
has too many values is given up (`UNKNOWN`). A sum, a maximum, an "any" over more than two elements is a variable of its
own kind, a `Fold`: its elements may come in any order.

Elements are held as numbers, so that what only moves elements about can be applied to arrays of them.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

UNKNOWN = 0  # the number of elements that are not known as functions of few variables
NOTHING = -1  # the variable of elements that are constant

MOST_REACHED = 2048  # values of a variable
MOST_TOGETHER = 2**17  # joint values of the parents of a variable
MOST_VARIABLES = 400_000
LARGEST_WHOLE = 2**53  # that a float can tell from the next

ROUNDING = 16  # how many units in the last place values may be apart that are one but for rounding


@dataclass(frozen=True)
class Site:
    """A variable that is a discrete site: an element of the array of that name."""

    name: str
    number: int


@dataclass(frozen=True)
class Function:
    """A variable that follows from its parents: the number of its value for all their joint values, last fastest."""

    parents: tuple[int, ...]
    table: int  # among the arrays


@dataclass(frozen=True)
class Fold:
    """A variable that is a sum (a maximum, …) of functions of one variable each, and of a constant."""

    operation: str
    constant: int | None  # the number of an array of one element
    terms: tuple[tuple[int, int], ...]  # a variable, and the number of the array of the term's values


Source = Site | Function | Fold


@dataclass(frozen=True)
class Variable:
    """One of few values.

    Attributes:
        source: what it follows from.
        values: the number of the array of its values.
        kind: equal for variables that mean the same at different places of a program.
        num_sites: how many sites it follows from, counted once for each way that leads to them.
    """

    source: Source
    values: int
    kind: Hashable
    num_sites: int


class TooManyError(Exception):
    """More variables than are worth to be looked at."""


FOLDS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


class Reachable:
    """The variables met so far, and all elements as functions of one of them each.

    Attributes:
        variables: in an order in which parents come first.
        arrays: arrays of values, each stored once.
    """

    def __init__(self):
        self.variables: list[Variable] = []
        self.arrays: list[np.ndarray] = []
        self._array_numbers: dict[tuple[str, bytes], int] = {}
        self._elements: list[tuple[int, int]] = [(NOTHING, -1)]  # number 0 stands for what is not known
        self._element_numbers: dict[tuple[int, int], int] = {}
        self._results: dict[Hashable, int] = {}
        self._tables: dict[Hashable, tuple[Any, ...] | None] = {}
        self._sets: dict[tuple[str, int, int], int | None] = {}

    def array(self, values: np.ndarray) -> int:
        """The number of an array of values along one axis."""
        values = np.ascontiguousarray(values).ravel()
        key = (values.dtype.str, values.tobytes())
        if key not in self._array_numbers:
            self._array_numbers[key] = len(self.arrays)
            self.arrays.append(values)
        return self._array_numbers[key]

    def element(self, variable: int, values: int) -> int:
        """The number of the element with these values for those of a variable."""
        key = (variable, values)
        if key not in self._element_numbers:
            self._element_numbers[key] = len(self._elements)
            self._elements.append(key)
        return self._element_numbers[key]

    def of(self, element: int) -> tuple[int, int]:
        """The variable that an element follows from, and the number of the array of its values for those of that."""
        return self._elements[element]

    def site(self, name: str, number: int, values: np.ndarray) -> int:
        """The element that is a site."""
        listed = self.array(values)
        return self.element(self._add(Variable(Site(name, number), listed, ("site", name), 1)), listed)

    def constants(self, values: Any) -> np.ndarray:
        """Known values as elements."""
        values = np.asarray(values)
        distinct, place = np.unique(values, return_inverse=True)
        numbers = np.array([self.element(NOTHING, self.array(v[None])) for v in distinct], np.int64)
        return numbers[place].reshape(values.shape)

    def _add(self, variable: Variable) -> int:
        if len(self.variables) >= MOST_VARIABLES:
            raise TooManyError
        self.variables.append(variable)
        return len(self.variables) - 1

    def apply(self, key: Hashable, function: Callable[..., np.ndarray], operands: Sequence[np.ndarray]) -> np.ndarray:
        """A function of the elements in the same places of some arrays.

        Args:
            key: equal for equal functions.
            function: of arrays of values.
            operands: arrays of elements.
        """
        broadcast = np.broadcast_arrays(*operands)
        rows = np.stack([operand.ravel() for operand in broadcast], axis=1)
        codes = np.zeros(len(rows), np.int64)
        for column in rows.T:  # rows that are equal have equal codes
            codes = np.unique(codes * (len(self._elements) + 1) + column, return_inverse=True)[1].reshape(-1)
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        found = [self._apply_to(key, function, tuple(row)) for row in rows[first].tolist()]
        return np.array(found, np.int64)[place].reshape(broadcast[0].shape)

    def _apply_to(self, key: Hashable, function: Callable[..., np.ndarray], row: tuple[int, ...]) -> int:
        label = (key, row)
        if label not in self._results:
            self._results[label] = UNKNOWN if UNKNOWN in row else self._compute(key, function, row)
        return self._results[label]

    def _compute(self, key: Hashable, function: Callable[..., np.ndarray], row: tuple[int, ...]) -> int:
        elements = [self._elements[number] for number in row]
        parents = sorted({variable for variable, _ in elements} - {NOTHING})
        place = {variable: axis for axis, variable in enumerate(parents)}
        pattern = tuple((place.get(variable, NOTHING), values) for variable, values in elements)
        label = (key, pattern)
        if label not in self._tables:
            self._tables[label] = self._tabulate(function, pattern, len(parents))
        table = self._tables[label]
        if table is None:
            return UNKNOWN
        axes, values, numbers = table
        if len(axes) <= 1:
            return self.element(parents[axes[0]] if axes else NOTHING, values)
        kept = tuple(parents[axis] for axis in axes)
        num_sites = sum(self.variables[parent].num_sites for parent in kept)
        made = Variable(Function(kept, numbers), values, ("function", key), min(num_sites, 99))
        return self.element(self._add(made), values)

    def _tabulate(self, function: Callable[..., np.ndarray], pattern: tuple, num_axes: int) -> tuple[Any, ...] | None:
        """Of a function of some variables: on which it depends, its values, and the number of its value at each point.

        For one variable, or none, the values are those at each point.
        """
        sizes = [1] * num_axes
        for axis, values in pattern:
            if axis >= 0:
                sizes[axis] = len(self.arrays[values])
        if np.prod(sizes, dtype=float) > MOST_TOGETHER:
            return None
        operands = []
        for axis, values in pattern:
            shape = [n if i == axis else 1 for i, n in enumerate(sizes)]
            operands.append(np.broadcast_to(self.arrays[values].reshape(shape or 1), sizes or 1).ravel())
        with np.errstate(all="ignore"):
            found = np.asarray(function(*operands)).ravel()
        distinct, numbers = distinguish(found)
        if len(distinct) > MOST_REACHED or not _is_told_apart(distinct):
            return None
        grid = numbers.reshape(sizes)
        axes = [axis for axis in range(num_axes) if (np.diff(grid, axis=axis) != 0).any()]
        unused = tuple(axis for axis in range(num_axes) if axis not in axes)
        whole = tuple(0 if axis in unused else slice(None) for axis in range(num_axes))
        grid = grid[whole]
        if len(axes) <= 1:
            return axes, self.array(distinct[grid]), None
        return axes, self.array(distinct), self.array(grid)

    def fold(self, operation: str, rows: np.ndarray) -> np.ndarray:
        """The sum (maximum, …) along the last axis."""
        flat = rows.reshape(-1, rows.shape[-1])
        found = np.array([self._fold(operation, tuple(row)) for row in flat.tolist()], np.int64)
        return found.reshape(rows.shape[:-1])

    def combine(self, operation: str, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The sum (maximum, …) of two."""
        return self.apply(("fold", operation), FOLDS[operation], [one, other])

    def _fold(self, operation: str, row: tuple[int, ...]) -> int:
        label = ("fold", operation, tuple(sorted(row)))
        if label not in self._results:
            self._results[label] = UNKNOWN if UNKNOWN in row else self._compute_fold(operation, row)
        return self._results[label]

    def _compute_fold(self, operation: str, row: tuple[int, ...]) -> int:
        ufunc, by_variable = FOLDS[operation], {}
        for number in row:
            variable, values = self._elements[number]
            array = self.arrays[values]
            by_variable[variable] = ufunc(by_variable[variable], array) if variable in by_variable else array
        constant = by_variable.pop(NOTHING, None)
        if len(by_variable) <= 2:
            parts = [self.element(variable, self.array(values)) for variable, values in by_variable.items()]
            parts += [] if constant is None else [self.element(NOTHING, self.array(constant))]
            first, *rest = parts
            for part in rest:
                first = int(self.combine(operation, np.array(first), np.array(part)))
            return first
        terms = tuple(sorted((variable, self.array(values)) for variable, values in by_variable.items()))
        base = None if constant is None else self.array(constant)
        reached = terms[0][1] if base is None else base
        for _, values in terms[base is None :]:
            reached = self._reach(operation, reached, values)
            if reached is None:
                return UNKNOWN
        values = self.array(distinguish(self.arrays[reached])[0])
        if len(self.arrays[values]) == 1:
            return self.element(NOTHING, values)
        num_sites = sum(self.variables[variable].num_sites for variable, _ in terms)
        made = Variable(Fold(operation, base, terms), values, ("fold", operation), min(num_sites, 99))
        return self.element(self._add(made), values)

    def _reach(self, operation: str, reached: int, values: int) -> int | None:
        """The values that come out if one of these is combined with one of those."""
        label = (operation, reached, values)
        if label not in self._sets:
            distinct = np.unique(self.arrays[values])
            found = distinguish(FOLDS[operation].outer(self.arrays[reached], distinct).ravel())[0]
            is_usable = len(found) <= MOST_REACHED and _is_told_apart(found)
            self._sets[label] = self.array(found) if is_usable else None
        return self._sets[label]


def _is_told_apart(values: np.ndarray) -> bool:
    """Whether whole numbers are small enough to be compared as floats, as those of states are."""
    return values.dtype.kind not in "iu" or bool(((values <= LARGEST_WHOLE) & (values >= -LARGEST_WHOLE)).all())


def distinguish(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values in ascending order, and the number of each; fractions that differ by rounding are one.

    They are that only if there can be no other reason: not if they are whole, halves or quarters, which need no
    rounding; and none are, if some as near to each other span more than rounding would, or if some are hardly farther
    from each other than those.
    """
    distinct, numbers = np.unique(values, return_inverse=True)
    numbers = numbers.reshape(-1)
    if not np.issubdtype(distinct.dtype, np.floating) or len(distinct) < 2:
        return distinct, numbers
    near = ROUNDING * np.finfo(distinct.dtype).eps
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(distinct[1:]), np.abs(distinct[:-1]))
        gaps = np.diff(distinct) / (near * size)
        is_exact = np.rint(4 * distinct) == 4 * distinct
    is_new = ~(gaps <= 1) | ~np.isfinite(distinct[1:]) | ~np.isfinite(distinct[:-1]) | (is_exact[1:] & is_exact[:-1])
    if is_new.all():
        return distinct, numbers
    first = np.flatnonzero(np.concatenate([[True], is_new]))
    last = np.append(first[1:], len(distinct)) - 1
    with np.errstate(invalid="ignore"):
        widths = distinct[last] - distinct[first]
        is_wide = widths > near * np.maximum(np.abs(distinct[first]), np.abs(distinct[last]))
    if is_wide.any() or (is_new & (gaps <= 8)).any():
        return distinct, numbers
    return distinct[first], (np.searchsorted(first, np.arange(len(distinct)), side="right") - 1)[numbers]
