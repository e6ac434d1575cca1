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

import jax
import numpy as np

from sumout.arrays import as_jax
from sumout.doctor.blame import describe_failure
from sumout.errors import StartError
from sumout.gradient import Target
from sumout.kernels.leapfrog import Point
from sumout.program import Nuisance, Program
from sumout.randomness import Key, fold_in, split, words_of
from sumout.run.climb import Climbs

TRIES = 8


class Starts:
    """The search for starts, compiled once for a program and its target."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self._climbs = Climbs(program, target, TRIES)

    def prepare(self, num_chains: int) -> None:
        """Begin to compile for so many chains."""
        self._climbs.prepare(num_chains)

    def find(self, key: Key, num_chains: int) -> tuple[Point, Nuisance]:
        """For each chain a point of finite density and gradient and a z, with a leading axis of chains."""
        data = as_jax(self.program.data)
        keys = fold_in(np.asarray(words_of(key)), np.arange(num_chains))
        keys_climb, keys_settle = np.stack([split(key) for key in keys], axis=1)
        tries = self._climbs.climb(keys_climb, data, below=self._climbs.spread)
        where = climbs_to_follow(tries.tops, self._climbs.spread)
        points, z = jax.tree.map(lambda a: a[where], (tries.points, tries.z))
        if not np.isfinite(tries.tops).any():
            density, number = self.target.log_density, f"{TRIES} tries a chain"
            raise StartError(describe_failure(self.program, density, points.x, z, number))
        return points, self._climbs.settle(keys_settle, points.x, z, data)


def climbs_to_follow(tops: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Which climb each chain follows, by chain and try: its own highest, or another's where that is clearly higher.

    No two chains follow the same climb while there are others as good.

    >>> chain, number = climbs_to_follow(np.array([[-9.0, -2.0], [-30.0, -20.0], [-3.0, -20.0]]), spread=8.0)
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
