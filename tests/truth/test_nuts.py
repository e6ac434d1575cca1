"""NUTS in turns with moves on z; with z summed out it is in the tables of `test_posteriors.py`."""

import numpy as np
import pytest

import sumout

from enumeration import joint_states, quadrature
from programs import ENUMERABLE


@pytest.mark.calibration
@pytest.mark.parametrize(("name", "site", "x"), [("survey", "coin", "theta")])
def test_nuts_with_z_drawn(name, site, x):
    program = ENUMERABLE[name]()
    states = joint_states(program)
    mean, sd, weights = quadrature(program, states, num=2001)
    result = sumout.sample(program, sumout.NUTS(), plan={site: "gibbs"}, draws=5000, log_likelihood=False)
    drawn = result["unconstrained_posterior"][x].values
    # 20,000 draws, of which at least 4,000 count: six standard errors are 0.1 sd, and 0.05 for a probability.
    assert abs(drawn.mean() - mean) < 0.1 * sd
    assert abs(drawn.std() / sd - 1) < 0.1
    values = np.asarray(states[site], float)
    exact = np.tensordot(weights, values, axes=1)
    assert np.abs(result.posterior[site].values.mean(axis=(0, 1)) - exact).max() < 0.05
