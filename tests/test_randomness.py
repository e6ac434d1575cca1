"""Our numbers are Threefry's, are uniform or normal, and never repeat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sumout.randomness import (
    FOLDED,
    NUMBERS,
    SPLIT,
    fold_in,
    later,
    new_key,
    normal,
    random_words,
    split,
    uniform,
    words_of,
)


def as_key(words):
    return jax.random.wrap_key_data(jnp.array(words, jnp.uint32))


def test_known_answers_of_threefry():
    """The test vector published with the generator, and JAX's own function."""
    a, b = random_words(as_key([0, 0]), jnp.zeros(1, jnp.uint32), NUMBERS)
    assert (int(a[0]), int(b[0])) == (0x6B200159, 0x99BA4EFE)
    ones = np.uint32(0xFFFFFFFF)
    for purpose in (NUMBERS, FOLDED, SPLIT):
        found = random_words(as_key([ones, ones]), jnp.full(1, ones), purpose)
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


def test_numpy_compiled_code_and_jax_keys_agree():
    """Outside compiled code keys come by NumPy; JAX's own keys give others of their kind."""
    key, numbers = new_key(2**40 + 3), np.array([0, 7, 2**32 - 1], np.uint32)
    jax_key = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
    for derive in (lambda key: fold_in(key, numbers), lambda key: fold_in(key, 5), lambda key: split(key, 3)):
        by_numpy = derive(key)
        assert isinstance(by_numpy, np.ndarray)
        np.testing.assert_array_equal(by_numpy, jax.jit(derive)(key))
        assert jnp.issubdtype(derive(jax_key).dtype, jax.dtypes.prng_key)
        np.testing.assert_array_equal(by_numpy, words_of(derive(jax_key)))
    np.testing.assert_array_equal(uniform(key, (5,)), uniform(jax_key, (5,)))


def test_seeds_are_jax_seeds():
    np.testing.assert_array_equal(new_key(3), jax.random.key_data(jax.random.key(3, impl="threefry2x32")))


def test_keys_in_a_row_give_unrelated_numbers():
    """Neither neighbours nor keys further apart, nor many in a row taken together."""
    key, num = jnp.asarray(fold_in(new_key(1), 7)), 200_000
    rows = jax.jit(jax.vmap(lambda t: normal(later(key, 2 * t), (3,), jnp.float64)))(jnp.arange(num))
    numbers = np.asarray(rows)
    assert len(np.unique(numbers)) == numbers.size
    for lag in (1, 2, 8, 256, 65_536):
        assert abs(np.mean(numbers[lag:] * numbers[:-lag])) * np.sqrt(numbers.size) < 6
    for length in (10, 1000):
        sums = numbers.reshape(num // length, length, 3).sum(axis=1) / np.sqrt(length)
        assert abs(sums.var() - 1) / np.sqrt(2 / sums.size) < 6
    np.testing.assert_array_equal(later(key, 0), key)
    np.testing.assert_array_equal(later(key, 5), jax.jit(later)(key, jnp.int32(5)))
