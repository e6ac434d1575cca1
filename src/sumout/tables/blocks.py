"""A block: sites of which no two share a factor, to be updated all at once.

A move needs three things of a block: the present values of its members, z with other values put in their places, and
for each member the sum of the factors that depend on it. All index arithmetic for that is done here, once, when the
block is built. A block is a pytree of index arrays, so that many blocks of one shape can be stacked and scanned over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.model.program import Data, Nuisance
from sumout.model.supports import Finite
from sumout.structure.structure import Structure
from sumout.tables.factor_sums import Elements, Sums, build_sums, stack_sums

Indices = Array | np.ndarray


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["slots", "sources", "sums"],
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
        sums: the factors that depend on each member, added up.
    """

    structure: Structure
    names: tuple[str, ...]
    size: int
    slots: tuple[Indices | None, ...]
    sources: Indices | None
    sums: Sums

    @property
    def members(self) -> np.ndarray:
        """The numbers of the members among all sites; −1 for those that only fill up a block in a stack."""
        numbers = np.full(self.size, -1)
        for name, slot in zip(self.names, self.slots, strict=True):
            sites = self.structure.site_numbers[name]
            slot = np.arange(len(sites)) if slot is None else np.asarray(slot)
            numbers[slot[slot < self.size]] = sites[slot < self.size]
        return numbers

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
        return self.sums(self.structure.live_factors(x, z, data))


def pick(values: Array | np.ndarray, which: Array) -> Array:
    """For every member the value with the number `which`."""
    values = jnp.asarray(values)
    if values.shape[1] == 1:
        return values[:, 0].at[which].get(mode="promise_in_bounds")
    return jnp.take_along_axis(values, which[None], axis=0, mode="promise_in_bounds")[0]


def build_block(structure: Structure, members: np.ndarray, with_sums: bool = True) -> Block:
    """The block of some sites, given by their numbers in ascending order; without sums it can only take and place."""
    names = _names(structure, members)
    slots, sources = _places(structure, names, members, len(members))
    in_order = np.arange(len(members))
    slots = tuple(None if np.array_equal(slot, in_order) else slot for slot in slots)
    if np.array_equal(sources, in_order) and all(slot is None for slot in slots):
        sources = None
    shared = shared_elements(structure, members if with_sums else members[:0])
    sums = build_sums(structure, shared, len(members))
    return Block(structure, names, len(members), slots, sources, sums)


def stack_blocks(structure: Structure, groups: Sequence[np.ndarray]) -> Block:
    """Many blocks as one pytree with a leading axis, padded to the same shape."""
    size = max(len(members) for members in groups)
    names = _names(structure, np.concatenate(groups))
    rows = [_places(structure, names, members, size) for members in groups]
    slots = tuple(np.stack([row[0][i] for row in rows]) for i in range(len(names)))
    sources = np.stack([row[1] for row in rows])
    sums = stack_sums(structure, [shared_elements(structure, members) for members in groups], size)
    return Block(structure, names, size, slots, sources, sums)


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


def shared_elements(structure: Structure, members: np.ndarray) -> Elements:
    """The factor elements that depend on a member, and the member."""
    columns = structure.scopes_by_site[members].tocoo()  # members × factor elements
    return columns.col.astype(np.int64), columns.row.astype(np.int64)


# How many values the sites have, and the values of finite ones side by side, as many of each.


def num_values(structure: Structure) -> np.ndarray:
    """For each site how many values it has; 0 where they are not finitely many."""
    counts = np.zeros(structure.num_sites, np.int64)
    for name, numbers in structure.site_numbers.items():
        support = structure.program.z[name].support
        counts[numbers] = support.num_values if isinstance(support, Finite) else 0
    return counts


def value_rows(structure: Structure, names: Sequence[str], num_values: int) -> tuple[np.ndarray, np.ndarray]:
    """The first K values of every element of some finite sites, `(n, K)`, and which count; fillers repeat the first."""
    parts = []
    for name in names:
        support = structure.program.z[name].support
        assert isinstance(support, Finite)
        values, allowed = (rows[:, :num_values] for rows in support.rows())
        missing = num_values - values.shape[1]
        fillers = np.broadcast_to(values[:, :1], (len(values), missing))
        parts.append(
            (np.concatenate([values, fillers], axis=1), np.pad(allowed, ((0, 0), (0, missing)), constant_values=False))
        )
    values, allowed = zip(*parts, strict=True)
    return np.concatenate(values), np.concatenate(allowed)


def as_columns(rows: np.ndarray) -> np.ndarray:
    """`(n, K)` as `(K, n)`, or as `(K, 1)` where all rows are the same."""
    columns = np.ascontiguousarray(rows.T)
    return columns[:, :1] if (columns == columns[:, :1]).all() else columns
