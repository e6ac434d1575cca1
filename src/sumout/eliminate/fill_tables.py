"""The tables of the cells, read off the factors by evaluating them with many sites set at once.

A factor that depends on one site is known for all its values when all sites are set to their k-th value, for each k.
One that depends on several is known when they are set to all their joint values: by their roles in the factor where the
reading can tell them apart (`structure/roles.py`), else by their colours. Sites of one colour never meet in a factor:
K² evaluations give the tables of all pairs of two colours. Each round of evaluations is a `Round`; each of its
`Piece`s goes to the cells of one group of buckets. Where each component is one cell its tables are filled as a whole
(`joint_tables.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from sumout.compile.policy import PRODUCT_VALUES
from sumout.eliminate.joint_tables import JointRound, add_terms
from sumout.eliminate.messages import Buckets
from sumout.eliminate.settings import Setting, joint_settings, make_settings, place_numbers
from sumout.eliminate.table_parts import Part, Tables
from sumout.model.program import Data, Nuisance
from sumout.structure.roles import Roles
from sumout.structure.structure import Structure
from sumout.tables.factor_sums import Sums, build_sums

MOST_PIECES = 4  # of a table, for each of its levels, that are filled one by one


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the tables of one group of buckets.

    Attributes:
        group: the number of the group.
        sums: sums of factors over its cells; or, where there are no axes, over the sites or pairs of sites of a cell
            by their places in it, `(m, …, m, cells)`.
        axes: the axes of a cell's table along which it lies, one for each site; None for those of all places at once.
        levels: the first level with such a cell, and the first after the last.
        shape: in which the cells of the group are numbered.
    """

    group: int
    sums: Sums
    axes: tuple[int, ...] | None
    levels: tuple[int, int]
    shape: tuple[int, int]

    def total(self, factors: Sequence[Any]) -> Array:
        """The sums; as an array of cells with size 1 where all that have one have the same, if that is smaller."""
        if self.axes is None:
            return self.sums(factors)
        uniform = self.sums.uniform(factors)
        small = self.sums.small(factors, self.shape) if uniform is None else uniform.reshape(1, 1)
        return self.sums(factors) if small is None else small


@dataclass(frozen=True, eq=False)
class Round:
    """Evaluations of the factors at all joint values of several sets of sites.

    Attributes:
        structure: the reading.
        sizes: for each set K, how many values its sites have.
        axes: for each set its sites and their values. By role every set is the same: all sites.
        roles: how to evaluate by role; None sets each set's sites in one and the same z.
        pieces: what the factors are for.
    """

    structure: Structure
    sizes: tuple[int, ...]
    axes: tuple[Mapping[str, Setting], ...]
    roles: Roles | None
    pieces: tuple[Piece, ...]

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return prod(self.sizes)

    def tables(self, x: Array, z: Nuisance, data: Data) -> list[Array]:
        """For each piece its sums at all joint values, `(K, …, K, cells)`; or small ones, as `Piece.total` has them."""

        def at(*numbers: Array) -> list[Array]:
            if self.roles is None:
                placed = reduce(lambda z, axis: place_numbers(z, *axis), zip(self.axes, numbers, strict=True), z)
                factors = self.structure.live_factors(x, placed, data)
            else:
                versions = [place_numbers(z, axis, number) for axis, number in zip(self.axes, numbers, strict=True)]
                sources = {name: setting.source for name, setting in self.axes[0].items()}
                factors = self.structure.factors_by_role(x, versions, data, self.roles, sources)
            return [piece.total(factors) for piece in self.pieces]

        for axis in reversed(range(len(self.axes))):
            at = jax.vmap(at, in_axes=[0 if i == axis else None for i in range(len(self.axes))])
        return at(*map(jnp.arange, self.sizes))


def fill_tables(
    rounds: Sequence[Round | JointRound], groups: Sequence[Buckets], x: Array, z: Nuisance, data: Data
) -> list[Tables]:
    """The tables of all groups."""
    filled = [_Filling(group) for group in groups]
    for one in rounds:
        if isinstance(one, JointRound):
            filled[one.group].whole += one.table(x, z, data)
            continue
        for piece, table in zip(one.pieces, one.tables(x, z, data), strict=True):
            filled[piece.group].add(piece, table)
    return [filling.tables() for filling in filled]


