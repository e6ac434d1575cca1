"""Tables of switch points by running totals are those filled value by value, and only where each term changes once."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

import sumout
from sumout.compile.one_piece import largest_array
from sumout.patterns.change_points import build_running
from sumout.plan.plan import make_plan
from sumout.results.likelihood import build_likelihood

from enumeration import joint_states, log_marginal, random_x

YEARS = 40
T = np.arange(YEARS)
RNG = np.random.default_rng(3)
COUNTS = RNG.poisson(np.where(T < 25, 4.0, 1.0))
REALS = RNG.normal(np.where(T < 25, 1.0, -1.0))
SHUFFLED = RNG.permutation(T)
X = {"a": (constraints.positive, ()), "b": (constraints.positive, ())}


def poisson(rate, y):
    return y * jnp.log(rate) - rate


def density(choose, data=(COUNTS, T), z=None, log_p=poisson):
    """A program whose data have the parameter that `choose(z, t, a, b)` gives them."""

    def fn(x, z, data):
        y, t = data
        return -x["a"] - x["b"] + log_p(choose(z, t, x["a"], x["b"]), y).sum()

    return sumout.density(fn, x=X, z=z or {"k": sumout.finite(YEARS)}, data=data)


def normal(mean, y):
    return -0.5 * (y - mean) ** 2


def bounded(rate, y):
    """Impossible where the rate is above 2 and the count large."""
    return jnp.where((rate > 2.0) & (y > 3), -jnp.inf, poisson(rate, y))


def by_numpyro(y, t):
    a = numpyro.sample("a", dist.Exponential(1.0))
    b = numpyro.sample("b", dist.Exponential(1.0))
    k = numpyro.sample("k", dist.DiscreteUniform(1850, 1850 + YEARS - 1))
    numpyro.sample("y", dist.Poisson(jnp.where(1850 + t < k, a, b)), obs=y)


def by_groups(x, z, data):
    """A switch point for each of three series."""
    y, t = data
    rate = jnp.where(t < z["k"][:, None], x["a"], x["b"])
    return -x["a"] - x["b"] - 0.1 * z["k"].sum() + poisson(rate, jnp.stack([y, y[::-1], y**2])).sum()


def by_groups_within(x, z, data):
    """Likewise, but what is added up of each series is not the last of it."""
    y, t = data
    rate = jnp.where(t < z["k"][:, None], x["a"], x["b"])
    return -x["a"] - x["b"] - jnp.logaddexp(3.0, -poisson(rate, jnp.stack([y, y[::-1]])).sum(axis=1)).sum()


def in_two_sites(x, z, data):
    y, t = data
    early = poisson(jnp.where(t < z["k"], x["a"], x["b"]), y).sum()
    return -x["a"] - x["b"] + early + normal(jnp.where(z["m"] >= t, x["a"], 0.0), y).sum()


def by_index(z, t, a, b):
    return jnp.stack([a, b])[(t >= z["k"]).astype(int)]


SWITCHES = {
    "t < k": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b)),
    "t <= k": lambda: density(lambda z, t, a, b: jnp.where(t <= z["k"], a, b)),
    "t > k": lambda: density(lambda z, t, a, b: jnp.where(t > z["k"], a, b)),
    "not t >= k": lambda: density(lambda z, t, a, b: jnp.where(~(t >= z["k"]), a, b)),
    "a step": lambda: density(lambda z, t, a, b: a + (b - a) * (t >= z["k"])),
    "an index": lambda: density(by_index),
    "of numbers and x": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, 0.5)),
    "of a mean": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (REALS, T), log_p=normal),
    "of mean and scale": lambda: density(
        lambda z, t, a, b: (jnp.where(t < z["k"], a, -b), jnp.where(t < z["k"], b, 1.0)),
        (REALS, T),
        log_p=lambda both, y: -0.5 * ((y - both[0]) / both[1]) ** 2 - jnp.log(both[1]),
    ),
    "in any order": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (COUNTS, SHUFFLED)),
    "several at once": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (COUNTS, T // 3)),
    "in both directions": lambda: density(lambda z, t, a, b: jnp.where((t < z["k"]) ^ (t % 2 == 0), a, b)),
    "all at the first": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (COUNTS, T * 0)),
    "some before and after all": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (COUNTS, 2 * T - 20)),
    "of other values": lambda: density(
        lambda z, t, a, b: jnp.where(t < z["k"], a, b), z={"k": sumout.finite(np.arange(-5, 35) * 1.5)}
    ),
    "of fractions": lambda: density(
        lambda z, t, a, b: jnp.where(t < z["k"], a, b), (COUNTS, T * 0.1), {"k": sumout.finite(np.arange(YEARS) * 0.1)}
    ),
    "of quotients": lambda: density(
        lambda z, t, a, b: jnp.where(t / 7.0 < z["k"] / 7.0, a, b), z={"k": sumout.finite(np.arange(1, YEARS + 1))}
    ),
    "from above": lambda: density(
        lambda z, t, a, b: jnp.where(t < z["k"], a, b), z={"k": sumout.finite(np.arange(YEARS)[::-1])}
    ),
    "with impossible cases": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], 2 + a, b), log_p=bounded),
    "with an impossible start": lambda: density(
        lambda z, t, a, b: jnp.where(t <= z["k"], a, 0.0), log_p=lambda rate, y: jnp.where(y > 3, rate - 1 / rate, 0)
    ),
    "in NumPyro": lambda: sumout.program(by_numpyro, COUNTS, T),
    "for each group": lambda: sumout.density(by_groups, x=X, z={"k": sumout.finite(YEARS, shape=3)}, data=(COUNTS, T)),
    "for each group, within": lambda: sumout.density(
        by_groups_within, x=X, z={"k": sumout.finite(YEARS, shape=2)}, data=(COUNTS, T)
    ),
    "in two sites": lambda: sumout.density(
        in_two_sites, x=X, z={"k": sumout.finite(YEARS), "m": sumout.finite(YEARS)}, data=(COUNTS, T)
    ),
}

REFUSED = {
    "a choice that follows from x": lambda: density(lambda z, t, a, b: jnp.where(t * a < z["k"], a, b)),
    "a window": lambda: density(lambda z, t, a, b: jnp.where(abs(t - z["k"]) < 3, a, b)),
    "a slope": lambda: density(lambda z, t, a, b: a + b * (t - z["k"]) ** 2),
    "two changes of one term": lambda: density(
        lambda z, t, a, b: jnp.where(t < z["k"], a, b) + jnp.where(t < z["k"] - 2, b, a)
    ),
    "values in no order": lambda: density(
        lambda z, t, a, b: jnp.where(t < z["k"], a, b), z={"k": sumout.finite(SHUFFLED)}
    ),
    "few values": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), z={"k": sumout.finite(4)}),
    "few data": lambda: density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (COUNTS[:4], T[:4])),
}


def blocks_of(program):
    plan = make_plan(sumout.read(program))
    assert plan.summation is not None
    return plan, plan.summation.blocks


def some_z(program):
    return {name: jnp.full(site.shape, site.support.rows()[0].flat[0], site.dtype) for name, site in program.z.items()}


@pytest.mark.parametrize("is_double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("name", SWITCHES)
def test_tables_are_those_filled_value_by_value(name, is_double):
    with jax.enable_x64(is_double):
        program = SWITCHES[name]()
        _, (block,) = blocks_of(program)
        assert block.matched is not None
        x, z = random_x(program, seed=2), some_z(program)
        one_by_one = replace(block, matched=None)
        tolerance = 1e-11 if is_double else 2e-5
        weights = jnp.cos(jnp.arange(block.values.size * block.block.size)).reshape(len(block.values), -1)

        def both(gibbs):
            def total(x):
                table = gibbs.log_weights(x, z, program.data)
                weighed = (jnp.where(jnp.isfinite(table), table, 0.0) * weights).sum()
                return weighed, (table, gibbs.log_totals(x, z, program.data))

            (_, (table, totals)), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(x)
            return table, gradient, totals

        for found, expected in zip(both(block), both(one_by_one), strict=True):
            scale = np.abs(np.where(np.isfinite(expected), expected, 0.0)).max()
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", [name for name in SWITCHES if "group" not in name])
def test_log_density_and_gradient_by_listing_all_values(name):
    program = SWITCHES[name]()
    plan, _ = blocks_of(program)
    x, z = random_x(program), some_z(program)
    found = jax.jit(jax.value_and_grad(plan.log_density))(x, z, program.data)
    expected = jax.jit(jax.value_and_grad(log_marginal(program, joint_states(program))))(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), found, expected)
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("name", REFUSED)
def test_where_a_term_changes_more_than_once_or_little_is_gained_tables_are_filled_value_by_value(name):
    _, (block,) = blocks_of(REFUSED[name]())
    assert block.matched is None


def test_a_switch_point_that_is_drawn_has_the_same_table():
    program = SWITCHES["t < k"]()
    (move,) = make_plan(sumout.read(program), {"k": "gibbs"}).sweep.moves
    assert move.matched is not None
    x, z = random_x(program), some_z(program)
    expected = replace(move, matched=None).conditionals(x, z, program.data)
    np.testing.assert_allclose(move.conditionals(x, z, program.data), expected, rtol=1e-10)


def test_a_site_beside_others_that_are_drawn():
    """The rest of z has its present values."""

    def fn(x, z, data):
        rate = jnp.where(z["k"] > T, x["a"], x["b"]) * jnp.where(z["s"], 2.0, 1.0)
        return -x["a"] - x["b"] + poisson(rate, data).sum()

    program = sumout.density(fn, x=X, z={"k": sumout.finite(YEARS), "s": sumout.finite(2, shape=YEARS)}, data=COUNTS)
    plan = make_plan(sumout.read(program), {"k": "sum", "s": "gibbs"})
    (block,) = plan.summation.blocks
    assert block.matched is not None
    x, s = random_x(program), jnp.asarray(T % 3 == 0, program.z["s"].dtype)
    found = jax.jit(jax.value_and_grad(plan.log_density))(x, {"k": jnp.array(0), "s": s}, program.data)

    def expected(x):
        each = jax.vmap(lambda k: program.log_density(x, {"k": k, "s": s}, program.data))(jnp.arange(YEARS))
        return logsumexp(each)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), found, jax.jit(jax.value_and_grad(expected))(x)
    )


def test_nothing_as_large_as_the_table_is_computed():
    program = SWITCHES["t < k"]()
    plan, _ = blocks_of(program)
    jaxpr = jax.make_jaxpr(jax.value_and_grad(plan.log_density))(random_x(program), some_z(program), program.data)
    assert largest_array(jaxpr) < YEARS**2 / 4


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("count", [3, 300])
def test_running_sums(size, count):
    rng = np.random.default_rng(0)
    at, owners = rng.integers(0, count, 200), rng.integers(0, size, 200)
    first, last = rng.normal(size=(2, 200))
    last[at == 0] = first[at == 0]
    first[5] = last[7] = -np.inf
    elements = rng.permutation(200)[:150]
    found = build_running(elements, owners[elements], at, size, count)(jnp.asarray(first), jnp.asarray(last))
    chosen = np.where(np.arange(count)[:, None] < at, first, last)[:, elements]
    expected = np.stack([chosen[:, owners[elements] == i].sum(axis=1) for i in range(size)], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_a_switch_point_of_many_values_is_summed_out():
    t = np.arange(600)
    y = RNG.poisson(np.where(t < 200, 4.0, 1.0))
    program = density(lambda z, t, a, b: jnp.where(t < z["k"], a, b), (y, t), {"k": sumout.finite(600)})
    plan, (block,) = blocks_of(program)
    assert block.matched is not None
    x = random_x(program)
    found = jax.jit(jax.value_and_grad(plan.log_density))(x, some_z(program), program.data)
    expected = jax.jit(jax.value_and_grad(log_marginal(program, joint_states(program))))(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), found, expected)


@pytest.mark.parametrize(
    "choose",
    [
        lambda z, t, a, b: a + b * (t - z["k"]) ** 2,  # no switch
        lambda z, t, a, b: jnp.where(t < z["k"], a, b) + jnp.exp(-((t - z["k"]) ** 2)).sum(),  # beside one
    ],
)
def test_other_sites_of_many_values_are_not(choose):
    program = density(choose, (COUNTS, T), {"k": sumout.finite(300)})
    summation = make_plan(sumout.read(program)).summation
    assert summation is not None
    assert summation.blocks[0].matched is None


def two_series(y, t):
    """A switch point for each of two series, and data that know of none."""
    a = numpyro.sample("a", dist.Exponential(1.0).expand([2]))
    with numpyro.plate("series", 2):
        k = numpyro.sample("k", dist.DiscreteUniform(0, YEARS - 1))
    numpyro.sample("y", dist.Poisson(jnp.where(t < k[:, None], a[0], a[1])), obs=jnp.stack([y, y[::-1]]))
    numpyro.sample("w", dist.Normal(a, 1.0), obs=jnp.array([0.3, 2.0]))


@pytest.mark.parametrize("model", [by_numpyro, two_series])
def test_log_likelihoods_are_those_by_all_values(model):
    program = sumout.program(model, COUNTS, SHUFFLED)
    (by_change,) = build_likelihood(make_plan(sumout.read(program))).parts
    assert by_change.changes is not None
    x, z = random_x(program), some_z(program)
    found, expected = (jax.jit(one)(x, z, program.data) for one in (by_change, replace(by_change, changes=None)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), found, expected)
