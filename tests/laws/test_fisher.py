"""Fisher's identity: the single-sample gradient, averaged over the conditional of z, is the gradient of the marginal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sumout
from enumeration import joint_states, log_joint, log_marginal, random_x
from programs import ENUMERABLE
from sumout.gradient import Target, estimate_gradient


@pytest.mark.parametrize("name", ENUMERABLE)
def test_mean_of_the_estimate_is_the_gradient_of_the_marginal(name):
    program = ENUMERABLE[name]()
    states = joint_states(program)
    for seed in range(2):
        x = random_x(program, seed)

        def estimate(z, x=x):
            target = Target(program.log_density, lambda key, x, _, data: z)  # noqa: B023
            return estimate_gradient(target, 1, jax.random.key(0), x, z, program.data).gradient

        with jax.debug_key_reuse(False):
            gradients = jax.vmap(estimate)(states)
        weights = jax.nn.softmax(log_joint(program, states)(x))
        used = jnp.where(weights[:, None] > 0, gradients, 0.0)
        expected = jax.grad(log_marginal(program, states))(x)
        np.testing.assert_allclose(weights @ used, expected, rtol=1e-8, atol=1e-8)


def test_public_estimator_averages_and_reports_noise():
    program = ENUMERABLE["survey"]()
    states = joint_states(program)
    x = random_x(program)
    z = jax.tree.map(lambda a: a[0], states)
    exact = jax.grad(log_marginal(program, states))(x)
    weights = jax.nn.softmax(log_joint(program, states)(x))
    gradients = jax.vmap(lambda z: jax.grad(program.log_density)(x, z, program.data))(states)
    variance = weights @ (gradients - exact) ** 2
    many = jax.jit(sumout.gradient_estimator(program, num_samples=4000))
    gradient, _ = many(jax.random.key(0), x, z)
    assert np.abs(gradient - exact).max() < 6 * np.sqrt(variance.max() / 4000)
    from sumout.plan import make_plan

    target = Target(program.log_density, make_plan(sumout.read(program)).sweep)
    estimate = estimate_gradient(target, 4000, jax.random.key(1), x, z, program.data)
    np.testing.assert_allclose(estimate.noise * 4000, variance, rtol=0.15)


def test_public_estimator_can_be_vmapped():
    program = ENUMERABLE["mixture"]()
    estimator = jax.jit(jax.vmap(sumout.gradient_estimator(program), in_axes=(0, 0, None)))
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    gradient, drawn = estimator(jax.random.split(jax.random.key(0), 3), jnp.zeros((3, program.num_x)), z)
    assert gradient.shape == (3, program.num_x)
    assert drawn["z"].shape == (3, 5)
