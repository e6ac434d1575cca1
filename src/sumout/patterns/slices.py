"""Slices: sites of a long and narrow graph that are summed out together.

Five chains that meet in every observation, sites on a ladder, a chain of second order: summed out one by one, each
site is a level of its own with a small table, and a level costs more than the few numbers it is for. In slices across
the graph, such that neighbours are in the same slice or in adjacent ones, the graph is a path again, of fewer, larger
steps: a slice takes K^m joint values, and its table has K^(2m) entries. Slices are the sites at the same distance from
one end. What the end is decides whether factors lie within slices or across: tried are single sites and cliques.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sumout.compile.policy import SLICE_ENTRIES
from sumout.patterns.contract import Cells, Elimination


@dataclass(frozen=True)
class Slices:
    """Recognises graphs that can be cut into slices."""

    name: str = "slices"
    subject: type = Elimination

    def match(self, subject: Elimination) -> Cells | None:
        """The slices as cells; where separators have one site at most the graph is a tree, and is not cut."""
        if subject.width <= 1:
            return None
        slices = find_slices(subject.num_sites, subject.edges, subject.num_values)
        if slices is None:
            return None
        return Cells(slices, len(slices) * float(subject.num_values) ** (slices.shape[1] * min(len(slices), 2)))


def find_slices(num_sites: int, edges: np.ndarray, num_values: int) -> np.ndarray | None:
    """The sites of each slice, `(slices, m)`, −1 for none; None where tables would be too large.

    Args:
        num_sites: of a connected graph, its sites numbered from 0.
        edges: pairs of neighbours.
        num_values: K, the largest number of values of a site.
    """
    neighbours: list[set[int]] = [set() for _ in range(num_sites)]
    for a, b in edges.tolist():
        neighbours[a].add(b)
        neighbours[b].add(a)
    # The largest number of sites n with K^n entries at most; 1e-9 lest rounding lose an exact power.
    most = int(np.log(SLICE_ENTRIES) / np.log(max(num_values, 2)) + 1e-9)
    found: list[list[list[int]]] = []
    for start in _starts(neighbours, most):
        slices = _slices(neighbours, start)
        if _table_size(slices) <= most:
            found.append(slices)
    if not found:
        return None
    best = min(found, key=lambda slices: (_table_size(slices), _across(num_sites, edges, slices)))
    size = max(map(len, best))
    return np.array([one + [-1] * (size - len(one)) for one in best])


def _table_size(slices: list[list[int]]) -> int:
    """How many sites a table is over: those of two slices, if there are two."""
    return max(map(len, slices)) * min(len(slices), 2)


def _slices(neighbours: Sequence[set[int]], start: Sequence[int]) -> list[list[int]]:
    """Sites by their distance from the start, in ascending order."""
    seen, slices = set(start), [sorted(start)]
    while True:
        following = {other for site in slices[-1] for other in neighbours[site]} - seen
        if not following:
            return slices
        seen |= following
        slices.append(sorted(following))


def _starts(neighbours: Sequence[set[int]], most: int) -> Iterator[tuple[int, ...]]:
    """Both ends of the graph, alone and with each clique around them, of at most so many sites."""
    one = _slices(neighbours, [0])[-1][0]
    other = _slices(neighbours, [one])[-1][0]
    starts: set[tuple[int, ...]] = set()
    for end in (one, other):
        if len(neighbours[end]) > 2 * most:
            continue
        for first in (end, *sorted(neighbours[end])):
            clique = {end, first}
            for site in sorted(neighbours[end]):
                if first != end and clique <= neighbours[site] | {site}:
                    clique.add(site)
            starts.add(tuple(sorted(clique)))
    yield from sorted(start for start in starts if len(start) <= most)


def _across(num_sites: int, edges: np.ndarray, slices: list[list[int]]) -> int:
    """How many edges lie between slices."""
    number = np.zeros(num_sites, np.int64)
    for i, one in enumerate(slices):
        number[one] = i
    return int((number[edges[:, 0]] != number[edges[:, 1]]).sum())
