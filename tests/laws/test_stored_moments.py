"""The stored moments of `mixed.py` belong to its programs; `python tests/mixed_truth.py` looks at all of them."""

import jax.numpy as jnp
import numpy as np
import pytest

from enumeration import joint_states, log_marginal
from mixed import MIXED
from mixed_truth import TOLERANCE, TRUTHS, compare

# Grids in three dimensions and more take their time.
QUICK = [name for name, case in MIXED.items() if len(case.mean) <= 2 or TRUTHS[name].closed_form is not None]
NUM_COUNTS = 36  # nothing is left beyond at the rates looked at here


@pytest.mark.parametrize("name", MIXED)
def test_z_is_summed_out_rightly_by_hand(name):
    """The program, with all its joint states listed, and the formula differ by a constant."""
    case, program = MIXED[name], MIXED[name].make()
    points = np.asarray(case.mean) + np.random.default_rng(1).normal(size=(3, program.num_x)) * 0.7 * np.asarray(
        case.sd
    )
    listed = log_marginal(program, joint_states(program, NUM_COUNTS))
    difference = np.array([listed(jnp.asarray(x)) for x in points]) - TRUTHS[name].log_marginal(points)
    assert np.ptp(difference) < 1e-9


@pytest.mark.parametrize("name", QUICK)
def test_stored_moments(name):
    mean, sd = TRUTHS[name].moments()
    assert compare(mean, sd, MIXED[name].mean, MIXED[name].sd) < TOLERANCE
