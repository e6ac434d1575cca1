"""A seed is a number or one of JAX's keys, new or old."""

import jax
import numpy as np
import pytest

import sumout
from sumout.errors import OptionError

import programs

SHORT = {"draws": 5, "tune": 5, "chains": 1, "log_likelihood": False}


def test_a_key_is_the_number_that_it_was_made_from():
    program = programs.survey()
    numbers, new, old = (
        sumout.sample(program, seed=seed, **SHORT).posterior.theta.values
        for seed in (7, jax.random.key(7), jax.random.PRNGKey(7))
    )
    np.testing.assert_array_equal(numbers, new)
    np.testing.assert_array_equal(numbers, old)


def test_a_key_that_was_split_is_kept_with_the_result(tmp_path):
    key = jax.random.split(jax.random.key(7))[1]
    program = programs.survey()
    result = sumout.sample(program, seed=key, store=tmp_path / "run", **SHORT)
    again = sumout.sample(program, seed=result.posterior.attrs["seed"], **SHORT)
    np.testing.assert_array_equal(result.posterior.theta.values, again.posterior.theta.values)
    assert sumout.load(tmp_path / "run").posterior.attrs["seed"] == result.posterior.attrs["seed"]


@pytest.mark.parametrize("seed", [jax.random.split(jax.random.key(0)), np.zeros(2), np.array([1, 2, 3])])
def test_what_is_no_key_is_refused(seed):
    with pytest.raises(OptionError, match="seed="):
        sumout.sample(programs.survey(), seed=seed, **SHORT)
