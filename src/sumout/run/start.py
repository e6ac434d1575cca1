"""Where chains start: several short ascents for each chain, the best one followed.

Each try draws x and z at random and climbs (`climb.py`). The try that ends highest wins, so that a minor mode does not
trap a chain when one of its tries has found a better one. Climbs are short: they are to find the right hill, not the
spike of infinite density that, say, a mixture has where a component collapses onto a point.

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

from sumout.arrays import as_jax
from sumout.doctor.blame import describe_failure
from sumout.errors import StartError
from sumout.gradient import Target
from sumout.kernels.leapfrog import Point
from sumout.program import Data, Nuisance, Program
from sumout.randomness import Key, fold_in, split, words_of
from sumout.run.climb import Climbs, Paths

TRIES = 8


class Starts:
    """The search for starts, compiled once for a program and its target."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self._climbs = Climbs(program, target, TRIES)

    def prepare(self, num_chains: int) -> None:
        """Begin to compile for so many chains."""
        self._climbs.prepare(self._climbs.together(num_chains))

    def find(self, key: Key, num_chains: int) -> tuple[Point, Nuisance]:
        """For each chain a point of finite density and gradient and a z, with a leading axis of chains."""
        data, is_double = as_jax(self.program.data), jnp.result_type(float) == jnp.float64
        keys = fold_in(np.asarray(words_of(key)), np.arange(num_chains))
        together = self._climbs.together(num_chains)

        def best(first: int) -> list[tuple[Point, Any, Any]]:
            with jax.enable_x64(is_double):  # a setting that belongs to a thread
                return self._best(keys[first : first + together], data)

        self.prepare(num_chains)
        with ThreadPoolExecutor(num_chains) as threads:
            found = [one for group in threads.map(best, range(0, num_chains, together)) for one in group]
        points, z, is_sound = jax.tree.map(lambda *each: np.stack(each), *found)
        if not is_sound.all():
            lost = np.flatnonzero(~is_sound)
            where = points.x[lost], jax.tree.map(lambda a: a[lost], z)
            density = self.target.log_density
            raise StartError(describe_failure(self.program, density, *where, f"{TRIES} tries a chain"))
        return points, z

    def _best(self, keys: Key, data: Data) -> list[tuple[Point, Any, Any]]:
        """For each key a point on the best of several climbs, and whether it was found to be finite."""
        key_climb, key_settle = np.stack([split(key) for key in keys], axis=1)
        chosen = [self._choose(paths) for paths in self._climbs.climb(key_climb, data)]
        points, z, is_sound = jax.tree.map(lambda *each: np.stack(each), *chosen)
        z = self._climbs.settle(key_settle, points.x, z, data)
        return [jax.tree.map(lambda a, i=i: a[i], (points, z, is_sound)) for i in range(len(keys))]

    def _choose(self, paths: Paths) -> tuple[Point, Any, Any]:
        """A point on the best of several climbs, its z, and whether density and gradient were found to be finite."""
        best = np.argmax(paths.highest[-1])
        highest = paths.highest[:, best]
        low = min(self.program.num_x, self.program.num_x / 2 + np.sqrt(2 * self.program.num_x))
        on_the_way = np.argmax(highest >= highest[-1] - low)
        point = jax.tree.map(lambda a: a[on_the_way, best], paths.points)
        return point, jax.tree.map(lambda a: a[best], paths.z), np.isfinite(highest[on_the_way])
