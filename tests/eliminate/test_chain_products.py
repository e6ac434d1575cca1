"""Sums along chains by products, against sums in logarithms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.eliminate.chain_products import _forward, in_logarithms, log_totals

LEVELS, VALUES, COLUMNS = 5, 3, 4
BY_LEVEL_AND_COLUMN = list(itertools.product((1, LEVELS - 1), (1, COLUMNS)))


def chains(depth=LEVELS - 1, columns=COLUMNS, seed=0, spread=1.0):
    """Tables, links, own terms and padding, some values impossible."""
    rng = np.random.default_rng(seed)
    table = spread * rng.normal(size=(depth, VALUES, VALUES, columns))
    table[:, 2, 0] = -np.inf
    single = spread * rng.normal(size=(LEVELS, VALUES, COLUMNS)) - 50 * rng.normal(size=(LEVELS, 1, 1))
    single[1, 1, 0] = -np.inf
    starts = np.array([0, 0, 2, 4])
    is_padding = np.arange(LEVELS)[:, None] < starts
    linked = (rng.uniform(size=(LEVELS - 1, COLUMNS)) < 0.8) & ~is_padding[:-1]
    return jnp.asarray(table), jnp.asarray(linked), jnp.asarray(single), jnp.asarray(is_padding)


def gradients(function, table, linked, single, is_padding):
    weights = jnp.arange(1.0, COLUMNS + 1)
    total = jax.value_and_grad(lambda t, s: (function(t, linked, s, is_padding) * weights).sum(), (0, 1))
    return jax.jit(total)(table, single)


def assert_same(found, expected, tolerance=1e-9):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("depth", "columns"), BY_LEVEL_AND_COLUMN)
def test_same_asin_logarithms(depth, columns):
    arguments = chains(depth, columns)
    assert _forward(*arguments)[1]
    assert_same(gradients(log_totals, *arguments), gradients(in_logarithms, *arguments))


def test_brute_force():
    table, linked, single, is_padding = chains()
    for column in range(COLUMNS):
        start = int(is_padding[:, column].sum())
        total = -np.inf
        for values in itertools.product(range(VALUES), repeat=LEVELS - start):
            term = sum(single[start + i, k, column] for i, k in enumerate(values))
            for i, (k, j) in enumerate(itertools.pairwise(values)):
                term += table[start + i, k, j, column] if linked[start + i, column] else 0.0
            total = np.logaddexp(total, term)
        np.testing.assert_allclose(log_totals(table, linked, single, is_padding)[column], total, rtol=1e-10)


def test_what_underflows_is_seen():
    arguments = chains(spread=400.0)
    assert not _forward(*arguments)[1]
    assert_same(gradients(log_totals, *arguments), gradients(in_logarithms, *arguments))


def test_impossible_altogether():
    table, linked, single, is_padding = chains()
    single = single.at[3, :, 0].set(-jnp.inf)
    value, found = gradients(log_totals, table, linked, single, is_padding)
    assert value == -jnp.inf
    assert all(jnp.isfinite(each).all() for each in found)


@pytest.mark.parametrize(("depth", "columns"), BY_LEVEL_AND_COLUMN)
def test_batches(depth, columns):
    batch = [chains(depth, columns, seed) for seed in range(3)]
    _, linked, _, is_padding = batch[0]
    tables, singles = (jnp.stack([one[i] for one in batch]) for i in (0, 2))
    each = jax.vmap(lambda t, s: gradients(log_totals, t, linked, s, is_padding))(tables, singles)
    for i, (table, single) in enumerate(zip(tables, singles, strict=True)):
        expected = gradients(in_logarithms, table, linked, single, is_padding)
        assert_same(jax.tree.map(lambda array, i=i: array[i], each), expected)


def test_masks_that_are_the_same_everywhere_may_be_left_out():
    table, _, single, _ = chains()
    linked, is_padding = jnp.ones((LEVELS - 1, COLUMNS), bool), jnp.zeros((LEVELS, COLUMNS), bool)
    for arguments in ((None, single, None), (linked, single, None), (None, single, is_padding)):
        assert_same(gradients(log_totals, table, *arguments), gradients(log_totals, table, linked, single, is_padding))
    batched = jax.vmap(lambda single: log_totals(table, None, single, None))(jnp.stack([single, 2 * single]))
    assert_same(batched[1], log_totals(table, None, 2 * single, None))


def test_many_values_that_are_all_as_likely_do_not_overflow():
    levels, values = 400, 10
    table, single = jnp.zeros((1, values, values, 1)), jnp.zeros((levels, values, COLUMNS))
    value, (_, by_single) = jax.value_and_grad(lambda *a: log_totals(a[0], None, a[1], None)[0], (0, 1))(table, single)
    np.testing.assert_allclose(value, levels * np.log(values))
    np.testing.assert_allclose(by_single[..., 0], 1 / values)
