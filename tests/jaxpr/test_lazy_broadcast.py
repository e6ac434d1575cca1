"""Factors computed with one number for a whole site are the factors computed with that number in every element."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import log_ndtr, xlog1py, xlogy
from numpyro.distributions import constraints

import sumout
from sumout.jaxpr.flatten import flatten
from sumout.jaxpr.lazy_broadcast import Deferred, evaluate
from sumout.jaxpr.spread import Combination
from sumout.plan.plan import plan_for
from sumout_studies.models import STUDIES

from models import lda
from programs import ENUMERABLE


def topics():
    """Look-ups along rows that differ between sites."""
    return sumout.program(lda(3, 4, 5), np.arange(9) % 5, np.arange(9) % 4)


def multivariate():
    """A matrix-valued look-up and a triangular solve."""

    def mixture(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([3, 2]))
        scale = numpyro.sample("scale", dist.LKJCholesky(2))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
            numpyro.sample("y", dist.MultivariateNormal(mu[z], scale_tril=scale), obs=y)

    return sumout.program(mixture, np.linspace(0, 1, 12).reshape(6, 2))


def regression():
    """Class-specific slopes and an ordinal outcome, in two dimensions."""

    def classes(u, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]))
        cuts = numpyro.sample("cuts", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
        with numpyro.plate("rows", 3, dim=-2), numpyro.plate("columns", 4, dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(logits=u))
            numpyro.sample("y", dist.OrderedLogistic(beta[z] * u, cuts), obs=y)

    u = np.linspace(-1, 1, 12).reshape(3, 4)
    return sumout.program(classes, u, np.arange(12).reshape(3, 4) % 3)


def tricky():
    """One-hot codes, comparisons, reshapes, reversals and an index computed from z."""

    def density(x, z, y):
        s = z["z"]
        onehot = jax.nn.one_hot(s, 3) @ x["a"]
        flipped = jnp.flip(s) * y
        wrapped = x["a"][(s + 1) % 3] * y
        grid = (s.reshape(2, 3) * y.reshape(2, 3)).T
        above = jnp.where(s > 1, jnp.logaddexp(y, x["a"][0]), jax.nn.softplus(s * x["a"][1]))
        return (onehot**2).sum() + jnp.sin(flipped).sum() + wrapped.sum() + jnp.cos(grid).sum() + above.sum()

    return sumout.density(
        density, x={"a": (constraints.real, (3,))}, z={"z": sumout.finite(3, 6)}, data=np.linspace(-1, 1, 6)
    )


PROGRAMS = {
    **{make.__name__: make for make in (topics, multivariate, regression, tricky)},
    **{name: ENUMERABLE[name] for name in ("survey", "mixture", "grid", "scan_hmm", "odd_values", "factorial_hmm")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_number_for_a_site_stands_for_all_its_elements(name):
    program = PROGRAMS[name]()
    structure = sumout.read(program)
    x = jax.random.normal(jax.random.key(0), (program.num_x,))
    factors = jax.jit(structure.factors)
    for site, spec in program.z.items():
        others = {n: jnp.full(s.shape, s.support.values[0], s.dtype) for n, s in program.z.items()}
        for value in spec.support.values:
            full = factors(x, {**others, site: jnp.full(spec.shape, value, spec.dtype)}, program.data)
            small = factors(x, {**others, site: jnp.full((1,) * len(spec.shape), value, spec.dtype)}, program.data)
            for one, other in zip(full, small, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def reductions():
    """Reductions along axes with and without content that varies."""

    def mixture(y):
        logits = numpyro.sample("logits", dist.Normal(0, 1).expand([3, 4]).to_event(2))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
            row = logits[z]
            weight = jnp.prod(1 + row**2, -1) + row.min(-1) + jnp.sum(jnp.ones((len(y), 5)) * z[:, None], -1)
            numpyro.sample("y", dist.Normal(jnp.max(row, -1) + weight, 1 + jnp.any(row > 0, -1)), obs=y)

    return sumout.program(mixture, np.linspace(0, 1, 6))


def test_reductions_keep_what_is_small():
    program = reductions()
    structure = sumout.read(program)
    at_x = 0.3 * np.arange(program.num_x) - 1
    for number in range(3):
        one = structure.factors(at_x, {"z": jnp.full((1,), number)}, program.data)
        every = structure.factors(at_x, {"z": jnp.full((6,), number)}, program.data)
        for small, large in zip(one, every, strict=True):
            np.testing.assert_allclose(small, large)


def test_the_transitions_of_a_chain_are_computed_once():
    program = STUDIES["hmm"].program()
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    tables_at = plan_for(program, None).summation._tables

    def filled(x):
        ((_, tables),) = tables_at(x, z, program.data)
        return [part.table for part in tables.joint], tables.single

    joint, single = jax.eval_shape(filled, jnp.zeros(program.num_x))
    assert [table.shape for table in joint] == [(1, 3, 3, 1)]
    assert single.shape == (16, 3, 1)


# What is put off until something needs it in full: columns × rows, of which x has numbers for each.
COLUMNS, ROWS = 30, 20
INDEX = np.arange(COLUMNS * ROWS).reshape(COLUMNS, ROWS) % 5 - 1 + 2 * (np.arange(ROWS) == 3)


def a_choice(x, z, data):
    return jnp.log(jnp.where(z[:, None] == 1, x[:COLUMNS, None], x[:ROWS])) * 2.0


def a_table(x, z, data):
    """With look-ups before its beginning, which count from its end, and past its end, which are NaN."""
    return jnp.log(x[:4].at[data["index"] * z[0]].get(mode="fill"))


def a_table_that_is_asked_about_nan(x, z, data):
    found = jnp.log(x[:4].at[data["index"] * z[0]].get(mode="fill"))
    return jnp.where(found > -10.0, found, -3.0)


def a_table_in_a_function_with_its_own_derivative(x, z, data):
    """Such a function is traced for one shape, which is not that of the table."""
    return jnp.logaddexp(log_ndtr(x[:4][data["index"] % 4 * z[0]]), 0.5) * 2.0


def short_rows(x, z, data):
    rows = jnp.broadcast_to(jnp.log(x[:12]).reshape(1, ROWS // 5, 3), (COLUMNS, ROWS // 5, 3))
    return jnp.take_along_axis(rows, data["index"][:, : ROWS // 5, None] % 3 + 0 * z[0], axis=2)[..., 0]


def counts(x, z, data):
    p = x[0] * z[0]
    return xlogy(data["index"] + 1.0, p) + xlog1py(data["index"] + 2.0, -p / 100)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (a_choice, Deferred),
        (a_table, Deferred),
        (a_table_that_is_asked_about_nan, Deferred),
        (a_table_in_a_function_with_its_own_derivative, Deferred),
        (short_rows, None),
        (counts, Combination),
    ],
)
def test_what_is_put_off_is_the_same_in_the_end(function, kind):
    x, data = jnp.linspace(0.2, 3.0, COLUMNS), {"index": jnp.asarray(INDEX)}
    closed = flatten(function, x, jnp.ones(COLUMNS, int), data)
    (out,) = closed.jaxpr.outvars
    for number in (1, 0):
        z = jnp.full(COLUMNS, number)
        expected = function(x, z, data)

        def weighed(x, number=number):
            found = evaluate(closed.jaxpr, closed.consts, [x, jnp.array([number]), data["index"]])[out]
            return jnp.where(jnp.isfinite(found.full), jnp.sin(found.full), 0.0).sum(), found.full

        def directly(x, z=z):
            found = function(x, z, data)
            return jnp.where(jnp.isfinite(found), jnp.sin(found), 0.0).sum()

        gradient, found = jax.jit(jax.grad(weighed, has_aux=True))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        if np.isfinite(expected).all():
            np.testing.assert_allclose(gradient, jax.jit(jax.grad(directly))(x), rtol=1e-4, atol=1e-4)
    made = evaluate(closed.jaxpr, closed.consts, [x, jnp.array([1]), data["index"]]).values()
    assert kind is None or any(isinstance(one, kind) for one in made)


def test_weights_that_cancel_do_not_make_up_for_the_impossible():
    """At z = 0 log(z p) is −∞ for each of the data, whatever the sum of their weights."""

    def log_density(x, z, data):
        return xlogy(data["w"], z["z"][:, None] * x["p"]).sum() - x["p"] ** 2

    weights = np.tile([1.0, -1.0], (20, 3))
    z = {"z": sumout.finite(2, 20)}
    program = sumout.density(log_density, x={"p": (constraints.unit_interval, ())}, z=z, data={"w": weights})
    summation = plan_for(program, None).summation
    tables = summation.blocks[0].log_weights(jnp.zeros(1), {"z": jnp.zeros(20, int)}, program.data)
    np.testing.assert_array_equal(tables[0], -np.inf)
    np.testing.assert_allclose(tables[1], 0.0, atol=1e-6)
