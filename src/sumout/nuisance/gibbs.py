"""Coloured Gibbs: every member of a block drawn from its exact conditional, all at once.

    p(z_i = k | z_{−i}, x, y) ∝ exp Σ_{f ∋ i} factor_f(z with z_i = k)

Members share no factor, so one evaluation of the factors with all members at their k-th value gives column k of the
table for all of them. One uniform a site and the inverse of the distribution function turn the table into a draw.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.nuisance.block import Block
from sumout.program import Data, Nuisance


@partial(jax.tree_util.register_dataclass, data_fields=["block", "values", "allowed"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Gibbs:
    """A Gibbs update of one block.

    Attributes:
        block: the members.
        values: `(K, n)`, or `(K, 1)` where all members share their values.
        allowed: like `values`; False where a member has fewer values than K. None where all have K.
    """

    block: Block
    values: Array | np.ndarray
    allowed: Array | np.ndarray | None

    def log_conditionals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Normalised log probabilities of the values of every member, given all else."""

        def at(values: Array) -> Array:
            placed = self.block.place(z, jnp.broadcast_to(values, (self.block.size,)))
            return self.block.factor_sums(x, placed, data)

        table = jax.vmap(at)(jnp.asarray(self.values))
        if self.allowed is not None:
            table = jnp.where(self.allowed, table, -jnp.inf)
        # Where no value is possible (an unlucky start), any value is as good as another.
        possible = (table > -jnp.inf).any(axis=0)
        table = jnp.where(possible, table, 0.0 if self.allowed is None else jnp.where(self.allowed, 0.0, -jnp.inf))
        return jax.nn.log_softmax(table, axis=0)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Draw all members afresh."""
        which = draw(key, self.log_conditionals(x, z, data))
        values = jnp.broadcast_to(self.values, (self.values.shape[0], self.block.size))
        return self.block.place(z, jnp.take_along_axis(values, which[None], axis=0)[0])


def draw(key: Array, log_probabilities: Float[Array, "K n"]) -> Array:
    """An index for every column, by one uniform each; never one of probability zero."""
    distribution = jnp.cumsum(jnp.exp(log_probabilities), axis=0)
    uniform = jax.random.uniform(key, distribution.shape[1:], distribution.dtype)
    return (distribution / distribution[-1] <= uniform).sum(axis=0)
