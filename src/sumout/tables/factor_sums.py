"""Sums of factor elements by owner: which elements belong to whom is worked out once, when the sums are built.

Owners are the members of a block, or the cells of a tree of tables. Where the elements of an array lie in the order of
their owners, or in even steps along each axis, no index is needed; else each owner has a padded list of its elements,
or, where these are of very uneven length, sums are taken by segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from sumout.compile.policy import BOX_WASTE, FEW_RUNS, FEW_SMALL_RUNS, SMALL_FACTOR, WASTE
from sumout.jaxpr.spread import Combination
from sumout.structure.structure import Structure
from sumout.tables.weighted_sums import sum_combination

Elements = tuple[np.ndarray, np.ndarray]  # numbers of factor elements, and the owner of each


@partial(jax.tree_util.register_dataclass, data_fields=["owned"], meta_fields=["bundles", "size"])
@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of the elements of factor arrays, one for each owner.

    Attributes:
        bundles: the factor arrays that are summed together.
        size: number of owners.
        owned: for each bundle how its elements are shared out: a `Layout`, `Runs`, a `Box`, a `Listing` or `Segments`.
    """

    bundles: tuple[tuple[int, ...], ...]
    size: int
    owned: tuple[Any, ...]

    def __call__(self, factors: Sequence[Any]) -> Array:
        """The sums `(size,)` of factors given as `Spread`."""
        total = jnp.zeros(self.size, jnp.result_type(float))
        for bundle, owned in zip(self.bundles, self.owned, strict=True):
            first = factors[bundle[0]]
            found = None
            if len(bundle) == 1 and isinstance(first, Combination) and not _is_small_look_up(owned, first.shape):
                found = sum_combination(first, owned, self.size, total.dtype)
            if found is not None:
                total += found
            else:
                total += owned.sums(jnp.concatenate([factors[i].full.ravel() for i in bundle]), self.size)
        return _never_nan(total)

    def uniform(self, factors: Sequence[Any]) -> Array | None:
        """The one number that is the sum of every owner with an element, if that much is clear from the factors."""
        if any(len(bundle) != 1 for bundle in self.bundles) or not all(_is_one_each(owned) for owned in self.owned):
            return None
        contents = [factors[i].content for (i,) in self.bundles]
        if any(content.size != 1 for content in contents):
            return None
        if any((owned.owners(self.size) != self.owners).any() for owned in self.owned):
            return None
        return _never_nan(reduce(jnp.add, [content.reshape(()) for content in contents]))

    def small(self, factors: Sequence[Any], shape: tuple[int, ...]) -> Array | None:
        """The sums of owners that have an element, as an array of this shape, of size 1 where they do not vary.

        Other owners may have any sum. None if that is no smaller, or owners are not shared out along the axes.
        """
        if any(len(bundle) != 1 for bundle in self.bundles) or not all(isinstance(o, Box) for o in self.owned):
            return None
        if any(o.summed or o.sizes != shape or (o.owners(self.size) != self.owners).any() for o in self.owned):
            return None
        found = [owned.spread(factors[i].content, factors[i].shape) for (i,), owned in self._each]
        sizes = jnp.broadcast_shapes(*(array.shape for array in found))
        return _never_nan(reduce(jnp.add, found)) if prod(sizes) < self.size else None

    @property
    def _each(self) -> list[tuple[tuple[int, ...], Any]]:
        return list(zip(self.bundles, self.owned, strict=True))

    @property
    def owners(self) -> np.ndarray:
        """Which owners have an element, for sums that are uniform or small."""
        return self.owned[0].owners(self.size)


def _is_small_look_up(owned: Any, shape: tuple[int, ...]) -> bool:
    """Whether a few elements are looked up, one for each owner: nothing is summed, and once will do for all parts."""
    is_one_each = isinstance(owned, Runs) or (isinstance(owned, Listing) and owned.elements.shape[-1] == 1)
    return is_one_each and prod(shape) <= SMALL_FACTOR


def _is_one_each(owned: Any) -> bool:
    """Whether no owner has more than one element."""
    return isinstance(owned, Runs) or (isinstance(owned, Box) and not owned.summed)


@jax.custom_jvp
def _never_nan(total: Array) -> Array:
    """−∞ in place of NaN.

    Where the sum is −∞ its cotangent is zero as it is: to look once more where that was is to compute the sum again.
    """
    return jnp.where(jnp.isnan(total), -jnp.inf, total)


