"""Random numbers by counter, from JAX's own generator but written so that XLA fuses it with what uses them.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011): a bijection of counters, keyed. On CPUs JAX compiles
its rounds as a loop over arrays in memory; in the small steps of a chain these loops took more time than all the rest.
Written out they are part of the code around them.

A key is two words, or one of JAX's own keys if that is what one starts with. Outside compiled code the words are
NumPy's, and so are the keys that come of them: nothing is compiled for that.

A key gives numbers, or new keys by `fold_in`, by `split` or by `later`: never two of these. Should it happen all the
same, they differ, as each counts in a range of its own.
"""

from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
ROUNDS = 20
NUMBERS, FOLDED, SPLIT = np.uint32(0), np.uint32(1), np.uint32(2)  # the second half of the counter
# Single operations of JAX's, not its operators: these take several times as long to trace.
BY_JAX = jax.lax.add, jax.lax.bitwise_xor, jax.lax.bitwise_or, jax.lax.shift_left, jax.lax.shift_right_logical
BY_NUMPY = np.add, np.bitwise_xor, np.bitwise_or, np.left_shift, np.right_shift

Key = Array | np.ndarray
K = TypeVar("K", bound=Key)


def new_key(seed: Any) -> np.ndarray:
    """The key that a seed stands for."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def as_seed(seed: Any) -> Any:
    """The whole number that stands for one of JAX's keys, new (`jax.random.key`) or old (`PRNGKey`); others as given.

    >>> as_seed(jax.random.key(7)), as_seed(7)
    (7, 7)
    """
    if not isinstance(seed, jax.Array | np.ndarray):
        return seed
    words = np.asarray(as_words(seed)) if _is_jax_key(seed) or seed.dtype == np.uint32 else np.asarray(seed)
    return int(words[0]) << 32 | int(words[1]) if words.shape == (2,) and words.dtype == np.uint32 else seed


def as_words(key: Key) -> Key:
    """The two words of a key, of whichever of JAX's generators it is."""
    words = words_of(key)
    return words if words.shape[-1:] == (2,) else jax.random.bits(key, (2,), np.uint32)


def fold_in(key: K, number: Any) -> K:
    """The new key of that number, from 0 to 2³² − 1; of an array of numbers, as many keys."""
    return _keys(key, number, FOLDED)


def later(key: Any, number: Any) -> Any:
    """The key so many places after this one, from 0 to 2³² − 1; for keys in a row, where nothing else is done with it.

    A generator by counter gives unrelated numbers under any two keys, neighbours included, so one addition will do,
    where `fold_in` runs the generator. Rows do not meet if they begin at keys that are random, as those of chains are.
    """
    if _is_jax_key(key):
        return fold_in(key, number)
    place = jnp.asarray(number).astype(jnp.uint32)
    return key + jnp.stack([place, jnp.zeros_like(place)], axis=-1)


def split(key: K, num: int = 2) -> K:
    """So many new keys."""
    return _keys(key, np.arange(num), SPLIT)


def uniform(key: Key, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """Numbers in [0, 1), at least half a unit in the last place below 1."""
    dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    size = int(np.prod(shape))
    if dtype == jnp.float64:
        high, low = random_words(key, jax.lax.iota(jnp.uint32, size), NUMBERS)
        bits = (high.astype(jnp.uint64) << 20) | (low >> 12).astype(jnp.uint64)
        numbers = jax.lax.bitcast_convert_type(bits | np.uint64(0x3FF0000000000000), jnp.float64) - 1
    else:
        first, second = random_words(key, jax.lax.iota(jnp.uint32, (size + 1) // 2), NUMBERS)
        bits = jnp.concatenate([first, second])[:size] >> 9
        numbers = jax.lax.bitcast_convert_type(bits | np.uint32(0x3F800000), jnp.float32) - 1
    # Held back from fusion, or each of several uses would compute them again.
    return jax.lax.optimization_barrier(numbers.reshape(shape).astype(dtype))


def normal(key: Key, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """Standard normal numbers."""
    return as_normal(uniform(key, shape, dtype))


def as_normal(numbers: Array) -> Array:
    """Standard normal numbers from uniform ones."""
    lowest = np.nextafter(np.array(-1, numbers.dtype), np.array(0, numbers.dtype))
    return np.sqrt(2).astype(numbers.dtype) * jax.lax.erf_inv(jnp.maximum(2 * numbers - 1, lowest))


def generator(key: Key) -> np.random.Generator:
    """NumPy's generator, seeded by a key."""
    return np.random.default_rng(np.asarray(words_of(key)))


def as_jax_key(key: Key) -> Array:
    """The same key as one of JAX's own, for code that takes no other."""
    return jnp.asarray(key) if _is_jax_key(key) else jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")


def _keys(key: Any, counter: Any, purpose: np.uint32) -> Any:
    if isinstance(key, np.ndarray) and not isinstance(counter, jax.Array):
        with np.errstate(over="ignore"):  # words wrap around
            return np.stack(_threefry(key, np.asarray(counter).astype(np.uint32), purpose), axis=-1)
    words = jnp.stack(random_words(key, jnp.asarray(counter).astype(jnp.uint32), purpose), axis=-1)
    words = jax.lax.optimization_barrier(words)
    return jax.random.wrap_key_data(words, impl="threefry2x32") if _is_jax_key(key) else words


@partial(jax.jit, static_argnums=2)  # traced once for each size, however often it is used
def random_words(key: Key, counter: Array, purpose: np.uint32) -> tuple[Array, Array]:
    """Two random words for each counter."""
    return _threefry(words_of(key), counter, purpose)


def words_of(key: Key) -> Key:
    """The two words of a key."""
    return jax.random.key_data(key) if _is_jax_key(key) else key


def _is_jax_key(key: Key) -> bool:
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def _threefry(words: Any, counter: Any, purpose: np.uint32) -> tuple[Any, Any]:
    """By NumPy or by JAX, whatever it is given."""
    add, xor, either, left, right = BY_NUMPY if isinstance(counter, np.ndarray) else BY_JAX
    shape, counter = counter.shape, counter.reshape(-1)
    first, second = words[0:1].reshape(()), words[1:2].reshape(())
    keys = first, second, xor(xor(first, second), PARITY)
    a, b = add(counter, first), add(xor(counter, counter), add(second, purpose))
    for i in range(ROUNDS):
        turn = ROTATIONS[i // 4 % 2][i % 4]
        a = add(a, b)
        b = xor(either(left(b, np.uint32(turn)), right(b, np.uint32(32 - turn))), a)
        if i % 4 == 3:
            j = i // 4 + 1
            a, b = add(a, keys[j % 3]), add(add(b, keys[(j + 1) % 3]), np.uint32(j))
    return a.reshape(shape), b.reshape(shape)
