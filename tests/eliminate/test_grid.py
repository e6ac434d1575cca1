"""Chains that run along an axis of their arrays: the same sums, draws and marginals as by components."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout
from sumout.eliminate import summation as summation_module
from sumout.model.supports import Finite
from sumout.plan.plan import make_plan

ROWS, STEPS = 12, 5
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, STEPS + 1, ROWS)
Y = RNG.normal(size=(STEPS, ROWS))
REAL = (constraints.real, ())


def by_rows():
    """Rows × steps, as an array."""

    def log_density(x, z, data):
        z = z["z"]
        along = x["a"] * (z[:, 1:] == z[:, :-1]).sum() + (data["w"] * z[:, 1:] * z[:, :-1]).sum() * x["b"]
        return along + dist.Normal(z * x["a"], 1.0).log_prob(data["y"]).sum() - x["a"] ** 2 - x["b"] ** 2

    data = {"y": Y.T, "w": RNG.normal(size=(ROWS, STEPS - 1))}
    return sumout.density(log_density, x={"a": REAL, "b": REAL}, z={"z": sumout.finite(3, (ROWS, STEPS))}, data=data)


def ragged():
    """A masked scan; what is masked is joined to nothing."""

    def model(y, lengths):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(3)).expand([3]).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0, 5).expand([3]).to_event(1))

        def step(before, parts):
            t, y = parts
            with numpyro.plate("rows_of_y", y.shape[0]), numpyro.handlers.mask(mask=t < lengths):
                z = numpyro.sample("z", dist.Categorical(rows[before]))
                numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            return z, None

        scan(step, jnp.zeros(y.shape[1], int), (jnp.arange(len(y)), y))

    return sumout.program(model, Y, LENGTHS)


def with_a_first_step():
    """The first step is an array of its own; transitions differ by step and row."""

    def model(y):
        stay = numpyro.sample("stay", dist.Normal(0, 1).expand([STEPS - 1]).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        with numpyro.plate("first", ROWS):
            z = numpyro.sample("z_0", dist.Bernoulli(jnp.linspace(0.2, 0.8, ROWS)))
            numpyro.sample("y_0", dist.Normal(mu * z, 1.0), obs=y[0])

        def step(before, parts):
            y, stay = parts
            with numpyro.plate("others", ROWS):
                z = numpyro.sample("z", dist.Bernoulli(logits=jnp.where(before == 1, stay, jnp.linspace(-1, 1, ROWS))))
                numpyro.sample("y", dist.Normal(mu * z, 1.0), obs=y)
            return z, None

        scan(step, z, (y[1:], stay))

    return sumout.program(model, Y)


def captures():
    """Who is dead stays dead; known alive until the first capture, which differs by row."""
    first = np.minimum(LENGTHS, STEPS - 1) - 1
    y = (RNG.uniform(size=(STEPS, ROWS)) < 0.5) & (np.arange(STEPS)[:, None] > first)

    def model(y, first):
        phi = numpyro.sample("phi", dist.Beta(1, 1).expand([STEPS - 1]).to_event(1))
        p = numpyro.sample("p", dist.Beta(1, 1))

        def step(carry, parts):
            alive, t = carry
            y, phi = parts
            with numpyro.plate("animals", ROWS), numpyro.handlers.mask(mask=t > first):
                z = numpyro.sample("z", dist.Bernoulli(jnp.where(t > first, phi * alive, 1.0)))
                numpyro.sample("y", dist.Bernoulli(p * z), obs=y)
            return (jnp.where(t > first, z, 1), t + 1), None

        scan(step, (jnp.ones(ROWS, int), 1), (y[1:], phi))

    return sumout.program(model, y * 1, first)


def uneven_values():
    """Sites of one array have different values, and not all as many."""
    values = np.arange(ROWS * STEPS * 3).reshape(ROWS, STEPS, 3) % 4 - 1.0
    allowed = np.ones((ROWS, STEPS, 3), bool)
    allowed[::2, 1, 1] = False
    allowed[3, :, 2] = False

    def log_density(x, z, data):
        z = z["z"]
        return x["a"] * (z[:, 1:] * z[:, :-1]).sum() + dist.Normal(z, 1.0).log_prob(data["y"]).sum() - x["a"] ** 2

    finite = Finite(values.reshape(-1, 3), (ROWS, STEPS), allowed.reshape(-1, 3))
    return sumout.density(log_density, x={"a": REAL}, z={"z": finite}, data={"y": Y.T})


PROGRAMS = {make.__name__: make for make in (by_rows, ragged, with_a_first_step, captures, uneven_values)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_grid_gives_what_components_give(name, monkeypatch):
    program = PROGRAMS[name]()
    structure = sumout.read(program)
    grid = make_plan(structure).summation
    assert grid is not None
    assert [trees.buckets.by_level for trees in grid.trees] == [True]
    assert not grid.blocks
    monkeypatch.setattr(summation_module, "find_grids", lambda *_: [])
    plain = make_plan(structure).summation
    assert plain is not None
    assert len(plain.trees) + len(plain.blocks) > 1 or not plain.trees[0].buckets.is_padding.any()
    x = 0.3 * jnp.arange(program.num_x) - 0.4
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    here, there = (jax.jit(jax.value_and_grad(s.log_density))(x, z, program.data) for s in (grid, plain))
    assert np.isfinite(here[0])
    np.testing.assert_allclose(here[0], there[0], rtol=1e-5)
    np.testing.assert_allclose(here[1], there[1], rtol=1e-3, atol=1e-4)
    found, expected = (np.exp(jax.jit(s.log_marginals)(x, z, program.data)) for s in (grid, plain))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    best, other = (jax.jit(s.most_probable)(x, z, program.data) for s in (grid, plain))
    for name in program.z:
        np.testing.assert_array_equal(best[name], other[name])
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = jax.jit(jax.vmap(lambda key: grid(key, x, z, program.data)))(keys)
    for name, numbers in structure.site_numbers.items():
        values, _ = program.z[name].support.rows()
        each = np.asarray(drawn[name]).reshape(len(keys), -1)
        shares = (each[..., None] == values).mean(axis=0)
        # 5.5 standard errors: by chance once in 2e7, for some hundred shares. Of equal values the first stands for all.
        same = np.array([[np.isclose(row, row[k]).argmax() for k in range(len(row))] for row in values])
        exact = np.zeros_like(shares)
        for k in range(values.shape[1]):
            np.add.at(exact, (np.arange(len(values)), same[:, k]), expected[numbers][:, k])
        exact = np.take_along_axis(exact, same, axis=1).clip(0, 1)
        assert (np.abs(shares - exact) < 5.5 * np.sqrt(exact * (1 - exact) / len(keys)) + 1e-6).all()


def mixed():
    """Some rows are chains; in the others each step is joined to the one before the last, too."""
    is_plain = (np.arange(ROWS) % 3 > 0)[:, None]

    def log_density(x, z, data):
        z = z["z"]
        further = jnp.where(is_plain, 0.0, x["a"] * (z[:, 2:] == z[:, :-2])).sum()
        along = x["a"] * (z[:, 1:] == z[:, :-1]).sum() + further
        return along + dist.Normal(z, 1.0).log_prob(data["y"]).sum() - x["a"] ** 2

    return sumout.density(log_density, x={"a": REAL}, z={"z": sumout.finite(2, (ROWS, STEPS))}, data={"y": Y.T})


def test_an_array_with_other_components_is_no_grid():
    """The chains of an array may stand in a grid only if all of its sites are of chains, or on their own."""
    program = mixed()
    structure = sumout.read(program)
    summation = make_plan(structure).summation
    assert summation is not None
    x = jnp.array([0.7])
    z = {"z": jnp.zeros((ROWS, STEPS), int)}
    states = jnp.asarray(np.indices((2,) * STEPS).reshape(STEPS, -1).T)

    def of_row(row):
        y, plain = Y.T[row], row % 3 > 0
        each = x[0] * (states[:, 1:] == states[:, :-1]).sum(1) + dist.Normal(states, 1.0).log_prob(y).sum(1)
        further = x[0] * (states[:, 2:] == states[:, :-2]).sum(1)
        return jax.nn.logsumexp(each + (0.0 if plain else further))

    expected = sum(of_row(row) for row in range(ROWS)) - x[0] ** 2
    np.testing.assert_allclose(jax.jit(summation.log_density)(x, z, program.data), expected, rtol=1e-5)
