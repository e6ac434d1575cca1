"""Moves made of moves: a sweep, in which every site is drawn, stacks of moves of one shape, and partial scans."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.model.program import Data, Nuisance
from sumout.moves.move import NuisanceMove
from sumout.randomness import fold_in, split


@dataclass(frozen=True, eq=False)
class Sweep(NuisanceMove):
    """Several moves in a fixed order."""

    moves: Sequence[NuisanceMove]

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return sum(move.evaluations for move in self.moves)

    @property
    def moves_x(self) -> bool:
        """Whether one of them can move coordinates of x along."""
        return any(move.moves_x for move in self.moves)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Apply all moves."""
        for move, key_move in zip(self.moves, self._keys(key), strict=True):
            z = move(key_move, x, z, data)
        return z

    def jointly(self, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Nuisance]:
        """Apply all moves; those that can move coordinates of x along do so."""
        for move, key_move in zip(self.moves, self._keys(key), strict=True):
            x, z = move.jointly(key_move, x, z, data)
        return x, z

    def split(self) -> list[Any]:
        """The moves of one block each that it consists of."""
        return [block for move in self.moves for block in move.split()]

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """Those of all moves."""
        for move in self.moves:
            yield from move.probabilities(x, z, data)

    def _keys(self, key: Array) -> Any:
        return [key] if len(self.moves) == 1 else split(key, len(self.moves))


STAY = Sweep(())


@partial(jax.tree_util.register_dataclass, data_fields=["stacked"], meta_fields=["length"])
@dataclass(frozen=True, eq=False)
class Stack(NuisanceMove):
    """Many moves of one shape, compiled once and run one after the other."""

    stacked: Any  # a move whose arrays have a leading axis
    length: int

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return self.length * self.stacked.evaluations

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Apply all moves."""

        def one(z: Nuisance, numbered: tuple[Array, Any]) -> tuple[Nuisance, None]:
            i, move = numbered
            return move(fold_in(key, i), x, z, data), None

        return jax.lax.scan(one, z, (jnp.arange(self.length), self.stacked))[0]

    @property
    def num_parts(self) -> int:
        """Each of them can be made alone."""
        return self.length

    def part(self, i: Array) -> NuisanceMove:
        """The move number `i` alone."""
        return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(jnp.asarray(a), i, keepdims=False), self.stacked)

    def split(self) -> list[Any]:
        """The moves themselves."""
        return [jax.tree.map(lambda a, i=i: np.asarray(a)[i], self.stacked) for i in range(self.length)]

    def map_blocks(self, function: Callable[[Any], Any]) -> Any:
        """For all moves at once."""
        return jax.vmap(function)(self.stacked)

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """Those of all moves."""
        for move in self.split():
            yield from move.probabilities(x, z, data)

    @property
    def shows_barriers(self) -> bool:
        """Whether the moves do."""
        return self.stacked.shows_barriers

    @property
    def lower(self) -> Any:
        """As the moves have it."""
        return self.stacked.lower


@dataclass(frozen=True, eq=False)
class PartialScan:
    """One part of a sweep at a time, where a whole one costs more than a gradient: number `t` modulo all parts."""

    moves: Sequence[NuisanceMove]

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data, t: Array) -> Nuisance:
        """Make the part for step `t`, which must be the same for all chains: else all parts would be made for each."""
        ends = np.cumsum([move.num_parts for move in self.moves])
        number = t % ends[-1]

        def branch(move: NuisanceMove, end: int) -> Callable[[Nuisance], Nuisance]:
            return lambda z: move.part(number - (end - move.num_parts))(key, x, z, data)

        branches = [branch(move, end) for move, end in zip(self.moves, ends.tolist(), strict=True)]
        return jax.lax.switch(jnp.searchsorted(ends, number, side="right"), branches, z)
