"""Which sites can be summed out, in what groups, and at what cost.

Given the values of all other sites, the candidates fall into components that can be summed on their own. The work of a
component is counted in entries of tables:

    summing:  Σ_factors K^(sites of the factor) + Σ_sites K^(1 + size of the separator)
    drawing:  Σ_factors K · (sites of the factor) + Σ_sites K        (one Gibbs sweep)

Sites are summed out in larger cells where a pattern has found some and that takes less time: fewer levels make up for
more entries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from sumout.compile.policy import LEVEL_COST, MOST_ENTRIES, MOST_JOINT_VALUES, MOST_LOOPY_SITES, SMALL_TABLE
from sumout.eliminate.layout import Shape, lay_out
from sumout.eliminate.order import Order, find_order, from_one_end
from sumout.errors import note_unforeseen
from sumout.patterns.contract import Elimination, Pattern
from sumout.patterns.registry import PATTERNS, find_match
from sumout.structure.graph import LARGEST_LISTED_CLIQUE
from sumout.structure.structure import Structure
from sumout.tables.blocks import num_values


@dataclass(frozen=True, eq=False)
class Component:
    """Sites joined by factors, given all that are not candidates; or all sites with K values that are on their own.

    Attributes:
        sites: their numbers, ascending.
        alone: whether no two of the sites are joined.
        num_values: the largest number of values K.
        shape: how to sum them out together; None if they are alone, or if that would take a table of more than
            `MOST_ENTRIES`.
        summing: work of one sum; infinite where a table would be too large.
        drawing: work of one sweep.
    """

    sites: np.ndarray
    alone: bool
    num_values: int
    shape: Shape | None
    summing: float
    drawing: float


def find_components(
    structure: Structure, candidates: np.ndarray, patterns: Sequence[Pattern] = PATTERNS
) -> list[Component]:
    """The components of the candidates (a mask over the sites), given all other sites."""
    crowded = np.zeros(structure.num_sites, bool)
    dense = np.flatnonzero(np.diff(structure.scopes.indptr) > LARGEST_LISTED_CLIQUE)
    if len(dense):  # their edges are not listed, and nobody could sum over them
        crowded[np.unique(structure.scopes[dense].indices)] = True
    values = num_values(structure)
    work_sum, work_draw = _factor_work(structure, candidates, values)
    joined = np.zeros(structure.num_sites, bool)
    joined[structure.edges[candidates[structure.edges].all(axis=1)]] = True
    joined |= crowded
    found = []
    for count in np.unique(values[candidates & ~joined]).tolist():
        sites = np.flatnonzero(candidates & ~joined & (values == count))
        own = float(count * len(sites))
        found.append(Component(sites, True, count, None, work_sum[sites].sum() + own, work_draw[sites].sum() + own))
    parts = list(_split(structure, candidates & joined))
    shapes = _Shapes(len(parts), patterns)
    for sites, edges in parts:
        most = int(values[sites].max())
        summing, drawing = work_sum[sites].sum(), work_draw[sites].sum() + values[sites].sum()
        best = None if crowded[sites].any() or not np.isfinite(summing) else shapes.find(len(sites), edges, most)
        shape, work = best if best is not None else (None, np.inf)
        found.append(Component(sites, False, most, shape, float(summing + work), float(drawing)))
    return found


def _split(structure: Structure, candidates: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each component its sites in ascending order, and its edges between places among them."""
    edges = structure.edges[candidates[structure.edges].all(axis=1)]
    num_sites = structure.num_sites
    matrix = sp.coo_array((np.ones(len(edges), bool), (edges[:, 0], edges[:, 1])), shape=(num_sites,) * 2)
    labels = connected_components(matrix, directed=False)[1]
    members = np.flatnonzero(candidates)
    members = members[np.argsort(labels[members], kind="stable")]
    place = np.zeros(num_sites, np.int64)
    bounds = np.flatnonzero(np.diff(labels[members])) + 1
    groups = np.split(members, bounds)
    for group in groups:
        place[group] = np.arange(len(group))
    by_label = np.argsort(labels[edges[:, 0]], kind="stable")
    edges = edges[by_label]
    edge_labels = labels[edges[:, 0]]
    for group in groups:
        if len(group):
            label = labels[group[0]]
            low, high = np.searchsorted(edge_labels, label), np.searchsorted(edge_labels, label, side="right")
            yield group, place[edges[low:high]]


