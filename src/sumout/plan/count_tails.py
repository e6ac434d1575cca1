"""Tails of counts whose laws depend on other counts: bounds under the prior, from the first count of a chain on.

Within tables that end at U the tail of n_t given n_{t−1} = U_{t−1} is a bound, but a very loose one: each table would
have to be longer than the one before by as much as a law can grow in a step. Under the prior, with ends m_0 < m_1 < …,

    P(n > a)  ≤  Σ_r max_{parents ≤ m_r} P(n > a | parents) · Σ_parents P(parent > m_{r−1})  +  Σ_parents P(parent > m)

where m is the last of them and P(parent > m_{−1}) = 1: some parent is above m_{r−1} where not all are below, and how
probable that is, is bounded likewise. What is left out by a cut of n is at most P(n > U) times how far all terms of its
component are below their suprema (`count_bounds.py`). The maximum is taken over the corners of the parents' values.
"""

from collections.abc import Callable
from functools import cached_property
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.compile.ahead import Ahead
from sumout.model.program import Data, Nuisance
from sumout.model.supports import Finite
from sumout.plan.count_bounds import CountBounds

# Lengths of tables, four an octave.
LADDER = np.array([length * 2**i for i in range(15) for length in (8, 10, 12, 14)])
NUM_ENDS = len(LADDER) // 2  # at which tails of counts with parents are evaluated at a time
FEW_SHELLS = 7  # at which they are evaluated first at draws: 1.0 ms instead of 12.9 for 12 × 3 populations
ROUNDS = 2  # in which the values where tails are evaluated are moved to where ends are needed


class CountTails:
    """Tails of the bounded counts of a program, of which some are cut.

    Args:
        bounds: what is known of them.
        names: the counts that are cut; the others are as they are in z.
    """

    def __init__(self, bounds: CountBounds, names: tuple[str, ...]):
        self.bounds, self.names = bounds, names
        is_cut = np.concatenate([np.full(bounds.program.z[n].num_elements, n in names) for n in bounds.names])
        self._parents = bounds.parents_of_elements(is_cut)

    @property
    def has_parents(self) -> bool:
        """Whether the law of a count depends on another that is cut."""
        return bool((self._parents >= 0).any())

    @cached_property
    def _depth(self) -> int:
        """Most steps from a count to one without parents."""
        depth = np.zeros(len(self._parents), np.int64)
        for _ in range(len(depth)):
            above = np.where(self._parents >= 0, depth[self._parents] + 1, 0).max(axis=1, initial=0)
            if (above == depth).all():
                break
            depth = above
        return int(depth.max(initial=0))

    def of_prior(
        self, x: Array, z: Nuisance, data: Data, ends: Float[Array, "rungs counts"], within: Array | bool = False
    ) -> Float[Array, "rungs counts"]:
        """Upper bounds on log P(n > end) for each element of the counts.

        Args:
            x: continuous variables.
            z: values of the discrete sites that are not cut.
            data: the data.
            ends: of every element, ascending.
            within: whether the parents are known to be within the last of the ends.
        """
        bounds = self.bounds

        def at(end: Array, top: Array) -> Array:
            return bounds.log_tails(x, z, data, bounds.ends(end), self._corners(bounds.ends(top)))

        if not self.has_parents:
            return jax.lax.map(lambda end: at(end, ends[-1]), ends)
        given = jax.lax.map(lambda end: jax.lax.map(lambda top: at(end, top), ends), ends)  # ends × tops × counts
        tails = jnp.zeros(ends.shape)
        for step in range(self._depth + 1):
            is_last = np.asarray(step == self._depth)
            each = jnp.where(self._parents >= 0, tails[:, np.maximum(self._parents, 0)], -jnp.inf)
            beyond = jax.nn.logsumexp(each, axis=-1)
            shells = jnp.concatenate([jnp.zeros_like(beyond[:1]), jnp.minimum(beyond[:-1], 0.0)])
            tails = jax.nn.logsumexp(given + shells, axis=1)
            tails = jnp.logaddexp(tails, jnp.where(is_last & jnp.asarray(within), -jnp.inf, beyond[-1]))
            tails = jnp.minimum(tails, 0.0)
        return tails

    @property
    def compiled(self) -> Callable[..., tuple[Array, Array]]:
        """By x, z, data, ends and `within` the tails, and how far the terms are below their suprema."""

        def both(x: Array, z: Nuisance, data: Data, ends: Array, within: Array) -> tuple[Array, Array]:
            return self.of_prior(x, z, data, ends, within), self.bounds.log_gaps(x, z, data)

        def run(x: Array, z: Nuisance, data: Data, ends: Array, within: bool) -> tuple[Array, Array]:
            label = ("tails", self.names, np.shape(ends))
            found = self.bounds.program.remember(label, lambda: Ahead(both, times=1))
            return found(x, z, data, np.asarray(ends), np.asarray(within))

        return run

    def _corners(self, tops: dict[str, Any]) -> list[Nuisance]:
        """The corners of the values of parents: lowest or highest, in all combinations of colours."""
        bounds, found = self.bounds, []
        for corner in product((False, True), repeat=bounds.num_colours):
            state = {}
            for name in bounds.parents:
                site = bounds.program.z[name]
                is_high = np.asarray([*corner, False])[bounds.colours_of(name)].reshape(site.shape)
                if name in self.names:
                    state[name] = jnp.where(is_high, tops[name], bounds.lowest(name)).astype(site.dtype)
                elif isinstance(site.support, Finite):
                    values, allowed = site.support.rows()
                    last = values[np.arange(len(values)), allowed.sum(axis=1) - 1].reshape(site.shape)
                    state[name] = jnp.asarray(np.where(is_high, last, values[:, 0].reshape(site.shape)), site.dtype)
            found.append(state)
        return found

    def needed(
        self, tails_at: Callable[[Any], tuple[Array, Array]], log_aim: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each element an end beyond which little is left out, its tail there, and whether there is such an end.

        Args:
            tails_at: of ends, as `compiled` at some point.
            log_aim: how little.
        """
        columns = np.arange(len(self._parents))
        lengths = LADDER[1::2] if self.has_parents else LADDER
        grid = self.bounds.lower + lengths[:, None] - 1
        rounds = []
        for _ in range(1 + (ROUNDS if self.has_parents else 0)):
            tails, gaps = map(np.asarray, tails_at(grid))
            enough = tails + gaps < log_aim
            which = np.where(enough.any(axis=0), np.argmax(enough, axis=0), len(grid) - 1)
            rounds.append((grid[which, columns], tails[which, columns], enough.any(axis=0)))
            grid = np.asarray(self.grid(rounds[-1][0]))
        return *rounds[-1][:2], rounds[0][2]

    def grid(self, ends: Any, number: int = NUM_ENDS) -> Any:
        """Ends in even steps up to some."""
        lower, fractions = self.bounds.lower, np.arange(1, number + 1) / number
        return lower + jnp.ceil(fractions[:, None] * (jnp.asarray(ends) - lower)).astype(int)

    def within_tables(
        self, x: Array, z: Nuisance, data: Data, ends: Any, shells: int = NUM_ENDS
    ) -> Float[Array, " counts"]:
        """The tails beyond the ends of tables, parents being within theirs; with fewer shells they are longer."""
        grid = self.grid(ends, shells) if self.has_parents else jnp.asarray(ends)[None]
        return self.of_prior(x, z, data, grid, within=True)[-1]
