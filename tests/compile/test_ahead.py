"""What is compiled ahead: once for each kind of argument, under the settings of the thread that asks for it."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.compile.ahead import BRISK_COMPILE, MEDIUM_COMPILE, QUICK_COMPILE, Ahead
from sumout.compile.policy import LITTLE_WORK, MUCH_WORK
from sumout.jaxpr.equations import traced_once, without_collection


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


def test_what_runs_seldom_is_compiled_by_the_work_it_does():
    seldom, always = Ahead(jnp.sin, times=10), Ahead(jnp.sin)
    assert seldom._options(100, LITTLE_WORK // 10) == QUICK_COMPILE
    assert seldom._options(100, MUCH_WORK // 10) == BRISK_COMPILE
    assert seldom._options(100, MUCH_WORK) == always._options(100, 1) == MEDIUM_COMPILE


def test_errors_of_the_compiler_are_told(monkeypatch):
    monkeypatch.setattr("sumout.compile.ahead.QUICK_COMPILE", {"no_such_option": True})
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


FIRST_RUN = """
import threading
import jax
import sumout
from sumout_studies.models import STUDIES

waited = []

def listen(event, seconds, **about):
    if "backend_compile" in event and threading.current_thread() is threading.main_thread():
        waited.append(event)

jax.monitoring.register_event_duration_secs_listener(listen)
program = STUDIES["hmm"].program()
sumout.sample(program, draws=10, tune=10, chains=2, progress=False)
print(len(waited))
jax.jit(lambda x: x + 1)(1.0)
print(len(waited))
"""


def test_a_first_run_compiles_nothing_while_it_waits():
    """Whatever JAX does outside functions compiled ahead it compiles first, each time some ten milliseconds."""
    said = subprocess.run([sys.executable, "-c", FIRST_RUN], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["0", "1"]


def test_garbage_is_collected_again_whatever_happens():
    assert gc.isenabled()
    with pytest.raises(ValueError, match="trouble"), without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()
        raise ValueError("trouble")
    assert gc.isenabled()
