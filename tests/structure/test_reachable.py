"""Values that can be reached: which are one but for rounding, and those beyond what can be told apart."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.plan.plan import make_plan
from sumout.structure.reachable import MOST_REACHED, NOTHING, UNKNOWN, Reachable, distinguish
from sumout.structure.structure import read

LENGTH = 12
Y = np.random.default_rng(3).normal(size=LENGTH)
ALL = np.array(list(product([0, 1], repeat=LENGTH)))


@pytest.mark.parametrize(
    ("values", "count"),
    [
        (np.array([0.1 + 0.2, 0.3, 0.3]), 1),
        (np.array([0.1 * 3, 0.3, 0.4]), 2),
        (2_459_000.5 + np.arange(5, dtype=np.float32), 5),  # days: no rounding, though they are near to each other
        (np.float32(1.1e6) + np.float32(0.3) * np.arange(40, dtype=np.float32), 40),  # nor is a ladder one value
        (np.array([1.0, np.inf, np.inf, np.nan, np.nan, -np.inf]), 4),
        (np.array([3, 1, 3]), 2),
    ],
)
def test_values_are_one_only_if_rounding_tells_them_apart(values, count):
    distinct, numbers = distinguish(values)
    assert len(distinct) == count
    np.testing.assert_allclose(distinct[numbers], values, rtol=1e-12)


def test_whole_numbers_that_floats_cannot_tell_apart_are_not_known():
    reachable = Reachable()
    z = np.array([reachable.site("z", i, np.array([0, 1])) for i in range(3)])
    large = np.array([np.int64(2) ** 60])
    shifted = reachable.apply("shift", lambda a: large + a, [z])
    assert (shifted != UNKNOWN).sum() == 0
    assert (reachable.fold("add", np.stack([z, reachable.constants(large.repeat(3))], axis=1)) == UNKNOWN).all()
    assert (reachable.apply("add", lambda a, b: a + b, [z[:2], z[1:]]) != UNKNOWN).all()


def test_too_many_values_are_not_known_and_constants_follow_from_nothing():
    reachable = Reachable()
    z = np.array([reachable.site("z", i, np.array([0, 1 << i])) for i in range(12)])
    assert MOST_REACHED < 1 << 12
    assert reachable.fold("add", z[None])[0] == UNKNOWN
    assert reachable.of(int(reachable.apply("none", lambda a: 0 * a, [z[:1]])[0]))[0] == NOTHING


def filled(x, z, y):
    """Looked up beyond the end of a table."""
    place = jnp.cumsum(z["z"])
    level = jnp.array([0.3, 0.5, 0.7]).at[place].get(mode="fill", fill_value=0.1)
    return -0.5 * ((y - x["a"] * level) ** 2).sum()


def days(x, z, y):
    """Counted from long ago."""
    day = 2_459_000.5 + jnp.cumsum(z["z"]).astype(jnp.float32)
    return -0.5 * ((y - x["a"] * (day - 2_459_000.5)) ** 2).sum() + 0.2 * z["z"].sum()


@pytest.mark.parametrize("density", [filled, days])
def test_sums_over_states_equal_brute_force(density):
    program = sumout.density(density, x={"a": (constraints.real, ())}, z={"z": sumout.finite(2, (LENGTH,))}, data=Y)
    plan = make_plan(read(program))
    assert {choice.method for choice in plan.choices["z"]} == {"sum"}
    x = jnp.array([0.3])
    found = plan.log_density(x, {"z": jnp.zeros(LENGTH, int)}, program.data)
    each = jax.vmap(lambda z: density({"a": x[0]}, {"z": z}, Y))(ALL)
    np.testing.assert_allclose(found, jax.nn.logsumexp(each), rtol=1e-9)
