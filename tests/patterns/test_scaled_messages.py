"""Sums along chains by products: the same as in logarithms, whatever is lost on the way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.patterns import scaled_messages as products
from sumout.patterns.scaled_messages import last_message

COLUMNS, LEVELS, VALUES = 3, 7, 5


def make(seed, dtype, spread=1.0, table_spread=1.0):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(COLUMNS, VALUES, VALUES)) * table_spread
    single = rng.normal(size=(LEVELS, COLUMNS, VALUES)) * spread
    is_padding = np.arange(LEVELS)[:, None] < np.array([0, 2, LEVELS])
    return jnp.asarray(table, dtype), jnp.asarray(single, dtype), jnp.asarray(is_padding)


def in_numpy(table, single, is_padding):
    """The recursion as it is written, in double precision."""
    table, single, is_padding = (np.asarray(a, float) for a in (table, single, is_padding))
    message = np.zeros(single.shape[1:])
    for own, padding in zip(single, is_padding, strict=True):
        message = np.logaddexp.reduce((message + own)[..., None] + table, axis=1)
        message = np.where(padding[:, None] > 0, 0.0, message)
    return message


def value_and_gradients(function, table, single, is_padding):
    weights = jnp.cos(jnp.arange(COLUMNS * VALUES, dtype=table.dtype)).reshape(COLUMNS, VALUES)

    def total(table, single):
        message = function(table, single, is_padding)
        return jnp.where(message == -jnp.inf, 0.0, weights * message).sum(), message

    return jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(table, single)


def check(table, single, is_padding, is_right):
    tolerance = 1e-12 if table.dtype == jnp.float64 else 3e-5
    assert bool(products._forward(table, single, is_padding)[1]) == is_right
    (_, message), gradients = value_and_gradients(last_message, table, single, is_padding)
    np.testing.assert_allclose(message, in_numpy(table, single, is_padding), rtol=tolerance, atol=tolerance)
    _, expected = value_and_gradients(products._in_logarithms, table, single, is_padding)
    for found, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=20 * tolerance, atol=20 * tolerance)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_same_as_in_logarithms(dtype):
    check(*make(0, dtype), is_right=True)
    check(*make(1, dtype, spread=30.0, table_spread=3.0), is_right=True)


@pytest.mark.parametrize("dtype, spread", [(jnp.float32, 60.0), (jnp.float64, 500.0)])
def test_what_underflows_is_seen(dtype, spread):
    """By products alone such messages would be minus infinity, or wrong."""
    check(*make(2, dtype, spread=spread, table_spread=spread), is_right=False)


@pytest.mark.parametrize("surprise", [-1000.0, -87.0])
def test_what_underflows_may_count_later(surprise):
    """States of probability 1e-39 that explain the next datum much better than all others."""
    table = jnp.zeros((1, VALUES, VALUES), jnp.float32) - 90.0 * (1 - jnp.eye(VALUES, dtype=jnp.float32))
    single = jnp.zeros((2, 1, VALUES), jnp.float32).at[0, 0, 1:].set(-200.0).at[1, 0, 0].set(surprise)
    is_padding = jnp.zeros((2, 1), bool)
    message = last_message(table, single, is_padding)
    np.testing.assert_allclose(message, in_numpy(table, single, is_padding), rtol=1e-6)
    assert not products._forward(table, single, is_padding)[1]


def test_impossible_transitions():
    table, single, is_padding = make(3, jnp.float64)
    below = jnp.tril(jnp.ones((VALUES, VALUES), bool), -1)
    table = jnp.where(below, -jnp.inf, table)  # never back
    check(table, single, is_padding, is_right=True)
    check(table, single.at[0, 0, :2].set(-jnp.inf), is_padding, is_right=False)


def test_impossible_altogether():
    table, single, is_padding = make(4, jnp.float64)
    single = single.at[3, 0].set(-jnp.inf)
    (_, message), gradients = value_and_gradients(last_message, table, single, is_padding)
    assert (message[0] == -jnp.inf).all() and jnp.isfinite(message[1:]).all()
    assert all(jnp.isfinite(one).all() for one in gradients)


def test_batches():
    """Of chains, of batches of chains, and of single inputs; one that underflows does not spoil the others."""
    cases = [make(seed, jnp.float32, table_spread=spread) for seed, spread in enumerate((1.0, 60.0, 2.0))]
    is_padding = cases[0][2]
    tables, singles = (jnp.stack([case[i] for case in cases]) for i in (0, 1))

    def both(table, single):
        return value_and_gradients(last_message, table, single, is_padding)

    one_by_one = [both(*case[:2]) for case in cases]
    batch = jax.vmap(both)(tables, singles)
    nested = jax.vmap(jax.vmap(both))(tables[:, None], singles[:, None])
    shared = jax.vmap(both, in_axes=(None, 0))(tables[0], singles)
    for i, expected in enumerate(one_by_one):
        for found in (batch, jax.tree.map(lambda a: a[:, 0], nested)):
            for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(a[i], b, rtol=2e-4, atol=2e-4)
    for a, b in zip(jax.tree.leaves(shared), jax.tree.leaves(one_by_one[0]), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-5, atol=1e-5)


def test_batches_still_run_one_side_of_the_branch():
    table, single, is_padding = make(0, jnp.float32)
    tables, singles = jnp.stack([table] * 2), jnp.stack([single] * 2)
    gradient = jax.vmap(jax.grad(lambda t, s: last_message(t, s, is_padding).sum()))
    assert str(jax.make_jaxpr(gradient)(tables, singles)).count(" cond[") == 2  # one up, one down
