"""Where chains start: several short ascents for each chain, the best one followed.

Each try draws x and z at random, lets z settle, and climbs: Adam on log p(x, y) or, where z is drawn, on log p(x, z, y)
with z moved after every step. The try that ends highest wins, so that a minor mode does not trap a chain when one of
its tries has found a better one. Climbs are short: they are to find the right hill, not the spike of infinite density
that, say, a mixture has where a component collapses onto a point.

A chain does not start at the top, which would be the same for all. It starts where the winning climb first came as
near the top as draws are. In a Gaussian a draw is ½ num_x nats below it on average, give or take √(½ num_x); a start is
two such deviations lower, or num_x nats below the top where that is less, where its own climb came in: chains remain
over-dispersed, as r_hat wants them. Much lower it could still slide down another hill.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.doctor.blame import describe_failure
from sumout.errors import StartError
from sumout.gradient import Target
from sumout.guesses import draw_x, draw_z
from sumout.kernels.leapfrog import Point
from sumout.program import Data, Nuisance, Program
from sumout.randomness import Key, fold_in, split
from sumout.run.ahead import Ahead, briefly, has_few_sites
from sumout.run.groups import join, part

TRIES = 8
SETTLING_SWEEPS = 10
FEW_STEPS, MANY_STEPS = 200, 1000  # of a climb; where there is much data, hills are narrow and valleys long
CLIMBING_RATE = 0.5  # half-way, less before and after; Adam moves each coordinate by about as much in a step


class Starts:
    """The search for starts, compiled once for a program and its target."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target

        def search(keys: Array, data: Data) -> tuple[Point, Nuisance, Array]:
            return jax.lax.map(lambda key: _best_of_several(program, target, key, data), keys)

        self._search = Ahead(search, briefly(program))

    def prepare(self, num_chains: int) -> None:
        """Begin to compile for so many chains."""
        self._search.prepare(part(np.zeros((num_chains, 2), np.uint32))[0], self.program.data)

    def find(self, key: Key, num_chains: int) -> tuple[Point, Nuisance]:
        """For each chain a point of finite density and gradient and a z, with a leading axis of chains."""
        keys, data = part(fold_in(key, np.arange(num_chains))), jax.tree.map(jnp.asarray, self.program.data)
        compiled = self._search.prepare(keys[0], data).result()
        with ThreadPoolExecutor(len(keys)) as threads:
            found = list(threads.map(lambda some: jax.tree.map(np.asarray, compiled(some, data)), keys))
        points, z, is_sound = join(found)
        if not is_sound.all():
            lost = np.flatnonzero(~is_sound)
            where = points.x[lost], jax.tree.map(lambda a: a[lost], z)
            density = self.target.log_density
            raise StartError(describe_failure(self.program, density, *where, f"{TRIES} tries a chain"))
        return points, z


def _best_of_several(program: Program, target: Target, key: Array, data: Data) -> tuple[Point, Nuisance, Array]:
    """A point on the best of several climbs, and whether its density and gradient were found to be finite."""
    key_climb, key_settle = split(key)
    keys = split(key_climb, TRIES)
    paths, z, highest = jax.vmap(lambda key: climb(program, target, key, data))(keys)
    best = jnp.argmax(highest[:, -1])
    low = min(program.num_x, program.num_x / 2 + np.sqrt(2 * program.num_x))
    on_the_way = jnp.argmax(highest[best] >= highest[best, -1] - low)
    point = jax.tree.map(lambda a: a[best, on_the_way], paths)
    z = _settle(target, key_settle, point.x, jax.tree.map(lambda a: a[best], z), data)
    return point, z, jnp.isfinite(highest[best, on_the_way])


def climb(program: Program, target: Target, key: Array, data: Data) -> tuple[Point, Nuisance, Array]:
    """From a random point up: the points on the way, the last z, and the highest sound log density so far."""
    import optax  # takes a tenth of a second to import

    # Slow at first: large steps would empty one component of a mixture before it has found its place.
    num_steps = FEW_STEPS if has_few_sites(program) else MANY_STEPS
    rate = optax.warmup_cosine_decay_schedule(0.0, CLIMBING_RATE, FEW_STEPS // 2, num_steps)
    adam = optax.adam(lambda count: rate(jnp.maximum(count - SETTLING_SWEEPS, 0)))  # until then only z moves
    key_x, key_z, key_climb = split(key, 3)

    def step(carry: tuple[Array, Nuisance, Any], i: Array) -> tuple[tuple[Array, Nuisance, Any], tuple[Point, Array]]:
        x, z, memory = carry
        point = Point.at(target, x, z, data)
        is_sound = jnp.isfinite(point.log_density) & jnp.all(jnp.isfinite(point.gradient))
        uphill, moved_on = adam.update(jnp.where(is_sound, -point.gradient, 0.0), memory)
        new = jnp.asarray(optax.apply_updates(x, uphill))
        z = target.move(fold_in(key_climb, i), new, z, data)
        return (new, z, moved_on), (point, jnp.where(is_sound, point.log_density, -jnp.inf))

    x, z = draw_x(key_x, program), draw_z(key_z, program, data)
    steps = jnp.arange(SETTLING_SWEEPS + num_steps)
    (_, z, _), (path, log_densities) = jax.lax.scan(step, (x, z, adam.init(x)), steps)
    return path, z, jax.lax.cummax(log_densities)


def _settle(target: Target, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
    """Z after some sweeps at x."""
    return jax.lax.fori_loop(0, SETTLING_SWEEPS, lambda i, z: target.move(fold_in(key, i), x, z, data), z)
