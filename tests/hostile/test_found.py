"""Failures that random programs have found, in the fewest terms: each is a program that was wrong once."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints

import sumout
from sumout.plan.plan import make_plan
from sumout.results.marginals import probabilities

from enumeration import joint_states, log_joint

X = {"a": (constraints.real, ()), "s": (constraints.positive, ())}

# Gradients that were not numbers: singular where z is impossible, or where another case was chosen.
SINGULAR = {
    "divided by z": lambda x, z: -(x["s"] ** 2) / z[0] - 0.5 * (z[1] - x["a"]) ** 2,
    "log of a product": lambda x, z: jnp.log(z[0] * x["s"]) + x["a"] * z[1],
    "minus infinity times x": lambda x, z: dist.Uniform(0.0, 0.5 + z[0]).log_prob(jnp.asarray(0.9)) * x["s"],
    "root not taken": lambda x, z: jnp.where(z[0] > 0, jnp.sqrt(z[0] * x["s"]), x["s"] ** 2) * z[1],
    "logarithm not taken": lambda x, z: jnp.where(z[0] > 0, jnp.log(z[0] * x["s"]), jnp.sin(x["s"])),
    "angle not taken": lambda x, z: jnp.where(z[0] == 0, x["a"], jnp.arctan2(z[1] * x["a"], z[0] * x["a"] ** 2)),
    "mixture with nothing in one part": lambda x, z: logsumexp(jnp.stack([jnp.log(z[0] * x["s"]), -x["a"]])),
    "spectrum of nothing": lambda x, z: -jnp.abs(jnp.fft.rfft(z * x["s"])).sum() + x["a"] * z[0],
    "scale of zero": lambda x, z: dist.Normal(x["a"], z[0] * x["s"]).log_prob(0.3) + z[1] * x["a"],
}
# Gradients that were zero: a coefficient is exactly zero where people start.
COEFFICIENTS = {
    "product": lambda x, z: x["a"] * jnp.prod(0.5 * z + 0.7),
    "interaction": lambda x, z: jnp.tanh(x["a"]) * (z[1:] * z[:-1]).sum(),
    "maximum": lambda x, z: 0.3 * jnp.sin(x["a"]) * z.max(),
}


def check(term, x):
    def model(x, z, data):
        return term(x, z["z"] * 1.0) - x["a"] ** 2 - x["s"] ** 2

    program = sumout.density(model, x=X, z={"z": sumout.finite(3, 3)})
    states, x = joint_states(program), jnp.asarray(x)
    z, h = {"z": states["z"][0]}, 1e-5
    ours = jax.jit(jax.value_and_grad(make_plan(sumout.read(program)).log_density))
    value, gradient = ours(x, z, program.data)
    joint = log_joint(program, states)

    def exact(x):
        return logsumexp(jnp.nan_to_num(joint(x), nan=-jnp.inf, neginf=-jnp.inf))

    differences = [(exact(x + h * e) - exact(x - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(value, exact(x), rtol=1e-9)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_where_it_does_not_count(name):
    check(SINGULAR[name], [0.4, -0.3])


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_a_coefficient_of_zero(name):
    check(COEFFICIENTS[name], [0.0, -0.3])


def clique_and_others(support):
    """More blocks than are written out, one of them larger than the others."""

    def model(x, z, data):
        meet = jnp.cos(z["b"][:, None] * x["s"] - z["b"])
        total = z["c"].sum() + z["b"].sum()
        return 0.3 * meet.sum() + (jnp.sin(x["a"]) - 1.5) * total - x["a"] ** 2 - x["s"]

    return sumout.density(model, x=X, z={"c": support(3), "b": support(6)})


def test_padding_of_a_stack_of_blocks_is_no_site():
    """It was taken for the first one, whose probabilities were then those of nothing."""
    program = clique_and_others(lambda n: sumout.finite(2, n))
    plan = make_plan(sumout.read(program), {"c": "gibbs", "b": "gibbs"})
    assert len(plan.moves) == 1
    x, z = jnp.array([0.4, -0.3]), {"c": jnp.array([0, 1, 1]), "b": jnp.array([0, 1, 0, 0, 1, 1])}
    found = probabilities(plan, x, z, None)
    np.testing.assert_allclose(found[:3, 1], jax.nn.sigmoid(jnp.sin(0.4) - 1.5), rtol=1e-6)


def test_padding_of_a_stack_of_counts_is_not_improper():
    program = clique_and_others(lambda n: sumout.count(n))
    assert not [f for f in sumout.check(program).errors if "improper" in str(f)]


def test_nothing_of_what_cannot_be_evaluated_by_roles():
    """An empty slice of it depends on no site, but was looked for."""

    def model(x, z, data):
        matrices = jnp.eye(2) + 0.3 * z["z"][:, None, None] * jnp.ones((2, 2)) * x["s"]
        running = jax.lax.associative_scan(jnp.matmul, matrices)
        return jnp.log(1 + running[-1].sum() ** 2) + jnp.sin(z["z"][0] * x["a"] - z["z"][1]) - x["a"] ** 2

    program = sumout.density(model, x=X, z={"z": sumout.finite(2, 2)})
    states, x = joint_states(program), jnp.array([0.4, -0.3])
    value = make_plan(sumout.read(program)).log_density(x, {"z": states["z"][0]}, None)
    np.testing.assert_allclose(value, logsumexp(log_joint(program, states)(x)), rtol=1e-9)
