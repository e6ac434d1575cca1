"""Draws of a surrogate of few rows, accepted by all rows, are those of the posterior; without all rows they are not."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.errors import OptionError
from sumout.model.initial_values import any_z
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.plan import plan_for
from sumout.plan.surrogate_target import SurrogateTarget
from sumout.results.effective_draws import slowest

SIZE, BATCH = 30, 4
MOST_ERRORS = 5.0  # standard errors, by chance in 6e-7 of comparisons


def rare(y):
    """A skewed posterior: of few rows most have no event."""
    log_rate = numpyro.sample("log_rate", dist.Normal(0, 2))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Poisson(jnp.where(z == 1, jnp.exp(log_rate), 0.05)), obs=y)


@pytest.fixture(scope="module")
def program():
    return sumout.program(rare, np.r_[np.zeros(SIZE - 3, int), 1, 1, 2])


def moments(program):
    """Mean and second moment by quadrature."""
    plan = plan_for(program, None, NOT_CUT)
    z, grid = any_z(plan.structure.program), jnp.linspace(-9, 5, 3_001)
    log_density = jax.vmap(lambda x: plan.log_density(x[None], z, program.data))(grid)
    weights = np.exp(log_density - log_density.max())
    return np.array([np.average(grid**k, weights=weights) for k in (1, 2)])


def sample(program, draws, tune=200):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sumout.sample(program, "hmc", minibatch={"n": BATCH}, draws=draws, tune=tune, chains=2, seed=1)


def excess(program, result):
    """Standard errors by which the mean and the second moment of draws are off."""
    x = result.posterior["log_rate"].values
    columns = np.stack([x, x**2], axis=-1)
    effective = min(slowest(columns[..., [i]])[0] for i in range(2))
    error = columns.std((0, 1)) / np.sqrt(effective)
    return np.abs(columns.mean((0, 1)) - moments(program)) / error


@pytest.fixture(scope="module")
def result(program):
    return sample(program, 4_000)


def test_draws_are_those_of_all_rows(program, result):
    assert (excess(program, result) < MOST_ERRORS).all()
    assert 0.1 < result["sample_stats"]["acceptance_rate_all_rows"].mean() < 0.95  # the surrogate is a poor one
    assert result.posterior.attrs["exact_kernel"] == 1
    assert "accepted or rejected by all 30 rows" in result.posterior.attrs["full_data_check"]


def test_without_all_rows_they_are_not(program, monkeypatch):
    """What the test above would say of draws of the surrogate itself."""
    monkeypatch.setattr(SurrogateTarget, "of_all", lambda self, u, data: self.value_and_gradient(u, {}, data)[0])
    fresh = sumout.program(rare, program.data["y"])
    assert (excess(program, sample(fresh, 1_000)) > 2 * MOST_ERRORS).any()


def test_densities_are_relative_to_the_mode(program, result):
    """lp is the log density of all rows less that at the mode."""
    plan = plan_for(program, None, NOT_CUT)
    z = any_z(plan.structure.program)
    x = jnp.asarray(result.posterior["log_rate"].values.ravel())
    exact = jax.vmap(lambda x: plan.log_density(x[None], z, program.data))(x)
    relative = result.posterior.attrs["log_density_at_mode"]
    np.testing.assert_allclose(result["sample_stats"]["lp"].values.ravel(), exact - relative, rtol=1e-8, atol=1e-8)


def test_without_warm_up_all_rows_judge_from_the_first_draw(program):
    rates = sample(program, 20, tune=0)["sample_stats"]["acceptance_rate_all_rows"].values
    assert ((rates < 1).mean(axis=1) > 0.2).all()


def test_rows_on_the_disk_are_refused(tmp_path):
    path = tmp_path / "y.npy"
    np.save(path, np.zeros(2_000, int))
    program = sumout.program(rare, sumout.on_disk(path))
    with pytest.raises(OptionError, match="a pass over all of them"):
        sumout.sample(program, "hmc", minibatch={"n": 500})
