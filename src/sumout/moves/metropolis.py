"""Metropolis: every member of a block proposes another value, and each accepts or rejects for itself.

Members share no factor, so their acceptances are independent and two evaluations of the factors decide them all,
however many values there are. All proposals here make the ratio one of factor sums: those on finite supports are
symmetric, and a proposal from z's own law cancels against it (that law is not among the factors).
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.model.program import Data, Nuisance
from sumout.model.supports import Implicit
from sumout.moves.move import NuisanceMove
from sumout.randomness import split, uniform
from sumout.tables.blocks import Block, pick

# A lazy step now and then: two values of equal probability would else change places at every step, for ever, and the
# chain be periodic. One step in sixteen costs little.
PROBABILITY_OF_A_STEP = 15 / 16


@runtime_checkable
class Proposal(Protocol):
    """Proposes new values for the members of a block."""

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """Proposed values, one for each member."""
        ...


@partial(jax.tree_util.register_dataclass, data_fields=["block", "propose"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Metropolis(NuisanceMove):
    """A Metropolis update of one block."""

    block: Block
    propose: Proposal

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return 2

    def log_acceptance(self, x: Array, z: Nuisance, proposed: Array, data: Data) -> Float[Array, " n"]:
        """Log of the probability that a member accepts its proposal."""
        now = self.block.factor_sums(x, z, data)
        then = self.block.factor_sums(x, self.block.place(z, proposed), data)
        # From an impossible value (an unlucky start), or one whose density is NaN, go anywhere.
        log_ratio = jnp.where(now > -jnp.inf, then - now, 0.0)
        return jnp.log(PROBABILITY_OF_A_STEP) + jnp.minimum(log_ratio, 0.0)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Propose and accept for all members at once."""
        key_propose, key_accept = split(key)
        current = self.block.take(z)
        proposed = self.propose(key_propose, current, data)
        probability = jnp.exp(self.log_acceptance(x, z, proposed, data))
        accepted = uniform(key_accept, probability.shape, probability.dtype) < probability
        accepted = accepted.reshape(accepted.shape + (1,) * (current.ndim - 1))
        return self.block.place(z, jnp.where(accepted, proposed, current))


@partial(jax.tree_util.register_dataclass, data_fields=["values", "first", "num_values"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class AroundTheCircle:
    """Another value of a finite support: half of the time any, with equal probability, else one near by in their order.

    The values stand on a circle, and steps to either side are equally probable.

    Attributes:
        values: `(K, n)`, or `(K, 1)` where all members share them; None where they are whole numbers in a row.
        first: `(n,)` or `(1,)` the first value of each member.
        num_values: `(n,)` or `(1,)` how many of them each member has; they come first.
    """

    values: Array | np.ndarray | None
    first: Array | np.ndarray
    num_values: Array | np.ndarray

    @staticmethod
    def over(values: np.ndarray, num_values: np.ndarray) -> "AroundTheCircle":
        """Over these values. Those in a row need not be looked up: a step costs the same however many there are."""
        first, numbers = values[..., :1, :], np.arange(values.shape[-2])[:, None]
        in_a_row = np.issubdtype(values.dtype, np.integer) and bool(
            np.all((values == first + numbers) | (numbers >= num_values[..., None, :]))
        )
        return AroundTheCircle(None if in_a_row else values, first[..., 0, :], num_values)

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """A step of 1..K−1 around the circle of values."""
        del data
        key_any, key_near, key_which = split(key, 3)
        index = self._index(current)
        step = 1 + jnp.floor(uniform(key_any, current.shape) * (self.num_values - 1)).astype(index.dtype)
        step = jnp.minimum(step, self.num_values - 1)
        step = jnp.where(uniform(key_which, current.shape) < 0.5, step, _small_step(key_near, index))
        proposed = (index + step) % self.num_values
        if self.values is not None:
            return pick(self.values, proposed)
        first = _widened(jnp.asarray(self.first, current.dtype))
        return (first + proposed.astype(first.dtype)).astype(current.dtype)

    def _index(self, current: Array) -> Array:
        """The numbers of the present values, as integers that can hold steps to either side."""
        if self.values is not None:
            return jnp.argmax(jnp.asarray(self.values, current.dtype) == current, axis=0)
        return (_widened(current) - _widened(jnp.asarray(self.first, current.dtype))).astype(jnp.int32)


def _widened(values: Array) -> Array:
    """Integers as a type in which neither differences of short ones nor numbers of values overflow."""
    return values.astype(jnp.int32) if values.dtype.itemsize < 4 else values


# Sizes of a small step: 1 half of the time, else anything from 1 to 127, log-uniformly.
STEP_SIZES = np.arange(1, 128)
STEP_PROBABILITIES = 0.5 * (STEP_SIZES == 1) + 0.5 * np.log2(1 + 1 / STEP_SIZES) / np.log2(len(STEP_SIZES) + 1)


def _small_step(key: Array, like: Array) -> Array:
    """Up or down with equal probability, by a random size; for each element one, and of its type."""
    key_up, key_size = split(key)
    distribution = jnp.cumsum(jnp.asarray(STEP_PROBABILITIES))[:-1]
    size = 1 + jnp.searchsorted(distribution, uniform(key_size, like.shape), side="right")
    return jnp.where(uniform(key_up, like.shape) < 0.5, size, -size).astype(like.dtype)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["support"])
@dataclass(frozen=True, eq=False)
class FromSampler:
    """A fresh draw from the variable's own law p(z|y), which need not be known as a density."""

    support: Implicit

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """One independent draw for each member."""
        keys = split(key, current.shape[0])
        return jax.vmap(self.support.sample, in_axes=(0, None))(keys, data)
