"""First levels of paths of states that are the same in all columns, gone through once, one by one or in pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.eliminate import state_chains
from sumout.eliminate.state_chains import StateChains, build_maps
from sumout.eliminate.state_products import is_worth_products

LEVELS, SHARED, COLUMNS = 7, 5, 4
AT_LEAST_TWO = np.array([0, 1, 1, 2, 2, 2])  # states 0, 1, 2 and more; the next value is 0 or 1


def chains():
    sites = np.arange(LEVELS * COLUMNS).reshape(LEVELS, COLUMNS, 1)
    return StateChains(2, 3, sites, 0, build_maps(AT_LEAST_TWO, 3), None)


def tables():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(SHARED, 6, 1))
    shared[2, 1] = -np.inf
    shared[0, 4:] = np.inf  # of a state that is not reached yet
    own = rng.normal(size=(LEVELS - SHARED, 6, COLUMNS))
    own[-1, :3, 0] = -np.inf
    return jnp.asarray(shared), jnp.asarray(own)


@pytest.mark.parametrize("by_products", [False, True])
def test_as_if_every_column_had_its_own(by_products, monkeypatch):
    monkeypatch.setattr(state_chains, "is_worth_products", lambda *_: by_products)
    shared, own = tables()

    def whole(shared, own):
        table = jnp.concatenate([jnp.broadcast_to(shared, (SHARED, 6, COLUMNS)), own])
        return chains().log_total(table)

    expected = jax.value_and_grad(whole, (0, 1))(shared, own)
    found = jax.value_and_grad(lambda shared, own: chains().log_total(own, shared), (0, 1))(shared, own)
    assert np.isfinite(expected[0])
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_products_of_few_states_only():
    assert is_worth_products(30, 6)
    assert not is_worth_products(500, 90)
    assert not is_worth_products(2, 2)
