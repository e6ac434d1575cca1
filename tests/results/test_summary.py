"""The bias meter on draws whose bias is known, and the rest of the summary."""

import warnings

import numpy as np
import pytest
import xarray as xr
from arviz_base import from_dict

import sumout
from sumout.adaptation.bias_meter import read_meters, worst_excess
from sumout.errors import SamplingWarning
from sumout.results.effective_draws import judge_agreement, site_columns

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


def tree_of(posterior, discrete=()):
    """A made-up run of these variables, with nothing known of gradients."""
    shape = next(iter(posterior.values())).shape[:2]
    stats = {"lp": np.random.default_rng(9).normal(size=shape)}
    tree = from_dict({"posterior": posterior, "sample_stats": stats})
    tree["posterior"].attrs["discrete"] = list(discrete)
    return tree


def autoregressive(rng, effective, shape=(), draws=1000):
    """Four chains of so many effective draws in all."""
    times = CHAINS * draws / effective
    correlation = (times - 1) / (times + 1)
    x = rng.normal(size=(CHAINS, draws, *shape))
    for t in range(1, draws):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    return x


@pytest.mark.parametrize("effective", [700, 1500, 4000])
def test_chains_that_agree_are_not_said_to_disagree(effective):
    """Alarm is given in one run of 1,000 whose chains have one law, though some of 50 r_hat are above 1.01."""
    rng = np.random.default_rng(effective)
    large = 0
    for _ in range(3):
        table, text = complaints(tree_of({"x": autoregressive(rng, effective, (50,))}))
        assert "disagree" not in text
        large += (table.loc["x[0]":"x[49]", "r_hat"] > 1.01).any()
    assert large or effective > 700


def test_the_bound_on_r_hat_holds_its_level():
    """A tenth of a column is allowed ten times what a run is, one alarm in 100: of 450, 7 deviations more at most."""
    rng = np.random.default_rng(0)
    columns = [autoregressive(rng, effective, (150,)) for effective in (100, 400, 1500)]
    alarms = sum(judge_agreement(x[..., i], 0.1).disagrees for x in columns for i in range(150))
    assert alarms < 4.5 + 7 * np.sqrt(4.5)


def test_few_effective_draws_of_a_count_are_told_with_the_draws_needed():
    """The sum of indicators, 200 effective draws."""
    rng = np.random.default_rng(3)
    num = np.round(150 + 9 * autoregressive(rng, 200)).astype(int)
    z = rng.integers(0, 2, size=(CHAINS, 1000, 30))
    tree = tree_of({"N": num, "z": z}, ["z"])
    table, text = complaints(tree)
    assert "draws of N are worth only" in text
    assert 'plan={"z": "sum"}' in text
    tree["posterior"].attrs["drawn"] = []  # z is summed out already
    assert "plan" not in complaints(tree)[1]
    needed = int(text.split("draws=")[1].split()[0])
    assert needed == pytest.approx(400 / table.loc["N", ["ess_bulk", "ess_tail"]].min() * 1000, rel=0.1)
    assert complaints(tree_of({"N": np.round(9 * autoregressive(rng, 3000)), "z": z}, ["z"]))[1] == ""


def test_few_effective_draws_in_the_tail_alone_are_told():
    rng = np.random.default_rng(4)
    width = np.exp(1.5 * autoregressive(rng, 60))
    _, text = complaints(tree_of({"x": width * rng.normal(size=width.shape)}))
    assert "draws of x are worth only" in text


def test_more_draws_are_not_advised_for_modes():
    rng = np.random.default_rng(5)
    x = autoregressive(rng, 3000) + np.array([0, 0, 0, 0.35])[:, None]
    table, text = complaints(tree_of({"g": x}))
    assert "chains disagree about g" in text
    assert "more draws do not help" in text
    assert f"{table.loc['g', 'r_hat']:.3f}" in text  # digits that tell it from the bound
    drifting = autoregressive(rng, 3000) + np.linspace(0, 1.5, 1000) * np.array([1, -1, 1, -1])[:, None]
    assert "longer warm-up (tune)" in complaints(tree_of({"g": drifting}))[1]


