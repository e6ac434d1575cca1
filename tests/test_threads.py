"""Work in the background: done in order, left behind when it is time, and open to signals meanwhile."""

import os
import signal
import threading
from time import perf_counter, sleep

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.threads import attentive_jit, attentively, begin, in_threads, is_left_behind, wait


@pytest.fixture
def interrupt_soon():
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()


def test_all_are_done_in_order():
    assert in_threads(lambda i: i**2, range(20), most=3) == [i**2 for i in range(20)]
    assert in_threads(lambda i: i, []) == []


def test_errors_come_through():
    def fail(i):
        raise ValueError(f"no {i}")

    with pytest.raises(ValueError, match="no 1"):
        in_threads(fail, [1])
    with pytest.raises(ValueError, match="no 2"):
        wait(begin(fail, 2))


def test_what_is_left_behind_goes_no_further():
    begun, told = [], threading.Event()

    def slow(i):
        begun.append(i)
        if i == 2:
            while not is_left_behind():
                sleep(0.01)
            told.set()
        return i

    assert in_threads(slow, range(5), most=1, is_over=lambda: 2 in begun) == [0, 1]
    assert told.wait(5)
    sleep(0.05)
    assert begun == [0, 1, 2]


@pytest.mark.parametrize("waiting", [lambda do: in_threads(lambda _: do(), range(2)), lambda do: attentively(do)])
def test_signals_are_heard(interrupt_soon, waiting):
    begun, ended = perf_counter(), threading.Event()
    with pytest.raises(KeyboardInterrupt):
        waiting(lambda: ended.wait(10))
    assert perf_counter() - begun < 5
    ended.set()


def test_compiled_in_another_thread():
    where = []

    def f(x, n):
        where.append(threading.current_thread())
        return x * n, x.sum()

    run = attentive_jit(f)
    for x in (np.arange(3.0), np.arange(4.0), np.ones(3)):
        for got, expected in zip(run(x, 2), jax.jit(lambda x, n: (x * n, x.sum()))(x, 2), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert where == [threading.main_thread()] * 2  # traced here, once for each shape
    assert jnp.shape(run(np.ones(3), 5)[0]) == (3,)
    assert wait(begin(lambda: run(np.ones(3), 5)[0])).tolist() == [5.0] * 3
