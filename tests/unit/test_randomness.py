"""Our numbers are Threefry's, are uniform or normal, and never repeat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sumout.randomness import FOLDED, NUMBERS, SPLIT, _words, fold_in, new_key, normal, split, uniform


def as_key(words):
    return jax.random.wrap_key_data(jnp.array(words, jnp.uint32))


def test_known_answers_of_threefry():
    """The test vector published with the generator, and JAX's own function."""
    a, b = _words(as_key([0, 0]), jnp.zeros(1, jnp.uint32), NUMBERS)
    assert (int(a[0]), int(b[0])) == (0x6B200159, 0x99BA4EFE)
    ones = np.uint32(0xFFFFFFFF)
    for purpose in (NUMBERS, FOLDED, SPLIT):
        found = _words(as_key([ones, ones]), jnp.full(1, ones), purpose)
        expected = jax.extend.random.threefry_2x32(jnp.array([ones, ones]), jnp.array([ones, purpose]))
        np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_moments_and_range(dtype):
    numbers = np.asarray(jax.jit(lambda key: uniform(key, (3, 100_001), dtype))(new_key(1)))
    assert numbers.dtype == dtype
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.abs(numbers.mean(axis=1) - 0.5).max() < 6 / np.sqrt(12 * 100_001)
    found = np.histogram(numbers, bins=64, range=(0, 1))[0]
    expected = numbers.size / 64
    assert ((found - expected) ** 2 / expected).sum() < 63 + 8 * np.sqrt(126)
    rows = numbers - 0.5
    assert abs(np.mean(rows[0] * rows[1]) * 12) < 6 / np.sqrt(100_001)
    assert len(np.unique(numbers)) > 0.97 * numbers.size


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_normal_numbers_are_normal(dtype):
    numbers = np.asarray(jax.jit(lambda key: normal(key, (100_000,), dtype))(new_key(2)))
    assert numbers.dtype == dtype
    assert np.isfinite(numbers).all()
    assert stats.kstest(numbers.astype(float), "norm").pvalue > 1e-7


def test_different_keys_give_different_numbers():
    key = new_key(0)
    keys = [*split(key, 3), *(fold_in(key, i) for i in range(3)), key]
    numbers = [np.asarray(uniform(key, (1000,))) for key in keys]
    assert len(np.unique(np.concatenate(numbers))) == 7000


def test_the_generator_that_jax_is_set_to_does_not_matter():
    plain = uniform(new_key(3), (5,))
    with jax.default_prng_impl("rbg"):
        other = uniform(new_key(3), (5,))
    np.testing.assert_array_equal(plain, other)
