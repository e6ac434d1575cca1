"""Tables of counts that become longer as a run goes on."""

import json

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import sumout
from sumout.plan.count_ends import MOST_NEGLECTED
from sumout.plan.plan import plan_for


def hardly_seen(y):
    """Of a count hardly anything is seen, so that its rate goes where its prior lets it."""
    rate = numpyro.sample("rate", dist.LogNormal(2, 1.2))
    n = numpyro.sample("n", dist.Poisson(rate))
    numpyro.sample("y", dist.Binomial(n, 0.02), obs=y)


def expected_log_rate():
    log_rate = np.linspace(-6, 12, 4001)
    weights = stats.norm.pdf(log_rate, 2, 1.2) * stats.poisson.pmf(0, 0.02 * np.exp(log_rate))
    mean = (weights * log_rate).sum() / weights.sum()
    return mean, np.sqrt((weights * (log_rate - mean) ** 2).sum() / weights.sum())


def run(program, **options):
    fixed = {"draws": 500, "tune": 200, "chains": 2, "seed": 1, "progress": False, "log_likelihood": False}
    return sumout.sample(program, **{**fixed, **options})


@pytest.fixture(scope="module")
def wandering():
    program = sumout.program(hardly_seen, np.array(0))
    return program, run(program)


def test_a_run_that_leaves_the_region_is_right(wandering):
    program, result = wandering
    first = plan_for(program).ends.cut.upper["n"]
    assert json.loads(result["posterior"].attrs["count_ends"])["n"] > first
    assert (result["sample_stats"]["neglected"].values <= MOST_NEGLECTED).all()
    log_rate = np.log(result["posterior"]["rate"].values)
    mean, sd = expected_log_rate()
    assert abs(log_rate.mean() - mean) < 0.25 * sd  # 5 deviations with 400 effective draws
    assert abs(log_rate.std() / sd - 1) < 0.25
    n, rate = (result["posterior"][name].values for name in ("n", "rate"))
    assert abs(((n - 0.98 * rate) / np.sqrt(0.98 * rate)).mean()) < 5 / np.sqrt(n.size)


@pytest.mark.calibration
def test_draws_do_not_depend_on_chunks(wandering):
    program, result = wandering
    again = run(program, chunk=7)
    np.testing.assert_array_equal(again["posterior"]["rate"], result["posterior"]["rate"])


def test_marginals_know_the_tables(wandering):
    program, result = wandering
    found = sumout.marginals(program, result)["n"]
    assert found.sizes["n_value"] == json.loads(result["posterior"].attrs["count_ends"])["n"] + 1
    np.testing.assert_allclose(found.sum("n_value"), 1)
    rate = result["posterior"]["rate"].values.ravel()
    np.testing.assert_allclose((found * found["n_value"]).sum(), (0.98 * rate).mean(), rtol=1e-6)


def test_a_stored_run_is_resumed_with_its_tables(wandering, tmp_path):
    program, result = wandering
    stored = run(program, draws=100, store=tmp_path / "run")
    np.testing.assert_array_equal(stored["posterior"]["rate"], result["posterior"]["rate"][:, :100])
    resumed = run(program, store=tmp_path / "run")
    np.testing.assert_array_equal(resumed["posterior"]["rate"], result["posterior"]["rate"])
    assert json.loads(resumed["posterior"].attrs["count_ends"]) == json.loads(result["posterior"].attrs["count_ends"])


def test_counts_far_from_zero_are_found():
    def model(y):
        p = numpyro.sample("p", dist.Beta(2, 2))
        with numpyro.plate("sites", 3):
            n = numpyro.sample("n", dist.Poisson(np.array([1.0, 5.0, 1500.0])))
            numpyro.sample("y", dist.Binomial(n, p), obs=y)

    program = sumout.program(model, np.array([0, 3, 900]))
    plan = plan_for(program)
    assert plan.sums_all
    assert plan.ends.cut.upper["n"][0] < 100
    z = {"n": np.zeros(3, int)}
    x = np.array([0.3])
    found = jax.jit(plan.log_density)(x, z, program.data)
    p = 1 / (1 + np.exp(-0.3))
    expected = stats.poisson.logpmf([0, 3, 900], np.array([1, 5, 1500]) * p).sum()
    expected += stats.beta.logpdf(p, 2, 2) + np.log(p * (1 - p))
    np.testing.assert_allclose(found, expected, atol=1e-8)
