"""Many chains side by side that run along an axis of their arrays: cells stand where their sites stand.

Sequences of different lengths in one array, capture histories, sites visited year after year: z is an array of steps ×
rows, a mask tells where a row begins or ends, and what is masked is joined to nothing. Laid out by their components,
such chains would have to be gathered from all over the factors. Here the levels are the steps and the columns the rows,
as they stand, and what is joined to nothing stands in between: a message to a cell that does not depend on it is the
total so far, and is added to what follows. Several arrays may follow each other, the first step being one of its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sumout.compile.policy import FEW_RUNS, GRID_WASTE
from sumout.structure.structure import Structure


class _Steps(NamedTuple):
    """Sites of one name: levels (0 for the first step) and columns of all its elements, and how many there are."""

    levels: np.ndarray
    columns: np.ndarray
    num_levels: int
    num_columns: int


def find_grids(structure: Structure, chains: Sequence[np.ndarray], alone: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Grids of sites, `(levels, columns)`, each joined only to the next in its column, if at all.

    Args:
        structure: the reading.
        chains: the sites of each component that may be one.
        alone: sites that are summed out, too, and joined to nothing. A grid has no sites but these and those of chains.
    """
    if not chains:
        return []
    name_of, is_joined = np.full(structure.num_sites, -1), np.zeros(structure.num_sites, bool)
    names = list(structure.site_numbers)
    for number, name in enumerate(names):
        name_of[structure.site_numbers[name]] = number
    longest = np.zeros(len(names), np.int64)  # chain, by the name of its first site
    for sites in chains:
        is_joined[sites] = True
        longest[name_of[sites[0]]] = max(longest[name_of[sites[0]]], len(sites))
    may_stand = is_joined.copy()
    for sites in alone:
        may_stand[sites] = True
    edges = structure.edges[is_joined[structure.edges].all(axis=1)]
    within = name_of[edges[:, 0]] == name_of[edges[:, 1]]
    steps = {
        number: _find_steps(structure, names[number], edges[within & (name_of[edges[:, 0]] == number)])
        for number in np.unique(name_of[is_joined]).tolist()
    }
    following = _find_links(structure, names, name_of, steps, edges[~within])
    grids = []
    for queue in _queues(list(steps), following):
        parts = [_lay(structure, names[number], steps[number]) for number in queue]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts) or len({part.shape[1] for part in found}) > 1:
            continue
        grid = np.concatenate(found)
        most = max(int(longest[number]) for number in queue)
        if may_stand[grid].all() and grid.shape[1] > FEW_RUNS and len(grid) <= GRID_WASTE * most:
            grids.append(grid)
    return grids


def _find_steps(structure: Structure, name: str, edges: np.ndarray) -> _Steps | None:
    """The axis of an array along which its sites are joined; None if it is not one, or not from step to step."""
    local = np.arange(len(structure.site_numbers[name]))
    if not len(edges):
        return _Steps(np.zeros_like(local), local, 1, len(local))
    edges = np.sort(edges, axis=1) - structure.site_numbers[name][0]
    stride = int(edges[0, 1] - edges[0, 0])
    shape = structure.program.z[name].support.shape
    lengths = [length for axis, length in enumerate(shape) if int(np.prod(shape[axis + 1 :])) == stride and length > 1]
    if not lengths or (edges[:, 1] - edges[:, 0] != stride).any():
        return None
    levels = local // stride % lengths[0]
    if (levels[edges[:, 1]] != levels[edges[:, 0]] + 1).any():
        return None  # from the end of one row to the beginning of the next
    columns = local // (stride * lengths[0]) * stride + local % stride
    return _Steps(levels, columns, lengths[0], len(local) // lengths[0])


def _find_links(
    structure: Structure, names: list[str], name_of: np.ndarray, steps: dict[int, _Steps | None], edges: np.ndarray
) -> dict[int, int | None]:
    """For each array that others are joined to the one that follows it, element by element; None if none does."""
    following: dict[int, int | None] = {}
    for a, b in np.unique(np.sort(name_of[edges], axis=1), axis=0).tolist():
        ends = np.sort(edges[(np.sort(name_of[edges], axis=1) == (a, b)).all(axis=1)], axis=1)
        if name_of[ends[0, 0]] != a:
            ends = ends[:, ::-1]
        one, other = steps[a], steps[b]
        link = None
        if one is not None and other is not None:
            i, j = (ends[:, k] - structure.site_numbers[names[n]][0] for k, n in enumerate((a, b)))
            if (one.columns[i] == other.columns[j]).all():
                if (one.levels[i] == one.num_levels - 1).all() and (other.levels[j] == 0).all():
                    link = (a, b)
                elif (one.levels[i] == 0).all() and (other.levels[j] == other.num_levels - 1).all():
                    link = (b, a)
        if link is None or link[0] in following:
            following.update({a: None, b: None})
        else:
            following[link[0]] = link[1]
    return following


def _queues(arrays: list[int], following: dict[int, int | None]) -> list[list[int]]:
    """Arrays that follow each other, in order; those that are joined in another way are left out."""
    followed = [after for after in following.values() if after is not None]
    spoilt = {number for number, after in following.items() if after is None}
    spoilt |= {number for number in followed if followed.count(number) > 1}
    queues = []
    for number in arrays:
        if number in followed:
            continue
        queue = [number]
        while (after := following.get(queue[-1])) is not None:
            queue.append(after)
        if spoilt.isdisjoint(queue):
            queues.append(queue)
    return queues


def _lay(structure: Structure, name: str, steps: _Steps | None) -> np.ndarray | None:
    """The sites of a name, `(levels, columns)`."""
    if steps is None:
        return None
    grid = np.zeros((steps.num_levels, steps.num_columns), np.int64)
    grid[steps.levels, steps.columns] = structure.site_numbers[name]
    return grid
