"""The groups of sites, states and factors of a program cut at states (`structure/states.py`) that hang together.

Sites and states stand for variables, of which some follow from others. Variables that meet in a factor, or follow from
each other, are one group, and groups are summed over on their own. Groups that look the same (the same tables at the
same places: animals, patients, pools) are of one kind, and are worked out once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from sumout.model.supports import Finite
from sumout.structure.reachable import NOTHING, Fold, Function, Reachable, Site
from sumout.structure.states import States


@dataclass(frozen=True)
class Member:
    """What a factor depends on: a site or state by the number of its name, and as a function of a variable.

    Attributes:
        name: the number of the name.
        variable: its number in the group; `NOTHING` if it is constant.
        places: number of an array: for each value of the variable the number of the value among those of the name.
    """

    name: int
    variable: int
    places: int


@dataclass(frozen=True)
class Kind:
    """What groups have in common: variables numbered from 0, parents first, and factors.

    Attributes:
        sources: what each variable follows from, parents by their numbers in the group.
        values: for each variable the number of the array of its values.
        labels: for each variable what it means, equal at different places of a program.
        allowed: for each site (by the number of the variable) which values it has.
        positions: for each site where it stands among those of its name, for a natural order.
        factors: for each factor the number of its array, and what it depends on.
    """

    sources: tuple[Site | Function | Fold, ...]
    values: tuple[int, ...]
    labels: tuple[int, ...]
    allowed: tuple[tuple[bool, ...], ...]
    positions: tuple[tuple[float, int], ...]
    factors: tuple[tuple[int, tuple[Member, ...]], ...]

    @cached_property
    def sites(self) -> list[int]:
        """The variables that are sites."""
        return [i for i, source in enumerate(self.sources) if isinstance(source, Site)]


@dataclass(frozen=True, eq=False)
class Group:
    """One group.

    Attributes:
        kind: what it looks like.
        sites: numbers of its sites, in the order of the variables.
        rows: numbers of its factor elements, in the order of those of the kind.
    """

    kind: Kind
    sites: np.ndarray
    rows: np.ndarray


def find_groups(states: States) -> list[Group]:
    """All groups in which there is a state."""
    scopes = sp.csr_array(states.structure.scopes)
    scopes.sort_indices()
    is_state = np.arange(scopes.shape[1]) >= states.num_sites
    labels, is_used = _label(states, scopes)
    rows = np.flatnonzero((np.diff(scopes.indptr) > 0) & states.structure.is_live)
    row_of = np.repeat(np.arange(scopes.shape[0]), np.diff(scopes.indptr))
    label_of_row = np.full(scopes.shape[0], -1)
    known = states.variable_of[scopes.indices]
    label_of_row[row_of[known != NOTHING]] = labels[known[known != NOTHING]]
    variables = states.reachable.variables
    has_state = np.zeros(int(labels.max(initial=-1)) + 1, bool)
    has_state[[labels[i] for i, one in enumerate(variables) if is_used[i] and not isinstance(one.source, Site)]] = True
    sees_state = np.unique(row_of[is_state[scopes.indices]])
    has_state[label_of_row[sees_state][label_of_row[sees_state] >= 0]] = True
    constant = sees_state[label_of_row[sees_state] < 0]  # of states that are constant
    rows = rows[label_of_row[rows] >= 0]
    rows = rows[np.argsort(label_of_row[rows], kind="stable")]
    by_label = _split(rows, label_of_row[rows], len(has_state))
    members = np.flatnonzero(is_used)
    members = members[np.argsort(labels[members], kind="stable")]
    of_label = _split(members, labels[members], len(has_state))
    builder = _Builder(states, scopes)
    groups = []
    for label in np.flatnonzero(has_state).tolist():
        extra = constant if not groups else constant[:0]
        groups.append(builder.build(of_label[label], np.concatenate([by_label[label], extra])))
    return groups


def _split(numbers: np.ndarray, labels: np.ndarray, count: int) -> list[np.ndarray]:
    return np.split(numbers, np.searchsorted(labels, np.arange(1, count)))


def _label(states: States, scopes: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """For each variable the number of its group; and whether factors depend on it, by whatever way."""
    variables = states.reachable.variables
    is_used = np.zeros(len(variables), bool)
    met = states.variable_of[np.unique(scopes.indices)]
    is_used[met[met != NOTHING]] = True
    pairs: list[tuple[int, int]] = []
    for i in reversed(range(len(variables))):
        if is_used[i]:
            parents = list(parents_of(variables[i].source))
            is_used[parents] = True
            pairs += [(i, parent) for parent in parents]
    row_of = np.repeat(np.arange(scopes.shape[0]), np.diff(scopes.indptr))
    known = states.variable_of[scopes.indices]
    row_of, known = row_of[known != NOTHING], known[known != NOTHING]
    same = np.flatnonzero(row_of[1:] == row_of[:-1])
    ends = np.concatenate([np.array(pairs, np.int64).reshape(-1, 2), np.stack([known[same], known[same + 1]], axis=1)])
    matrix = sp.coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(len(variables),) * 2)
    return connected_components(matrix, directed=False)[1], is_used


def parents_of(source: Site | Function | Fold) -> Iterator[int]:
    """The variables that one follows from."""
    if isinstance(source, Function):
        yield from source.parents
    elif isinstance(source, Fold):
        yield from (variable for variable, _ in source.terms)


class _Builder:
    """Builds groups; equal kinds are one object."""

    def __init__(self, states: States, scopes: sp.csr_array):
        self._states, self._scopes = states, scopes
        self._kinds: dict[Kind, Kind] = {}
        self._labels: dict[object, int] = {}
        self._names = list(states.structure.site_numbers)
        self._allowed: dict[str, np.ndarray] = {}
        self._arrays = states.structure.factor_array(np.arange(scopes.shape[0]))
        self._members: dict[int, tuple[int, int, int] | None] = {}

    def build(self, variables: np.ndarray, rows: np.ndarray) -> Group:
        """The group of some variables, ascending, and some factor elements."""
        states, place = self._states, {int(v): i for i, v in enumerate(variables)}
        listed = [states.reachable.variables[v] for v in variables]
        sites = [one.source for one in listed if isinstance(one.source, Site)]
        factors = sorted((self._factor(int(row), place), int(row)) for row in rows)
        kind = Kind(
            tuple(_renumber(one.source, place) for one in listed),
            tuple(one.values for one in listed),
            tuple(self._labels.setdefault(one.kind, len(self._labels)) for one in listed),
            tuple(self._values_of(site) for site in sites),
            tuple(self._positions(sites)),
            tuple((array, tuple(Member(*member) for member in members)) for (array, members), _ in factors),
        )
        numbers = np.array([site.number for site in sites])
        return Group(self._kinds.setdefault(kind, kind), numbers, np.array([row for _, row in factors], np.int64))

    def _factor(self, row: int, place: dict[int, int]) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        members = []
        for site in self._scopes.indices[self._scopes.indptr[row] : self._scopes.indptr[row + 1]].tolist():
            if site not in self._members:
                self._members[site] = self._member(site)
            member = self._members[site]
            if member is not None:
                members.append((member[0], place.get(member[1], NOTHING), member[2]))
        return int(self._arrays[row]), tuple(members)

    def _member(self, site: int) -> tuple[int, int, int] | None:
        """The name of a site or state, its variable, and its values; None for a site that is given."""
        states = self._states
        variable = int(states.variable_of[site])
        if site < states.num_sites and variable == NOTHING:
            return None
        return states.name_of(site), variable, states.reachable.array(states.values_by_variable(site))

    def _values_of(self, site: Site) -> tuple[bool, ...]:
        if site.name not in self._allowed:
            support = self._states.structure.program.z[site.name].support
            assert isinstance(support, Finite)
            self._allowed[site.name] = support.rows()[1]
        return tuple(self._allowed[site.name][site.number - self._states.structure.site_numbers[site.name][0]].tolist())

    def _positions(self, sites: list[Site]) -> Iterator[tuple[float, int]]:
        """How far along the sites of its name each stands, so that arrays of one length go side by side."""
        counts: dict[str, int] = {}
        for site in sites:
            counts[site.name] = counts.get(site.name, 0) + 1
        seen = dict.fromkeys(counts, 0)
        for site in sites:
            yield seen[site.name] / counts[site.name], self._names.index(site.name)
            seen[site.name] += 1


def _renumber(source: Site | Function | Fold, place: dict[int, int]) -> Site | Function | Fold:
    if isinstance(source, Function):
        return Function(tuple(place[parent] for parent in source.parents), source.table)
    if isinstance(source, Fold):
        terms = tuple((place[variable], values) for variable, values in source.terms)
        return Fold(source.operation, source.constant, terms)
    return Site(source.name, -1)


def num_joint_values(group: Group, reachable: Reachable) -> float:
    """How many joint values the sites of a group have."""
    return float(np.prod([len(reachable.arrays[group.kind.values[i]]) for i in group.kind.sites], dtype=float))
