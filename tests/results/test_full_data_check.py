"""The check against all rows, on posteriors that are known: what is right passes, what is wrong is named."""

import numpy as np
import pytest

from sumout.results.full_data_check import check_against_all, judge_exact

SHAPE = 4, 1000, 3
NAMES = ["a", "b", "c"]
MIX = np.array([[1.0, 0, 0], [0.9, 0.5, 0], [-0.5, 0.3, 2.0]])
PRECISION = np.linalg.inv(MIX @ MIX.T)


def correlated(x):
    return -x @ PRECISION


def skewed(x):
    """Of log Gamma(4) variables, each by itself: 4 x − exp x."""
    return 4 - np.exp(x)


def draws(seed):
    return np.random.default_rng(seed).standard_normal(SHAPE) @ MIX.T


@pytest.mark.parametrize("seed", range(5))
def test_right_draws_pass(seed):
    """Errors are allowed for: a false alarm in one of a hundred runs at most, none with these seeds."""
    assert check_against_all(draws(seed), correlated, 10**6, NAMES).holds
    gamma = np.log(np.random.default_rng(seed).gamma(4, size=SHAPE))
    assert check_against_all(gamma, skewed, 10**6, NAMES).holds


def test_wrong_draws_do_not():
    wide = check_against_all(1.2 * draws(0), correlated, 10**6, NAMES)
    assert not wide.holds and "wider" in wide.words and "does not hold" in wide.words
    narrow = check_against_all(0.8 * draws(0), correlated, 10**6, NAMES)
    assert not narrow.holds and "narrower" in narrow.words
    moved = draws(0) + np.array([0.0, 0, 0.8])
    shifted = check_against_all(moved, correlated, 10**6, NAMES)
    assert not shifted.holds and "mean of" in shifted.words
    gaussian = draws(0) / np.sqrt((MIX**2).sum(axis=1)) * 0.53 + 1.26  # moments of log Gamma(4), another shape
    assert not check_against_all(2 * gaussian, skewed, 10**6, NAMES).holds


def test_few_draws_cannot_tell():
    check = check_against_all(draws(0)[:2, :3], correlated, 10**6, NAMES)
    assert not check.holds and "not enough to tell" in check.words


def test_a_gradient_that_is_not_finite_is_said():
    assert "not finite" in check_against_all(draws(0), lambda x: x * np.nan, 10**6, NAMES).words


def test_exact_draws_are_right_unless_chains_hardly_move():
    right = check_against_all(draws(0), correlated, 10**6, NAMES)
    assert judge_exact(right, 0.9, 10**6).holds
    cannot_tell = check_against_all(draws(0)[:2, :3], correlated, 10**6, NAMES)
    assert judge_exact(cannot_tell, 0.9, 10**6).holds
    stuck = judge_exact(right, 0.002, 10**6)
    assert not stuck.holds and "hardly move" in stuck.words
    elsewhere = check_against_all(1.5 * draws(0), correlated, 10**6, NAMES)
    assert not judge_exact(elsewhere, 0.9, 10**6).holds
