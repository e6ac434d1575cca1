"""Ascent with z drawn afresh for every gradient: stochastic approximation of the mode of p(x|y).

Adam (Kingma and Ba 2015) with decreasing steps; the mode is taken to be the average of x over the second half of them
(Polyak and Juditsky 1992), which is as precise as if all these gradients had been taken at one point. log p(x, y)
itself is not known, but its differences are: with draws of z along the line from a to b,

    log p(b, y) − log p(a, y) = ∫₀¹ E_{z ~ p(z|x_t,y)} ∇_x log p(x_t, z, y) · (b − a) dt,    x_t = a + t (b − a).

That says which optimum is the highest. An ascent has converged if the average gradient at its end is zero within its
Monte-Carlo error, and if the average of x over the last quarter of the steps is no higher than that over the quarter
before.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.model.program import Data, Nuisance
from sumout.optimize.lbfgs import Optima, lengths
from sumout.plan.target import Target, estimate_gradient
from sumout.randomness import K, Key, fold_in, split, uniform
from sumout.threads import attentive_jit

CHUNK = 100  # steps between reports
WINDOWS = 2  # into which the second half of an ascent is cut
DRAWS = 1000  # of z at an optimum
BATCHES = 20  # in which they are averaged
POINTS = 256  # on the line between two optima, each way
TOLERANCE = 0.05  # nats that a step along a coordinate may still gain
DEVIATIONS = 7  # standard errors: 5, times √2 as the optimum has an error too
RISE = 0.5  # nats between the two windows


def ascend_with_draws(
    target: Target,
    key: Key,
    x: Array,
    z: Nuisance,
    data: Data,
    *,
    steps: int,
    learning_rate: float,
    compiler_options: dict[str, Any] | None,
    report: Callable[[int, str], None],
) -> Optima:
    """From every row of x to a mode, by so many steps."""
    key_ascent, key_judge, key_lines = split(key, 3)
    means, z = _ascend(target, key_ascent, x, z, data, steps, learning_rate, compiler_options, report)
    x = means.mean(axis=1)

    @partial(attentive_jit, compiler_options=compiler_options)
    def finish(
        key: Array, means: Array, x: Array, z: Nuisance, data: Data
    ) -> tuple[Nuisance, Array, tuple[Array, Array]]:
        key_gradients, key_rises = split(key)
        z, gradients = jax.vmap(partial(_average_gradients, target), (0, 0, 0, None))(
            _keys(key_gradients, len(x)), x, z, data
        )
        early, late = means[:, 0], means[:, 1]
        rises = jax.vmap(partial(_gains, target), (0, 0, 0, 0, 0, None))(
            _keys(key_rises, len(x)), early, z, late, z, data
        )
        return z, gradients, rises

    @partial(attentive_jit, compiler_options=compiler_options)
    def compare(key: Array, x: Array, z: Nuisance, data: Data, base: int) -> tuple[Array, Array]:
        first, first_z = jax.tree.map(lambda a: a[base], (x, z))
        gains = jax.vmap(partial(_gains, target), (0, None, None, 0, 0, None))
        return gains(_keys(key, len(x)), first, first_z, x, z, data)

    z, gradients, rises = finish(key_judge, means, x, z, data)
    gradient, is_unconverged = _judge(np.asarray(x), np.asarray(gradients), *map(np.asarray, rises))
    # Differences of the log density are measured from one optimum, one that has converged if there is any.
    base = int(np.argmax(np.isfinite(gradient).all(axis=1) * (1 + ~is_unconverged.any(axis=1))))
    heights, errors = map(np.asarray, compare(key_lines, x, z, data, base))
    return Optima(np.asarray(x), z, heights.sum(axis=1), gradient, is_unconverged, errors)


def _judge(
    x: np.ndarray, gradients: np.ndarray, rises: np.ndarray, rise_errors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The mean gradient at each optimum; along which coordinates it is not zero, or the ascent was still rising."""
    gradient = gradients.mean(axis=1)
    error = gradients.std(axis=1, ddof=1) / np.sqrt(BATCHES)
    is_slope = ~(np.abs(gradient) * lengths(x) <= TOLERANCE + DEVIATIONS * error * lengths(x))  # NaN is one too
    total = rises.sum(axis=1, keepdims=True)
    is_rising = ~(total <= RISE + DEVIATIONS * rise_errors[:, None]) & ~(rises < total / x.shape[1])
    return gradient, is_slope | is_rising


