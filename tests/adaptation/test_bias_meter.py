"""The bias meter on draws whose bias is known."""

import numpy as np
from arviz_base import from_dict

from sumout.adaptation.bias_meter import read_meters, worst_excess

from made_up_runs import CHAINS, DRAWS, run


def test_the_meter_is_the_factor_of_the_variance():
    for spread in (0.8, 1.0, 1.2):
        meter = read_meters(run(spread))["x"]
        np.testing.assert_allclose(meter.value, spread**2, rtol=0.1)
        # √(2/8000), times the variance
        np.testing.assert_allclose(meter.error, spread**2 * np.sqrt(2 / (CHAINS * DRAWS)), rtol=0.15)


def test_correlated_draws_make_the_meter_less_certain():
    certain, uncertain = (read_meters(run(correlation=c))["x"].error for c in (0.0, 0.9))
    np.testing.assert_array_less(2 * certain, uncertain)


def test_a_run_that_is_right_is_seldom_called_biased():
    """With 100 coordinates and few draws many a meter is outside the interval, but within its error."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(20):
        x = rng.normal(size=(4, 100, 100))
        groups = {"posterior": {"x": x}, "unconstrained_posterior": {"x": x}, "unconstrained_gradient": {"x": -x}}
        meters = read_meters(from_dict(groups))
        assert (np.abs(meters["x"].value - 1) > 0.05).any()
        alarms += (meters["x"].excess > worst_excess(meters)).any()
    assert alarms <= 2