def test_a_frozen_z_is_told_once_for_all_sites():
    z = np.random.default_rng(0).integers(0, 3, size=(CHAINS, 1000, 400))
    z[:, :, :100] = np.arange(CHAINS)[:, None, None] % 3
    _, text = complaints(tree_of({"z": z}, ["z"]))
    assert text.count("z (at least") == 1
    assert "never changes within a chain: more draws do not help" in text


def mixture(rng, orders):
    """Draws of a mixture of two components whose labels are in that order, axes (chain, draw, component)."""
    shape = (*orders.shape[:2], 2)
    mu = np.array([-2.0, 2.0]) + 0.3 * rng.normal(size=shape)
    sigma = np.array([1.0, 0.5]) * np.exp(0.1 * rng.normal(size=shape))
    first = 0.3 + 0.05 * rng.normal(size=shape[:2])
    weights = np.stack([first, 1 - first], axis=-1)
    z = (rng.uniform(size=(*shape[:2], 20)) < np.linspace(0.05, 0.95, 20)).astype(int)
    posterior = {name: np.take_along_axis(v, orders, -1) for name, v in (("mu", mu), ("sigma", sigma))}
    posterior["weights"] = np.take_along_axis(weights, orders, -1)
    return posterior | {"z": np.take_along_axis(orders, z, -1), "b": rng.normal(size=shape)}


STRAIGHT, CROSSED = np.array([0, 1]), np.array([1, 0])


def test_labels_that_differ_between_chains_are_named():
    orders = np.array([STRAIGHT, CROSSED, STRAIGHT, CROSSED])[:, None].repeat(1000, axis=1)
    _, text = complaints(tree_of(mixture(np.random.default_rng(6), orders), ["z"]))
    assert "labels of the components of mu, sigma, weights, z switch between chains:" in text
    assert "OrderedTransform on mu" in text
    assert "disagree" not in text
    assert "worth only" not in text


def test_labels_that_switch_within_chains_are_named():
    rng = np.random.default_rng(7)
    orders = np.stack([STRAIGHT, CROSSED])[rng.integers(0, 2, size=(CHAINS, 5))].repeat(200, axis=1)
    _, text = complaints(tree_of(mixture(rng, orders), ["z"]))
    assert "labels of the components of mu, sigma, weights, z switch between chains and within them" in text
    assert "disagree" not in text


def test_modes_that_no_order_explains_are_no_labels():
    rng = np.random.default_rng(8)
    orders = np.broadcast_to(STRAIGHT, (CHAINS, 1000, 2))
    posterior = mixture(rng, orders)
    posterior["mu"] = posterior["mu"] + np.array([0, 0, 0, 3.0])[:, None, None]
    _, text = complaints(tree_of(posterior, ["z"]))
    assert "labels" not in text
    assert "chains disagree about mu" in text
    ordered = mixture(rng, np.array([STRAIGHT, CROSSED, STRAIGHT, CROSSED])[:, None].repeat(1000, axis=1))
    ordered["mu"] = np.sort(ordered["mu"], axis=-1) + np.array([0, 0, 0, 3.0])[:, None, None]
    assert "labels" not in complaints(tree_of(ordered, ["z"]))[1]


def test_transitions_between_switched_states_are_part_of_the_labels():
    rng = np.random.default_rng(10)
    orders = np.array([[0, 1, 2], [2, 0, 1], [1, 0, 2], [0, 1, 2]])
    mu, rates = np.array([-3.0, 0.0, 3.0]), np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.3, 0.1, 0.6]])
    noise = rng.normal(size=(CHAINS, 1000, 3, 3))
    posterior = {
        "mu": mu[orders][:, None] + 0.3 * noise[..., 0],
        "rates": np.stack([rates[np.ix_(o, o)] for o in orders])[:, None] + 0.01 * rng.normal(size=noise.shape),
    }
    _, text = complaints(tree_of(posterior))
    assert "components of mu, rates switch between chains" in text
    assert "disagree" not in text