def _keys(key: K, number: int) -> K:
    return fold_in(key, np.arange(number))


def _ascend(
    target: Target,
    key: Key,
    x: Array,
    z: Nuisance,
    data: Data,
    steps: int,
    learning_rate: float,
    compiler_options: dict[str, Any] | None,
    report: Callable[[int, str], None],
) -> tuple[Array, Nuisance]:
    """The averages of x over each window, and the last z."""
    import optax  # takes a tenth of a second to import

    adam = optax.adam(lambda t: learning_rate * (1 + 10 * t / steps) ** -0.75)
    half = steps // 2

    def step(key: Array, state: tuple[Array, Nuisance, Any, Array], data: Data, t: Array) -> Any:
        x, z, memory, sums = state
        estimate = estimate_gradient(target, 1, fold_in(key, t), x, z, data)
        is_sound = jnp.isfinite(estimate.log_density) & jnp.isfinite(estimate.gradient).all()
        uphill, moved_on = adam.update(jnp.where(is_sound, -estimate.gradient, 0.0), memory)
        x = jnp.asarray(optax.apply_updates(x, uphill))
        window = jnp.where(t < half, WINDOWS, (t - half) * WINDOWS // (steps - half))
        return x, estimate.z, moved_on, sums.at[window].add(jnp.append(x, 1.0))  # before half-way: to no window

    @partial(attentive_jit, compiler_options=compiler_options)
    def advance(keys: Array, states: Any, data: Data, first: Array, count: Array) -> Any:
        def one(key: Array, state: Any) -> Any:
            return jax.lax.fori_loop(0, count, lambda i, state: step(key, state, data, first + i), state)

        return jax.vmap(one)(keys, states)

    keys = _keys(key, len(x))
    states = (x, z, jax.vmap(adam.init)(x), jnp.zeros((len(x), WINDOWS, x.shape[1] + 1)))
    done = 0
    while done < steps:
        count, before = min(CHUNK, steps - done), states[0]
        states = advance(keys, states, data, done, count)
        done += count
        report(done, f"moved by up to {float(jnp.abs(states[0] - before).max()):.2g}")
    return states[3][..., :-1] / states[3][..., -1:], states[1]


def _average_gradients(target: Target, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Nuisance, Array]:
    """Gradients at x in batches, each averaged over its draws of z; and the last z."""

    def batch(z: Nuisance, i: Array) -> tuple[Nuisance, Array]:
        estimate = estimate_gradient(target, DRAWS // BATCHES, fold_in(key, i), x, z, data)
        return estimate.z, estimate.gradient

    return jax.lax.scan(batch, z, jnp.arange(BATCHES))


def _gains(
    target: Target, key: Array, a: Array, z_a: Nuisance, b: Array, z_b: Nuisance, data: Data
) -> tuple[Array, Array]:
    """What each coordinate adds to the log density from a to b, and the standard error of their sum.

    The gradient is integrated there and back. Neighbouring points tell the noise, as the integrand itself hardly
    changes between them; that z lags behind x shows where the way back does not undo the way there.
    """

    def along(key: Array, a: Array, z: Nuisance, b: Array) -> Array:
        def one(z: Nuisance, i: Array) -> tuple[Nuisance, Array]:
            key_t, key_z = split(fold_in(key, i))
            t = (i + uniform(key_t, (), a.dtype)) / POINTS
            estimate = estimate_gradient(target, 1, key_z, a + t * (b - a), z, data)
            return estimate.z, estimate.gradient * (b - a)

        return jax.lax.scan(one, z, jnp.arange(POINTS))[1]

    z = jax.tree.map(lambda one, other: jnp.stack([one, other]), z_a, z_b)
    ways = jax.vmap(along)(split(key), jnp.stack([a, b]), z, jnp.stack([b, a]))
    there, back = ways.mean(axis=1)
    noise = (jnp.diff(ways.sum(axis=2), axis=1) ** 2).mean() / 2 / (2 * POINTS)
    return (there - back) / 2, jnp.maximum(jnp.sqrt(noise), jnp.abs((there + back).sum()) / 2)
