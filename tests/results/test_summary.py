"""The summary: a table, and a complaint of everything that makes draws untrustworthy, and of nothing else."""

import numpy as np
import pytest
import xarray as xr

from made_up_runs import CHAINS, DRAWS, autoregressive, complaints, run, tree_of


@pytest.mark.parametrize(("spread", "words"), [(1.2, "biased: wider"), (0.85, "biased: narrower"), (1.0, "")])
def test_bias_is_complained_of(spread, words):
    table, text = complaints(run(spread))
    assert words in text
    assert bool(text) == bool(words)
    np.testing.assert_allclose(table.loc["x[0]", "bias_meter"], spread**2, rtol=0.1)


def test_of_an_exact_kernel_the_meter_tells_of_jumps_or_of_too_short_a_run():
    tree = run(1.2)
    tree["posterior"].attrs["exact_kernel"] = 1
    _, text = complaints(tree)
    assert "the density jumps" in text
    assert "biased" not in text
    assert "several times longer" in text


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