class _Filling:
    """The tables of one group while they are being filled, `(levels, K, …, K, columns)`, by the axes they lie along."""

    def __init__(self, group: Buckets):
        self.group = group
        self.single: Any = 0.0
        self.joint: dict[tuple[int, ...], Part] = {}
        # Where each component is one cell: at all its joint values, by site, and by pair of sites.
        self.whole: Any = 0.0
        self.by_site: Any = 0.0
        self.by_pair: Any = None

    def add(self, piece: Piece, table: Array) -> None:
        """Add a piece along its axes."""
        if piece.axes is None:
            self._add_places(table)
            return
        num_values, num_axes = self.group.num_values, len(piece.axes)
        is_own = max(piece.axes) < self.group.size
        is_small = table.ndim == num_axes + 2
        table = table[(slice(num_values),) * num_axes].transpose(
            [*np.argsort(piece.axes), *range(num_axes, table.ndim)]
        )
        sizes = [num_values if axis in piece.axes else 1 for axis in range(self.group.num_axes)]
        mask = None
        if is_small:
            table = table if self.group.by_level else table.swapaxes(-1, -2)
            table = jnp.moveaxis(table.reshape(*sizes, *table.shape[-2:]), -2, 0)
            mask = self._one_for_all(piece.sums.owners[self.group.cell_numbers], with_roots=is_own)
        else:
            table = self._by_cell(table.reshape(*sizes, -1))
        part = Part(table, mask, piece.levels)
        if is_own:
            self.single = self.single + part.table
            return
        before = self.joint.get(tuple(sorted(piece.axes)))
        self.joint[tuple(sorted(piece.axes))] = part if before is None else before.plus(part)

    def _add_places(self, table: Float[Array, "K places"] | Float[Array, "K K places"]) -> None:
        size, num_axes, num_values = self.group.size, table.ndim - 1, self.group.num_values
        table = table[(slice(num_values),) * num_axes]
        table = table.reshape(*table.shape[:-1], *(size,) * num_axes, -1)
        table = table.transpose([*range(num_axes, 2 * num_axes), *range(num_axes), 2 * num_axes])
        if num_axes == 1:
            self.by_site += table
        else:
            self.by_pair = table if self.by_pair is None else self.by_pair + table

    def _by_cell(self, table: Float[Array, "*axes cells"]) -> Float[Array, "levels *axes columns"]:
        levels, _, _, columns = self.group.shape
        if self.group.by_level:
            return jnp.moveaxis(table.reshape(*table.shape[:-1], levels, columns), -2, 0)
        return jnp.moveaxis(table.reshape(*table.shape[:-1], columns, levels), -1, 0)

    def _one_for_all(self, owners: np.ndarray, with_roots: bool) -> np.ndarray:
        """Cells that have the piece, `(levels, columns)`; or `(1, columns)` if all of a column are alike."""
        matters: Any = ~self.group.is_padding
        matters[-1] &= with_roots  # what lies along a separator does not count there
        some: Any = (owners & matters).any(axis=0)
        every: Any = (owners | ~matters).all(axis=0)
        return some[None] if (some == every)[matters.any(axis=0)].all() else owners

    def tables(self) -> Tables:
        """The tables of all cells."""
        levels, own, _, columns = self.group.shape
        size, rest = self.group.size, self.group.num_axes - self.group.size
        if is_whole(self.group):
            by_site = jnp.broadcast_to(self.by_site, (size, self.group.num_values, columns))
            return Tables((add_terms(by_site, self.by_pair) + self.whole)[None], ())
        single = jnp.broadcast_to(self.single, (levels, *(self.group.num_values,) * size, *(1,) * rest, columns))
        return Tables(single.reshape(levels, own, columns), tuple(self.joint.values()))


def is_whole(group: Buckets) -> bool:
    """Whether each component of the group is one cell, of three sites or more."""
    return group.shape[0] == 1 and group.size > 2


def plan_rounds(
    structure: Structure, groups: Sequence[Buckets], axes: np.ndarray, summed: np.ndarray
) -> tuple[Round | JointRound, ...]:
    """All rounds for the sites of some groups.

    Args:
        structure: the reading.
        groups: the buckets.
        axes: rows of a site, another one of the table it is summed in, and the axis which that one has there.
        summed: mask over the sites that are summed out, here or elsewhere. Those elsewhere do not occur in the factors
            in question, and may be set as well: an array of one value throughout is held as one number.
    """
    places = _Places(structure, groups, axes)
    scopes = sp.csr_array(structure.scopes[:, places.sites])
    scopes.sort_indices()
    sizes = np.diff(scopes.indptr)
    rounds: list[Round | JointRound] = []
    jointly: list[tuple[np.ndarray, np.ndarray]] = []  # factors to be evaluated at all joint values; a site of each
    for size in np.unique(sizes[sizes > 0]).tolist():
        rows = np.flatnonzero(sizes == size)
        members = places.sites[scopes[rows].indices.reshape(-1, size)]
        in_whole = places.in_whole(members)
        if size > 2 and in_whole.any():
            jointly.append((rows[in_whole], members[in_whole, 0]))
            rows, members, in_whole = rows[~in_whole], members[~in_whole], in_whole[~in_whole]
        if not len(rows):
            continue
        roles, works = structure.find_roles(places.is_placed, size)
        by_role = works[structure.factor_array(rows)]
        if by_role.any():
            rounds.append(places.round(rows[by_role], members[by_role], [summed] * size, roles))
        if size == 1:
            if not by_role.all():
                rounds.append(places.round(rows[~by_role], members[~by_role], [summed]))
            continue
        at_once = ~by_role & in_whole
        jointly.append((rows[at_once], members[at_once, 0]))
        rounds += _by_colour(places, rows[~by_role & ~in_whole], members[~by_role & ~in_whole])
    return (*rounds, *(_jointly(places, jointly) if jointly else ()))


