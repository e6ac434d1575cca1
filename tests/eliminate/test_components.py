"""Cells that a pattern proposes are looked at before they take the place of single sites."""

import numpy as np
import pytest

from sumout.eliminate.components import _tree_of_cells

RING = np.array([(0, 1), (1, 2), (2, 3), (3, 0)])


def test_a_ring_in_two_cells_is_a_tree():
    assert len(_tree_of_cells(np.array([[0, 1], [2, 3]]), 4, RING).parents) == 2


@pytest.mark.parametrize(
    "cells, words",
    [
        ([[0, 1], [2, -1]], "each of 4 sites once"),
        ([[0, 1], [2, 3], [3, -1]], "each of 4 sites once"),
        ([[0], [1], [2], [3]], "no tree"),
    ],
)
def test_cells_that_would_be_wrong(cells, words):
    with pytest.raises(ValueError, match=words):
        _tree_of_cells(np.array(cells), 4, RING)
