"""Coloured Gibbs: every member of a block drawn from its exact conditional, all at once.

    p(z_i = k | z_{−i}, x, y) ∝ exp Σ_{f ∋ i} factor_f(z with z_i = k)

Members share no factor, so one evaluation of the factors with all members at their k-th value gives column k of the
table for all of them. One uniform a site and the inverse of the distribution function turn the table into a draw.
"""

from dataclasses import dataclass
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.nuisance.block import Block, pick
from sumout.nuisance.switches import Switches, build_switches
from sumout.program import Data, Nuisance
from sumout.randomness import uniform

FEW = 8  # values
MOST_WRITTEN_OUT = 64


@partial(jax.tree_util.register_dataclass, data_fields=["block", "values", "allowed"], meta_fields=["switches"])
@dataclass(frozen=True, eq=False)
class Gibbs:
    """A Gibbs update of one block.

    Attributes:
        block: the members.
        values: `(K, n)`, or `(K, 1)` where all members share their values.
        allowed: like `values`; False where a member has fewer values than K. None where all have K.
        switches: how the table is filled where that takes less than K evaluations; None where it does not.
    """

    block: Block
    values: Array | np.ndarray
    allowed: Array | np.ndarray | None
    switches: Switches | None = None

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return self.values.shape[-2]

    def log_weights(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Log probabilities of the values of every member given all else, up to a constant for each member."""
        if self.switches is not None:
            return self.switches.table(x, z, data)

        def at(values: Array) -> Array:
            place = self.block.place_all if values.shape == (1,) else self.block.place
            return self.block.factor_sums(x, place(z, values), data)

        table = jax.vmap(at)(jnp.asarray(self.values))
        return table if self.allowed is None else jnp.where(self.allowed, table, -jnp.inf)

    def log_totals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, " n"]:
        """For each member the logarithm of the sum of its weights."""
        return log_sum_columns(self.log_weights(x, z, data))

    def conditionals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Probabilities of the values of every member, given all else."""
        weights, total = scale_weights(self.log_weights(x, z, data))
        return weights / total

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Draw all members afresh."""
        which = draw(key, self.log_weights(x, z, data))
        return self.block.place(z, pick(self.values, which))


def build_gibbs(block: Block, values: np.ndarray, allowed: np.ndarray) -> Gibbs:
    """The update of a single block."""
    if not allowed.all():
        return Gibbs(block, values, allowed)
    return Gibbs(block, values, None, build_switches(block, values))


def draw(key: Array, log_weights: Float[Array, "K n"]) -> Array:
    """An index for every column, by one uniform each; never one of probability zero, or of none (NaN)."""
    log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    return invert(log_weights, uniform(key, log_weights.shape[1:], log_weights.dtype))


def invert(log_weights: Float[Array, "K n"], level: Float[Array, " n"]) -> Array:
    """For every column the index at which the running sum of its weights passes `level` times their total.

    Where all weights are zero (an unlucky start), any index is as good as another.
    """
    weights, total = scale_weights(log_weights)
    num_values = len(weights)
    if num_values <= MOST_WRITTEN_OUT:
        running, which = jnp.zeros_like(total), jnp.zeros(total.shape, int)
        for k in range(num_values - 1):
            running = running + weights[k]
            which = which + (running <= level * total)
    else:
        which = (jnp.cumsum(weights[:-1], axis=0) <= level * total).sum(axis=0)
    return jnp.where(total > 0, which, jnp.floor(level * num_values).astype(which.dtype))


@jax.custom_jvp
def log_sum_columns(log_weights: Float[Array, "K n"]) -> Float[Array, " n"]:
    """log Σ_k exp for every column; −∞, with derivative zero, where all weights are zero."""
    _, total = scale_weights(log_weights)
    return jnp.log(total) + _highest(log_weights)


@log_sum_columns.defjvp
def _log_sum_columns_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    weights, total = scale_weights(primals[0])
    shares = weights / jnp.where(total == 0, 1.0, total)
    return jnp.log(total) + _highest(primals[0]), (shares * tangents[0]).sum(axis=0)


def scale_weights(log_weights: Float[Array, "K n"]) -> tuple[Float[Array, "K n"], Float[Array, " n"]]:
    """Weights, the largest of every column being 1, and their sums.

    A few values are best handled in one pass over the columns, with sums written out: on CPUs XLA's own reduction over
    a short first axis is several times slower. For many values each stage is a pass of its own, or XLA would compute
    the table again in every stage.
    """
    num_values = log_weights.shape[0]
    stage = (lambda array: array) if num_values <= FEW else jax.lax.optimization_barrier
    log_weights = stage(log_weights)
    weights = stage(jnp.exp(log_weights - _highest(log_weights)))
    total = reduce(jnp.add, weights) if num_values <= MOST_WRITTEN_OUT else weights.sum(axis=0)
    return weights, stage(total)


def _highest(log_weights: Float[Array, "K n"]) -> Float[Array, " n"]:
    """The largest of every column; 0 where there is none."""
    few = log_weights.shape[0] <= FEW
    highest = reduce(jnp.maximum, log_weights) if few else jnp.max(log_weights, axis=0)
    return jnp.where(highest == -jnp.inf, 0.0, highest)
