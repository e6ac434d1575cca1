"""Results of runs that were never made, with draws whose law is known: for what is said of draws."""

import warnings

import numpy as np
from arviz_base import from_dict

import sumout
from sumout.errors import SamplingWarning

CHAINS, DRAWS = 4, 2000


def run(spread=1.0, share=None, z=None, acceptance=0.9, correlation=0.0, shape=(3,)):
    """A made-up run: independent draws of a standard Gaussian, `spread` times too wide."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CHAINS, DRAWS, *shape))
    for t in range(1, DRAWS):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    x = x * spread
    stats = {"lp": rng.normal(size=(CHAINS, DRAWS)), "acceptance_rate": np.full((CHAINS, DRAWS), acceptance)}
    posterior = {"x": x}
    if z is not None:
        posterior["z"] = z
    if share is not None:
        posterior["share"] = share
    groups = {
        "posterior": posterior,
        "unconstrained_posterior": {"x": x},
        "unconstrained_gradient": {"x": -x},
        "sample_stats": stats,
    }
    tree = from_dict(groups)
    tree["posterior"].attrs["discrete"] = ["z"] if z is not None else []
    return tree


def complaints(tree):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = sumout.summary(tree)
    assert all(w.category is SamplingWarning for w in caught)
    return table, " ".join(str(w.message) for w in caught)


def tree_of(posterior, discrete=()):
    """A made-up run of these variables, with nothing known of gradients."""
    shape = next(iter(posterior.values())).shape[:2]
    stats = {"lp": np.random.default_rng(9).normal(size=shape)}
    tree = from_dict({"posterior": posterior, "sample_stats": stats})
    tree["posterior"].attrs["discrete"] = list(discrete)
    return tree


def autoregressive(rng, effective, shape=(), draws=1000):
    """Four chains of so many effective draws in all."""
    times = CHAINS * draws / effective
    correlation = (times - 1) / (times + 1)
    x = rng.normal(size=(CHAINS, draws, *shape))
    for t in range(1, draws):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    return x
