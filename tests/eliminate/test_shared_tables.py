"""Chains that have their tables in common are counted at what products of matrices cost."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.compile.policy import MATRIX_GAIN
from sumout.eliminate.components import find_components
from sumout.eliminate.shared_tables import with_shared_tables
from sumout.structure.structure import read


def chains(number: int, is_shared: bool, num_values: int = 20):
    """Chains of three sites side by side, with one stiffness for all or one for each."""

    def density(x, z, data):
        stiffness = x["stiffness"] if is_shared else x["stiffness"] * data["scale"]
        steps = z["z"][1:] - z["z"][:-1]
        seen = ((data["y"] - z["z"]) ** 2).sum()
        return -(stiffness * steps**2).sum() - seen - x["stiffness"] ** 2

    data = {"scale": jnp.linspace(1.0, 2.0, number), "y": jnp.zeros((3, number))}
    z = {"z": sumout.finite(num_values, shape=(3, number))}
    return read(sumout.density(density, x={"stiffness": (constraints.real, ())}, z=z, data=data))


@pytest.mark.parametrize(
    ("number", "is_shared", "num_values", "is_cheaper"),
    [(10, True, 20, True), (10, False, 20, False), (4, True, 20, False), (10, True, 6, False)],
)
def test_only_many_chains_of_many_values_with_one_table_are_cheaper(number, is_shared, num_values, is_cheaper):
    structure = chains(number, is_shared, num_values)
    before = find_components(structure, np.ones(structure.num_sites, bool))
    after = with_shared_tables(structure, before)
    gains = [one.summing / other.summing for one, other in zip(before, after, strict=True)]
    assert len(before) == number
    np.testing.assert_allclose(gains, MATRIX_GAIN if is_cheaper else 1.0)
