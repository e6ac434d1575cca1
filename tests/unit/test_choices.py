"""Functions of a choice by z are computed before the choice is made, and only they."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import xlogy

from sumout.reading.flatten import flatten

T = np.arange(6)
X, Z, DATA = jnp.array([0.3, 1.7]), {"k": jnp.array(2)}, {"y": jnp.arange(6.0)}


def by_z(x, z):
    return jnp.where(z["k"] > T, x[0], x[1])


# Log density, and whether its logarithms are taken before the choice.
CASES = {
    "of a choice": (lambda x, z, data: jnp.log(by_z(x, z)).sum(), True),
    "of a choice and data": (lambda x, z, data: xlogy(data["y"], by_z(x, z)).sum(), True),
    "in a call": (lambda x, z, data: jax.jit(lambda rate: -jnp.log(rate))(by_z(x, z)).sum(), True),
    "of a choice by x": (lambda x, z, data: jnp.log(jnp.where(x[0] > T, x[0], x[1])).sum(), False),
    "of a choice by x and z": (lambda x, z, data: jnp.log(jnp.where(x[0] * z["k"] > T, x[0], x[1])).sum(), False),
    "of a choice by data": (lambda x, z, data: jnp.log(jnp.where(data["y"] > 2, x[0], x[1])).sum(), False),
    "of numbers with z in them": (lambda x, z, data: jnp.log(jnp.where(z["k"] > T, x[0] * z["k"], 1)).sum(), False),
    "of a choice and of z": (lambda x, z, data: xlogy(z["k"] + data["y"], by_z(x, z)).sum(), False),
    "of a choice of unlike elements": (
        lambda x, z, data: jnp.log(jnp.where(z["k"] > T, x[0] + data["y"], 1)).sum(),
        False,
    ),
}


def primitives(jaxpr):
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("call_jaxpr", eqn.params.get("jaxpr"))
        yield from [eqn.primitive.name] if inner is None else primitives(inner.jaxpr)


@pytest.mark.parametrize("name", CASES)
def test_functions_of_choices(name):
    fn, is_pulled_out = CASES[name]
    flat = flatten(fn, X, Z, DATA)
    assert list(primitives(flat.jaxpr)).count("log") == (2 if is_pulled_out else 1)

    def again(x, z, data):
        return jax.extend.core.jaxpr_as_fun(flat)(*jax.tree.leaves((x, z, data)))[0]

    for k in (0, 3, 7):
        z = {"k": jnp.array(k)}
        for x in (X, jnp.array([2.0, 0.4])):
            expected = jax.value_and_grad(fn)(x, z, DATA)
            jax.tree.map(np.testing.assert_allclose, jax.value_and_grad(again)(x, z, DATA), expected)