def _factor_work(structure: Structure, candidates: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The work of the factors, shared out to their sites: for summing and for drawing."""
    columns = np.flatnonzero(candidates)
    scopes = sp.csr_array(structure.scopes[:, columns])
    sizes = np.diff(scopes.indptr)
    logs = np.log(np.maximum(values[columns], 1))
    joint = np.minimum(scopes @ logs, 700.0)  # infinitely many, but no overflow
    limit = np.where(sizes > 2, MOST_JOINT_VALUES, MOST_ENTRIES)
    joint = np.where(joint > np.log(limit) + 1e-9, np.inf, np.exp(joint))
    share = sp.csr_array(scopes.T, dtype=float)
    summing, drawing = (np.zeros(structure.num_sites) for _ in range(2))
    with np.errstate(invalid="ignore"):
        per_site = np.where(sizes > 0, joint / np.maximum(sizes, 1), 0.0)
    summing[columns] = share @ per_site
    drawing[columns] = (share @ np.ones(len(sizes))) * values[columns]
    return summing, drawing


class _Found(NamedTuple):
    shape: Shape
    work: float  # of summing the sites out one by one


class _Shapes:
    """Shapes of components; equal ones are found once.

    Args:
        number: of components there are, which have their levels in common.
        patterns: those that may be used.
    """

    def __init__(self, number: int, patterns: Sequence[Pattern]):
        self._number, self._patterns = number, patterns
        self._known: dict[tuple, _Found | None] = {}

    def find(self, num_sites: int, edges: np.ndarray, most: int) -> _Found | None:
        """The shape for a component of sites with up to `most` values; None if some table would be too large."""
        if most < 1:
            return None
        # K^(width + 1) entries must fit; 1e-9 lest rounding lose an exact power.
        width = int(np.log(MOST_ENTRIES) / np.log(max(most, 2)) + 1e-9) - 1
        key = (num_sites, most, edges.tobytes())
        if key not in self._known:
            has_loops = len(edges) >= num_sites
            order: Order | None = None
            if width >= (num_sites > 1) and not (has_loops and num_sites > MOST_LOOPY_SITES):
                order = find_order(num_sites, edges, width)
            self._known[key] = None if order is None else self._best(order, edges, most)
        return self._known[key]

    def _best(self, order: Order, edges: np.ndarray, most: int) -> _Found:
        """Site by site, or in larger cells if a pattern has found some and that takes less time."""
        num_sites = len(order.parents)
        one_by_one = lay_out(order, np.arange(num_sites)[:, None])
        work = sum(float(most) ** (1 + len(separator)) for separator in order.separators)
        matched = find_match(self._patterns, Elimination(num_sites, edges, most, order.width))
        if matched is None:
            return _Found(_turned(one_by_one, most), work)
        try:
            in_cells = lay_out(_tree_of_cells(matched.cells, num_sites, edges), matched.cells)
        except ValueError as error:
            note_unforeseen("summing out in cells", error)
            return _Found(_turned(one_by_one, most), work)
        return _Found(_turned(min(one_by_one, in_cells, key=lambda shape: self._time(shape, most)), most), work)

    def _time(self, shape: Shape, most: int) -> float:
        """In entries of tables."""
        return shape.num_levels * LEVEL_COST + self._number * len(shape.members) * float(most) ** shape.table_size


def _turned(shape: Shape, num_values: int) -> Shape:
    """The shape; of a path from one end to the other, if its table is small only if two ends do not stand together."""
    table = num_values ** (2 * shape.members.shape[1]) * np.dtype(jnp.result_type(float)).itemsize
    if shape.order.width != 1 or not SMALL_TABLE / 2 < table <= SMALL_TABLE:
        return shape
    order = from_one_end(shape.order)
    return shape if order is None else lay_out(order, shape.members)


def _tree_of_cells(cells: np.ndarray, num_sites: int, edges: np.ndarray) -> Order:
    """The order in which cells are summed out; a cell that leaves a site out, or a loop of cells, would be wrong."""
    inside = cells >= 0
    if not np.array_equal(np.sort(cells[inside]), np.arange(num_sites)):
        raise ValueError(f"cells do not hold each of {num_sites} sites once")
    number = np.zeros(num_sites, np.int64)  # of the cell that each site is in
    number[cells[inside]] = np.nonzero(inside)[0]
    between = np.unique(np.sort(number[edges], axis=1), axis=0)
    order = find_order(len(cells), between[between[:, 0] != between[:, 1]], 1)
    if order is None:
        raise ValueError(f"{len(cells)} cells are no tree")
    return order
