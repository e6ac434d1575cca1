"""Sums over the rows of several plates that stand side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import Normal, constraints

import sumout
from sumout.errors import ModelError
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.minibatch_target import RowData, make_minibatch_target
from sumout.plan.plan import plan_for
from sumout.plan.row_sums import make_row_sums
from sumout.plan.surrogate_target import make_surrogate_target
from sumout.plan.target import make_target
from sumout.randomness import new_key, split

BATCHES = {"n": 7, "m": 4}
RNG = np.random.default_rng(5)
Y, COUNTS = RNG.normal(size=(53, 2)), RNG.poisson(2.0, 31)


def two_plates(y, counts):
    """Two kinds of data with labels of their own, and visits inside the rows of one."""
    mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
    gate = numpyro.sample("gate", dist.Beta(1, 1))
    numpyro.deterministic("gap", mu[1] - mu[0])
    with numpyro.plate("n", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(gate))
        with numpyro.plate("visits", 2, dim=-1):
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
    with numpyro.plate("m", len(counts)):
        is_zero = numpyro.sample("is_zero", dist.Bernoulli(0.3))
        numpyro.deterministic("rate", jnp.where(is_zero == 1, 0.1, jnp.exp(mu[0])))
        numpyro.sample("counts", dist.Poisson(jnp.where(is_zero == 1, 0.1, jnp.exp(mu[0]))), obs=counts)


def plain(x, z, data):
    one = Normal(x["mu"] * z["z"], 1.0).log_prob(data["y"]) + jnp.where(z["z"] == 1, -1.0, -0.5)
    other = Normal(x["mu"] * z["w"], 2.0).log_prob(data["counts"])
    return Normal(0, 10).log_prob(x["mu"]) + one.sum() + other.sum()


def a_plain_density(log_density=plain):
    z = {"z": sumout.finite(2, shape=53), "w": sumout.finite([-1, 1], shape=31)}
    rows = {"y": "n", "z": "n", "counts": "m", "w": "m"}
    data = {"y": Y[:, 0], "counts": COUNTS}
    return sumout.density(log_density, x={"mu": (constraints.real, ())}, z=z, data=data, rows=rows)


@pytest.fixture(scope="module", params=["model", "density"])
def program(request):
    return sumout.program(two_plates, Y, COUNTS) if request.param == "model" else a_plain_density()


@pytest.fixture(scope="module")
def sums(program):
    return make_row_sums(program, BATCHES)


def exact(program, x):
    plan = plan_for(program, None, NOT_CUT)
    return make_target(plan).value_and_gradient(x, any_z(plan.structure.program), program.data)


def data_of(sums, x, control):
    arrays = as_jax(dict(sums.each[0].rows.all_rows))
    (_, pull), (_, low) = jax.jit(sums.totals)(x, arrays)
    first = tuple(jnp.arange(one.rows.batch) for one in sums.each)
    return RowData(arrays, first, x, jnp.eye(len(x)), control * (pull + low), jnp.asarray(float(control)))


def test_totals_are_those_of_all_rows(program, sums):
    x, arrays = as_jax(0.5 * RNG.normal(size=program.num_x)), as_jax(dict(sums.each[0].rows.all_rows))
    (value, gradient), (low, low_gradient) = jax.jit(sums.totals)(x, arrays)
    index = tuple(jnp.arange(one.rows.batch) for one in sums.each)
    shared, slope = sums.shared_at(x, arrays, index)
    whole, whole_gradient = exact(program, x)
    np.testing.assert_allclose(value + low + shared, whole, rtol=1e-10)
    np.testing.assert_allclose(gradient + low_gradient + slope, whole_gradient, rtol=1e-8, atol=1e-8)
    assert sums.size == 53 + 31


@pytest.mark.parametrize("control", [0, 1])
def test_gradients_are_unbiased(program, sums, control):
    """10,000 batches within six standard errors: by chance outside in 2e-9 of coordinates."""
    mode, step = as_jax(0.3 * RNG.normal(size=program.num_x)), as_jax(0.3 * RNG.normal(size=program.num_x))
    target, data = make_minibatch_target(sums), data_of(sums, mode, control)
    one = lambda key: target.value_and_gradient(step, {}, target.subsample(key, data))[1]  # noqa: E731
    estimates = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=100))(as_jax(split(new_key(1), 10_000)))
    error = np.asarray(estimates).std(axis=0, ddof=1) / 100
    assert (np.abs(np.asarray(estimates).mean(axis=0) - exact(program, mode + step)[1]) < 6 * error).all()


def test_the_surrogate_has_all_rows_beside_it(program, sums):
    """Value and gradient at the mode; the density of all rows anywhere."""
    mode, step = as_jax(0.3 * RNG.normal(size=program.num_x)), as_jax(0.3 * RNG.normal(size=program.num_x))
    target = make_surrogate_target(sums, 3)
    data = target.prepared(new_key(2), data_of(sums, mode, 1))
    value, gradient = target.value_and_gradient(jnp.zeros_like(mode), {}, data)
    np.testing.assert_allclose(value, 0.0, atol=1e-9)
    np.testing.assert_allclose(gradient, exact(program, mode)[1], rtol=1e-8, atol=1e-8)
    rise = exact(program, mode + step)[0] - exact(program, mode)[0]
    np.testing.assert_allclose(target.of_all(step, data), rise, rtol=1e-9, atol=1e-9)
    slope = jax.grad(lambda u: target.value_and_gradient(u, {}, data)[0])(step)
    np.testing.assert_allclose(slope, target.value_and_gradient(step, {}, data)[1], rtol=1e-8, atol=1e-8)


def test_a_run_has_what_belongs_to_no_row():
    run = sumout.sample(
        sumout.program(two_plates, Y, COUNTS), minibatch=BATCHES, draws=20, tune=20, chains=1, progress=False
    )
    assert set(run.posterior.data_vars) == {"mu", "gate", "gap"}
    assert run.posterior.attrs["minibatch"] == '{"n": 7, "m": 4}'
    assert run.posterior.attrs["rows"] == 53 + 31


def test_terms_inside_both_are_refused():
    def crossed(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("n", y.shape[0], dim=-2), numpyro.plate("m", y.shape[1], dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Normal(mu * z, 1.0), obs=y)

    with pytest.raises(ModelError, match="'z' is inside plate 'n' and inside plate 'm'"):
        make_row_sums(sumout.program(crossed, Y.reshape(2, 53)), {"n": 1, "m": 5})


def test_rows_of_one_plate_that_meet_z_of_another_are_refused():
    def looked_up(y, counts, group):
        mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
        with numpyro.plate("m", len(counts)):
            numpyro.sample("counts", dist.Poisson(jnp.exp(mu[z[group]])), obs=counts)

    program = sumout.program(looked_up, Y[:, 0], COUNTS, np.arange(31))
    with pytest.raises(ModelError, match="'counts', inside plate 'm', depends on the discrete 'z' inside plate 'n'"):
        make_row_sums(program, BATCHES)

    def met(x, z, data):
        return plain(x, z, data) + 0.1 * x["mu"] * z["z"].sum() * z["w"].sum()

    with pytest.raises(ModelError, match="not a sum over rows of n and of m"):
        make_row_sums(a_plain_density(met), BATCHES)
