"""Labels that switch between chains or within them are told from modes."""

import numpy as np

from made_up_runs import CHAINS, autoregressive, complaints, tree_of


def two_components(rng, orders):
    """Draws of a mixture of two components whose labels are in that order, axes (chain, draw, component)."""
    shape = (*orders.shape[:2], 2)
    mu = np.array([-2.0, 2.0]) + 0.3 * rng.normal(size=shape)
    sigma = np.array([1.0, 0.5]) * np.exp(0.1 * rng.normal(size=shape))
    first = 0.3 + 0.05 * rng.normal(size=shape[:2])
    weights = np.stack([first, 1 - first], axis=-1)
    z = (rng.uniform(size=(*shape[:2], 20)) < np.linspace(0.05, 0.95, 20)).astype(int)
    posterior = {name: np.take_along_axis(v, orders, -1) for name, v in (("mu", mu), ("sigma", sigma))}
    posterior["weights"] = np.take_along_axis(weights, orders, -1)
    return posterior | {"z": np.take_along_axis(orders, z, -1), "b": rng.normal(size=shape)}


STRAIGHT, CROSSED = np.array([0, 1]), np.array([1, 0])


def test_labels_that_differ_between_chains_are_named():
    orders = np.array([STRAIGHT, CROSSED, STRAIGHT, CROSSED])[:, None].repeat(1000, axis=1)
    _, text = complaints(tree_of(two_components(np.random.default_rng(6), orders), ["z"]))
    assert "labels of the components of mu, sigma, weights, z switch between chains:" in text
    assert "OrderedTransform on mu" in text
    assert "disagree" not in text
    assert "worth only" not in text


def test_labels_that_switch_within_chains_are_named():
    rng = np.random.default_rng(7)
    orders = np.stack([STRAIGHT, CROSSED])[rng.integers(0, 2, size=(CHAINS, 5))].repeat(200, axis=1)
    _, text = complaints(tree_of(two_components(rng, orders), ["z"]))
    assert "labels of the components of mu, sigma, weights, z switch between chains and within them" in text
    assert "disagree" not in text


def test_modes_that_no_order_explains_are_no_labels():
    rng = np.random.default_rng(8)
    orders = np.broadcast_to(STRAIGHT, (CHAINS, 1000, 2))
    posterior = two_components(rng, orders)
    posterior["mu"] = posterior["mu"] + np.array([0, 0, 0, 3.0])[:, None, None]
    _, text = complaints(tree_of(posterior, ["z"]))
    assert "labels" not in text
    assert "chains disagree about mu" in text
    ordered = two_components(rng, np.array([STRAIGHT, CROSSED, STRAIGHT, CROSSED])[:, None].repeat(1000, axis=1))
    ordered["mu"] = np.sort(ordered["mu"], axis=-1) + np.array([0, 0, 0, 3.0])[:, None, None]
    assert "labels" not in complaints(tree_of(ordered, ["z"]))[1]


def test_transitions_between_switched_states_are_part_of_the_labels():
    rng = np.random.default_rng(10)
    orders = np.array([[0, 1, 2], [2, 0, 1], [1, 0, 2], [0, 1, 2]])
    mu, rates = np.array([-3.0, 0.0, 3.0]), np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.3, 0.1, 0.6]])
    noise = rng.normal(size=(CHAINS, 1000, 3, 3))
    posterior = {
        "mu": mu[orders][:, None] + 0.3 * noise[..., 0],
        "rates": np.stack([rates[np.ix_(o, o)] for o in orders])[:, None] + 0.01 * rng.normal(size=noise.shape),
    }
    _, text = complaints(tree_of(posterior))
    assert "components of mu, rates switch between chains" in text
    assert "disagree" not in text


def test_coefficients_that_are_slow_only_have_no_labels():
    """A few hundred effective draws of twelve coefficients: to put them in another order in each chain looks better."""
    slow = autoregressive(np.random.default_rng(1), 370, (12,))
    _, text = complaints(tree_of({"b": slow}))
    assert "labels" not in text
    assert "worth only" in text
