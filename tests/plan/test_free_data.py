"""Data that may change: what is built without a look at them is right for all of their values."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.plan.free_data import free_data
from sumout.plan.plan import plan_for

import models
import programs


def marginal(program, x, data):
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    return float(plan_for(program).log_density(x, z, data))


@pytest.mark.parametrize("make", [programs.mixture, programs.array_hmm, programs.scan_hmm, programs.survey])
def test_sums_over_other_data_are_those_of_a_program_of_them(make):
    program = make()
    freed = free_data(program)
    assert freed.free == tuple(program.data)
    assert free_data(program) is freed
    other = {name: jnp.flip(value) for name, value in program.data.items()}
    anew = replace(program, data=other)
    x = jax.random.normal(jax.random.key(0), (program.num_x,))
    assert marginal(freed, x, other) == pytest.approx(marginal(anew, x, other), abs=1e-9)


def test_zeros_among_the_data_do_not_stay_zeros():
    """With known zeros a factor of a product falls away: that reading would be wrong for other data."""

    def regression(design, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1))
        on = numpyro.sample("on", dist.Bernoulli(0.5).expand([2]))
        numpyro.sample("y", dist.Normal(design @ (on * beta), 1.0), obs=y)

    y, design = np.array([0.5, 1.0]), np.eye(2)
    freed = free_data(sumout.program(regression, design, y))
    assert freed.free == ("y",)  # the zeros of the design keep the two sites apart
    full = sumout.program(regression, np.array([[1.0, 2.0], [3.0, 1.0]]), y)
    assert free_data(full).free == ("design", "y")


def test_supports_are_not_free():
    program = programs.ragged_binomials()
    assert program.by_value == ("totals",)
    assert free_data(program).free == ("y",)


def test_times_of_changes_keep_their_pattern():
    """Where running totals need the times, times are not free; the counts are."""

    def changes(times, y):
        rates = numpyro.sample("rates", dist.Gamma(2, 1).expand([2]))
        when = numpyro.sample("when", dist.DiscreteUniform(0, 200))
        numpyro.sample("y", dist.Poisson(rates[jnp.where(times < when, 0, 1)]), obs=y)

    program = sumout.program(changes, np.arange(200), np.ones(200, int))
    assert free_data(program).free == ("y",)
    assert free_data(sumout.program(models.switch_point, np.ones(200, int))).free == ("y",)
