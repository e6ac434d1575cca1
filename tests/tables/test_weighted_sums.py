"""Sums by owner of numbers times data, against sums of what is laid out."""

import jax.numpy as jnp
import numpy as np
import pytest

from sumout.jaxpr.spread import Combination
from sumout.tables.factor_sums import share
from sumout.tables.weighted_sums import sum_combination

SHAPE = (6, 4)
RNG = np.random.default_rng(0)
WEIGHTS = tuple(jnp.asarray(RNG.integers(0, 3, SHAPE).astype(float)) for _ in range(2))


def owners(kind):
    """Numbers of elements and their owners: by row, by column, or by row with some left out."""
    rows, columns = np.indices(SHAPE)
    owner = columns if kind == "columns" else rows
    kept = (rows + columns) % 3 > 0 if kind == "some" else np.ones(SHAPE, bool)
    return np.flatnonzero(kept.ravel()), owner.ravel()[kept.ravel()], owner.max() + 1


@pytest.mark.parametrize("kind", ["rows", "columns", "some"])
@pytest.mark.parametrize("shapes", [((1, 1), (1, 1)), ((1, 4), (1, 1)), ((6, 1), (1, 4)), ((6, 1), (6, 1))])
@pytest.mark.parametrize("is_impossible", [False, True])
def test_same_as_laid_out(kind, shapes, is_impossible):
    elements, owner, size = owners(kind)
    owned = share(elements, owner, SHAPE, int(size))
    numbers = [jnp.asarray(np.random.default_rng(1).normal(size=shape)) for shape in shapes]
    if is_impossible:
        numbers[0] = numbers[0].at[0, 0].set(-jnp.inf)
    combination = Combination(tuple(numbers), WEIGHTS, SHAPE)
    found = sum_combination(combination, owned, int(size), jnp.float64)
    expected = np.zeros(int(size))
    np.add.at(expected, owner, np.asarray(combination.full).ravel()[elements])
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-12)
