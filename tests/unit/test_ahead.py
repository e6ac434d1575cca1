"""What is compiled ahead: once for each kind of argument, under the settings of the thread that asks for it."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.compiling.ahead import Ahead
from sumout.reading.equations import traced_once


def counting():
    traced = []

    def double(a):
        traced.append(a.shape)
        return 2 * a

    return Ahead(double), traced


def test_is_traced_once_for_each_shape():
    double, traced = counting()
    double.prepare(jax.ShapeDtypeStruct((3,), jnp.result_type(float)))
    for a in (np.ones(3), jnp.ones(3), np.zeros(3), np.ones(2)):
        np.testing.assert_array_equal(double(a), 2 * a)
    assert traced == [(3,), (2,)]


def test_what_is_compiled_can_be_called_under_other_settings():
    """Settings such as the precision belong to a thread."""
    with jax.enable_x64(False):
        double, _ = counting()
        a = jnp.ones(3)
        compiled = double.prepare(a).result()
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(compiled, a).result().dtype == jnp.float32
    with jax.enable_x64(True):
        assert double(jnp.ones(3)).dtype == jnp.float64


def test_errors_of_the_compiler_are_told(monkeypatch):
    monkeypatch.setattr("sumout.compiling.ahead.QUICK_COMPILE", {"no_such_option": True})
    broken = Ahead(lambda a: 2 * a, times=1)
    with pytest.raises(Exception, match="no_such_option"):
        broken(jnp.ones(3))


def test_a_function_is_traced_once_for_all_named_axes():
    traced = []

    def double(a, b):
        traced.append(a.shape)
        return {"double": 2 * a, "sum": a + b["b"]}

    once = traced_once(double)
    for size in (2, 5):
        a, b = jnp.arange(3.0 * size).reshape(size, 3), {"b": jnp.ones(3)}
        found = jax.jit(jax.vmap(once, in_axes=(0, None), axis_name="chains"))(a, b)
        np.testing.assert_array_equal(found["double"], 2 * a)
        np.testing.assert_array_equal(found["sum"], a + 1)
    assert traced == [(3,)]
    once(jnp.ones(4), {"b": jnp.ones(4)})
    assert traced == [(3,), (4,)]
