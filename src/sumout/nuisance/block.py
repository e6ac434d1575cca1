"""A block: sites of which no two share a factor, to be updated all at once.

A move needs three things of a block: the present values of its members, z with other values put in their places, and
for each member the sum of the factors that depend on it. All index arithmetic for that is done here, once, when the
block is built. A block is a pytree of index arrays, so that many blocks of one shape can be stacked and scanned over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.program import Data, Nuisance
from sumout.reading.structure import Structure

Indices = Array | np.ndarray

SMALL_FACTOR = 64  # factor arrays up to this size are handled together
WASTE = 8  # how much padding a gather may carry before sums by segment are cheaper


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["slots", "sources", "owned", "owners"],
    meta_fields=["structure", "names", "size"],
)
@dataclass(frozen=True, eq=False)
class Block:
    """Members of a block and where they are found.

    Attributes:
        structure: the reading the block belongs to.
        names: the sites that have members.
        size: number of members n.
        slots: for each name, the member at each element; n where there is none. None: the site is the block, in order.
        sources: `(n,)` where the members stand among the elements of `names` laid end to end; None: in order.
        owned: for each bundle of factors, `(n, degree)` elements that depend on a member, padded; or None, or a word
            for a layout that needs no index.
        owners: for each bundle whose degrees are too uneven for that, the member each element depends on; n for none.
    """

    structure: Structure
    names: tuple[str, ...]
    size: int
    slots: tuple[Indices | None, ...]
    sources: Indices | None
    owned: tuple[Any, ...]
    owners: tuple[Indices | None, ...]

    def take(self, z: Nuisance) -> Array:
        """The present values of the members."""
        flat = jnp.concatenate([self._by_element(name, z[name]) for name in self.names])
        return flat if self.sources is None else flat[self.sources]

    def place_all(self, z: Nuisance, value: Array) -> Nuisance:
        """Z with the same `value` in all members' places; where it fills a site, held as one number for all of it."""
        if self.sources is not None:
            return self.place(z, jnp.broadcast_to(value, (self.size,)))
        (name,) = self.names
        site = self.structure.program.z[name]
        return {**z, name: value.astype(site.dtype).reshape((1,) * len(site.shape))}

    def place(self, z: Nuisance, values: Array) -> Nuisance:
        """Z with `values`, one for each member, in the members' places."""
        placed = dict(z)
        for name, slot in zip(self.names, self.slots, strict=True):
            site = self.structure.program.z[name]
            if slot is None:
                placed[name] = values.reshape(site.shape).astype(site.dtype)
                continue
            old = self._by_element(name, z[name])
            is_member = (slot < self.size).reshape((-1,) + (1,) * len(site.event_shape))
            new = values[jnp.minimum(slot, self.size - 1)].astype(site.dtype)
            placed[name] = jnp.where(is_member, new, old).reshape(site.shape)
        return placed

    def _by_element(self, name: str, array: Array) -> Array:
        site = self.structure.program.z[name]
        return array.reshape((site.num_elements, *site.event_shape))

    def factor_sums(self, x: Array, z: Nuisance, data: Data) -> Array:
        """For each member the sum of the factors that depend on it, `(n,)`."""
        factors = self.structure.factors(x, z, data)
        total = jnp.zeros(self.size, jnp.result_type(float))
        for bundle, owned, owner in zip(bundles(self.structure), self.owned, self.owners, strict=True):
            if owned is None and owner is None:
                continue
            flat = jnp.concatenate([factors[i].ravel() for i in bundle])
            if owner is not None:
                total += jax.ops.segment_sum(flat, owner, num_segments=self.size + 1)[: self.size]
            elif isinstance(owned, Layout):
                total += owned.sums(flat, self.size)
            else:
                total += flat.at[owned].get(mode="fill", fill_value=0).sum(axis=-1)
        return jnp.where(jnp.isnan(total), -jnp.inf, total)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["member_first"])
@dataclass(frozen=True)
class Layout:
    """Factors that lie in the order of the members: no index is needed to find them."""

    member_first: bool

    def sums(self, flat: Array, size: int) -> Array:
        """For each member the sum of its factors."""
        return flat.reshape(size, -1).sum(axis=1) if self.member_first else flat.reshape(-1, size).sum(axis=0)


def pick(values: Array | np.ndarray, which: Array) -> Array:
    """For every member the value with the number `which`."""
    values = jnp.asarray(values)
    if values.shape[1] == 1:
        return values[:, 0].at[which].get(mode="promise_in_bounds")
    return jnp.take_along_axis(values, which[None], axis=0, mode="promise_in_bounds")[0]