_never_nan.defjvp(lambda primals, tangents: (_never_nan(*primals), tangents[0]))


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["owner_first"])
@dataclass(frozen=True)
class Layout:
    """Elements in the order of their owners."""

    owner_first: bool

    def summed_axes(self, shape: tuple[int, ...], size: int) -> tuple[int, ...] | None:
        """Axes of an array along which the owner stays the same; None where they are not whole axes."""
        count = len(shape)
        for kept in range(count + 1):
            if prod(shape[:kept] if self.owner_first else shape[count - kept :]) == size:
                return tuple(range(kept, count)) if self.owner_first else tuple(range(count - kept))
        return None

    def cut(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The elements that count, in an array of as many axes."""
        del shape
        return array

    def place(self, array: Array, size: int) -> Array:
        """What is left of an array after its sum, by owner."""
        return array.reshape(size)

    def sums(self, flat: Array, size: int) -> Array:
        """For each owner the sum of its elements."""
        return flat.reshape(size, -1).sum(axis=1) if self.owner_first else flat.reshape(-1, size).sum(axis=0)


class Run(NamedTuple):
    """One element each for some owners: numbers of the first owner and element, steps between them, how many."""

    owner: int
    owner_step: int
    element: int
    element_step: int
    count: int

    def take(self, flat: Array) -> Array:
        """The elements, in the order of their owners."""
        last = self.element + self.element_step * (self.count - 1)
        low, high = min(self.element, last), max(self.element, last)
        taken = lax.slice(flat, (low,), (high + 1,), (abs(self.element_step),))
        return lax.rev(taken, (0,)) if self.element_step < 0 else taken


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["runs"])
@dataclass(frozen=True)
class Runs:
    """One element each for a few runs of owners, in even steps; none for the others."""

    runs: tuple[Run, ...]

    def owners(self, size: int) -> np.ndarray:
        """Which owners have an element."""
        mask = np.zeros(size, bool)
        for run in self.runs:
            mask[run.owner :: run.owner_step][: run.count] = True
        return mask

    def sums(self, flat: Array, size: int) -> Array:
        """The elements in their places."""
        if all(run.owner_step == 1 for run in self.runs):
            return self._end_to_end(flat, size)
        total = jnp.zeros(size, flat.dtype)
        for run in self.runs:
            rest = size - run.owner - run.owner_step * (run.count - 1) - 1
            total += lax.pad(run.take(flat), jnp.zeros((), flat.dtype), [(run.owner, rest, run.owner_step - 1)])
        return total

    def _end_to_end(self, flat: Array, size: int) -> Array:
        parts, filled = [], 0
        for run in self.runs:
            parts += [jnp.zeros(run.owner - filled, flat.dtype), run.take(flat)]
            filled = run.owner + run.count
        parts.append(jnp.zeros(size - filled, flat.dtype))
        return jnp.concatenate([part for part in parts if len(part)])


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mask"],
    meta_fields=["shape", "bounds", "summed", "reversed", "order", "sizes", "offsets"],
)
@dataclass(frozen=True, eq=False)
class Box:
    """A box of an array, along each axis of which owners are in even steps.

    Attributes:
        mask: the elements of the box that count, in its shape; None for all.
        shape: of the array.
        bounds: of the box, along each axis.
        summed: axes along which the owner stays the same.
        reversed: axes along which the owner's number goes down; of what is left after the sum.
        order: the other axes by the step of the owner's number, largest first.
        sizes: the owners as an array with these axes, and one more if the smallest step is larger than 1.
        offsets: where the box stands in it.
    """

    mask: Any
    shape: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]
    summed: tuple[int, ...]
    reversed: tuple[int, ...]
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]

    def owners(self, size: int) -> np.ndarray:
        """Which owners have an element."""
        inside = np.ones([high - low for low, high in self.bounds], bool) if self.mask is None else self.mask
        if self.summed:
            inside = inside.any(axis=self.summed)
        inside = np.flip(inside, self.reversed).transpose(self.order)
        inside = inside.reshape(*inside.shape, *(1,) * (len(self.sizes) - inside.ndim))
        return np.pad(inside, self._pads(inside.shape)).reshape(size)

    def summed_axes(self, shape: tuple[int, ...], size: int) -> tuple[int, ...] | None:
        """Axes of an array along which the owner stays the same; None if the array has other axes."""
        del size
        return self.summed if shape == self.shape else None

    def cut(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The box of an array of this shape, of size 1 along axes on which it does not vary."""
        bounds = [
            (low, high) if n == whole else (0, 1)
            for (low, high), n, whole in zip(self.bounds, array.shape, shape, strict=True)
        ]
        return array[tuple(slice(*bound) for bound in bounds)]

    def sums(self, flat: Array, size: int) -> Array:
        """Cut out, sum, and put in place."""
        array = self.cut(flat.reshape(self.shape), self.shape)
        array = array if self.mask is None else jnp.where(self.mask, array, 0)
        return self.place(array.sum(axis=self.summed) if self.summed else array, size)

    def place(self, array: Array, size: int) -> Array:
        """What is left of the box after its sum, by owner."""
        array = lax.rev(array, self.reversed).transpose(self.order)
        array = array.reshape(*array.shape, *(1,) * (len(self.sizes) - array.ndim))
        return jnp.pad(array, self._pads(array.shape)).reshape(size)

    def spread(self, content: Array, shape: tuple[int, ...]) -> Array:
        """The content of an array of this shape, by owner: still of size 1 where it does not vary."""
        array = lax.rev(self.cut(content, shape), self.reversed).transpose(self.order)
        array = array.reshape(*array.shape, *(1,) * (len(self.sizes) - array.ndim))
        pads = self._pads(array.shape)
        return jnp.pad(array, [(0, 0) if n == 1 else pad for n, pad in zip(array.shape, pads, strict=True)])

    def _pads(self, shape: tuple[int, ...]) -> list[tuple[int, int]]:
        return [(low, whole - low - n) for low, whole, n in zip(self.offsets, self.sizes, shape, strict=True)]


@partial(jax.tree_util.register_dataclass, data_fields=["elements"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Listing:
    """A list of elements for each owner, `(size, degree)`; past the end of the array where there are no more."""

    elements: Any

    def sums(self, flat: Array, size: int) -> Array:
        """Look up and add."""
        del size
        return flat.at[self.elements].get(mode="fill", fill_value=0).sum(axis=-1)


@partial(jax.tree_util.register_dataclass, data_fields=["owners"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Segments:
    """The owner of each element; `size` for none."""

    owners: Any

    def sums(self, flat: Array, size: int) -> Array:
        """Add element by element."""
        return jax.ops.segment_sum(flat, self.owners, num_segments=size + 1)[:size]


def build_sums(structure: Structure, shared: Elements, size: int) -> Sums:
    """The sums of some factor elements by owner."""
    parts = _by_bundle(structure, shared, shared[0])
    owned = []
    for bundle, elements, owners, laid in parts:
        shape = structure.factor_shapes[bundle[0]] if len(bundle) == 1 else (laid,)
        owned.append(share(elements, owners, shape, size))
    return Sums(tuple(part[0] for part in parts), size, tuple(owned))


def stack_sums(structure: Structure, groups: Sequence[Elements], size: int) -> Sums:
    """Several sums as one pytree with a leading axis, padded to the same shape."""
    bundles, owned = [], []
    together = np.concatenate([numbers for numbers, _ in groups])
    for parts in zip(*(_by_bundle(structure, shared, together) for shared in groups), strict=True):
        degree = max(int(np.bincount(owners).max(initial=0)) for _, _, owners, _ in parts)
        if degree:
            lists = [_padded(elements, owners, laid, size, degree) for _, elements, owners, laid in parts]
            bundles.append(parts[0][0])
            owned.append(Listing(np.stack(lists)))
    return Sums(tuple(bundles), size, tuple(owned))


def _by_bundle(
    structure: Structure, shared: Elements, together: np.ndarray
) -> list[tuple[tuple[int, ...], np.ndarray, np.ndarray, int]]:
    """The arrays that have elements among `together`, the small ones in one bundle, the others one by one.

    For each bundle: its arrays, its elements counted from its start, their owners, and its size.
    """
    sizes = np.array([int(np.prod(shape)) for shape in structure.factor_shapes], np.int64)
    starts = np.cumsum([0, *sizes])
    used = np.unique(np.searchsorted(starts, together, side="right") - 1)
    small = tuple(used[sizes[used] <= SMALL_FACTOR].tolist())
    large = [(i,) for i in used[sizes[used] > SMALL_FACTOR].tolist()]
    numbers, owners = shared
    array = np.searchsorted(starts, numbers, side="right") - 1
    parts = []
    for bundle in [small, *large] if small else large:
        inside = np.isin(array, bundle)
        shift = np.zeros(len(sizes), np.int64)
        shift[list(bundle)] = np.cumsum([0, *sizes[list(bundle)]])[:-1] - starts[list(bundle)]
        laid = int(sizes[list(bundle)].sum())
        parts.append((bundle, numbers[inside] + shift[array[inside]], owners[inside], laid))
    return parts


def share(elements: np.ndarray, owners: np.ndarray, shape: tuple[int, ...], size: int) -> Any:
    """The cheapest way to sum the elements of an array by owner."""
    degree, laid = int(np.bincount(owners).max()), int(np.prod(shape))
    if laid == size * degree == len(elements):
        listed = _padded(elements, owners, laid, size, degree)
        for owner_first in (True, False):
            order = np.arange(laid)
            if np.array_equal(listed, order.reshape(size, degree) if owner_first else order.reshape(degree, size).T):
                return Layout(owner_first)
    runs = _runs(elements, owners) if degree == 1 else None
    if runs is not None:
        return Runs(runs)
    box = _find_box(elements, owners, shape, size)
    if box is not None:
        return box
    if size * degree > WASTE * len(elements) + SMALL_FACTOR:
        owner = np.full(laid, size)
        owner[elements] = owners
        return Segments(owner)
    return Listing(_padded(elements, owners, laid, size, degree))


def _find_box(elements: np.ndarray, owners: np.ndarray, shape: tuple[int, ...], size: int) -> Box | None:
    """Elements as a box of their array, with the others in it masked; None if owners are not in even steps."""
    if len(np.unique(elements)) < len(elements):
        return None  # one element for several owners
    places = np.stack(np.unravel_index(elements, shape), axis=1) if shape else np.zeros((len(elements), 0), np.int64)
    low, high = places.min(axis=0), places.max(axis=0) + 1
    inside = tuple((high - low).tolist())
    if np.prod(inside) > BOX_WASTE * len(elements):
        return None
    steps = _find_steps(places - low, owners)
    if steps is None:
        return None
    # The owner's number is a first one + Σ over the axes of step · place; turned round where a step is negative.
    turned = [axis for axis, step in enumerate(steps) if step < 0]
    first = int(owners[0] - (places[0] - low) @ steps) + sum(int(steps[axis]) * (inside[axis] - 1) for axis in turned)
    steps = np.abs(steps)
    kept = [axis for axis in range(len(inside)) if steps[axis]]
    order = sorted(kept, key=lambda axis: -steps[axis])
    found = _digits(first, [int(steps[axis]) for axis in order], [inside[axis] for axis in order], size)
    if found is None:
        return None
    mask = np.zeros(inside, bool)
    mask[tuple((places - low).T)] = True
    return Box(
        None if mask.all() else mask,
        shape,
        tuple(zip(low.tolist(), high.tolist(), strict=True)),
        tuple(axis for axis in range(len(inside)) if not steps[axis]),
        tuple(kept.index(axis) for axis in turned),
        tuple(kept.index(axis) for axis in order),
        *found,
    )


def _find_steps(places: np.ndarray, owners: np.ndarray) -> np.ndarray | None:
    """By how much the owner's number grows along each axis; None if that is not the same throughout."""
    apart = places - places[0]
    # A few elements far from each other settle it; all must agree.
    some = np.unique(np.concatenate([apart.argmin(axis=0), apart.argmax(axis=0), np.arange(min(len(apart), 64))]))
    found = np.linalg.lstsq(apart[some].astype(float), (owners[some] - owners[0]).astype(float), rcond=None)[0]
    steps = np.rint(found).astype(np.int64)
    return steps if np.array_equal(apart @ steps, owners - owners[0]) else None


def _digits(
    first: int, steps: list[int], lengths: list[int], size: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Owners as an array whose axes have these steps: its sizes, and the place of the first; None if there is none."""
    sizes, offsets, above = [], [], size
    for step in [*steps, *([1] if steps and steps[-1] > 1 else [])]:
        if above % step:
            return None
        sizes.append(above // step)
        offsets.append(first // step)
        first, above = first % step, step
    if not steps:  # one owner for all
        sizes, offsets = [size], [first]
    if any(offset + n > whole for offset, n, whole in zip(offsets, lengths, sizes, strict=False)):
        return None
    return tuple(sizes), tuple(offsets)


def _runs(elements: np.ndarray, owners: np.ndarray) -> tuple[Run, ...] | None:
    """Elements in the order of their owners, cut where the steps between them change; None if that is too often."""
    order = np.argsort(owners)
    elements, owners = elements[order], owners[order]
    steps = np.stack([np.diff(owners), np.diff(elements)], axis=1)
    runs, start = [], 0
    most = FEW_RUNS if len(elements) > SMALL_FACTOR else FEW_SMALL_RUNS
    while start < len(elements):
        if len(runs) == most:
            return None
        follows = (steps[start:] == steps[start]).all(axis=1) if start < len(steps) else np.zeros(0, bool)
        count = 1 + (len(follows) if follows.all() else int(np.argmin(follows)))
        owner_step, element_step = map(int, steps[start]) if count > 1 else (1, 1)
        if element_step == 0:
            return None  # one element for several owners
        runs.append(Run(int(owners[start]), owner_step, int(elements[start]), element_step, count))
        start += count
    return tuple(runs)


def _padded(elements: np.ndarray, owners: np.ndarray, laid: int, size: int, degree: int) -> np.ndarray:
    """`(size, degree)`: the elements of each owner in ascending order, `laid` where there are no more."""
    order = np.lexsort((elements, owners))
    elements, owners = elements[order], owners[order]
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    listed = np.full((size, degree), laid)
    listed[owners, rank] = elements
    return listed
