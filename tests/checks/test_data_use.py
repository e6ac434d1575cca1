"""Models in which nothing is observed, and arguments that nothing depends on; silence about all others."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import sumout

from models import mixture, scan_hmm

Y = jnp.array([0.0, 1.0, 2.5])


def forgotten(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("v", dist.Normal(mu * z, 1))


def by_factor(y):
    z = numpyro.sample("z", dist.Bernoulli(0.4))
    numpyro.factor("y", -0.5 * jnp.sum((y - z) ** 2))


def unused(x, y):
    del x
    mixture(y)


def shown(x, y):
    numpyro.deterministic("double", 2 * x)
    mixture(y)


def found(*given):
    return " ".join(sumout.check(sumout.program(*given)).warnings)


def misnamed(y, size, scale=2.0, *, verbose=False):
    mixture(y[: 1 if verbose else len(y)])


def test_nothing_observed():
    assert "nothing is observed in 'forgotten'" in found(forgotten, Y)
    assert "the model was given 'y', on whose values nothing depends" in found(forgotten, Y)


def test_unused_arguments():
    assert "the model was given 'x', on whose values nothing depends" in found(unused, Y, Y)


def test_numbers_that_are_never_read():
    """Of a switch that is off nothing depends on its value, either, but it is read."""
    program = sumout.program(misnamed, Y, 3, scale=1.0, verbose=False)
    said = " ".join(sumout.check(program).warnings)
    assert "the model was given 'size', 'scale', on the values of which nothing depends" in said
    inner = sumout.program(lambda y, size: (lambda: mixture(y[:size]))(), Y, 3)
    assert not inner.unread


@pytest.mark.parametrize("given", [(mixture, Y), (scan_hmm, Y), (by_factor, Y), (shown, Y, Y)])
def test_silence(given):
    assert "observed" not in found(*given) and "nothing depends" not in found(*given)
