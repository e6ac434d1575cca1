"""Functions of a choice by z are computed before the choice is made, and only they."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import xlogy

from sumout.jaxpr.flatten import flatten

T = np.arange(6)
X, Z, DATA = jnp.array([0.3, 1.7]), {"k": jnp.array(2)}, {"y": jnp.arange(6.0)}


def by_z(x, z):
    return choose(z, x[0], x[1])


def choose(z, yes, no):
    return jnp.where(z["k"] > T, yes, no)


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

# Log density, and whether all that is summed over is computed before the choice.
SUMS = {
    "of a function and the same choice again": (
        lambda x, z, data: (data["y"] * jnp.log(by_z(x, z)) - by_z(x, z)).sum(),
        True,
    ),
    "of a function and another choice": (
        lambda x, z, data: (data["y"] * jnp.log(by_z(x, z)) - jnp.where(z["k"] >= T, x[0], x[1])).sum(),
        False,
    ),
    "of a function and what it is of": (lambda x, z, data: log_poisson(data["y"], by_z(x, z)).sum(), True),
    "of a function and a number": (lambda x, z, data: (3.0 * jnp.log(by_z(x, z)) + 1).sum(), True),
    "of no function": (lambda x, z, data: (3.0 * by_z(x, z)).sum(), False),
    "of a function and x": (lambda x, z, data: (x[0] * jnp.log(by_z(x, z))).sum(), False),
    "of a function and z": (lambda x, z, data: (z["k"] * jnp.log(by_z(x, z))).sum(), False),
    "of cases with and without x": (
        lambda x, z, data: log_of_two(z, (x[0], 1.0), (x[0], x[1])).sum(),
        False,
    ),
}


def log_of_two(z, first, second):
    which = z["k"] > T
    return jnp.log(jnp.exp(jnp.where(which, *first)) * jnp.where(which, *second))


def log_poisson(y, rate):
    return y * jnp.log(rate) - rate - jax.scipy.special.gammaln(y + 1.0)


def primitives(jaxpr):
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("call_jaxpr", eqn.params.get("jaxpr"))
        yield from [eqn.primitive.name] if inner is None else primitives(inner.jaxpr)


@pytest.mark.parametrize("name", CASES)
def test_functions_of_choices(name):
    fn, is_pulled_out = CASES[name]
    flat = flatten(fn, X, Z, DATA)
    assert list(primitives(flat.jaxpr)).count("log") == (2 if is_pulled_out else 1)
    assert_same(fn, flat)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_choices(name):
    fn, is_pulled_out = SUMS[name]
    flat = flatten(fn, X, Z, DATA)
    made_by = {v: eqn.primitive.name for eqn in flat.jaxpr.eqns for v in eqn.outvars}
    (total,) = (eqn for eqn in flat.jaxpr.eqns if eqn.primitive.name == "reduce_sum")
    assert (made_by[total.invars[0]] == "select_n") == is_pulled_out
    assert_same(fn, flat)


def test_a_case_that_is_never_chosen_spoils_nothing():
    def fn(x, z, data):  # log(0 · x) is nowhere to be seen while k is large
        return log_of_two(z, (x[0], -jnp.inf), (1.0, x[1])).sum()

    flat = flatten(fn, X, Z, DATA)
    gradient = jax.grad(lambda x: jax.extend.core.jaxpr_as_fun(flat)(x, jnp.array(7), DATA["y"])[0])(X)
    np.testing.assert_allclose(gradient, [6.0, 0.0])


def assert_same(fn, flat):
    """Values and gradients at several points."""

    def again(x, z, data):
        return jax.extend.core.jaxpr_as_fun(flat)(*jax.tree.leaves((x, z, data)))[0]

    for k in (0, 3, 7):
        z = {"k": jnp.array(k)}
        for x in (X, jnp.array([2.0, 0.4])):
            expected = jax.value_and_grad(fn)(x, z, DATA)
            jax.tree.map(np.testing.assert_allclose, jax.value_and_grad(again)(x, z, DATA), expected)
