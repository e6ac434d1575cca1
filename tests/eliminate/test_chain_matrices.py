"""Products of matrices along chains that have their tables in common, beside sums in logarithms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.eliminate.chain_matrices import both_ways, draw_down, log_matrix_totals
from sumout.eliminate.chain_products import in_logarithms
from sumout.randomness import new_key, uniform

LEVELS, VALUES, COLUMNS = 4, 18, 12


def chains(seed: int, depth: int, scale: float, dtype: type = np.float64):
    """Tables with impossible entries, chains that begin late, and cells without a table."""
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((depth, VALUES, VALUES, 1)) < 0.3, -np.inf, rng.normal(size=(depth, VALUES, VALUES, 1)))
    single = np.where(rng.random((LEVELS, VALUES, COLUMNS)) < 0.2, -np.inf, rng.normal(size=(LEVELS, VALUES, COLUMNS)))
    is_padding = np.zeros((LEVELS, COLUMNS), bool)
    is_padding[:2, :3] = is_padding[0, 5] = True
    linked = rng.random((LEVELS - 1, COLUMNS)) < 0.8
    return jnp.asarray(scale * table, dtype), linked, jnp.asarray(scale * single, dtype), jnp.asarray(is_padding)


def value_and_gradient(total, table, linked, single, is_padding):
    weights = np.linspace(-1, 2, COLUMNS)
    weighted = jax.jit(jax.value_and_grad(lambda t, s: (total(t, linked, s, is_padding) * weights).sum(), (0, 1)))
    value, gradients = weighted(table, single)
    return [np.asarray(value), *map(np.asarray, gradients)]


@pytest.mark.parametrize(("depth", "scale", "is_right"), [(1, 3.0, True), (LEVELS - 1, 10.0, True), (1, 1e4, False)])
def test_sums_and_derivatives_are_those_in_logarithms(depth, scale, is_right):
    arguments = chains(depth, depth, scale)
    assert bool(both_ways(*arguments).is_right) is is_right
    by_products = value_and_gradient(log_matrix_totals, *arguments)
    for found, expected in zip(by_products, value_and_gradient(in_logarithms, *arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_what_single_precision_loses_is_seen():
    for scale in (2.0, 8.0, 20.0, 40.0):
        table, linked, single, is_padding = chains(3, 1, scale)
        exact = in_logarithms(table, linked, single, is_padding)
        rough = [jnp.asarray(a, np.float32) for a in (table, single)]
        found = log_matrix_totals(rough[0], linked, rough[1], is_padding)
        np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_a_batch_is_taken_one_by_one():
    table, linked, single, is_padding = chains(4, 1, 2.0)
    several = jnp.stack([single, 2 * single])
    found = jax.vmap(partial(log_matrix_totals, table, linked), in_axes=(0, None))(several, is_padding)
    for one, total in zip(several, found, strict=True):
        np.testing.assert_allclose(total, in_logarithms(table, linked, one, is_padding), rtol=1e-10)


def test_draws_have_the_probabilities_that_the_derivatives_are():
    table, linked, single, is_padding = chains(5, LEVELS - 1, 1.5)
    passes, draws = both_ways(table, linked, single, is_padding), 4000
    hints = uniform(new_key(1), (draws, LEVELS, COLUMNS), single.dtype)
    numbers = np.asarray(jax.vmap(lambda h: draw_down(passes, table, linked, single, h))(hints))
    expected = jax.grad(lambda s: in_logarithms(table, linked, s, is_padding).sum())(single)
    expected = np.where(np.asarray(is_padding)[:, None], np.nan, expected)
    found = np.stack([(numbers == k).mean(axis=0) for k in range(VALUES)], axis=1)
    error = np.sqrt(expected * (1 - expected) / draws) + 1e-9
    # 720 probabilities within 6 standard errors, where enough are expected: fails by chance less than once in 10⁵ runs.
    assert not (np.abs(found - expected) > 6 * error + 5 / draws)[~np.isnan(expected)].any()
