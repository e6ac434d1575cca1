"""A start for one chain as a pure function of its key, for loops of one's own: it can be jitted and vmapped.

The search is that of `starts.py`, which is host code: short ascents by Adam from random points with z moved before
every gradient, of which the highest is followed. The chain starts on the way there, at the first point that is near the
optimum. What differs: all of it is one compiled function, and chains know nothing of each other's ascents, so that one
whose ascents all end in a minor mode stays there.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import has_few_sites
from sumout.kernels.leapfrog import Point
from sumout.model.initial_values import HALF_WIDTH, draw_z
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.target import Target
from sumout.randomness import fold_in, split, uniform
from sumout.run.starts import (
    FIRST_ROUND,
    KEPT_POINTS,
    LEAST_SPEED,
    MEAN_MEMORY,
    RESTARTS,
    SECOND_ROUND,
    SQUARE_MEMORY,
    SWEEPS,
    learning_rates,
    spread_of,
)

MOST_KEPT = 2**22  # numbers on the paths of all ascents, to bound memory


def find_start(program: Program, target: Target, key: Array, data: Data) -> tuple[Point, Nuisance]:
    """A point and a z to start a chain from; its log density is −∞ or NaN if none was found.

    Args:
        program: its sites.
        target: of a plan for it.
        key: two words.
        data: as the program's.
    """
    key_x, key_z, key_ascent, key_settle = split(key, 4)
    x = HALF_WIDTH * (2 * uniform(key_x, (RESTARTS, program.num_x)) - 1)
    z = jax.vmap(lambda key: draw_z(key, program, data))(split(key_z, RESTARTS))
    rates = np.concatenate(
        [learning_rates(FIRST_ROUND), *([] if has_few_sites(program) else [learning_rates(SECOND_ROUND)])]
    )
    still = 0 if target.is_marginalised else SWEEPS  # steps in which x stays
    rates = jnp.asarray(np.concatenate([np.zeros(still), rates]), x.dtype)
    x, z = _ascend(target, key_ascent, x, z, data, rates, spread_of(program, target))
    return settle(target, key_settle, x, z, data)


def settle(target: Target, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Point, Nuisance]:
    """The point at x, and z after some sweeps there."""
    if not target.is_marginalised:
        z = jax.lax.fori_loop(0, SWEEPS, lambda i, z: target.move(fold_in(key, i), x, z, data), z)
    return Point.at(target, x, z, data), z


def _ascend(
    target: Target, key: Array, x: Array, z: Nuisance, data: Data, rates: Array, spread: float
) -> tuple[Array, Nuisance]:
    """Of the highest ascent the first x that is near its optimum, and the last z."""
    every = max(1, -(-len(rates) // min(2 * KEPT_POINTS, max(10, MOST_KEPT // max(x.size, 1)))))
    num_kept = -(-len(rates) // every)

    def one(key: Array, x: Array, z: Nuisance) -> tuple[Array, Array, Nuisance]:
        z = target.move(key, x, z, data)
        return *target.value_and_gradient(x, z, data), z

    def step(i: Array, carry: Any) -> Any:
        x, z, mean, square, path, heights = carry
        keys = split(fold_in(key, i), RESTARTS)
        height, gradient, z = jax.vmap(one)(keys, x, z)
        is_finite = jnp.isfinite(height) & jnp.isfinite(gradient).all(axis=-1)
        height, uphill = jnp.where(is_finite, height, -jnp.inf), jnp.where(is_finite[:, None], gradient, 0.0)
        # The last of every few steps is kept: later ones overwrite it.
        path, heights = path.at[i // every].set(x), heights.at[i // every].set(height)
        mean = MEAN_MEMORY * mean + (1 - MEAN_MEMORY) * uphill
        square = SQUARE_MEMORY * square + (1 - SQUARE_MEMORY) * uphill**2
        speed = jnp.sqrt(square / (1 - SQUARE_MEMORY ** (i + 1.0))) + LEAST_SPEED
        x = x + rates[i] * mean / (1 - MEAN_MEMORY ** (i + 1.0)) / speed
        return x.astype(path.dtype), z, mean, square, path, heights

    zeros = jnp.zeros_like(x)
    path, heights = jnp.zeros((num_kept, *x.shape), x.dtype), jnp.full((num_kept, RESTARTS), -jnp.inf, x.dtype)
    _, z, _, _, path, heights = jax.lax.fori_loop(0, len(rates), step, (x, z, zeros, zeros, path, heights))
    best = jnp.argmax(heights.max(axis=0))
    first = jnp.argmax(heights[:, best] >= heights[:, best].max() - spread)
    return path[first, best], jax.tree.map(lambda a: a[best], z)
