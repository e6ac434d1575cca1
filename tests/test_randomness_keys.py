"""No random key is used twice: JAX watches, our own generator replaced by one that it can see."""

import jax
import jax.numpy as jnp
import pytest

import sumout
from sumout import randomness
from sumout.randomness import FOLDED, normal, split, uniform

from programs import ENUMERABLE


def seen_words(key, counter, purpose):
    """Random words by a primitive that uses the key up, but for folding, for which one key may serve many times."""
    if purpose == FOLDED:
        words = jnp.ravel(jax.random.key_data(jax.random.fold_in(key, jnp.ravel(counter)[0])))
        return jnp.broadcast_to(words[0], counter.shape), jnp.broadcast_to(words[1], counter.shape)
    words = jax.random.bits(key, (2, *counter.shape), jnp.uint32)
    return words[0], words[1]


@pytest.fixture
def _watched(monkeypatch):
    monkeypatch.setattr(randomness, "random_words", seen_words)
    monkeypatch.setattr("sumout.run.sample.new_key", jax.random.key)
    with jax.debug_key_reuse(True):
        yield
    jax.clear_caches()


@pytest.mark.usefixtures("_watched")
def test_the_watch_sees_keys_that_are_used_twice():
    def twice(key):
        return uniform(key, (3,)).sum() + normal(key, (2,)).sum()

    def once(key):
        one, other = split(key)
        return uniform(one, (3,)).sum() + normal(other, (2,)).sum()

    with pytest.raises(jax.errors.KeyReuseError):
        jax.jit(twice)(jax.random.key(0))
    assert jnp.isfinite(jax.jit(once)(jax.random.key(0)))


@pytest.mark.usefixtures("_watched")
@pytest.mark.parametrize(
    ("kernel", "name", "override"),
    [
        (sumout.GHMC(), "mixture", "gibbs"),
        (sumout.SplitSGHMC(), "survey", "draw"),
        pytest.param(sumout.HMC(), "survey", "metropolis", marks=pytest.mark.calibration),
        pytest.param(sumout.SGNHT(), "survey", "joint", marks=pytest.mark.calibration),
    ],
    ids=repr,
)
def test_no_key_is_used_twice(kernel, name, override):
    program = ENUMERABLE[name]()
    sumout.sample(program, kernel, plan=dict.fromkeys(program.z, override), draws=2, tune=2, chains=2)
