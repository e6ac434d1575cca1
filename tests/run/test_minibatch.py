"""Runs of minibatches: their draws, what is in their results, what is refused."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.errors import OptionError

from row_models import mixture, mixture_data

SIZE, BATCH = 3_000, 100
QUICK = {"draws": 120, "tune": 60, "chains": 2, "minibatch": {"n": BATCH}}


@pytest.fixture(scope="module")
def program():
    return sumout.program(mixture, *mixture_data(np.random.default_rng(0), SIZE))


@pytest.fixture(scope="module")
def result(program):
    return sumout.sample(program, **QUICK)


def test_the_posterior_is_that_of_all_rows(program, result):
    """Means within half a deviation (240 draws: an error of 0.1 at most), deviations within 40 %."""
    exact = sumout.sample(program, draws=300, tune=300, chains=2, log_likelihood=False)
    order = lambda run: np.sort(run.posterior.mu.values, axis=-1)  # noqa: E731  (labels may differ)
    one, other = order(result), order(exact)
    mean, sd = other.mean((0, 1)), other.std((0, 1))
    assert (np.abs(one.mean((0, 1)) - mean) < 0.5 * sd).all()
    assert (np.abs(one.std((0, 1)) / sd - 1) < 0.4).all()


def test_the_result_says_what_was_done(result):
    posterior = result.posterior
    assert set(posterior.data_vars) == {"weights", "mu"}
    assert dict(posterior.sizes)["draw"] == 120
    assert posterior.attrs["minibatch"] == '{"n": 100}'
    assert posterior.attrs["rows"] == SIZE
    assert "not drawn" in posterior.attrs["notes"][0]
    assert "all 3,000 rows" in posterior.attrs["full_data_check"]
    assert "observed_data" not in result.children
    assert {"step_size", "scale", "gradient_noise"} <= set(result["tuned"].data_vars)
    scale, spread = (
        result["tuned"]["scale"].mean("chain"),
        result["unconstrained_posterior"]["mu"].std(("chain", "draw")),
    )
    assert np.allclose(scale.values[1:], spread.values, rtol=0.5)  # in x, not in u


def test_draws_do_not_depend_on_chunks(program, result):
    again = sumout.sample(program, **QUICK, chunk=7)
    np.testing.assert_array_equal(result.posterior.mu.values, again.posterior.mu.values)
    other = sumout.sample(program, **QUICK, seed=1)
    assert not np.array_equal(result.posterior.mu.values, other.posterior.mu.values)


def test_a_stored_run_is_the_same(program, result, tmp_path):
    stored = sumout.sample(program, **QUICK, store=tmp_path / "run")
    np.testing.assert_array_equal(result.posterior.mu.values, stored.posterior.mu.values)
    more = sumout.sample(program, **{**QUICK, "draws": 130}, store=tmp_path / "run")
    np.testing.assert_array_equal(result.posterior.mu.values, more.posterior.mu.values[:, :120])


def test_a_model_that_subsamples_is_sampled_so():
    def subsampled(y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        with numpyro.plate("n", len(y), subsample_size=50) as rows:
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu * z, 1.0), obs=y[rows])

    program = sumout.program(subsampled, *mixture_data(np.random.default_rng(0), 1_000))
    run = sumout.sample(program, draws=50, tune=20, chains=2)
    assert run.posterior.attrs["minibatch"] == '{"n": 50}'


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"minibatch": {"n": 100, "m": 5}}, "no plate 'm'"),
        ({"minibatch": {}}, "name a plate"),
        ({"minibatch": 100}, "a dict from the name of a plate"),
        ({"minibatch": {"points": 100}}, "no plate 'points'"),
        ({"minibatch": {"n": 100}, "kernel": "nuts"}, "NUTS accepts or rejects by the log density of all rows"),
    ],
)
def test_wrong_options_are_refused(program, options, words):
    with pytest.raises(OptionError, match=words):
        sumout.sample(program, **options)
