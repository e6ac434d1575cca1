"""Fisher's identity: the gradient of a single sample, averaged over p(z|x, y), is that of the marginal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sumout
from sumout.plan.target import Target, estimate_gradient

from enumeration import joint_states, log_joint, log_marginal, random_x
from programs import ENUMERABLE


@pytest.mark.parametrize("name", ENUMERABLE)
def test_mean_of_the_estimate_is_the_gradient_of_the_marginal(name):
    program = ENUMERABLE[name]()
    states = joint_states(program)
    target = Target(program.log_density, lambda key, x, z, data: z)  # each z is its own draw

    @jax.jit
    def estimates(key, x):
        return jax.vmap(lambda z: estimate_gradient(target, 1, key, x, z, program.data).gradient)(states)

    marginal_gradient = jax.jit(jax.grad(log_marginal(program, states)))
    density = log_joint(program, states)
    for seed in range(3):
        x = random_x(program, seed)
        weights = np.exp(density(x) - np.max(density(x)))
        used = np.where(weights[:, None] > 0, estimates(jax.random.key(0), x), 0.0)
        mean = weights @ used / weights.sum()
        np.testing.assert_allclose(mean, marginal_gradient(x), rtol=1e-8, atol=1e-8)


def test_public_estimator_averages_and_reports_noise():
    program = ENUMERABLE["survey"]()
    states = joint_states(program)
    x = random_x(program)
    z = jax.tree.map(lambda a: a[0], states)
    exact = jax.jit(jax.grad(log_marginal(program, states)))(x)
    weights = jax.nn.softmax(log_joint(program, states)(x))
    gradients = jax.jit(jax.vmap(lambda z: jax.grad(program.log_density)(x, z, program.data)))(states)
    variance = weights @ (gradients - exact) ** 2
    many = jax.jit(sumout.gradient_estimator(program, num_samples=4000, plan={"coin": "draw"}))
    gradient, _ = many(jax.random.key(0), x, z)
    assert np.abs(gradient - exact).max() < 6 * np.sqrt(variance.max() / 4000)
    from sumout.plan.plan import make_plan

    target = Target(program.log_density, make_plan(sumout.read(program), {"coin": "gibbs"}).sweep)
    estimate = jax.jit(lambda key: estimate_gradient(target, 4000, key, x, z, program.data))(jax.random.key(1))
    np.testing.assert_allclose(estimate.noise * 4000, variance, rtol=0.15)


def test_public_estimator_is_exact_where_z_is_summed_out():
    program = ENUMERABLE["ladder"]()
    states, x = joint_states(program), random_x(program)
    z = jax.tree.map(lambda a: a[0], states)
    gradient, _ = jax.jit(sumout.gradient_estimator(program))(jax.random.key(0), x, z)
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(log_marginal(program, states)))(x), rtol=1e-8)


def test_public_estimator_can_be_vmapped():
    program = ENUMERABLE["mixture"]()
    estimator = sumout.gradient_estimator(program, plan={"z": "draw"})
    estimator = jax.jit(jax.vmap(estimator, in_axes=(0, 0, None)))
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    gradient, drawn = estimator(jax.random.split(jax.random.key(0), 3), jnp.zeros((3, program.num_x)), z)
    assert gradient.shape == (3, program.num_x)
    assert drawn["z"].shape == (3, 5)
