"""Gradients from minibatches are unbiased, z summed out; a weight inside the sum is not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.errors import ModelError
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z
from sumout.model.row_program import take_rows
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.minibatch_target import RowData, make_minibatch_target
from sumout.plan.plan import plan_for
from sumout.plan.row_sums import RowSums, draw_rows
from sumout.plan.target import make_target
from sumout.randomness import new_key, split

from row_models import ROW_MODELS, mixture, mixture_data

SIZE, BATCH, BATCHES = 103, 8, 10_000
QUICK = ("mixture", "sequences")
FEW = [
    pytest.param(model, id=model.__name__, marks=() if model.__name__ in QUICK else pytest.mark.calibration)
    for model in ROW_MODELS
]
MOST_ERRORS = 6.0  # standard errors; by chance in 2e-9 of coordinates


def exact_gradient(program, x):
    """That of all rows, z summed out, by the usual plan."""
    plan = plan_for(program, None, NOT_CUT)
    assert plan.sums_all
    return np.asarray(make_target(plan).value_and_gradient(x, any_z(plan.structure.program), program.data)[1])


def excess(estimates, exact):
    """Standard errors by which the mean of estimates is off, the largest over coordinates."""
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    return float(np.max(np.abs(estimates.mean(axis=0) - exact) / error))


def some_points(program, rng):
    return tuple(jnp.asarray(0.5 * rng.normal(size=program.num_x)) for _ in range(2))


def estimates_of(sums, x, mode, has_control_variates):
    """The gradient at x from many batches, with control variates at another point."""
    target, arrays = make_minibatch_target(sums), as_jax(sums.rows.all_rows)
    high, low = jax.jit(sums.totals)(mode, arrays)
    weight = float(has_control_variates)
    pull = weight * (high[1] + low[1])
    data = RowData(arrays, jnp.arange(BATCH), mode, jnp.eye(len(x)), pull, jnp.asarray(weight))
    keys = split(new_key(1), BATCHES)
    one = lambda key: target.value_and_gradient(x - mode, {}, target.subsample(key, data))[1]  # noqa: E731
    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=100))(as_jax(keys)))


@pytest.mark.parametrize("model", FEW)
def test_gradients_are_unbiased(model):
    rng = np.random.default_rng(0)
    program = sumout.program(model, *ROW_MODELS[model](rng, SIZE))
    sums = RowSums(take_rows(program, "n", BATCH))
    x, mode = some_points(program, rng)
    exact = exact_gradient(program, x)
    noisy, steadied = (estimates_of(sums, x, mode, is_on) for is_on in (False, True))
    assert excess(noisy, exact) < MOST_ERRORS
    assert excess(steadied, exact) < MOST_ERRORS


@pytest.mark.parametrize("model", FEW)
def test_totals_are_those_of_all_rows(model):
    """103 rows in chunks of 8, of which the last is filled up."""
    rng = np.random.default_rng(1)
    program = sumout.program(model, *ROW_MODELS[model](rng, SIZE))
    sums = RowSums(take_rows(program, "n", BATCH))
    x, arrays = some_points(program, rng)[0], as_jax(sums.rows.all_rows)
    (value, gradient), (low, low_gradient) = jax.jit(sums.totals)(x, arrays)
    shared, slope = sums.shared(x, sums.rows.take(arrays, jnp.arange(BATCH)))
    plan = plan_for(program, None, NOT_CUT)
    z = any_z(plan.structure.program)
    np.testing.assert_allclose(value + low + shared, plan.log_density(x, z, program.data), rtol=1e-10)
    np.testing.assert_allclose(gradient + low_gradient + slope, exact_gradient(program, x), rtol=1e-8, atol=1e-8)


def test_a_weight_inside_the_sum_is_found_out():
    """What NumPyro's enumerated density of a subsampled plate does: log Σ_z p^(N/B)."""

    def weighed(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
        with numpyro.plate("n", len(y)), numpyro.handlers.scale(scale=SIZE / BATCH):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    rng = np.random.default_rng(0)
    (y,) = mixture_data(rng, SIZE)
    program = sumout.program(mixture, y)
    x, _ = some_points(program, rng)
    inside = sumout.program(weighed, y[:BATCH])
    plan = plan_for(inside, None, NOT_CUT)
    target, z = make_target(plan), any_z(plan.structure.program)

    def one(key):
        return target.value_and_gradient(x, z, {"y": jnp.asarray(y)[draw_rows(key, SIZE, BATCH)]})[1]

    estimates = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=100))(as_jax(split(new_key(1), BATCHES)))
    assert excess(np.asarray(estimates), exact_gradient(program, x)) > 3 * MOST_ERRORS


def test_every_row_is_as_likely():
    """Expected counts are equal whatever the sizes; of 20,000 batches each row has about 2,000."""
    size, batch = 37, 7
    index = np.asarray(jax.vmap(lambda key: draw_rows(key, size, batch))(as_jax(split(new_key(0), 20_000))))
    counts = np.bincount(index.ravel(), minlength=size)
    expected = index.size / size
    assert counts.size == size
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected)


@pytest.mark.parametrize(("size", "batch"), [(10**9, 100_000), (2**31 - 1, 3), (65_537, 65_536)])
def test_rows_of_large_plates_do_not_overflow(size, batch):
    index = np.asarray(draw_rows(as_jax(new_key(3)), size, batch)).astype(np.int64)
    assert (np.diff(index) >= 0).all() and index[0] >= 0 and index[-1] < size
    assert (index // (size / batch) <= np.arange(batch) + 1).all()


def test_z_that_crosses_rows_is_refused():
    def chain(y):
        mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.factor("together", 0.5 * (z == jnp.roll(z, 1)))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    program = sumout.program(chain, np.zeros(50))
    with pytest.raises(ModelError, match=r"'together'|'z'.*across rows"):
        RowSums(take_rows(program, "n", 10))


def test_z_that_must_be_drawn_is_refused():
    program = sumout.program(mixture, *mixture_data(np.random.default_rng(0), 50))
    with pytest.raises(ModelError, match="'z' cannot be summed out"):
        RowSums(take_rows(program, "n", 10), {"z": "draw"})
