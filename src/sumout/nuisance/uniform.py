"""Uniform random numbers, as JAX's own generator makes them but written so that XLA fuses it with what uses them.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011): a bijection of counters, keyed. On CPUs JAX compiles
its rounds as a loop over arrays in memory; written out they cost a third.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
ROUNDS = 20


def uniform(key: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """Numbers in [0, 1), at least half a unit in the last place below 1."""
    dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    words = jax.random.key_data(key)
    size = int(np.prod(shape))
    if dtype == jnp.float64:
        high, low = _threefry(words[0], words[1], jax.lax.iota(jnp.uint32, size))
        bits = (high.astype(jnp.uint64) << 20) | (low >> 12).astype(jnp.uint64)
        numbers = jax.lax.bitcast_convert_type(bits | np.uint64(0x3FF0000000000000), jnp.float64) - 1
    else:
        first, second = _threefry(words[0], words[1], jax.lax.iota(jnp.uint32, (size + 1) // 2))
        bits = jnp.concatenate([first, second])[:size] >> 9
        numbers = jax.lax.bitcast_convert_type(bits | np.uint32(0x3F800000), jnp.float32) - 1
    # Held back from fusion, or each of several uses would compute them again.
    return jax.lax.optimization_barrier(numbers.reshape(shape).astype(dtype))


def _threefry(key_0: Array, key_1: Array, counter: Array) -> tuple[Array, Array]:
    """Two random words for each counter."""
    keys = (key_0, key_1, key_0 ^ key_1 ^ PARITY)
    a, b = counter + keys[0], jnp.zeros_like(counter) + keys[1]
    for i in range(ROUNDS):
        turn = np.uint32(ROTATIONS[i // 4 % 2][i % 4])
        a = a + b
        b = ((b << turn) | (b >> (32 - turn))) ^ a
        if i % 4 == 3:
            j = i // 4 + 1
            a, b = a + keys[j % 3], b + keys[(j + 1) % 3] + np.uint32(j)
    return a, b
