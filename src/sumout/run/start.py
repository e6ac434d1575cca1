"""Where chains start: several short ascents for each chain, the best one followed.

Each try draws x and z at random and climbs (`climb.py`). The try that ends highest wins, so that a minor mode does not
trap a chain when one of its tries has found a better one. Where all tries of a chain end clearly lower than those of
another, it follows one of the other's. Climbs are short: they are to find the right hill, not the spike of infinite
density that, say, a mixture has where a component collapses onto a point.

A chain does not start at the top, which would be the same for all, but on the way there, where its climb first came
near it: chains remain over-dispersed, as r_hat wants them. In a Gaussian the log density of draws has a deviation of
√(½ num_x), and two of these are the measure of what is near and what is clearly lower. Much lower, a chain could still
slide down another hill.
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
from sumout.program import Nuisance, Program
from sumout.randomness import Key, fold_in, split, words_of
from sumout.run.climb import Climbs, Tries

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
        keys_climb, keys_settle = np.stack([split(key) for key in keys], axis=1)
        together = self._climbs.together(num_chains)

        def climb(first: int) -> list[Tries]:
            with jax.enable_x64(is_double):  # a setting that belongs to a thread
                return self._climbs.climb(keys_climb[first : first + together], data, self._spread)

        def settle(first: int) -> Any:
            with jax.enable_x64(is_double):
                keys, x, z = jax.tree.map(lambda a: a[first : first + together], (keys_settle, points.x, chosen))
                return self._climbs.settle(keys, x, z, data)

        self.prepare(num_chains)
        groups = range(0, num_chains, together)
        with ThreadPoolExecutor(num_chains) as threads:
            tries = [one for group in threads.map(climb, groups) for one in group]
            points, chosen = self._choose(jax.tree.map(lambda *each: np.stack(each), *tries))
            z = jax.tree.map(lambda *each: np.concatenate(each), *threads.map(settle, groups))
        return points, z

    @property
    def _spread(self) -> float:
        """Two deviations of the log density of a Gaussian with as many coordinates."""
        return np.sqrt(2 * (self.program.num_x + (0 if self.target.is_still else self.program.num_z)))

    def _choose(self, tries: Tries) -> tuple[Point, Any]:
        """For each chain a point near the top of a climb, and its z; tries have axes (chain, try)."""
        where = follow(tries.tops, self._spread)
        points, z = jax.tree.map(lambda a: a[where], (tries.points, tries.z))
        if not np.isfinite(tries.tops).any():
            raise StartError(
                describe_failure(self.program, self.target.log_density, points.x, z, f"{TRIES} tries a chain")
            )
        return points, z


def follow(tops: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Which climb each chain follows, by chain and try: its own highest, or another's where that is clearly higher.

    No two chains follow the same climb while there are others as good.

    >>> chain, number = follow(np.array([[-9.0, -2.0], [-30.0, -20.0], [-3.0, -20.0]]), spread=8.0)
    >>> chain.tolist(), number.tolist()
    ([0, 0, 2], [1, 0, 0])
    """
    best = tops.argmax(axis=1)
    is_good = tops >= tops.max() - spread
    lost = ~is_good.any(axis=1)
    free = is_good.copy()
    free[np.arange(len(tops)), best] = False
    others = np.argwhere(free if free.any() else is_good)
    chain = np.arange(len(tops))
    chain[lost], best[lost] = np.resize(others, (lost.sum(), 2)).T
    return chain, best
