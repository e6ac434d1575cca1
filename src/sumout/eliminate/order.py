"""In which order to sum sites out, one after the other, and what tables that takes.

Summing a site out joins all its neighbours that are left: they are its separator. The table of a site has an axis for
the site itself and one for each site of its separator; its sum over the site is a message to the first of the separator
to be summed out, its parent. Parents make a tree. The widest separator decides the cost, K^(width + 1), and the height
of the tree how many steps follow on each other. To find the best order is hard; to take the site with the fewest
neighbours (or, in small graphs, the one that adds fewest edges) is good, and exact on trees. Among equals the one with
the flattest tree below goes first, so that a path is summed from both ends; a short one from one end to the other.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sumout.compile.policy import MOST_FOR_FILL, PATH_FROM_ONE_END


@dataclass(frozen=True, eq=False)
class Order:
    """An order of elimination for one connected graph, its sites numbered from 0.

    Attributes:
        separators: for each site those of its neighbours that are left when it goes, first to go first.
        parents: the first of the separator; −1 for the last site of all.
        depths: steps from the last site.
    """

    separators: tuple[tuple[int, ...], ...]
    parents: np.ndarray
    depths: np.ndarray

    @property
    def width(self) -> int:
        """Size of the largest separator."""
        return max(len(separator) for separator in self.separators)


def find_order(num_sites: int, edges: np.ndarray, most_width: int) -> Order | None:
    """A good order for a connected graph; None if all that were tried have a separator above `most_width`."""
    is_tree = len(edges) == num_sites - 1
    if is_tree and 1 < num_sites <= PATH_FROM_ONE_END and np.bincount(edges.ravel()).max() <= 2:
        return _along(num_sites, edges)
    tried = [_eliminate(num_sites, edges, most_width, _degree)]
    if not is_tree and num_sites <= MOST_FOR_FILL:
        tried.append(_eliminate(num_sites, edges, most_width, _fill))
    found = [order for order in tried if order is not None]
    return min(found, key=lambda order: order.width) if found else None


def from_one_end(order: Order) -> Order | None:
    """The order from one end of a path to the other; None if the tree is no path."""
    below = np.flatnonzero(order.parents >= 0)
    edges = np.stack([below, order.parents[below]], axis=1)
    is_path = len(edges) > 0 and np.bincount(edges.ravel()).max() <= 2
    return _along(len(order.parents), edges) if is_path else None


def _along(num_sites: int, edges: np.ndarray) -> Order:
    """A path, from one of its ends to the other."""
    neighbours: list[list[int]] = [[] for _ in range(num_sites)]
    for a, b in edges.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    site = next(site for site in range(num_sites) if len(neighbours[site]) == 1)
    parents = np.full(num_sites, -1)
    depths = np.zeros(num_sites, np.int64)
    before = -1
    for depth in reversed(range(num_sites)):
        depths[site] = depth
        following = [other for other in neighbours[site] if other != before]
        if following:
            parents[site] = following[0]
            before, site = site, following[0]
    separators = tuple((int(parent),) if parent >= 0 else () for parent in parents)
    return Order(separators, parents, depths)


def _degree(neighbours: list[set[int]], site: int) -> int:
    return len(neighbours[site])


def _fill(neighbours: list[set[int]], site: int) -> int:
    """How many pairs of neighbours are not neighbours of each other."""
    return sum(b not in neighbours[a] for a, b in combinations(neighbours[site], 2))


def _eliminate(
    num_sites: int, edges: np.ndarray, most_width: int, score: Callable[[list[set[int]], int], int]
) -> Order | None:
    neighbours: list[set[int]] = [set() for _ in range(num_sites)]
    for a, b in edges.tolist():
        neighbours[a].add(b)
        neighbours[b].add(a)
    height = [0] * num_sites
    place: list[int] = [-1] * num_sites
    left_behind: list[set[int]] = [set()] * num_sites
    queue = [(score(neighbours, site), 0, site) for site in range(num_sites)]
    heapq.heapify(queue)
    step = 0
    while queue:
        worth, tall, site = heapq.heappop(queue)
        if place[site] >= 0 or (worth, tall) != (score(neighbours, site), height[site]):
            continue  # out of date
        around = neighbours[site]
        if len(around) > most_width:
            return None
        place[site], left_behind[site] = step, around
        step += 1
        touched = set(around)
        for other in around:
            neighbours[other] |= around - {other}
            neighbours[other].discard(site)
            height[other] = max(height[other], height[site] + 1)
            if score is _fill:
                touched |= neighbours[other]
        for other in touched:
            heapq.heappush(queue, (score(neighbours, other), height[other], other))
    separators = tuple(tuple(sorted(around, key=place.__getitem__)) for around in left_behind)
    parents = np.array([separator[0] if separator else -1 for separator in separators])
    depths = np.zeros(num_sites, np.int64)
    for site in sorted(range(num_sites), key=place.__getitem__, reverse=True):
        if parents[site] >= 0:
            depths[site] = depths[parents[site]] + 1
    return Order(separators, parents, depths)
