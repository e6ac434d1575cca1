"""Components in the order of one of their parameters, with their labels."""

import numpy as np
import pytest
import xarray as xr

import sumout
from sumout.errors import OptionError


def made_up(categories=("z",)):
    rng = np.random.default_rng(0)
    mu = np.array([-5.0, 0.0, 5.0]) + rng.normal(size=(2, 50, 3))
    weight = np.broadcast_to([0.2, 0.3, 0.5], mu.shape)
    z = np.broadcast_to([0, 1, 2, 2], (2, 50, 4))
    order = np.argsort(rng.random(mu.shape), axis=-1)  # new component k is the old one of that number
    new = np.argsort(order, axis=-1)
    axes = ["chain", "draw"]
    posterior = xr.Dataset(
        {
            "mu": ([*axes, "mu_dim_0"], np.take_along_axis(mu, order, -1)),
            "weight": ([*axes, "weight_dim_0"], np.take_along_axis(weight, order, -1)),
            "z": ([*axes, "points"], np.take_along_axis(new, z, -1)),
            "trial": ([*axes, "trials"], np.arange(300.0).reshape(2, 50, 3)),
        },
        attrs={"discrete": ["z"], "categories": list(categories)},
    )
    return xr.DataTree.from_dict({"posterior": posterior}), mu


def test_components_and_labels_are_put_in_order():
    switched, mu = made_up()
    result = sumout.relabel(switched, by="mu").posterior
    assert np.array_equal(result.mu, np.sort(mu, axis=-1))
    clear = (np.argsort(mu, axis=-1) == np.arange(3)).all(axis=-1)
    assert clear.mean() > 0.9
    assert (result.weight.values[clear] == [0.2, 0.3, 0.5]).all() and (result.z.values[clear] == [0, 1, 2, 2]).all()
    assert np.array_equal(result.trial, switched.posterior.trial)  # as long, but of another dimension
    assert result.attrs["relabelled_by"] == "mu" and "relabelled_by" not in switched.posterior.attrs


def test_what_is_unclear_is_asked_for():
    switched, _ = made_up(categories=())
    with pytest.raises(OptionError, match=r"labels=\['z'\]"):
        sumout.relabel(switched, by="mu")
    kept = sumout.relabel(switched, by="mu", labels=[]).posterior
    assert np.array_equal(kept.z, switched.posterior.z)
    with pytest.raises(OptionError, match="one of: mu, weight, trial"):
        sumout.relabel(switched, by="z")
    with pytest.raises(OptionError, match="'q' is no discrete variable"):
        sumout.relabel(switched, by="mu", labels=["q"])
