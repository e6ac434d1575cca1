"""Loops in one piece: the same numbers, whatever is in them, and as usual where that cannot be."""

import logging
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.compile.ahead import Ahead
from sumout.compile.one_piece import MARK, TESTED, elements_computed, fits_one_piece, is_tested
from sumout.compile.policy import ONE_PIECE_ARGUMENTS, ONE_PIECE_ARRAY


def looped(step, num=5):
    return lambda x, unused, data: jax.lax.fori_loop(0, num, lambda i, x: step(i, x, data), x)


STEPS = {
    "sums": lambda i, x, data: jnp.tanh(x + data["a"].sum(axis=0)),
    "products": lambda i, x, data: jnp.tanh(data["a"] @ x),
    "scatters": lambda i, x, data: x.at[jnp.arange(4) % 3].add(x[0]),
    "branches": lambda i, x, data: jax.lax.cond(x[0] > i, jnp.zeros_like, jnp.cos, x),
    "constants": lambda i, x, data: x + jnp.asarray(np.linspace(0, 1, 5000))[i * 1000],
    "random": lambda i, x, data: x + jax.random.poisson(jax.random.fold_in(jax.random.key(0), i), 3.0, (4,)),
    "special functions": lambda i, x, data: jax.scipy.special.betainc(2.0, 3.0, jax.nn.sigmoid(x)),
    "running sums": lambda i, x, data: jnp.cumsum(x) / 9,
    "complex numbers": lambda i, x, data: jnp.abs(jnp.exp(1j * x)),
    "calls of Python": lambda i, x, data: jax.pure_callback(np.cos, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    "the largest": lambda i, x, data: x + jax.lax.top_k(x, 2)[0].sum(),
    "sorts": lambda i, x, data: jnp.sort(jnp.cos(x + i)),
    "lapack": lambda i, x, data: jnp.linalg.cholesky(data["a"] @ data["a"].T + 9 * jnp.eye(4)) @ x,
}


@pytest.mark.parametrize("name", STEPS)
def test_numbers_are_the_same(name):
    x, data = jnp.arange(4.0), {"a": jnp.asarray(np.random.default_rng(0).normal(size=(4, 4))), "b": jnp.zeros((0, 2))}
    run = looped(STEPS[name])
    found = Ahead(run)(x, jnp.ones(()), data)  # an argument that nothing uses must not matter
    np.testing.assert_allclose(found, run(x, 0.0, data), rtol=1e-10)


def test_what_the_compiler_refuses_is_compiled_as_usual(monkeypatch):
    monkeypatch.setattr("sumout.compile.one_piece.REFUSED", set())
    x = jnp.arange(4.0)
    run = looped(STEPS["sorts"])
    np.testing.assert_allclose(Ahead(run)(x, x, {}), run(x, x, {}))


def test_a_large_table_that_is_only_looked_up_does_not_count():
    table = {"a": jnp.asarray(np.random.default_rng(0).normal(size=(100, 100)))}
    looked_up = looped(lambda i, x, data: x + data["a"][i, jnp.arange(4)] * 0.1)
    assert fits_one_piece(jax.jit(looked_up).trace(jnp.ones(4), 0.0, table).jaxpr)
    found = Ahead(looked_up)(jnp.ones(4), jnp.zeros(()), table)
    np.testing.assert_allclose(found, looked_up(jnp.ones(4), 0.0, table), rtol=1e-6)
    huge = {"a": jax.ShapeDtypeStruct((ONE_PIECE_ARGUMENTS, 4), float)}
    assert not fits_one_piece(jax.jit(looked_up).trace(jnp.ones(4), 0.0, huge).jaxpr)
    summed = looped(lambda i, x, data: x + data["a"].sum())
    assert not fits_one_piece(jax.jit(summed).trace(jnp.ones(4), 0.0, table).jaxpr)


@pytest.mark.parametrize(("size", "expected"), [(4, True), (ONE_PIECE_ARRAY + 1, False)])
def test_only_small_loops_are_marked(size, expected):
    run = jax.jit(looped(lambda i, x, data: jnp.cos(x)))
    assert fits_one_piece(run.trace(jnp.ones(size), 0.0, {}).jaxpr) == expected
    large = jax.jit(looped(lambda i, x, data: data["a"] @ x))
    assert fits_one_piece(large.trace(jnp.ones(4), 0.0, {"a": jnp.ones((4, 4))}).jaxpr)
    assert "xla_cpu_small_call" in MARK


def test_elements_are_counted_in_loops_and_calls():
    def fn(rows):
        return jax.lax.map(lambda row: jax.jit(jnp.exp)(row) + 1, rows)

    jaxpr = jax.make_jaxpr(fn)(np.zeros((7, 3))).jaxpr
    assert elements_computed(jaxpr) == 7 * (3 + 3)


def test_the_release_that_the_tests_run_with_is_used_in_full():
    """Where this fails after a new release of JAX: if all else here passes, add the release to `TESTED`."""
    assert is_tested()


@pytest.mark.parametrize("version", ["0.11.0", "0.12.1.dev20270101", "1.0.0", "0.9.2"])
def test_with_another_release_nothing_is_marked(version, monkeypatch, caplog):
    monkeypatch.setattr("jaxlib.__version__", version)
    monkeypatch.setattr("sumout.compile.one_piece.MARK", {"no_such": object()})  # an error where it is used
    run, data = looped(STEPS["sums"]), {"a": jnp.ones((4, 4))}
    with caplog.at_level(logging.INFO, logger="sumout.compile"):
        found = [Ahead(run)(jnp.ones(4), jnp.ones(()), data) for _ in range(2)]
    np.testing.assert_allclose(found, [run(jnp.ones(4), 0.0, data)] * 2, rtol=1e-10)
    assert [record.getMessage() for record in caplog.records] == [
        f"jaxlib {version}: compilation in one piece is tested with jaxlib {TESTED[-1]} only, and not used."
    ]


ANOTHER_RELEASE = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s")
import jaxlib
jaxlib.__version__ = "0.11.0"
import sumout
from sumout.compile.ahead import MEDIUM_COMPILE, QUICK_COMPILE
from sumout_studies.models import STUDIES

assert MEDIUM_COMPILE == QUICK_COMPILE == {}  # options may be gone, too
result = sumout.sample(STUDIES["survey"].program(), draws=10, tune=10, chains=2, progress=False)
assert result.posterior["theta"].shape == (2, 10)
assert "jax.experimental.xla_metadata" not in sys.modules
"""


def test_with_another_release_models_are_sampled():
    run = subprocess.run([sys.executable, "-c", ANOTHER_RELEASE], capture_output=True, text=True, check=True)
    assert run.stdout.split().count("sumout.compile") == 1
