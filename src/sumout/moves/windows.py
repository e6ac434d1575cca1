"""Unbounded counts, drawn from their conditional on windows of a few values, of every width.

With a stride s and an offset o, uniform on 0 … W − 1, whatever the present value n is, a new one is drawn from

    p(m | all else),  m ∈ {n − o s, n − o s + s, …, n + (W − 1 − o) s}

Every value of a window leads to that window with the same probability 1/W, so that this leaves the conditional as it is
without any rejection: Gibbs sampling, given the window. Strides go up by factors of W, and are drawn without a look at
n, too. Of a conditional of whatever width some stride has a few values in it; smaller ones then draw what is between.
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
# Rounds of a sweep: one of the wide strides by chance, then one after the other. Draws of normals with deviations up to
# 16 have an autocorrelation time of at most 1.7; wider ones have three times that, as two strides in three miss them.
WIDE = WIDTH ** np.arange(2, 5)
NARROW = WIDTH ** np.arange(2)[::-1]
NUM_ROUNDS = 1 + len(NARROW)


@partial(jax.tree_util.register_dataclass, data_fields=["block", "lowest", "rounds"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class CountWindows(NuisanceMove):
    """Draws the members of a block from windows around their present values.

    Attributes:
        block: the members.
        lowest: `(n,)` or `(1,)` where their supports begin.
        rounds: their numbers; 0 is that of wide strides.
    """

    block: Block
    lowest: Array | np.ndarray
    rounds: Array | np.ndarray

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
        """The rounds."""
        return self.rounds.shape[-1]

    def part(self, i: Array) -> "CountWindows":
        """The round number `i` alone."""
        return replace(self, rounds=jax.lax.dynamic_slice_in_dim(jnp.asarray(self.rounds), i, 1))

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
        """Draw all members, round by round."""

        def one(z: Nuisance, number: Array) -> tuple[Nuisance, None]:
            key_stride, key_offset, key_draw = split(fold_in(key, number), 3)
            current = self.block.take(z)
            wide = jnp.floor(len(WIDE) * uniform(key_stride, current.shape)).astype(int)
            stride = jnp.where(number == 0, jnp.asarray(WIDE)[wide], jnp.asarray([0, *NARROW])[number])
            values = self.window(current, stride, jnp.floor(WIDTH * uniform(key_offset, current.shape)))
            drawn = pick(values, draw(key_draw, self.log_weights(x, z, values, data)))
            # Where all values are impossible (an unlucky start), any of them is as good as another.
            return self.block.place(z, jnp.maximum(drawn, self._lower(drawn))), None

        return jax.lax.scan(one, z, jnp.asarray(self.rounds))[0]

    def _lower(self, values: Array) -> Array:
        return jnp.asarray(self.lowest, values.dtype)
