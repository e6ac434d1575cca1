"""Tables of counts that become longer while a run goes on.

What sums over counts leave out is evaluated at the starts and at every draw, of the warm-up too. Where that is more
than `MOST_NEGLECTED` of the total, tables are made longer by what is needed there, and the run goes on from the draw
before with these. As the density hardly differs from that with longer tables until much is left out, a chain cannot be
kept in by tables that are too short without being seen at their ends.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import Ahead
from sumout.compile.policy import BLOCK
from sumout.errors import ModelError
from sumout.kernels.leapfrog import Point
from sumout.model.arguments import as_jax
from sumout.model.program import Data, Nuisance
from sumout.plan.count_ends import MOST_NEGLECTED, NOT_CUT, CountEnds
from sumout.plan.plan import Plan
from sumout.randomness import Key
from sumout.results.data_tree import Draws

MOST_GROWTHS = 20  # of tables until starts are found


class Watch:
    """Evaluates what sums over counts leave out at draws.

    Attributes:
        outside: x and the most probable z where that was too much; the last such.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.outside: Any = None
        self._neglected = Ahead(self._at_draws)
        self._modes = jax.jit(jax.vmap(plan.most_probable, (0, 0, None)))

    def __call__(self, draws: Draws) -> int:
        """How many draws, from the first on, are such that little is left out."""
        neglected = self._at_all(draws.x, draws.z)
        is_bad = ~(neglected <= MOST_NEGLECTED)
        good = int(np.argmax(is_bad.any(axis=0))) if is_bad.any() else is_bad.shape[1]
        if good < is_bad.shape[1]:
            chains = np.flatnonzero(is_bad[:, good])
            x, z = jax.tree.map(lambda a: np.asarray(a)[chains, good], (draws.x, draws.z))
            self.outside = x, self.modes(x, z)
        return good

    def modes(self, x: np.ndarray, z: Any) -> Any:
        """The most probable values of what is summed out, at some points."""
        return jax.tree.map(np.asarray, self._modes(x, z, self.plan.structure.program.data))

    def _at_all(self, x: np.ndarray, z: Any) -> np.ndarray:
        """What is left out at all draws, `(chain, draw)`, block by block."""
        shape, data = x.shape[:2], as_jax(self.plan.structure.program.data)
        flat = jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[2:]), (x, z))

        def block(start: int) -> np.ndarray:
            rows = jax.tree.map(lambda a: a[start : start + BLOCK], flat)
            count = len(rows[0])
            padded = jax.tree.map(lambda a: np.concatenate([a, np.zeros((BLOCK - count, *a.shape[1:]), a.dtype)]), rows)
            return np.asarray(self._neglected(np.asarray(count, np.int32), *padded, data))[:count]

        return np.concatenate([block(start) for start in range(0, len(flat[0]), BLOCK)]).reshape(shape)

    def _at_draws(self, count: Array, x: Array, z: Nuisance, data: Data) -> Array:
        """At the first so many of a block of draws, one by one."""
        neglected = self.plan.neglected

        def one(i: Array, found: Array) -> Array:
            here = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), (x, z))
            return found.at[i].set(neglected(here[0], here[1], data))

        return jax.lax.fori_loop(0, count, one, jnp.zeros(len(x)))


def settle(ready: Any, build: Callable[[CountEnds], Any], key: Key, chains: int) -> tuple[Any, tuple[Point, Nuisance]]:
    """A setup with tables that are long enough at the starts it finds, or in which counts are drawn; and these starts.

    Args:
        ready: a setup.
        build: makes one for other ends.
        key: for the starts.
        chains: how many.
    """
    for _ in range(MOST_GROWTHS):
        points, z = ready.starts.find(key, chains)
        x_each, z_each = jax.tree.map(lambda a: np.asarray(a)[:, None], (points.x, z))
        if ready.watch(Draws(x_each, z_each, gradient=None, info=None, number=None)):
            return _fitted(ready, build, np.asarray(points.x), z), (points, z)
        try:
            ready = grown(ready, build, ready.watch.outside)
        except ModelError:
            break
    ready = build(NOT_CUT)  # no tables would do: counts are drawn
    return ready, ready.starts.find(key, chains)


def _fitted(ready: Any, build: Callable[[CountEnds], Any], x: np.ndarray, z: Any) -> Any:
    """With shorter tables where those at the starts are: the first ones were made for x that was drawn at random."""
    ends = ready.plan.ends.fit(x, ready.watch.modes(x, z))
    if ends is None:
        return ready
    shorter = build(ends)
    is_same = shorter.plan.drawn == ready.plan.drawn and shorter.watch is not None
    return shorter if is_same else ready


def grown(ready: Any, build: Callable[[CountEnds], Any], outside: Any) -> Any:
    """A setup with tables that are long enough at some points, too."""
    x, z = outside
    ends = ready.plan.ends.grow(x, z)
    if ends is None:
        raise ModelError(_refusal(ready.plan))
    longer = build(ends)
    if longer.plan.drawn != ready.plan.drawn:
        raise ModelError(_refusal(ready.plan))
    return longer


def _refusal(plan: Plan) -> str:
    assert plan.ends is not None
    names = ", ".join(f"'{name}'" for name in plan.ends.cut.upper)
    longest = max(int(np.max(end)) for end in plan.ends.cut.upper.values())
    return (
        f"sums over {names} were cut at up to {longest}, and a chain has come to where larger values count, too many "
        f'for tables. Draw it instead, plan={{"{next(iter(plan.ends.cut.upper))}": "draw"}}, or give what its law '
        "depends on a prior with lighter tails."
    )
