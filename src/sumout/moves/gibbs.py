"""Coloured Gibbs: every member of a block drawn from its exact conditional, all at once.

    p(z_i = k | z_{−i}, x, y) ∝ exp Σ_{f ∋ i} factor_f(z with z_i = k)

Members share no factor, so one evaluation of the factors with all members at their k-th value gives column k of the
table for all of them. One uniform a site and the inverse of the distribution function turn the table into a draw.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.model.program import Data, Nuisance
from sumout.moves.move import NuisanceMove
from sumout.tables.blocks import Block, pick
from sumout.tables.logsumexp import draw, log_sum_exp, scale_weights


@partial(jax.tree_util.register_dataclass, data_fields=["block", "values", "allowed"], meta_fields=["matched"])
@dataclass(frozen=True, eq=False)
class Gibbs(NuisanceMove):
    """A Gibbs update of one block.

    Attributes:
        block: the members.
        values: `(K, n)`, or `(K, 1)` where all members share their values.
        allowed: like `values`; False where a member has fewer values than K. None where all have K.
        matched: fills the table in less than K evaluations, where a pattern was matched; else None.
    """

    block: Block
    values: Array | np.ndarray
    allowed: Array | np.ndarray | None
    matched: Any = None

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return self.values.shape[-2]

    def log_weights(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Log probabilities of the values of every member given all else, up to a constant for each member."""
        if self.matched is not None:
            return self.matched.table(x, z, data)

        def at(values: Array) -> Array:
            place = self.block.place_all if values.shape == (1,) else self.block.place
            return self.block.factor_sums(x, place(z, values), data)

        table = jax.vmap(at)(jnp.asarray(self.values))
        return table if self.allowed is None else jnp.where(self.allowed, table, -jnp.inf)

    def log_totals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, " n"]:
        """For each member the logarithm of the sum of its weights."""
        return log_sum_exp(self.log_weights(x, z, data))

    def conditionals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Probabilities of the values of every member, given all else."""
        weights, total = scale_weights(self.log_weights(x, z, data))
        return weights / total

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """The conditionals of the members; of padding there are none."""
        members = self.block.members
        yield members[members >= 0], self.conditionals(x, z, data).T[members >= 0]

    @property
    def shows_barriers(self) -> bool:
        """In the tables it draws from."""
        return True

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Draw all members afresh."""
        which = draw(key, self.log_weights(x, z, data))
        return self.block.place(z, pick(self.values, which))
