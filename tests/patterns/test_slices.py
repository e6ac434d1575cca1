"""Slices of graphs that are long and narrow."""

import numpy as np
import pytest

from sumout.patterns.slices import find_slices


def chains(count, length, cliques=True):
    """Edges of chains side by side, step after step; the sites of one step are all joined, or each to the next."""
    sites = np.arange(count * length).reshape(length, count)
    edges = list(zip(sites[:-1].ravel(), sites[1:].ravel(), strict=True))
    for step in sites:
        edges += [(a, b) for i, a in enumerate(step) for b in (step[i + 1 :] if cliques else step[i + 1 : i + 2])]
    return np.array(edges)


def check(slices, num_sites, edges):
    """Every site in one slice, neighbours in the same or in adjacent ones."""
    inside = slices[slices >= 0]
    assert sorted(inside) == list(range(num_sites))
    number = np.zeros(num_sites, int)
    number[inside] = np.nonzero(slices >= 0)[0]
    assert (np.abs(np.diff(number[edges], axis=1)) <= 1).all()


def test_steps_of_chains_that_meet():
    """Of all ways to cut, the one with fewest edges between slices."""
    edges = chains(5, 40)
    slices = find_slices(200, edges, 2)
    assert slices is not None
    check(slices, 200, edges)
    assert sorted(map(tuple, np.sort(slices, axis=1))) == [tuple(range(5 * t, 5 * t + 5)) for t in range(40)]


@pytest.mark.parametrize(
    "num_sites, edges, size",
    [
        (40, chains(2, 20), 2),
        (60, chains(3, 20, cliques=False), 3),
        (30, np.array([(i, i + step) for step in (1, 2) for i in range(30 - step)]), 2),
        (6, np.array([(a, b) for a in range(6) for b in range(a)]), 6),
    ],
    ids=["ladder", "strip", "second order", "clique"],
)
def test_sizes(num_sites, edges, size):
    slices = find_slices(num_sites, edges, 2)
    assert slices is not None
    check(slices, num_sites, edges)
    assert slices.shape[1] == size


@pytest.mark.parametrize("count, num_values", [(7, 2), (3, 5)])
def test_no_slices_where_tables_would_be_large(count, num_values):
    assert find_slices(count * 10, chains(count, 10), num_values) is None