def bundles(structure: Structure) -> tuple[tuple[int, ...], ...]:
    """Factor arrays grouped for summation: the small ones together, the others one by one."""
    sizes = [int(np.prod(shape)) for shape in structure.factor_shapes]
    small = tuple(i for i, size in enumerate(sizes) if size <= SMALL_FACTOR)
    large = tuple((i,) for i, size in enumerate(sizes) if size > SMALL_FACTOR)
    return ((small,) if small else ()) + large


def build_block(structure: Structure, members: np.ndarray) -> Block:
    """The block of some sites, given by their numbers in ascending order."""
    names = _names(structure, members)
    slots, sources = _places(structure, names, members, len(members))
    in_order = np.arange(len(members))
    slots = tuple(None if np.array_equal(slot, in_order) else slot for slot in slots)
    if np.array_equal(sources, in_order) and all(slot is None for slot in slots):
        sources = None
    pairs = _owned_pairs(structure, members)
    tables = [_ownership(elements, owners, size, len(members)) for elements, owners, size in pairs]
    owned, owners = zip(*tables, strict=True) if tables else ((), ())
    return Block(structure, names, len(members), slots, sources, owned, owners)


def stack_blocks(structure: Structure, groups: Sequence[np.ndarray]) -> Block:
    """Many blocks as one pytree with a leading axis, padded to the same shape."""
    size = max(len(members) for members in groups)
    names = _names(structure, np.concatenate(groups))
    rows = [_places(structure, names, members, size) for members in groups]
    slots = tuple(np.stack([row[0][i] for row in rows]) for i in range(len(names)))
    sources = np.stack([row[1] for row in rows])
    pairs = [_owned_pairs(structure, members) for members in groups]
    owned = []
    for i in range(len(bundles(structure))):
        degree = max(int(np.bincount(p[i][1]).max(initial=0)) for p in pairs)
        owned.append(np.stack([_padded(p[i][0], p[i][1], p[i][2], size, degree) for p in pairs]) if degree else None)
    return Block(structure, names, size, slots, sources, tuple(owned), tuple(None for _ in owned))


def _names(structure: Structure, members: np.ndarray) -> tuple[str, ...]:
    """The sites that have members."""
    return tuple(name for name, numbers in structure.site_numbers.items() if np.isin(numbers, members).any())


def _places(
    structure: Structure, names: tuple[str, ...], members: np.ndarray, size: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The slots of every name and the sources of the members, which may be fewer than `size`."""
    slots, sources, laid = [], np.zeros(size, np.int64), 0
    for name in names:
        numbers = structure.site_numbers[name]
        inside = np.flatnonzero(np.isin(members, numbers))
        elements = members[inside] - numbers[0]
        slot = np.full(len(numbers), size)
        slot[elements] = inside
        sources[inside] = laid + elements
        laid += len(numbers)
        slots.append(slot)
    return tuple(slots), sources


def _owned_pairs(structure: Structure, members: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """For each bundle: factor elements that depend on a member, that member, and the size of the bundle."""
    columns = structure.scopes_by_site[members].tocoo()  # members × factor elements
    sizes = [int(np.prod(shape)) for shape in structure.factor_shapes]
    starts = np.cumsum([0, *sizes])
    array = np.searchsorted(starts, columns.col, side="right") - 1
    pairs = []
    for bundle in bundles(structure):
        elements, owners, laid = [], [], 0
        for i in bundle:
            inside = array == i
            elements.append(columns.col[inside] - starts[i] + laid)
            owners.append(columns.row[inside])
            laid += sizes[i]
        pairs.append((np.concatenate(elements), np.concatenate(owners), laid))
    return pairs


def _ownership(elements: np.ndarray, owners: np.ndarray, bundle_size: int, size: int) -> tuple[Any, Any]:
    """The cheapest way to sum a bundle by member: by layout, by index, or by segment."""
    if not len(elements):
        return None, None
    degree = int(np.bincount(owners).max())
    if size * degree > WASTE * len(elements) + SMALL_FACTOR:
        owner = np.full(bundle_size, size)
        owner[elements] = owners
        return None, owner
    owned = _padded(elements, owners, bundle_size, size, degree)
    if bundle_size == size * degree:
        for member_first in (True, False):
            order = np.arange(bundle_size)
            if np.array_equal(owned, order.reshape(size, degree) if member_first else order.reshape(degree, size).T):
                return Layout(member_first), None
    return owned, None


def _padded(elements: np.ndarray, owners: np.ndarray, bundle_size: int, size: int, degree: int) -> np.ndarray:
    """`(size, degree)`: the elements of each member in ascending order, `bundle_size` where there are no more."""
    order = np.lexsort((elements, owners))
    elements, owners = elements[order], owners[order]
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    owned = np.full((size, degree), bundle_size)
    owned[owners, rank] = elements
    return owned
