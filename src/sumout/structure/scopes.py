"""Sets of sites, each known by a number, so that an array of numbers says which sites every element depends on.

Number 0 is the empty set, numbers 1..N are the single sites 0..N−1, larger numbers are unions, each stored once.
Because a scope is a plain integer, an operation that only moves elements about (a slice, a transpose, a gather) can be
applied to the array of numbers as it stands; one that mixes elements takes unions.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from sumout.structure.known_values import Differs, Holds, Lazy

Ids = np.ndarray  # integers, the shape of the array they describe

EMPTY = 0
FEW = 8  # so many columns are joined one by one


class Scopes:
    """The table of all scopes met so far in one reading."""

    def __init__(self, num_sites: int):
        self.num_sites = num_sites
        self._unions: list[frozenset[int]] = []
        self._number: dict[frozenset[int], int] = {}
        self._joined: dict[int, int] = {}

    @property
    def num_numbers(self) -> int:
        """How many scopes there are, the empty one included."""
        return 1 + self.num_sites + len(self._unions)

    def members(self, number: int) -> frozenset[int]:
        """The sites of a scope."""
        if number == EMPTY:
            return frozenset()
        if number <= self.num_sites:
            return frozenset((number - 1,))
        return self._unions[number - self.num_sites - 1]

    def matrix(self, numbers: Ids) -> sp.csr_array:
        """Scopes (rows) as a sparse truth table over the sites."""
        distinct, rows = np.unique(numbers, return_inverse=True)
        members = [sorted(self.members(int(n))) for n in distinct]
        indptr = np.cumsum([0, *(len(m) for m in members)])
        indices = np.fromiter((site for m in members for site in m), np.int64, indptr[-1])
        shape = (len(members), self.num_sites)
        return sp.csr_array((np.ones(len(indices), bool), indices, indptr), shape=shape)[rows]

    def number(self, members: frozenset[int]) -> int:
        """The number of a set of sites, a new one if it was not met before."""
        if len(members) <= 1:
            return next(iter(members)) + 1 if members else EMPTY
        if members not in self._number:
            self._unions.append(members)
            self._number[members] = self.num_sites + len(self._unions)
        return self._number[members]

    def union(self, a: Ids | None, b: Ids | None) -> Ids | None:
        """Element-wise union; None stands for an array without any dependence."""
        if a is None or b is None:
            return b if a is None else a
        if a is b:
            return a
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = np.broadcast_arrays(content(a), content(b))
        out = np.array(np.maximum(a, b))
        mixed = (a != b) & (a != EMPTY) & (b != EMPTY)
        if mixed.any():
            out[mixed] = self._join(np.minimum(a[mixed], b[mixed]), out[mixed])
        return np.broadcast_to(out, shape)

    def _join(self, low: Ids, high: Ids) -> Ids:
        pairs, place = np.unique(low.astype(np.int64) << 32 | high, return_inverse=True)
        joined = [self._join_pair(pair) for pair in pairs.tolist()]
        return np.asarray(joined, low.dtype)[place]

    def _join_pair(self, pair: int) -> int:
        if pair not in self._joined:
            low, high = self.members(pair >> 32), self.members(pair & 0xFFFFFFFF)
            self._joined[pair] = self.number(low | high)
        return self._joined[pair]

    def reduce(self, ids: Ids, axes: tuple[int, ...], keepdims: bool = False) -> Ids:
        """Union along axes."""
        if keepdims:
            shape = [1 if axis in axes else n for axis, n in enumerate(ids.shape)]
            return np.broadcast_to(np.expand_dims(self.reduce(ids, axes), axes), shape)
        whole = tuple(n for axis, n in enumerate(ids.shape) if axis not in axes)
        ids = content(ids)
        kept = [axis for axis in range(ids.ndim) if axis not in axes]
        shape = [ids.shape[axis] for axis in kept]
        length = int(np.prod([ids.shape[axis] for axis in axes]))
        rows = ids.transpose([*kept, *axes]).reshape(int(np.prod(shape)), length)
        if length <= FEW:
            out = np.zeros(len(rows), ids.dtype)
            for column in rows.T:
                out = self.union(out, column)
        else:
            met: dict[bytes, int] = {}  # rows repeat: every output of a matrix product sees the same column
            out = np.zeros(len(rows), ids.dtype)
            for i, row in enumerate(np.ascontiguousarray(rows)):
                label = row.tobytes()
                if label not in met:
                    met[label] = self.everything([row])
                out[i] = met[label]
        return np.broadcast_to(np.asarray(out).reshape(shape), whole)

    def accumulate(self, ids: Ids, axis: int, reverse: bool) -> Ids:
        """Running union along an axis."""
        out = np.moveaxis(np.flip(ids, axis) if reverse else ids, axis, 0).copy()
        for i in range(1, len(out)):
            out[i : i + 1] = self.union(out[i - 1 : i], out[i : i + 1])
        out = np.moveaxis(out, 0, axis)
        return np.flip(out, axis) if reverse else out

    def everything(self, arrays: list[Ids | None]) -> int:
        """The union of all elements of all arrays."""
        numbers = np.unique(
            np.concatenate([np.zeros(0, np.int64), *(content(a).ravel() for a in arrays if a is not None)])
        )
        single = numbers[(numbers != EMPTY) & (numbers <= self.num_sites)] - 1
        unions = (self.members(n) for n in numbers[numbers > self.num_sites].tolist())
        return self.number(frozenset(single.tolist()).union(*unions))


def content(ids: Ids) -> Ids:
    """The array with size 1 along the axes that it was only broadcast along.

    A row of a table for each of a million tokens has a million scopes, however long the rows are.
    """
    return ids[tuple(slice(1) if step == 0 else slice(None) for step in ids.strides)] if ids.size else ids


# What a reading knows of an array: its shape, its scopes, and its values where x and z do not enter them.
#
# Values are found only when a rule asks for them (an index, a mask, a loop counter): most of what is known, such as
# the observations, never matters for the structure.


@dataclass(frozen=True, eq=False)
class Abstract:
    """An array as the reading sees it: no `ids` if no element depends on z, no `known` if values are not known."""

    shape: tuple[int, ...]
    ids: Ids | None = None
    known: Lazy | None = None
    parts: tuple[Lazy | None, ...] | None = None  # where only some columns (along the last axis) are known

    @property
    def scopes(self) -> Ids:
        """The scopes of all elements, zeros where there is no dependence."""
        return np.zeros(self.shape, np.int64) if self.ids is None else self.ids

    @property
    def value(self) -> Any:
        """The known values: a NumPy array, or random keys."""
        assert self.known is not None
        return self.known.get()

    def holds(self, number: Any) -> bool:
        """Whether some of the known values are that number."""
        known = self.known
        # What is rounded elsewhere may miss the number: then more depends on more, which is never wrong.
        return known is not None and bool(known.ask(Holds(number), roughly=True) and known.ask(Holds(number)))

    def differs(self, number: Any) -> np.ndarray:
        """Which of the known values are not that number; all else of them remains unasked for."""
        assert self.known is not None
        return self.known.ask(Differs(number))

    @property
    def columns(self) -> tuple[Lazy | None, ...]:
        """The known values of each column along the last axis; None for an unknown one."""
        if self.parts is not None:
            return self.parts
        known = self.known
        if known is None:
            return (None,) * self.shape[-1]
        return tuple(Lazy(lambda i=i, known=known: known.get()[..., i]) for i in range(self.shape[-1]))


def as_known(value: Any) -> Any:
    """An array as the reading computes with it: NumPy's, or random keys as they are."""
    return value if jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.extended) else np.asarray(value)


def constant(value: Any) -> Abstract:
    """An array all of whose values are known."""
    array = as_known(value)
    return Abstract(np.shape(array), known=Lazy.of(array))


def dependent(shape: tuple[int, ...], ids: Ids | None) -> Abstract:
    """An array of unknown values; scopes that turn out empty everywhere are forgotten."""
    if ids is None or not np.any(content(ids) != EMPTY):
        return Abstract(shape)
    return Abstract(shape, np.broadcast_to(ids, shape))
