"""The mode of all rows by few passes."""

import numpy as np

import sumout
from sumout.model.arguments import as_jax
from sumout.model.row_program import take_rows
from sumout.plan.row_sums import RowSums
from sumout.randomness import new_key
from sumout.run.mode_search import FullData, find_mode

from row_models import outlier_data, outliers


def test_the_mode_is_that_of_all_rows():
    """2,003 rows, no multiple of the batch; `maximize` on all rows at once finds the same."""
    program = sumout.program(outliers, *outlier_data(np.random.default_rng(0), 2_003))
    sums = RowSums(take_rows(program, "n", 100))
    arrays = as_jax(sums.rows.all_rows)
    mode = find_mode(sums, FullData(sums, arrays), arrays, new_key(0))
    assert mode.is_found
    assert mode.passes < 20
    exact = sumout.maximize(program, jacobian=True, starts=2)
    assert exact.log_density is not None
    expected = np.concatenate([np.ravel(value) for value in exact.unconstrained.values()])
    sd = np.sqrt(np.diag(mode.spread @ mode.spread.T))
    assert (np.abs(mode.x - expected) < 0.1 * sd).all()
    assert abs(mode.log_density - exact.log_density) < 0.05
