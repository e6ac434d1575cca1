"""Where no chain can start, the message names the term, the value of z and what to change."""

import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.errors import StartError

COUNTS = np.array([1, 2, 0, 3])
X, Z = {"a": (constraints.positive, ())}, {"z": sumout.finite(3, shape=2)}


def in_plate(term):
    def model(y):
        a = numpyro.sample("a", dist.Beta(1, 1))
        with numpyro.plate("i", len(y)):
            term(a, numpyro.sample("z", dist.Bernoulli(a)), y)

    return sumout.program(model, COUNTS)


def no_rate(a, z, y):
    numpyro.sample("y", dist.Poisson(0.0 * z * a), obs=y)


def contradiction(a, z, y):
    numpyro.sample("y", dist.Poisson(a), obs=y)
    numpyro.factor("off", jnp.where(z == 1, -jnp.inf, 0.0))
    numpyro.factor("on", jnp.where(z == 0, -jnp.inf, 0.0))


def negative_scale(a, z, y):
    numpyro.sample("y", dist.Normal(0, -a - z, validate_args=False), obs=1.0 * y)


def steep(a, z, y):
    numpyro.sample("y", dist.Poisson(a), obs=y)
    numpyro.factor("steep", jnp.where(z == 1, 0.0, jnp.sqrt(a * (1 - z) - a * (1 - z))))


def density(term):
    return sumout.density(lambda x, z, data: -x["a"] + term(x["a"], z["z"]).sum(), x=X, z=Z)


CASES = {
    "no value of z leaves the datum possible": (
        lambda: in_plate(no_rate),
        [r"'y' \(Poisson.*is −∞ for 3 of its 4 elements, whatever", r"y\[0\] = 1", "what the parameters can be"],
    ),
    "two terms contradict each other": (
        lambda: in_plate(contradiction),
        ["factor 'off' is −∞.*at z = 1", "factor 'on' is −∞.*at z = 0", "contradict"],
    ),
    "a term is no number": (
        lambda: in_plate(negative_scale),
        [r"'y' \(Normal.*is NaN for 4 of its 4 elements", "negative scale"],
    ),
    "an infinite gradient": (
        lambda: in_plate(steep),
        ["factor 'steep' is finite, but its gradient with respect to a is not at z = 0", "look for a root"],
    ),
    "a plain density": (
        lambda: density(lambda a, z: jnp.where(z < 2, -jnp.inf, jnp.sqrt(-a))),
        ["depends on 'z' is NaN", "whatever the values of z"],
    ),
    "a part without z": (
        lambda: density(lambda a, z: (z * a).sum() + jnp.log(-a)),
        ["in which no discrete variable occurs is NaN"],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::sumout.errors.ModelWarning")  # of what is seen at some points only
def test_the_reason_is_the_true_one(name):
    make, words = CASES[name]
    with pytest.raises(StartError) as caught:
        sumout.sample(make(), draws=10, tune=10, chains=1)
    message = str(caught.value)
    for pattern in words:
        assert re.search(pattern, message), message
    assert "priors are not degenerate" not in message
