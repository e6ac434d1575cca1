"""Unbounded counts, drawn from their conditional on windows of a few values, of every width.

With a stride s and an offset o, uniform on 0 … W − 1, whatever the present value n is, a new one is drawn from

    p(m | all else),  m ∈ {n − o s, n − o s + s, …, n + (W − 1 − o) s}

Every value of a window leads to that window with the same probability 1/W, so that this leaves the conditional as it is
without any rejection: Gibbs sampling, given the window. Strides go up by factors of W. Of a conditional of whatever
width some stride has a few values in it; smaller ones then draw what is between them.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.model.program import Data, Nuisance
from sumout.moves.move import NuisanceMove
from sumout.randomness import fold_in, split, uniform
from sumout.tables.blocks import Block, pick
from sumout.tables.logsumexp import draw

WIDTH = 8  # values of a window
# From wide to narrow. Draws of normals with deviations of 0.7 to 3,000 have an autocorrelation time of at most 1.7, with
# 10,000 it is 3.2; with 16 values, and twice the work, at most 1.25 and 1.7.
STRIDES = WIDTH ** np.arange(5)[::-1]


@partial(jax.tree_util.register_dataclass, data_fields=["block", "lowest", "strides"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class CountWindows(NuisanceMove):
    """Draws the members of a block from windows around their present values.

    Attributes:
        block: the members.
        lowest: `(n,)` or `(1,)` where their supports begin.
        strides: between the values of a window, one after the other.
    """

    block: Block
    lowest: Array | np.ndarray
    strides: Array | np.ndarray

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return WIDTH * self.num_parts

    @property
    def lower(self) -> Array | np.ndarray:
        """Where the supports begin."""
        return self.lowest

    @property
    def num_parts(self) -> int:
        """A stride each."""
        return self.strides.shape[-1]

    def part(self, i: Array) -> "CountWindows":
        """With the stride number `i` alone."""
        return replace(self, strides=jax.lax.dynamic_slice_in_dim(jnp.asarray(self.strides), i, 1))

    def window(self, current: Array, stride: Array, offset: Array) -> Array:
        """The values `(W, n)` of every member's window."""
        steps = jnp.arange(WIDTH, dtype=current.dtype)[:, None] - offset.astype(current.dtype)
        return current + stride.astype(current.dtype) * steps

    def log_weights(self, x: Array, z: Nuisance, values: Array, data: Data) -> Float[Array, "W n"]:
        """Log probabilities of some values of every member given all else, up to a constant for each member."""

        def at(values: Array) -> Array:
            sums = self.block.factor_sums(x, self.block.place(z, jnp.maximum(values, self._lower(values))), data)
            return jnp.where(values < self._lower(values), -jnp.inf, sums)

        return jax.vmap(at)(values)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Draw all members, stride by stride."""

        def one(z: Nuisance, numbered: tuple[Array, Array]) -> tuple[Nuisance, None]:
            key_offset, key_draw = split(fold_in(key, numbered[0]))
            current = self.block.take(z)
            offset = jnp.floor(WIDTH * uniform(key_offset, current.shape))
            values = self.window(current, numbered[1], offset)
            drawn = pick(values, draw(key_draw, self.log_weights(x, z, values, data)))
            # Where all values are impossible (an unlucky start), any of them is as good as another.
            return self.block.place(z, jnp.maximum(drawn, self._lower(drawn))), None

        strides = jnp.asarray(self.strides)
        return jax.lax.scan(one, z, (jnp.arange(len(strides)), strides))[0]

    def _lower(self, values: Array) -> Array:
        return jnp.asarray(self.lowest, values.dtype)
