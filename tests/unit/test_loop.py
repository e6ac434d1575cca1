"""What is summed out of z is drawn for the record: by counter, once a draw, and without touching the chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sumout
from sumout.gradient import Target
from sumout.nuisance.sweep import STAY
from sumout.run.loop import Loop, Memory


def recover(key, x, z, data):
    """A number never drawn twice, so that a key used twice would show."""
    return {"z": jax.random.uniform(key, ()) + 0 * z["z"]}


def run(kernel, recover, chunk):
    target = Target(lambda x, z, data: -0.5 * x @ x, recover=recover)
    x, z = jnp.ones((2, 2)), {"z": jnp.full(2, -1.0)}
    loop, keep, key = Loop(kernel.bind(target)), Memory(4), jax.random.key(0)
    place = loop.start(key, x, z, 3)
    loop.run(key, place, {}, draws=9, tune=4, steps=3, chunk=chunk, keep=keep)
    return keep.record(), place.states


@pytest.mark.parametrize("kernel", [sumout.GHMC(), sumout.SplitSGHMC()], ids=repr)
def test_recovered_z_does_not_depend_on_the_chunks_and_stays_out_of_the_chain(kernel):
    record, states = run(kernel, recover, 100)
    other, _ = run(kernel, recover, 2)
    plain, _ = run(kernel, STAY, 100)
    np.testing.assert_array_equal(record.z["z"], other.z["z"])
    np.testing.assert_array_equal(record.x, other.x)
    np.testing.assert_allclose(record.x, plain.x, rtol=1e-12)  # compiled apart
    np.testing.assert_array_equal(plain.z["z"], -1.0)
    np.testing.assert_array_equal(states.z["z"], -1.0)
    assert len(np.unique(record.z["z"])) == record.z["z"].size
