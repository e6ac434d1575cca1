"""The bias meter on draws whose bias is known, and the rest of the summary."""

import warnings

import numpy as np
import pytest
import xarray as xr
from arviz_base import from_dict

import sumout
from sumout.diagnose.bias import read_meters, worst_excess
from sumout.diagnose.mixing import site_columns
from sumout.errors import SamplingWarning

CHAINS, DRAWS = 4, 2000


def run(spread=1.0, share=None, z=None, acceptance=0.9, correlation=0.0, shape=(3,)):
    """A made-up run: independent draws of a standard Gaussian, `spread` times too wide."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CHAINS, DRAWS, *shape))
    for t in range(1, DRAWS):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    x = x * spread
    stats = {"lp": rng.normal(size=(CHAINS, DRAWS)), "acceptance_rate": np.full((CHAINS, DRAWS), acceptance)}
    posterior = {"x": x}
    if z is not None:
        posterior["z"] = z
    if share is not None:
        posterior["share"] = share
    groups = {
        "posterior": posterior,
        "unconstrained_posterior": {"x": x},
        "unconstrained_gradient": {"x": -x},
        "sample_stats": stats,
    }
    tree = from_dict(groups)
    tree["posterior"].attrs["discrete"] = ["z"] if z is not None else []
    return tree


def complaints(tree):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = sumout.summary(tree)
    assert all(w.category is SamplingWarning for w in caught)
    return table, " ".join(str(w.message) for w in caught)


def test_the_meter_is_the_factor_of_the_variance():
    for spread in (0.8, 1.0, 1.2):
        meter = read_meters(run(spread))["x"]
        np.testing.assert_allclose(meter.value, spread**2, rtol=0.1)
        # √(2/8000), times the variance
        np.testing.assert_allclose(meter.error, spread**2 * np.sqrt(2 / (CHAINS * DRAWS)), rtol=0.15)


def test_correlated_draws_make_the_meter_less_certain():
    certain, uncertain = (read_meters(run(correlation=c))["x"].error for c in (0.0, 0.9))
    np.testing.assert_array_less(2 * certain, uncertain)


@pytest.mark.parametrize(("spread", "words"), [(1.2, "biased: wider"), (0.85, "biased: narrower"), (1.0, "")])
def test_bias_is_complained_of(spread, words):
    table, text = complaints(run(spread))
    assert words in text
    assert bool(text) == bool(words)
    np.testing.assert_allclose(table.loc["x[0]", "bias_meter"], spread**2, rtol=0.1)


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


def test_rows_of_a_variable_with_other_coordinates_show_its_worst():
    tree = run(
        share=np.full((CHAINS, DRAWS, 4), 0.25) + 1e-3 * np.random.default_rng(0).normal(size=(CHAINS, DRAWS, 4))
    )
    for group, sign in (("unconstrained_posterior", 1), ("unconstrained_gradient", -1)):
        values = np.random.default_rng(2).normal(size=(CHAINS, DRAWS, 3)) * [1.0, 1.5, 1.0]
        tree[group]["share"] = xr.DataArray(sign * values, dims=("chain", "draw", "k"))
    table, text = complaints(tree)
    assert "share are biased" in text
    np.testing.assert_allclose(table.loc[[f"share[{i}]" for i in range(4)], "bias_meter"], 2.25, rtol=0.15)


def test_z_that_does_not_mix_is_named():
    slow = np.repeat(np.random.default_rng(0).integers(0, 2, size=(CHAINS, 10, 2)), DRAWS // 10, axis=1)
    table, text = complaints(run(z=slow))
    assert "draws of z are worth only" in text
    assert table.loc["z", "ess_bulk"] < 100
    quick = np.random.default_rng(0).integers(0, 3, size=(CHAINS, DRAWS, 2))
    table, text = complaints(run(z=quick))
    assert text == ""
    assert table.loc["z", "ess_bulk"] > 4000
    assert table.loc["lp", "ess_bulk"] > 4000


def test_z_that_stays_where_it_started_is_named():
    """Each chain has a z of its own: no variance within chains, and no error of numpy's either."""
    stuck = np.broadcast_to(np.arange(CHAINS)[:, None, None] % 2, (CHAINS, DRAWS, 3))
    table, text = complaints(run(z=stuck))
    assert "chains disagree about z" in text
    assert np.isinf(table.loc["z", "r_hat"])


def test_low_acceptance_is_complained_of():
    table, text = complaints(run(acceptance=0.2))
    assert "only 20% of the proposals" in text
    assert table.attrs["acceptance_rate"] == pytest.approx(0.2)


def test_divergences_are_counted():
    tree = run()
    tree["sample_stats"]["diverging"] = tree["sample_stats"]["lp"] > 3.3
    count = int((tree["sample_stats"]["lp"].values > 3.3).sum())
    assert count > 0
    table, text = complaints(tree)
    assert f"{count} draws diverged" in text
    assert table.attrs["diverging"] == count


def test_columns_of_z():
    z = np.array([[[0, 5], [2, 5], [1, 0]]])
    assert site_columns(z).shape == (1, 3, 8)  # two sites, four values
    assert site_columns(np.arange(40).reshape(2, 20, 1)).shape == (2, 20, 1)
    assert site_columns(np.array([[[True, False], [False, False]]])).shape == (1, 2, 2)
