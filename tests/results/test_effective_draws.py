"""What is measured of draws: columns of z, and whether chains agree."""

import numpy as np

from sumout.results.effective_draws import fewest_effective, judge_agreement, site_columns, slowest

from made_up_runs import autoregressive


def test_columns_of_z():
    z = np.array([[[0, 5], [2, 5], [1, 0]]])
    assert site_columns(z).shape == (1, 3, 8)  # two sites, four values
    assert site_columns(np.arange(40).reshape(2, 20, 1)).shape == (2, 20, 1)
    assert site_columns(np.array([[[True, False], [False, False]]])).shape == (1, 2, 2)


def test_the_bound_on_r_hat_holds_its_level():
    """A tenth of a column is allowed ten times what a run is, one alarm in 100: of 450, 7 deviations more at most."""
    rng = np.random.default_rng(0)
    columns = [autoregressive(rng, effective, (150,)) for effective in (100, 400, 1500)]
    alarms = sum(judge_agreement(x[..., i], 0.1).disagrees for x in columns for i in range(150))
    assert alarms < 4.5 + 7 * np.sqrt(4.5)


def test_draws_that_undo_each_other_are_not_fewer_than_none():
    """Each nearly the mirror image of the one before: for means worth more than independent draws."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 1000))
    for t in range(1, 1000):
        x[:, t] = -0.98 * x[:, t - 1] + np.sqrt(1 - 0.98**2) * x[:, t]
    assert slowest(x[..., None])[0] == x.size * np.log10(x.size)
    assert 0 < fewest_effective(x) < 1000  # in the tails they stay for long
