"""Our uniforms are Threefry's, are uniform, and never reach 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.nuisance.uniform import _threefry, uniform


def test_known_answers_of_threefry():
    """The test vectors published with the generator."""
    zero, ones = jnp.zeros(1, jnp.uint32), jnp.full(1, 0xFFFFFFFF, jnp.uint32)
    a, b = _threefry(zero[0], zero[0], zero)
    assert (int(a[0]), int(b[0])) == (0x6B200159, 0x99BA4EFE)
    a, b = _threefry(ones[0], ones[0], ones)
    jax_words = jax.extend.random.threefry_2x32(jnp.stack([ones[0], ones[0]]), jnp.stack([ones[0], zero[0]]))
    np.testing.assert_array_equal([a[0], b[0]], jax_words)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_moments_and_range(dtype):
    numbers = np.asarray(jax.jit(lambda key: uniform(key, (3, 100_001), dtype))(jax.random.key(1)))
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


def test_different_keys_give_different_numbers():
    one, other = (uniform(key, (1000,)) for key in jax.random.split(jax.random.key(0)))
    assert not np.intersect1d(one, other).size
