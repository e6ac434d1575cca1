"""Results of runs that were never made, with draws whose law is known: for what is said of draws."""

import warnings

import jax
import numpy as np
from arviz_base import from_dict

import sumout
from sumout.errors import SamplingWarning
from sumout.model.supports import Finite

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


def run_of(program, chains=2, draws=10):
    """A made-up run of a program: x near zero on the real line, z any of its values."""
    rng = np.random.default_rng(0)

    def any_values(site):
        shape, support = (chains, draws, *site.shape), site.support
        found = rng.choice(support.values, size=shape) if isinstance(support, Finite) else rng.integers(3, size=shape)
        return found.astype(site.dtype)

    z = {name: any_values(site) for name, site in program.z.items()}
    x = rng.normal(size=(chains, draws, program.num_x), scale=0.3)
    each = lambda function: jax.jit(jax.vmap(jax.vmap(function)))  # noqa: E731
    named = each(lambda x, z: program.constrain(x, z, program.data))(x, z)
    free = {name: np.asarray(value) for name, value in each(program.unravel)(x).items()}
    groups = {"unconstrained_posterior": free, "unconstrained_gradient": {name: -x for name, x in free.items()}}
    tree = tree_of({**{name: np.asarray(value) for name, value in named.items()}, **z}, program.z)
    for name, group in from_dict(groups).children.items():
        tree[name] = group
    return tree


def autoregressive(rng, effective, shape=(), draws=1000):
    """Four chains of so many effective draws in all."""
    times = CHAINS * draws / effective
    correlation = (times - 1) / (times + 1)
    x = rng.normal(size=(CHAINS, draws, *shape))
    for t in range(1, draws):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    return x