def _jointly(places: "_Places", factors: Sequence[tuple[np.ndarray, np.ndarray]]) -> Iterator[JointRound]:
    """A round for each group with factors that are evaluated at all joint values of their cells."""
    rows, sites = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in zip(*factors, strict=True))
    for number in np.unique(places.group[sites]).tolist():
        inside, group = places.group[sites] == number, places.groups[number]
        shared = (rows[inside], places.cell[sites[inside]])
        sums = build_sums(places.structure, shared, group.is_padding.size)
        settings = joint_settings(places.structure, group.sites[0], group.num_values)
        yield JointRound(places.structure, number, sums, settings)


def _by_colour(places: "_Places", rows: np.ndarray, members: np.ndarray) -> Iterator[Round]:
    """A round for each set of colours that meet."""
    colours = places.structure.colours
    order = np.argsort(colours[members], axis=1, kind="stable")
    members = np.take_along_axis(members, order, axis=1)
    for chosen in np.unique(colours[members], axis=0):
        inside = (colours[members] == chosen).all(axis=1)
        yield places.round(rows[inside], members[inside], [places.is_placed & (colours == c) for c in chosen])


class _Places:
    """Where sites have their cells, while rounds are planned."""

    def __init__(self, structure: Structure, groups: Sequence[Buckets], axes: np.ndarray):
        self.structure, self.groups = structure, groups
        num_sites = structure.num_sites
        self.group, self.cell, self.depth = (np.full(num_sites, -1) for _ in range(3))
        for number, group in enumerate(groups):
            level, column, member = np.nonzero(group.sites >= 0)
            sites = group.sites[level, column, member]
            self.group[sites] = number
            self.cell[sites] = group.cell_numbers[level, column]
            self.depth[sites] = -level
        self.is_placed = self.group >= 0
        self.sites = np.flatnonzero(self.is_placed)
        keys = axes[:, 0] * num_sites + axes[:, 1]
        order = np.argsort(keys)
        self._keys, self._axes = keys[order], axes[order, 2]

    def in_whole(self, members: np.ndarray) -> np.ndarray:
        """Which rows of members, of one component each, have a component that is one cell."""
        return np.array([is_whole(group) for group in self.groups])[self.group[members[:, 0]]]

    def axes(self, owner: np.ndarray, member: np.ndarray) -> np.ndarray:
        """The axis of each member in the table of its owner."""
        return self._axes[np.searchsorted(self._keys, owner * self.structure.num_sites + member)]

    def _apart(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """For each factor a number, its array's where tables are large: one that is the same in all its cells is small.

        Tables of few values, and those of many arrays, are filled from all arrays at once.
        """
        arrays = self.structure.factor_array(rows)
        is_large = np.array([group.num_values >= PRODUCT_VALUES for group in self.groups])
        is_few = np.array([len(np.unique(arrays[labels == n])) <= MOST_PIECES * g.shape[0]
                           for n, g in enumerate(self.groups)])  # fmt: skip
        return np.where((is_large & is_few)[labels], arrays, -1)

    def round(
        self, rows: np.ndarray, members: np.ndarray, sets: Sequence[np.ndarray], roles: Roles | None = None
    ) -> Round:
        """The round for factors `rows` that depend on `members` (a row each, one from each of the sets)."""
        first = np.argmax(self.depth[members], axis=1)  # of the members of a factor the deepest is summed out first
        owners = np.take_along_axis(members, first[:, None], axis=1)
        axes = self.axes(owners, members)
        in_whole = self.in_whole(members)
        labels = np.concatenate([self.group[owners], np.where(in_whole[:, None], -1, axes)], axis=1)
        pieces = []
        labels = np.column_stack([labels, self._apart(rows, labels[:, 0])])
        for label in np.unique(labels, axis=0):
            inside = (labels == label).all(axis=1)
            group = self.groups[label[0]]
            owner, size, at_once = self.cell[owners[inside, 0]], group.is_padding.size, label[1] < 0
            if at_once:  # an owner for each place in a cell, or pair of places
                sizes = (*(group.size,) * members.shape[1], size)
                owner, size = np.ravel_multi_index((*axes[inside].T, owner), sizes), int(np.prod(sizes))
            sums = build_sums(self.structure, (rows[inside], owner), size)
            levels = -self.depth[owners[inside]]
            span = (int(levels.min()), int(levels.max()) + 1)
            pieces.append(
                Piece(int(label[0]), sums, None if at_once else tuple(label[1:-1].tolist()), span, group.numbering)
            )
        num_values = max(self.groups[piece.group].num_values for piece in pieces)
        settings = tuple(make_settings(self.structure, chosen, num_values) for chosen in sets)
        return Round(self.structure, (num_values,) * len(settings), settings, roles, tuple(pieces))
