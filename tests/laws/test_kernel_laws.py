"""Laws of kernels that hold without noise.

GHMC: the step between momentum refreshments is a deterministic map T of (x, v, u) at fixed z. It must preserve the
density p(x, z) N(v) U(u), so that density(T s) |det ∂T/∂s| = density(s), on both branches, accepted and rejected; and
the slice must stay in (−1, 1).

Kernels without accept/reject: on a Gaussian with a gradient noise of known variance each is a linear recursion
s ← A s + noise. A is its Jacobian, the covariance Q of the noise comes from its steps at s = 0, and P = A P Aᵀ + Q is
the law that it samples. The papers say what P should be.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import sumout
from sumout.kernels.leapfrog import Point, energy_change, follow, leap
from sumout.kernels.stochastic_gradient import ENERGY_ERROR
from sumout.plan.target import Target

NOISE = 2.0  # variance of the gradient noise
NUM = 40_000


def start(kernel, seed, x, z):
    return kernel.init(jax.random.key(seed), Point.at(kernel.target, x, z, {}), z)


def curved(x, z, data):
    """Anything but a Gaussian, with z in it."""
    return -jnp.cosh(x[0]) - 0.5 * (x[1] - x[0] ** 2) ** 2 + z["z"] * x[1]


@pytest.mark.parametrize(
    "scale", [jnp.array([0.7, 1.3]), jnp.array([[0.8, 0.0], [0.5, 1.1]])], ids=["diagonal", "dense"]
)
def test_leap_is_reversible(scale):
    target, z = Target(curved), {"z": jnp.array(0.4)}
    x, v = jnp.array([0.3, -0.5]), jnp.array([0.8, 1.2])
    there = leap(target, x, v, z, {}, jnp.array(0.4), scale, num=3)
    back = leap(target, there[0], -there[1], z, {}, jnp.array(0.4), scale, num=3)
    np.testing.assert_allclose(back[0], x, atol=1e-12)
    np.testing.assert_allclose(back[1], -v, atol=1e-12)
    assert np.abs(there[0] - x).max() > 0.1


def test_trajectories_are_reversible_and_know_where_they_are():
    target, z, scale = Target(curved), {"z": jnp.array(0.4)}, jnp.array([[0.8, 0.0], [0.5, 1.1]])
    start, v = Point.at(target, jnp.array([0.3, -0.5]), z, {}), jnp.array([0.8, 1.2])
    there, momentum, rise = follow(target, start, v, z, {}, jnp.array(0.4), scale, num=3)
    back, turned, fall = follow(target, there, -momentum, z, {}, jnp.array(0.4), scale, num=3)
    np.testing.assert_allclose(back.x, start.x, atol=1e-12)
    np.testing.assert_allclose(turned, -v, atol=1e-12)
    assert np.abs(there.x - start.x).max() > 0.1
    assert there.log_density == curved(there.x, z, {})
    assert rise == there.log_density - start.log_density == -fall
    np.testing.assert_allclose(there.gradient, jax.grad(curved)(there.x, z, {}))


@pytest.mark.parametrize(("slice_", "is_accepted"), [(0.1, True), (-0.2, True), (0.9, False), (-0.95, False)])
def test_ghmc_preserves_the_density_of_x_momentum_and_slice(slice_, is_accepted):
    kernel = sumout.GHMC(step_size=0.6, friction=1e-12).bind(Target(curved))
    z = {"z": jnp.array(0.4)}
    first = start(kernel, 0, jnp.array([0.6, -1.0]), z)

    def advance(flat):
        state = dataclasses.replace(first, x=flat[:2], momentum=flat[2:4], slice=flat[4])
        after, _ = kernel.step(jax.random.key(1), state, {}, jnp.array(0))
        return jnp.concatenate([after.x, after.momentum, after.slice[None]])

    def log_density(flat):
        return curved(flat[:2], z, {}) - 0.5 * flat[2:4] @ flat[2:4]

    before = jnp.array([0.6, -1.0, 0.9, -0.7, slice_])
    after = advance(before)
    # Friction is so small that the momentum is refreshed by 1e-6 only.
    assert (np.abs(after[:2] - before[:2]).max() > 1e-3) == is_accepted
    assert abs(after[4]) < 1
    _, log_det = np.linalg.slogdet(jax.jacobian(advance)(before))
    np.testing.assert_allclose(log_density(after) + log_det, log_density(before), atol=1e-4)
    if not is_accepted:
        np.testing.assert_allclose(after[2:4], -before[2:4], atol=1e-4)


def test_ghmc_accepts_as_often_as_metropolis_would():
    """The slice moves on slowly, but over time it is anywhere: acceptance frequency and probability agree."""
    target = Target(lambda x, z, data: -0.5 * x @ x)
    kernel = sumout.GHMC(step_size=1.3).bind(target)

    def one(state, i):
        after, info = kernel.step(jax.random.fold_in(jax.random.key(3), i), state, {}, i)
        return after, (info.acceptance_rate, jnp.any(after.x != state.x), after.x[0])

    state = start(kernel, 2, jnp.zeros(3), {})
    _, (rates, moved, x) = jax.lax.scan(one, state, jnp.arange(100_000))
    assert rates.mean() < 0.9
    np.testing.assert_allclose(moved.mean(), rates.mean(), atol=0.01)
    np.testing.assert_allclose([x.mean(), x.var()], [0.0, 1.0], atol=0.05)


def energies(step_size):
    """Energy errors on a standard Gaussian."""
    target = Target(lambda x, z, data: -0.5 * x @ x)

    def one(key):
        x, v = jax.random.normal(key, (2, 9))
        return energy_change(target, (x, v), leap(target, x, v, {}, {}, step_size, jnp.ones(9)), {}, {})[2]

    return jnp.abs(jax.vmap(one)(jax.random.split(jax.random.key(0), 10_000)))


def test_energy_error_on_a_gaussian_is_what_the_tuning_takes_it_for():
    for step_size in (0.1, 0.3):
        excess = jnp.minimum(energies(step_size) / (ENERGY_ERROR * step_size**3 * 3), 1.0)
        np.testing.assert_allclose(excess.mean(), 0.5, atol=0.06)


def gaussian(x, z, data):
    """A standard Gaussian whose gradient has noise z."""
    return -0.5 * x @ x + z["e"] @ x


def fresh(key, x, z, data):
    return {"e": np.sqrt(NOISE) * jax.random.normal(key, x.shape)}


def stationary(kernel, fields):
    """The covariance of the listed parts of the state that the kernel samples on a Gaussian of one dimension."""
    kernel = kernel.bind(Target(gaussian, move=fresh))
    first = start(kernel, 0, jnp.zeros(1), {"e": jnp.zeros(1)})

    def advance(flat, key):
        state = dataclasses.replace(first, **{name: flat[i : i + 1] for i, name in enumerate(fields)})
        after, _ = kernel.step(key, state, {}, jnp.array(0))
        return jnp.concatenate([getattr(after, name) for name in fields])

    origin = jnp.zeros(len(fields))
    keys = jax.random.split(jax.random.key(5), NUM)
    jacobian = np.asarray(jax.jacobian(advance)(origin, jax.random.key(4)))
    noise = np.cov(np.asarray(jax.vmap(advance, (None, 0))(origin, keys)).T)
    return scipy.linalg.solve_discrete_lyapunov(jacobian, np.atleast_2d(noise))


# Kernel, the parts of its state, and the variances of x and of the momentum that it should sample. 40,000 steps know
# the covariance of the noise to 0.7 %: 6 standard errors are 4.3 %.
GAUSSIAN_LAWS = {
    "splitting is exact in x": (sumout.SplitSGHMC(0.5, noise=NOISE, num_samples=1), 2, 1.0),
    "so with noise measured at every step": (sumout.SplitSGHMC(0.5, num_samples=2), 2, 1.0),
    "splitting without correction is too wide": (sumout.SplitSGHMC(0.5, noise=0.0, num_samples=1), 2, 1.489),
    "Euler, second order": (sumout.SGHMC(0.3, friction=0.2, noise=NOISE), 2, 1.0256),
    "Langevin": (sumout.SGLD(0.5, noise=NOISE), 1, 1 / (1 - 0.25 / 4)),
    "preconditioned Langevin": (sumout.PSGLD(0.5, noise=NOISE), 1, 1 / (1 - 0.25 / 4)),
}


@pytest.mark.parametrize("name", GAUSSIAN_LAWS)
def test_law_on_a_gaussian(name):
    kernel, num_fields, variance = GAUSSIAN_LAWS[name]
    covariance = stationary(kernel, ("x", "momentum")[:num_fields])
    np.testing.assert_allclose(covariance[0, 0], variance, rtol=0.043)


def test_the_thermostat_finds_the_noise():
    """ζ settles at γ + ½ ε V, and x at its variance, without the noise being known."""
    kernel = sumout.SGNHT(0.15, friction=0.5).bind(Target(gaussian, move=fresh))

    def one(state, i):
        state, _ = kernel.step(jax.random.fold_in(jax.random.key(7), i), state, {}, i)
        return state, (state.thermostat.mean(), (state.x**2).mean())

    state = start(kernel, 0, jnp.zeros(20), {"e": jnp.zeros(20)})
    _, (thermostat, square) = jax.lax.scan(one, state, jnp.arange(20_000))
    np.testing.assert_allclose(thermostat[5000:].mean(), 0.5 + 0.5 * 0.15 * NOISE, rtol=0.05)
    np.testing.assert_allclose(square[5000:].mean(), 1.0, rtol=0.05)


def test_what_a_gradient_supplies_too_much_is_owed():
    """Noise measured at every step: the share supplied and the share injected add up to what they should, over time."""
    kernel = sumout.SplitSGHMC(0.8, friction=1.0, num_samples=2).bind(Target(gaussian, move=fresh))
    share = float(kernel.share(jnp.array(0.8), jnp.array(NOISE / 2)))
    assert 0.4 < share < 0.7

    def one(state, i):
        estimate = kernel.estimate(jax.random.fold_in(jax.random.key(9), i), state.x, state.z, {})
        room, noise = kernel.room(state, estimate)
        return dataclasses.replace(state, noise=noise), (room.mean(), (noise.excess > 0).mean())

    state = start(kernel, 0, jnp.zeros(100), {"e": jnp.zeros(100)})
    _, (room, in_excess) = jax.lax.scan(one, state, jnp.arange(2000))
    assert in_excess.mean() > 0.1  # otherwise the test would show nothing
    np.testing.assert_allclose(room.mean() + share, 1.0, atol=0.01)


@pytest.mark.parametrize(("step_size", "is_too_large"), [(0.5, False), (3.0, True)])
def test_a_debt_that_can_never_be_paid_is_told(step_size, is_too_large):
    """Also without a warm-up to measure the noise in."""
    kernel = sumout.SplitSGHMC(step_size, num_samples=2).bind(Target(lambda x, z, data: z["e"] @ x, move=fresh))

    def one(state, i):
        state, info = kernel.step(jax.random.fold_in(jax.random.key(9), i), state, {}, i)
        return state, info.is_noise_too_large

    state = start(kernel, 0, jnp.zeros(10), {"e": jnp.zeros(10)})
    _, told = jax.lax.scan(one, state, jnp.arange(1000))
    assert told.any() == is_too_large
