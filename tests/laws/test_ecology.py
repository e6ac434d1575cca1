"""What is impossible costs nothing: models of ecology with z left in against their marginals by hand.

Those that differ only in how z · p is written, and those that take long, are looked at by `make calibrate`.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import potential_energy

import sumout
from sumout.plan.plan import plan_for
from sumout.plan.target import make_target
from sumout.randomness import new_key
from sumout.results.likelihood import build_likelihood
from sumout.results.marginals import probabilities

from ecology_models import COUNTS, DRAWN, ECOLOGY, IS_LATER

# Which tests `make test` runs, by what is singular in each.
DOUBLE = {
    "occupancy_density_switch",  # log 0 in a branch
    "occupancy_density_xlogy",  # functions with derivative rules of their own
    "occupancy_log_categorical",  # log 0 into a softmax
    "cjs_scan_clamped",
    "species_product",  # y / tiny overflows
    "inflated_poisson_product",  # 0 log 0
    "abundance_uniform",
}
SINGLE = {"occupancy_density_switch", "species_product", "inflated_poisson_product"}
PROBABILITIES = {"occupancy_log_categorical", "inflated_poisson_product"}
LIKELIHOODS = {"inflated_poisson_product", "inflated_binomial_trials"}
DRAWING = {"inflated_poisson_product"}
STARTED = {"inflated_poisson_product"}
CHECKED = {"species_nested"}


def marked(names, quick):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.calibration) for name in names]


@cache
def program_of(name):
    return (ECOLOGY | DRAWN)[name].make()


def some_z(program):
    return {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}


def points(program):
    return np.random.default_rng(0).normal(size=(3, program.num_x)) * 0.7


def found_at(program, dtype=float):
    """Log density and gradient as sumout finds them at several points."""
    plan, z = plan_for(program), some_z(program)
    assert plan.sums_all
    target = make_target(plan)
    evaluate = jax.jit(lambda x: target.value_and_gradient(x, z, program.data))
    values, gradients = zip(*(evaluate(jnp.asarray(x, dtype)) for x in points(program)), strict=True)
    return np.array(values, float), np.array(gradients, float)


@cache
def by_hand_at(name):
    case, program = ECOLOGY[name], program_of(name)
    evaluate = jax.jit(jax.value_and_grad(lambda x: -potential_energy(case.by_hand, (), {}, program.unravel(x))))
    values, gradients = zip(*(evaluate(x) for x in points(program)), strict=True)
    return np.array(values) + case.constant, np.array(gradients)


@pytest.mark.parametrize("name", marked(ECOLOGY, DOUBLE))
def test_log_density_and_gradient(name):
    values, gradients = found_at(program_of(name))
    by_hand, gradients_by_hand = by_hand_at(name)
    np.testing.assert_allclose(values, by_hand, rtol=0, atol=1e-8)
    np.testing.assert_allclose(gradients, gradients_by_hand, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", marked(ECOLOGY, SINGLE))
def test_single_precision(name):
    by_hand, gradients_by_hand = by_hand_at(name)
    with jax.enable_x64(False):
        values, gradients = found_at(ECOLOGY[name].make(), np.float32)
    np.testing.assert_allclose(values, by_hand, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(gradients, gradients_by_hand, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", marked(ECOLOGY, PROBABILITIES))
def test_probabilities_of_z(name):
    case, program = ECOLOGY[name], program_of(name)
    plan, x, z = plan_for(program), jnp.asarray(points(program)[0]), some_z(program)
    table = np.asarray(jax.jit(lambda x: probabilities(plan, x, z, program.data))(x))
    numbers = plan.structure.site_numbers
    found = case.z({name: table[numbers[name], 1].reshape(site.shape) for name, site in program.z.items()})
    named = jax.jit(program.constrain)(x, z, program.data)
    by_hand = jax.jit(jax.grad(lambda tilt: case.marginal(named, jnp.ones(case.num_data), tilt)))(jnp.zeros(case.num_z))
    counts = IS_LATER[:, 1:] if name.startswith("cjs") else True  # the others are masked
    np.testing.assert_allclose(np.asarray(found) * counts, by_hand * counts, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", marked([name for name, case in ECOLOGY.items() if case.data is not None], LIKELIHOODS))
def test_log_likelihoods(name):
    """Of a datum, given all others: how much less all data are probable than the others alone."""
    case, program = ECOLOGY[name], program_of(name)
    x, z = jnp.asarray(points(program)[0]), some_z(program)
    likelihood = build_likelihood(plan_for(program))
    found = case.data(jax.jit(lambda x: likelihood(x, z, program.data))(x))
    named = jax.jit(program.constrain)(x, z, program.data)
    size = int(np.prod(case.num_data))

    def by_hand(counted):
        return case.marginal(named, counted.reshape(case.num_data), np.zeros(case.num_z))

    all_of_them = jnp.ones(size)
    expected = by_hand(all_of_them) - jax.jit(jax.vmap(by_hand))(all_of_them - jnp.eye(size))
    np.testing.assert_allclose(found, expected.reshape(case.num_data), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", marked([*ECOLOGY, *DRAWN], DRAWING))
def test_gradient_where_z_is_drawn(name):
    """At a z that is possible it is finite, and right by differences."""
    program = program_of(name)
    plan = plan_for(program, dict.fromkeys(program.z, "draw"))
    x = jnp.asarray(points(program)[0])
    if name in DRAWN:
        z = {"z": jnp.asarray(COUNTS.max(1) > 0, int), "n": jnp.asarray(COUNTS.max(1))}
    else:
        z = jax.jit(plan_for(program).recover)(new_key(0), x, some_z(program), program.data)
    target = make_target(plan)
    evaluate = jax.jit(lambda x: target.value_and_gradient(x, z, program.data))
    value, gradient = evaluate(x)
    assert np.isfinite(value)
    step = 1e-5 * np.random.default_rng(1).normal(size=x.shape)
    np.testing.assert_allclose(gradient @ step, (evaluate(x + step)[0] - evaluate(x - step)[0]) / 2, rtol=1e-4)


@pytest.mark.parametrize("name", marked(ECOLOGY, STARTED))
def test_mode(name):
    """It starts, and ends where the marginal by hand is flat."""
    case, program = ECOLOGY[name], ECOLOGY[name].make()
    found = sumout.maximize(program, jacobian=True, starts=2)
    assert found.converged
    x = jnp.concatenate([jnp.ravel(found.unconstrained[site]) for site in program.x])
    gradient = jax.jit(jax.grad(lambda x: potential_energy(case.by_hand, (), {}, program.unravel(x))))(x)
    assert np.abs(gradient).max() < 1e-3


@pytest.mark.parametrize("name", marked([name for name in ECOLOGY if not name.startswith("cjs_array")], CHECKED))
def test_the_doctor_is_silent(name):
    """What it looks at by chance may be impossible; of the arrays, states before the first capture are idle indeed."""
    assert not sumout.check(program_of(name)).findings
