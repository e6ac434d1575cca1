"""Sums of products of few numbers with data, against what they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import xlogy

from sumout.jaxpr.flatten import flatten
from sumout.jaxpr.lazy_broadcast import evaluate
from sumout.jaxpr.spread import Combination, Product

RNG = np.random.default_rng(0)
SHAPE = (12, 5)
COUNTS = jnp.asarray(RNG.integers(0, 4, SHAPE))
KNOWN = jnp.asarray(RNG.uniform(size=SHAPE) < 0.7)
TABLE = jnp.asarray(RNG.normal(size=(12, 5)))


def bernoulli(p, y, mask):
    log_prob = xlogy(y % 2, p[0]) - xlogy(1 - y % 2, 1 / (1 - p[0]))
    return jnp.where(mask, 2.0 * jnp.where(y >= 0, log_prob + p[1], -jnp.inf), 0.0)


def by_column(p, y, mask):
    return jnp.where(mask, -xlogy(y, p[None]), 1.5)


def look_ups(p, y, mask):
    rows = jnp.log(jnp.stack([p, p / 2, p / 3, p / 4], axis=1))[None]
    found = jnp.take_along_axis(jnp.broadcast_to(rows, (*y.shape, 4)), y[..., None], axis=2)
    return jnp.where(mask, found[..., 0], 0.0)


@pytest.mark.parametrize("function", [bernoulli, by_column, look_ups])
def test_combinations_stand_for_the_same(function):
    p = jnp.asarray([0.2, 0.3, 0.1, 0.9, 0.5])
    closed = flatten(function, p, COUNTS, KNOWN)
    found = evaluate(closed.jaxpr, closed.consts, (p, COUNTS, KNOWN))[closed.jaxpr.outvars[0]]
    assert isinstance(found, Combination)
    np.testing.assert_allclose(found.full, function(p, COUNTS, KNOWN), rtol=1e-12)


def test_past_the_end_of_a_row_is_nan():
    p = jnp.asarray([0.2, 0.3, 0.1, 0.9, 0.5])
    closed = flatten(look_ups, p, COUNTS, KNOWN)
    past = COUNTS.at[0, 0].set(7)
    found = evaluate(closed.jaxpr, closed.consts, (p, past, KNOWN | True))[closed.jaxpr.outvars[0]]
    assert jnp.isnan(found.full[0, 0])
    assert jnp.isfinite(found.full[1:]).all()


def test_a_product_is_summed_without_being_laid_out():
    def function(row, table, _):
        return (table * jnp.broadcast_to(row, table.shape)).sum(axis=1)

    row = jnp.arange(5.0)
    closed = flatten(function, row, TABLE, ())
    output = closed.jaxpr.outvars[0]
    env = evaluate(closed.jaxpr, closed.consts, (row, TABLE))
    assert any(isinstance(value, Product) for value in env.values())
    np.testing.assert_allclose(env[output].full, function(row, TABLE, ()), rtol=1e-12)
    traced = jax.make_jaxpr(lambda row: evaluate(closed.jaxpr, closed.consts, (row, TABLE))[output].full)(row)
    assert "dot_general" in str(traced)
