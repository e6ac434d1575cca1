"""Indices beyond the end of an array are told of where they reach the density, and there alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.checks.check import examine
from sumout.checks.indices import check_indices
from sumout.plan.plan import plan_for

X = {"mu": (constraints.real, (2,))}
GROUPS = np.array([0, 1, 2])


def found(term, values=2, shape=(3,), data=None):
    """What the check says of means taken by a term, with a normal prior."""
    program = sumout.density(
        lambda x, z, data: -0.5 * (x["mu"] ** 2).sum() + jnp.sin(jnp.asarray(term(x["mu"], z["z"], data))).sum(),
        x=X,
        z={"z": sumout.finite(values, shape)},
        data=data,
    )
    return [finding.message for finding in check_indices(examine(plan_for(program)).look())]


def in_a_loop(mu, z, _):
    return jax.lax.scan(lambda total, z: (total + mu[z] * z, None), 0.0, z)[0]


@pytest.mark.parametrize(
    "term",
    [
        lambda mu, z, _: mu[z],
        lambda mu, z, _: mu[z[0]] + mu[z[1] * (1 - z[0])],
        lambda mu, z, _: jnp.outer(mu, mu)[z[0], z],
        lambda mu, z, _: jnp.where(z > 0, mu[z], 0.0),
        in_a_loop,
    ],
)
def test_values_of_z(term):
    (message,) = found(term, values=3)
    assert "follows from 'z' is 2, beyond the last element of an array of size 2" in message


def test_labels_that_count_from_one():
    (message,) = found(lambda mu, z, groups: mu[groups] * z, data=GROUPS)
    assert "follows from 'data' is 2" in message
    (message,) = found(lambda mu, z, d: mu[d["g"]] * z, data={"g": GROUPS - 3})
    assert "follows from 'g' lies before the first" in message


@pytest.mark.parametrize(
    "term",
    [
        lambda mu, z, groups: jnp.where(groups < 2, mu[groups], 0.0) * z,
        lambda mu, z, groups: jnp.take(mu, groups, mode="clip") * z,
        lambda mu, z, groups: mu[groups - 2] * z + in_a_loop(mu, z, groups),
        lambda mu, z, groups: jnp.where(z.sum() > 9, jnp.nan, mu[jnp.minimum(groups, 1)]) * z,
    ],
)
def test_what_is_meant_or_masked(term):
    assert not found(term, data=GROUPS)


def test_an_index_where_the_density_is_zero():
    """The last value of z is impossible, and so what is taken there does not count."""
    assert not found(lambda mu, z, _: jnp.where(z < 2, mu[z], -jnp.inf), 3)
    assert not found(lambda mu, z, _: mu[z] + jnp.where(z < 2, 0.0, -jnp.inf), 3)
