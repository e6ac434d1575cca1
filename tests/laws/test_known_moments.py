"""The stored moments of `known_moments.py` are right; `python tests/moments_by_hand.py` looks at all of them."""

import jax.numpy as jnp
import numpy as np
import pytest

from enumeration import joint_states, log_marginal
from known_moments import KNOWN_MOMENTS
from moments_by_hand import TOLERANCE, TRUTHS, compare

# Grids in three dimensions and more take their time.
QUICK = [name for name, case in KNOWN_MOMENTS.items() if len(case.mean) <= 2 or TRUTHS[name].closed_form is not None]
NUM_COUNTS = 36  # nothing is left beyond at the rates looked at here


@pytest.mark.parametrize("name", KNOWN_MOMENTS)
def test_z_is_summed_out_rightly_by_hand(name):
    """The program, with all its joint states listed, and the formula differ by a constant."""
    case, program = KNOWN_MOMENTS[name], KNOWN_MOMENTS[name].make()
    points = np.asarray(case.mean) + np.random.default_rng(1).normal(size=(3, program.num_x)) * 0.7 * np.asarray(
        case.sd
    )
    listed = log_marginal(program, joint_states(program, NUM_COUNTS))
    difference = np.array([listed(jnp.asarray(x)) for x in points]) - TRUTHS[name].log_marginal(points)
    assert np.ptp(difference) < 1e-9


@pytest.mark.parametrize("name", QUICK)
def test_stored_moments(name):
    mean, sd = TRUTHS[name].moments()
    assert compare(mean, sd, KNOWN_MOMENTS[name].mean, KNOWN_MOMENTS[name].sd) < TOLERANCE
