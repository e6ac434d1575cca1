"""The change of the log density along a trajectory, where single precision does not know the log density itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sumout.kernels.leapfrog import MOST_DIFFERENCE, Point, follow
from sumout.plan.target import Target

NUM = 1_000_000


def normal(x, z, y):
    """Rows with an unknown mean and deviation."""
    return jnp.sum(-0.5 * ((y - x[0]) * jnp.exp(-x[1])) ** 2 - x[1] - 0.9)


def trajectory(log_density, x, momentum, y, scale, step_size, num):
    target = Target(log_density)
    start = Point.at(target, jnp.asarray(x, float), {}, y)
    along = jax.jit(lambda start, v: follow(target, start, v, {}, y, jnp.asarray(step_size), scale, num))
    end, _, change = along(start, jnp.asarray(momentum, float))
    return np.asarray(end.x, np.float64), np.asarray(start.x, np.float64), float(change), float(end.log_density)


def exact(x, y):
    """In double precision, relative to a constant."""
    return np.sum(-0.5 * ((y - x[0]) * np.exp(-x[1])) ** 2 - x[1])


@pytest.mark.parametrize("num", [1, 4, 7])
def test_a_million_rows_in_single_precision(num):
    """Known to 0.01 nats, where the log density is a multiple of 0.125."""
    y = (3.0 + np.random.default_rng(0).normal(size=NUM)).astype(np.float32)
    with jax.enable_x64(False):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            x, momentum = np.array([3.0, 0.0]) + 1e-3 * rng.normal(size=2), rng.normal(size=2)
            scale = jnp.array([1e-3, 0.7e-3])
            end, begin, change, value = trajectory(normal, x, momentum, jnp.asarray(y), scale, 0.3, num)
            assert value % 0.125 == 0
            assert change == pytest.approx(exact(end, y.astype(float)) - exact(begin, y.astype(float)), abs=0.01)


def test_few_rows_take_the_difference():
    """A density that is far from Gaussian, with long steps: the integral would be off."""

    def steep(x, z, y):
        return jnp.sum(-(x**4))

    for is_double in (False, True):
        with jax.enable_x64(is_double):
            scale = jnp.ones(2)
            end, begin, change, _ = trajectory(steep, [0.5, 0.1], [0.3, -1.0], jnp.zeros(1), scale, 0.4, 5)
            assert change == pytest.approx(np.sum(begin**4) - np.sum(end**4), abs=1e-5)
            assert 0 < MOST_DIFFERENCE < 0.1
