"""The mode of all rows by few passes."""

import jax
import jax.numpy as jnp
import numpy as np

import sumout
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z
from sumout.model.row_program import take_rows
from sumout.plan.plan import plan_for
from sumout.plan.row_sums import RowSums
from sumout.randomness import new_key
from sumout.run.mode_search import FullData, find_mode

from row_models import outlier_data, outliers


def test_the_mode_is_that_of_all_rows():
    """2,003 rows, no multiple of the batch; the gradient of all rows at once is zero there."""
    program = sumout.program(outliers, *outlier_data(np.random.default_rng(0), 2_003))
    sums = RowSums(take_rows(program, "n", 100))
    arrays = as_jax(sums.rows.all_rows)
    mode = find_mode(sums, FullData(sums, arrays), arrays, new_key(0))
    assert mode.is_found
    assert mode.passes < 20
    plan = plan_for(program)
    at = jnp.asarray(mode.x), any_z(plan.structure.program), program.data
    value, gradient = jax.jit(jax.value_and_grad(plan.log_density))(*at)
    assert np.abs(mode.spread.T @ gradient).max() < 0.1  # a tenth of a standard deviation
    assert abs(mode.log_density - value) < 0.05
