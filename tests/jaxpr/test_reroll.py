"""Loops rolled up: the same numbers and derivatives, in as many equations as an array form would have."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from jax.scipy.special import xlogy

from sumout.jaxpr import reroll as module
from sumout.jaxpr.reroll import reroll
from sumout.jaxpr.rows import Windows, take_rows, take_windows
from sumout.jaxpr.simplify import simplify

from hostile.random_programs import Spec, build, make

X = jnp.array([0.3, -0.8, 1.1])
TABLE = jnp.arange(9.0).reshape(3, 3) / 10


def mixture(x, z, y):
    total = -0.5 * (x**2).sum()
    for i in range(len(y)):
        total += jax.nn.log_softmax(x)[z[i]]
        total -= 0.5 * (y[i] - x[z[i]]) ** 2
    return total


def chain(x, z, y):
    log_table = jax.nn.log_softmax(TABLE * x[0], axis=1)
    total, before = 0.0, 0
    for t in range(len(y)):
        total += log_table[before, z[t]] + jax.nn.softplus(x[z[t]] * y[t])
        before = z[t]
    return total


def tree(x, z, y):
    total = x[z[0]] * y[0]
    for i in range(1, len(y)):
        total = total + jnp.sin(x[z[i]] + TABLE[z[(i - 1) // 2], z[i]]) * y[i]
    return total


def ragged(x, z, y):
    total, start = 0.0, 0
    lengths = [1 + i % 3 for i in range(len(y))]
    while start < len(y):
        length = min(lengths[start], len(y) - start)
        for t in range(start, start + length):
            rate = 0.5 if t == start else jnp.where(z[t - 1] == z[t], x[0] ** 2, x[1] ** 2)
            total += xlogy(y[t], 0.1 + rate)
        start += length
    return total


def updates(x, z, y):
    mean, count = jnp.zeros(len(y)), jnp.zeros(3)
    for i in range(len(y)):
        mean = mean.at[i].set(x[z[i]])
        count = count.at[i % 3].add(y[i] * x[z[i]])
    return -0.5 * ((y - mean) ** 2).sum() + (count**2).sum()


def some_updates(x, z, y):
    mean = jnp.ones((len(y), 2)) * x[0]
    for i in reversed(range(0, len(y), 2)):
        mean = mean.at[i, 1].set(jnp.exp(x[z[i]]))
    return (mean[:, 0] * mean[:, 1]).sum()


def stacked(x, z, y):
    effects = jnp.array([x[z[i]] * y[i] for i in range(len(y))])
    pairs = jnp.stack([jnp.array([y[i], x[z[i]]]) for i in range(len(y))])
    return sum(effects) + (pairs[:, 0] * jnp.tanh(pairs[:, 1])).sum()


def nested(x, z, y):
    total = 0.0
    for i in range(len(y)):
        inner = 0.0
        for j in range(5):
            inner += jnp.cos(y[j] * x[z[i]])
        total += jnp.log(2 + inner / 5) + x[i % 3] * y[i]
    return total


def rows(x, z, y):
    table = jnp.outer(y, x)
    total = 0.0
    for i in reversed(range(len(y))):
        total += jax.nn.logsumexp(table[i]) * table[i, z[i]]
        for j in range(3):
            total += jnp.exp(-(table[i, j] ** 2))
    return total


LOOPS = [mixture, chain, tree, ragged, updates, some_updates, stacked, nested, rows]


def arguments(num):
    rng = np.random.default_rng(num)
    return X, jnp.asarray(rng.integers(0, 3, num)), jnp.asarray(rng.normal(size=num) + 3)


def rolled(fn, num):
    closed = simplify(jax.make_jaxpr(fn)(*arguments(num)))
    return closed, simplify(reroll(closed))


def assert_same(fn, closed, args):
    again = lambda *args: jaxpr_as_fun(closed)(*args)[0]  # noqa: E731
    (value, gradient), (expected, slope) = (jax.jit(jax.value_and_grad(each))(*args) for each in (again, fn))
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_a_loop_is_rolled_up_and_means_the_same(fn):
    before, after = rolled(fn, 24)
    assert len(after.jaxpr.eqns) < len(before.jaxpr.eqns) / 2
    assert_same(fn, after, arguments(24))


@pytest.mark.parametrize("fn", LOOPS, ids=lambda fn: fn.__name__)
def test_the_number_of_equations_does_not_grow_with_the_loop(fn):
    few, many = (len(rolled(fn, num)[1].jaxpr.eqns) for num in (24, 72))
    assert many <= few


def test_an_array_that_is_taken_apart_is_whole_again():
    def fn(x, z, y):
        return sum(jnp.exp(x[0] * y[i]) * z[i] for i in range(len(y)))

    _, after = rolled(fn, 40)
    assert not {eqn.primitive.name for eqn in after.jaxpr.eqns} & {"gather", "concatenate", "dynamic_slice"}


def test_a_loop_whose_bodies_differ_stays_as_it_is():
    functions = [jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.log1p, jnp.arctan, jnp.sinh, jnp.cosh]

    def fn(x, z, y):
        value = x[0]
        for i, function in enumerate(functions * 3):  # each step takes what the one before has made
            value = function(value * 0.1) * y[i] + x[z[i]]
        return value

    closed, after = rolled(fn, 24)
    assert reroll(closed) is closed
    assert_same(fn, after, arguments(24))


def test_functions_with_rules_of_their_own_are_told_apart():
    def scaled(scale):
        @jax.custom_jvp
        def fn(a):
            return jnp.sin(a)

        fn.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), scale * tangents[0]))
        return fn

    one, two = scaled(1.0), scaled(2.0)

    def fn(x, z, y):
        return sum((one if i % 2 else two)(x[z[i]] * y[i]) for i in range(len(y)))

    before, after = rolled(fn, 24)
    assert len(after.jaxpr.eqns) < len(before.jaxpr.eqns) / 2
    assert_same(fn, after, arguments(24))


def test_numbers_in_the_loop_become_an_array():
    def fn(x, z, y):
        return sum(jnp.sin(x[0] * (0.5 + i**2)) * y[i] for i in range(len(y)))

    _, after = rolled(fn, 30)
    assert len(after.jaxpr.eqns) < 20
    assert_same(fn, after, arguments(30))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_mean_the_same_when_all_is_rolled_up_that_can_be(seed):
    program = build(make(Spec(seed, kept=(0, 1, 2))))
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=program.num_x))
    z = {n: jnp.asarray(np.resize(s.support.rows()[0][:, 0], s.shape), s.dtype) for n, s in program.z.items()}

    def fn(x):
        return program.log_density(x, z, program.data)

    closed = simplify(jax.make_jaxpr(fn)(x))
    with mock.patch.multiple(module, FEWEST_EQUATIONS=0, FEWEST=2):
        classes = module._Classes(closed)
        after = jax.make_jaxpr(lambda *args: module._Run(classes, closed, args).results())(x)
    again = lambda x: jaxpr_as_fun(after)(x)[0]  # noqa: E731
    (value, gradient), (expected, slope) = (jax.jit(jax.value_and_grad(each))(x) for each in (again, fn))
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-8)


ROWS = [[0, 1, 2, 3, 4, 5], [1, 2, 3], [0, 2, 4], [3], [5, 3, 1], [0, 0, 1, 1], [2, 3, 2, 3], [4, 4], [0, 5, 5, 2]]


@pytest.mark.parametrize("chosen", ROWS, ids=str)
def test_rows_of_an_array(chosen):
    array = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(take_rows(jnp.asarray(array), np.array(chosen)), array[chosen])


@pytest.mark.parametrize(
    ("starts", "shape", "strides"),
    [
        ([[0, 1], [1, 1], [2, 1]], (1, 3), (1, 1)),
        ([[0, 0], [0, 1], [3, 2]], (1, 1), (1, 1)),
        ([[0, 0], [2, 0]], (2, 5), (1, 1)),
        ([[1, 0], [0, 0]], (2, 3), (2, 2)),
        ([[0, 0], [1, 2], [2, 1]], (2, 3), (1, 1)),
        ([[1, 2], [1, 2]], (2, 3), (1, 1)),
    ],
)
def test_windows_of_an_array(starts, shape, strides):
    array = np.arange(20.0).reshape(4, 5)
    cuts = [tuple(slice(s, s + n * k, k) for s, n, k in zip(start, shape, strides, strict=True)) for start in starts]
    found = take_windows(jnp.asarray(array), Windows(np.array(starts), shape, strides))
    np.testing.assert_array_equal(found, np.stack([array[cut] for cut in cuts]))
