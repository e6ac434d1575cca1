"""Paths of states laid out side by side, and their tables read off the factors.

Where all levels mean the same, as in a chain that goes on in the same way, a state has the same number at every level:
what leads where is then one map, and a table that is the same for all levels is looked up once. A level at which fewer
states can be reached has the others, too, but no message comes from them. Else each level has numbers of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.eliminate.fill_tables import Round
from sumout.eliminate.layout import joint_mask
from sumout.eliminate.lists import NONE, take_rows
from sumout.eliminate.merge_states import merge_states
from sumout.eliminate.settings import make_settings
from sumout.eliminate.state_chains import StateChains, build_maps, number_states
from sumout.model.program import Data, Nuisance
from sumout.patterns.state_groups import Group, Kind
from sumout.patterns.state_paths import Level, Path, StateList
from sumout.structure.states import States
from sumout.tables.factor_sums import Sums, build_sums

MOST_SPARE = 2  # times as many states as a level has that numbers for all levels may take


@dataclass(frozen=True, eq=False)
class StatePiece:
    """A part of the tables of some paths.

    Attributes:
        sums: of factors, by level and column.
        joint: for each entry the joint value of what the factors depend on.
        array: the factor array.
        elements: `(levels, columns)` its element for each level and column; `NONE` where there is none. None if there
            are several anywhere.
    """

    sums: Sums
    joint: np.ndarray
    array: int
    elements: np.ndarray | None

    def total(self, factors: Sequence[Any]) -> Array:
        """The sums; only one for each level, if they are the same for all columns; or one number if that is all."""
        uniform = self.sums.uniform(factors)
        if uniform is not None:
            return uniform
        places = self._places(factors[self.array])
        if places is None:
            return self.sums(factors)
        content = factors[self.array].content.reshape(-1)
        return jnp.where(jnp.isnan(content), -jnp.inf, content)[places][:, None]

    def _places(self, factor: Any) -> np.ndarray | None:
        """For each level the entry of the content of its factors, where that is the same for all columns."""
        if self.elements is None or prod(factor.content.shape) == prod(factor.shape):
            return None
        found = np.unravel_index(np.maximum(self.elements, 0).ravel(), factor.shape)
        varied = [place if n > 1 else 0 * place for place, n in zip(found, factor.content.shape, strict=True)]
        places = np.ravel_multi_index(varied, factor.content.shape).reshape(self.elements.shape)
        is_element = self.elements != NONE
        places = np.where(is_element, places, NONE)
        highest = places.max(axis=1, keepdims=True)
        return np.maximum(highest[:, 0], 0) if (~is_element | (places == highest)).all() else None

    @property
    def first_level(self) -> int:
        """The first level that has such factors, as far as that is known."""
        return 0 if self.elements is None else int(np.argmax((self.elements != NONE).any(axis=1)))

    @property
    def owners(self) -> np.ndarray:
        """Which levels and columns have such factors, for those that have one at most."""
        assert self.elements is not None
        return self.elements != NONE


@dataclass(frozen=True, eq=False)
class StateTables:
    """How the table of some paths is filled."""

    chains: StateChains
    rounds: tuple[Round, ...]

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return sum(one.evaluations for one in self.rounds)

    def __call__(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "L n C"]:
        """The table."""
        levels, columns, _ = self.chains.sites.shape
        whole = reduce(jnp.add, [part for part, _ in self._parts(x, z, data)])
        return jnp.broadcast_to(whole, (whole.shape[0], levels, columns)).swapaxes(0, 1)

    def log_total(self, x: Array, z: Nuisance, data: Data) -> Float[Array, ""]:
        """The logarithm of the sum over all joint values; first levels that are the same in all columns once."""
        levels, columns, _ = self.chains.sites.shape
        parts = self._parts(x, z, data)
        alike = min([first for part, first in parts if part.shape[2] > 1], default=0)
        if columns == 1 or not 0 < alike < levels or self.chains.is_padding.any() or self.chains.maps.out.ndim > 2:
            return self.chains.log_total(self(x, z, data))
        size = parts[0][0].shape[0]
        shared = [part[:, :alike] if part.shape[1] > 1 else part for part, _ in parts if part.shape[2] == 1]
        zero = jnp.zeros((size, alike, 1), parts[0][0].dtype)
        own = [part[:, alike:] if part.shape[1] > 1 else part for part, _ in parts]
        own = jnp.broadcast_to(reduce(jnp.add, own), (size, levels - alike, columns))
        return self.chains.log_total(own.swapaxes(0, 1), reduce(jnp.add, shared, zero).swapaxes(0, 1))

    def _parts(self, x: Array, z: Nuisance, data: Data) -> list[tuple[Float[Array, "n l c"], int]]:
        """What adds up to the table, of size 1 along levels or columns that are alike, and from which level on it is.

        Before that level it is zero.
        """
        parts = [(self._allowed, 0)] if self.chains.allowed is not None else []
        for one in self.rounds:
            for piece, table in zip(one.pieces, one.tables(x, z, data), strict=True):
                assert isinstance(piece, StatePiece)
                parts.append(self._at_entries(piece, table, len(one.sizes)))
        return parts

    @property
    def _allowed(self) -> Array:
        levels, num_values, columns = self.chains.allowed.shape  # pyright: ignore[reportOptionalMemberAccess]
        logs = np.where(self.chains.allowed, 0.0, -np.inf)[:, None]  # pyright: ignore[reportArgumentType,reportCallIssue]
        wide = np.broadcast_to(logs, (levels, self.chains.num_states, num_values, columns))
        wide = wide.reshape(levels, -1, columns).swapaxes(0, 1)
        return jnp.asarray(wide[..., :1] if (wide == wide[..., :1]).all() else wide)

    def _at_entries(self, piece: StatePiece, table: Array, num_axes: int) -> tuple[Float[Array, "n l c"], int]:
        levels, columns, _ = self.chains.sites.shape
        is_uniform = table.ndim == num_axes
        is_by_level = table.ndim == num_axes + 2
        flat = table.reshape(-1, *table.shape[num_axes : num_axes + 1])
        found = take_rows(flat, piece.joint)
        if not is_uniform and not is_by_level:
            return found.reshape(-1, levels, columns), piece.first_level
        owners = piece.sums.owners.reshape(levels, columns) if is_uniform else piece.owners
        found = found[:, None, None] if is_uniform else found[..., None]
        if (owners | self.chains.is_padding).all():
            return found, 0
        if (owners == owners[:, :1]).all():
            owners = owners[:, :1]
        return jnp.where(owners, found, 0.0), int(np.argmax(owners.any(axis=1)))


@dataclass
class _Piece:
    """A piece while it is put together."""

    names: tuple[int, ...]
    array: int
    joint: np.ndarray
    rows: list[np.ndarray]
    owners: list[np.ndarray]


def build_state_tables(states: States, groups: Sequence[Group], paths: dict[Kind, Path]) -> StateTables:
    """The paths of some groups side by side, and how their table is filled."""
    layout = _Layout(states, groups, paths)
    chains = layout.chains()
    is_set = np.zeros(len(states.elements), bool)
    is_set[states.num_sites :] = True
    is_set[np.concatenate([group.sites for group in groups])] = True
    return StateTables(chains, _plan_rounds(states, layout.pieces(), is_set, (chains.sites[..., 0].size, len(groups))))


class _Layout:
    """Gives states their numbers, and finds out what is the same for all levels."""

    def __init__(self, states: States, groups: Sequence[Group], paths: dict[Kind, Path]):
        self.states, self.groups = states, groups
        kinds = list(dict.fromkeys(group.kind for group in groups))
        self.paths = [(paths[kind], np.array([i for i, g in enumerate(groups) if g.kind is kind])) for kind in kinds]
        self.num_levels = max(len(path.levels) for path, _ in self.paths)
        self.num_values = max(len(states.reachable.arrays[k.values[i]]) for k in kinds for i in k.sites)
        self._numbers: dict[Any, int] = {}
        self._is_aligned = True
        most = max(path.most_states for path, _ in self.paths)
        self._count_states()
        if self.num_states > max(MOST_SPARE * most, 8):
            self._is_aligned = False
            self.num_states = most
        self._order = np.arange(self.num_states)
        self.out = self._find_out()
        if self.out.ndim == 1 and self._is_aligned:
            self._order = merge_states(self.out, [piece.joint for piece in self.pieces()], self.num_values)
            self.num_states = int(self._order.max()) + 1
            self._order = number_states(self._find_out(), self.num_states)[self._order]
            self.out = self._find_out()
        if self.out.ndim == 1:
            # Where the last level leads does not matter, but its entries are there.
            last = np.concatenate([self.entries(path.levels[-1]) for path, _ in self.paths])
            self.out[last] = np.maximum(self.out[last], 0)

    def _count_states(self) -> None:
        for path, _ in self.paths:
            for level in path.levels:
                for label in _state_labels(level.before):
                    self._numbers.setdefault(label, len(self._numbers))
        self.num_states = len(self._numbers)

    def numbers(self, listed: StateList) -> np.ndarray:
        """The numbers of the states of a level."""
        if not self._is_aligned:
            return np.arange(len(listed.rows))
        return self._order[[self._numbers[label] for label in _state_labels(listed)]]

    def entries(self, level: Level) -> np.ndarray:
        """The entries of a level among all: s · K + k."""
        count = len(level.out) // len(level.before.rows)
        return (self.numbers(level.before)[:, None] * self.num_values + np.arange(count)).ravel()

    def _find_out(self) -> np.ndarray:
        """Where each entry leads, for all levels and columns if they agree."""
        size = self.num_states * self.num_values
        out = np.full((self.num_levels, size, len(self.groups)), NONE)
        once = np.full(size, NONE)
        is_one = True
        for path, columns in self.paths:
            for i, level in enumerate(path.levels[:-1]):
                after = self.numbers(path.levels[i + 1].before)
                entries, found = self.entries(level), np.where(level.out == NONE, NONE, after[level.out])
                entries, found = entries[found != NONE], found[found != NONE]
                is_one &= bool(((once[entries] == NONE) | (once[entries] == found)).all())
                once[entries] = found
                out[self._level(path, i)][np.ix_(entries, columns)] = found[:, None]
        if is_one:
            return once
        out[-1] = 0  # where the last level leads does not matter
        lowest = np.where(out == NONE, np.iinfo(out.dtype).max, out).min(axis=2)
        highest = out.max(axis=2)
        return highest if ((lowest == highest) | (highest == NONE)).all() else out

    def _level(self, path: Path, i: int) -> int:
        """All paths end at the last level."""
        return self.num_levels - len(path.levels) + i

    def chains(self) -> StateChains:
        """The paths."""
        sites = np.full((self.num_levels, len(self.groups), 1), -1)
        allowed = np.ones((len(self.states.elements), self.num_values), bool)
        for path, columns in self.paths:
            for column in columns.tolist():
                group = self.groups[column]
                first = self._level(path, 0)
                sites[first:, column, 0] = group.sites[[level.site for level in path.levels]]
                for site, row in zip(group.sites, group.kind.allowed, strict=True):
                    allowed[site] = np.pad(np.array(row), (0, self.num_values - len(row)))
        empty = int(self.numbers(StateList((), np.zeros((1, 0))))[0])
        mask = joint_mask(sites, allowed)
        return StateChains(self.num_values, self.num_states, sites, empty, build_maps(self.out, self.num_states), mask)

    def pieces(self) -> list[_Piece]:
        """Factors of one array that depend on sites of the same names, and on the entries in the same way."""
        size, found = self.num_states * self.num_values, {}
        for path, columns in self.paths:
            kind = self.groups[columns[0]].kind
            rows = np.stack([self.groups[column].rows for column in columns])
            for i, level in enumerate(path.levels):
                entries = self.entries(level)
                owners = self._level(path, i) * len(self.groups) + columns
                for factor, joint in level.terms:
                    array, members = kind.factors[factor]
                    wide = np.full(size, NONE)
                    wide[entries] = joint
                    label = (array, tuple(member.name for member in members))
                    piece = _fitting(found.setdefault(label, []), label, wide)
                    piece.rows.append(rows[:, factor])
                    piece.owners.append(owners)
        return [piece for pieces in found.values() for piece in pieces]


def _state_labels(listed: StateList) -> list[Any]:
    rows = np.ascontiguousarray(listed.rows + 0.0)  # −0 is 0
    return [(listed.labels, row.tobytes()) for row in rows]


def _fitting(pieces: list[_Piece], label: tuple[int, tuple[int, ...]], joint: np.ndarray) -> _Piece:
    """The piece that depends on entries in the same way as far as they are known, a new one if there is none."""
    for piece in reversed(pieces):
        both = (piece.joint != NONE) & (joint != NONE)
        if (piece.joint[both] == joint[both]).all():
            piece.joint = np.where(joint == NONE, piece.joint, joint)
            return piece
    pieces.append(_Piece(label[1], label[0], joint, [], []))
    return pieces[-1]


def _plan_rounds(states: States, pieces: list[_Piece], is_set: np.ndarray, shape: tuple[int, int]) -> tuple[Round, ...]:
    """Evaluations of the factors: by role where that can be done, else colour by colour."""
    structure = states.structure
    names = list(structure.site_numbers)
    sizes = [structure.program.z[name].support.num_values for name in names]  # pyright: ignore[reportAttributeAccessIssue]
    roles = {size: structure.find_roles(is_set, size) for size in {len(piece.names) for piece in pieces}}
    rounds: dict[Any, list[_Piece]] = {}
    for piece in pieces:
        counts = tuple(sizes[name] for name in piece.names)
        if roles[len(counts)][1][piece.array]:
            rounds.setdefault((counts, None), []).append(piece)
            continue
        for colours, part in _by_colour(states, piece, is_set):
            rounds.setdefault((counts, colours), []).append(part)
    planned = []
    for (counts, colours), some in rounds.items():
        if colours is None:
            axes = (make_settings(structure, is_set, max(counts, default=1)),) * len(counts)
        else:
            masks = [is_set & (structure.colours == colour) for colour in colours]
            axes = tuple(make_settings(structure, mask, count) for mask, count in zip(masks, counts, strict=True))
        built = tuple(_build(states, piece, *shape) for piece in some)
        by_role = None if colours is not None else roles[len(counts)][0]
        planned.append(Round(structure, counts, axes, by_role, built))  # pyright: ignore[reportArgumentType]
    return tuple(planned)


def _build(states: States, piece: _Piece, num_owners: int, num_columns: int) -> StatePiece:
    rows, owners = np.concatenate(piece.rows), np.concatenate(piece.owners)
    elements = None
    if len(np.unique(owners)) == len(owners):
        sizes = [prod(shape) for shape in states.structure.factor_shapes[: piece.array]]
        elements = np.full(num_owners, NONE)
        elements[owners] = rows - sum(sizes)
        elements = elements.reshape(-1, num_columns)
    return StatePiece(build_sums(states.structure, (rows, owners), num_owners), piece.joint, piece.array, elements)


def _by_colour(states: States, piece: _Piece, is_set: np.ndarray) -> list[tuple[tuple[int, ...], _Piece]]:
    """The parts of a piece whose sites have the same colours."""
    rows, owners = np.concatenate(piece.rows), np.concatenate(piece.owners)
    scopes = states.structure.scopes[rows][:, np.flatnonzero(is_set)].tocsr()
    scopes.sort_indices()
    members = np.flatnonzero(is_set)[scopes.indices].reshape(len(rows), -1)
    colours = states.structure.colours[members]
    parts = []
    for chosen in np.unique(colours, axis=0):
        inside = (colours == chosen).all(axis=1)
        part = _Piece(piece.names, piece.array, piece.joint, [rows[inside]], [owners[inside]])
        parts.append((tuple(chosen.tolist()), part))
    return parts
