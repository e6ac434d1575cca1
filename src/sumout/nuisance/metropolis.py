"""Metropolis: every member of a block proposes another value, and each accepts or rejects for itself.

Members share no factor, so their acceptances are independent and two evaluations of the factors decide them all,
however many values there are. All proposals here make the ratio one of factor sums: the uniform and the count proposal
are symmetric, and a proposal from z's own law cancels against it (that law is not among the factors).
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.nuisance.block import Block
from sumout.program import Data, Nuisance
from sumout.supports import Implicit


class Proposal(Protocol):
    """Proposes new values for the members of a block."""

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """Proposed values, one for each member."""
        ...


@partial(jax.tree_util.register_dataclass, data_fields=["block", "propose"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Metropolis:
    """A Metropolis update of one block."""

    block: Block
    propose: Proposal

    def log_ratio(self, x: Array, z: Nuisance, proposed: Array, data: Data) -> Float[Array, " n"]:
        """Log of the acceptance ratio of every member's proposal."""
        now = self.block.factor_sums(x, z, data)
        then = self.block.factor_sums(x, self.block.place(z, proposed), data)
        # From an impossible value (an unlucky start) go anywhere.
        return jnp.where(now == -jnp.inf, 0.0, then - now)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Propose and accept for all members at once."""
        key_propose, key_accept = jax.random.split(key)
        current = self.block.take(z)
        proposed = self.propose(key_propose, current, data)
        log_ratio = self.log_ratio(x, z, proposed, data)
        accepted = jnp.log1p(-jax.random.uniform(key_accept, log_ratio.shape, log_ratio.dtype)) < log_ratio
        accepted = accepted.reshape(accepted.shape + (1,) * (current.ndim - 1))
        return self.block.place(z, jnp.where(accepted, proposed, current))


@partial(jax.tree_util.register_dataclass, data_fields=["values", "num_values"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class UniformOther:
    """Any of the other values of a finite support, with equal probability.

    Attributes:
        values: `(K, n)`, or `(K, 1)` where all members share their values.
        num_values: `(n,)` or `(1,)` how many of them each member has; they come first.
    """

    values: Array
    num_values: Array

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """A step of 1..K−1 around the circle of values."""
        del data
        index = jnp.argmax(self.values == current, axis=0)
        step = 1 + jnp.floor(jax.random.uniform(key, current.shape) * (self.num_values - 1)).astype(index.dtype)
        proposed = (index + jnp.minimum(step, self.num_values - 1)) % self.num_values
        values = jnp.broadcast_to(self.values, (self.values.shape[0], *current.shape))
        return jnp.take_along_axis(values, proposed[None], axis=0)[0]


@partial(jax.tree_util.register_dataclass, data_fields=["lower"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class CountStep:
    """Up or down by 1, or, every other time, by a larger number (1 to 127, log-uniform). Below `lower`: stay."""

    lower: Array

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """A symmetric step; one that would leave the support is replaced by none."""
        del data
        key_up, key_far, key_size = jax.random.split(key, 3)
        far = jnp.exp2(7 * jax.random.uniform(key_size, current.shape)).astype(current.dtype)
        size = jnp.where(jax.random.bernoulli(key_far, 0.5, current.shape), far, 1)
        proposed = current + jnp.where(jax.random.bernoulli(key_up, 0.5, current.shape), size, -size)
        return jnp.where(proposed < self.lower, current, proposed)


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["support"])
@dataclass(frozen=True, eq=False)
class FromSampler:
    """A fresh draw from the variable's own law p(z|y), which need not be known as a density."""

    support: Implicit

    def __call__(self, key: Array, current: Array, data: Data) -> Array:
        """One independent draw for each member."""
        keys = jax.random.split(key, current.shape[0])
        return jax.vmap(self.support.sample, in_axes=(0, None))(keys, data)


def rows_to_columns(values: np.ndarray) -> np.ndarray:
    """`(n, K)` as `(K, n)`, or as `(K, 1)` where all rows are the same."""
    columns = np.ascontiguousarray(values.T)
    return columns[:, :1] if (columns == columns[:, :1]).all() else columns
