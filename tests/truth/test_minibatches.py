"""Posteriors by minibatches beside those of all rows, and faults that the check at the end must name."""

import copy
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.results.effective_draws import slowest
from sumout.run import minibatch

from row_models import mixture, mixture_data

pytestmark = pytest.mark.calibration


def regression(covariates, y):
    """Fifty coordinates, with outlier indicators."""
    slopes = numpyro.sample("slopes", dist.Normal(0, 2).expand([49]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("n", len(y)):
        is_outlier = numpyro.sample("is_outlier", dist.Bernoulli(0.1))
        numpyro.sample("y", dist.Normal(covariates @ slopes, jnp.where(is_outlier, 10.0, sigma)), obs=y)


def regression_data(rng, num):
    covariates = rng.normal(size=(num, 49))
    noise = np.where(rng.random(num) < 0.1, 10.0, 0.5) * rng.normal(size=num)
    return covariates, covariates @ rng.normal(size=49) + noise


def rare(y, seen):
    """A rare event among few rows that count: the posterior of its rate is skewed."""
    rate = numpyro.sample("rate", dist.Gamma(0.5, 1))
    gate = numpyro.sample("gate", dist.Beta(2, 2))
    with numpyro.plate("n", len(y)), numpyro.handlers.mask(mask=seen):
        z = numpyro.sample("z", dist.Bernoulli(gate))
        numpyro.sample("y", dist.Poisson(jnp.where(z == 1, 1e-4 * rate, 1e-6)), obs=y)


def rare_data(rng, num):
    return rng.poisson(4e-5, num), rng.random(num) < 0.9


def moments(run, name):
    """Draws as columns, components of mixtures in order; means, deviations and their errors."""
    values = run.posterior[name].values.astype(float)
    x = values[..., None] if values.ndim == 2 else np.sort(values, axis=-1) if name in ("mu", "weights") else values
    mean, sd = x.mean((0, 1)), x.std((0, 1))
    kurtosis = ((x - mean) ** 4).mean((0, 1)) / sd**4
    effective = np.array([slowest(x[..., [i]])[0] for i in range(x.shape[-1])])
    return mean, sd, sd / np.sqrt(effective), sd * np.sqrt((kurtosis - 1) / (4 * effective))


@pytest.mark.parametrize(
    ("model", "make", "num"),
    [(mixture, mixture_data, 100_000), (regression, regression_data, 20_000), (rare, rare_data, 100_000)],
    ids=["mixture", "fifty coordinates", "skewed"],
)
def test_posteriors_are_those_of_all_rows(model, make, num):
    """Means within 0.1 deviations and deviations within 5 %, both but for four Monte-Carlo errors; exact draws, too."""
    program = sumout.program(model, *make(np.random.default_rng(0), num))
    exact = sumout.sample(program, draws=1_000, tune=500, chains=2, log_likelihood=False, keep={only(program): False})
    for kernel, batch in ((None, 1_000), ("hmc", num // 5)):
        run = sumout.sample(program, kernel, minibatch={"n": batch}, draws=2_000, tune=1_000)
        assert run.posterior.attrs["full_data_check_holds"], run.posterior.attrs["full_data_check"]
        for name in run.posterior.data_vars:
            (mean, sd, *errors), (other_mean, other_sd, *other_errors) = (moments(r, name) for r in (run, exact))
            mean_error, sd_error = np.hypot(errors, other_errors)
            assert (np.abs(mean - other_mean) < 0.1 * other_sd + 4 * mean_error).all(), (kernel, name)
            assert (np.abs(sd - other_sd) < 0.05 * other_sd + 4 * sd_error).all(), (kernel, name)


def only(program):
    """The discrete site of a program with one."""
    (name,) = program.z
    return name


@pytest.fixture(scope="module")
def program():
    return sumout.program(mixture, *mixture_data(np.random.default_rng(0), 20_000))


def check_of(program, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = sumout.sample(program, minibatch={"n": 200}, draws=1_000, tune=500, **options)
    return run.posterior.attrs


def test_the_check_names_planted_faults(program, monkeypatch):
    assert check_of(program)["full_data_check_holds"]
    with_control_variates, make = minibatch.Rows.data, minibatch.make_minibatch_target

    # No control variates, at the step size that is right with them: ten times the noise that is injected.
    step = sumout.SplitSGHMC(step_size=0.25)
    monkeypatch.setattr(minibatch.Rows, "data", lambda self, mode: with_control_variates(self, mode, False))
    assert "wider" in check_of(program, kernel=step)["full_data_check"]
    monkeypatch.undo()

    # A weight of half of what it should be.
    def half(sums):
        wrong = copy.copy(sums)
        wrong.rows = replace(sums.rows, size=sums.rows.size // 2)
        return make(wrong)

    monkeypatch.setattr(minibatch, "make_minibatch_target", half)
    fresh = sumout.program(mixture, *mixture_data(np.random.default_rng(0), 20_000))
    assert "wider" in check_of(fresh)["full_data_check"]
    monkeypatch.undo()

    # A step too large; the splitting of SplitSGHMC has no such error on what is nearly a Gaussian.
    assert "wider" in check_of(program, kernel=sumout.SGLD(step_size=1.0))["full_data_check"]
    assert "wider" in check_of(program, kernel=sumout.SGHMC(step_size=1.0))["full_data_check"]


@pytest.mark.parametrize("kernel", ["sghmc", "sgld", "sgnht", "split_sghmc"])
def test_every_kernel_tunes_itself(program, kernel):
    assert check_of(program, kernel=kernel)["full_data_check_holds"]
