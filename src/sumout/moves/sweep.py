"""A sweep: one move after the other until every site has had its turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.model.program import Data, Nuisance
from sumout.randomness import fold_in, split


@runtime_checkable
class NuisanceMove(Protocol):
    """Leaves p(z | x, y) invariant."""

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        ...

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """New z."""
        ...


@runtime_checkable
class JointMove(NuisanceMove, Protocol):
    """Can also move some coordinates of x together with z, which leaves p(x, z | y) invariant."""

    @property
    def moves_x(self) -> bool:
        """Whether there are such coordinates."""
        ...

    def jointly(self, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Nuisance]:
        """New x and z."""
        ...


def move_jointly(
    move: Callable[[Array, Array, Nuisance, Data], Nuisance], key: Array, x: Array, z: Nuisance, data: Data
) -> tuple[Array, Nuisance]:
    """Move z, and with it the coordinates of x that the move can take along."""
    if isinstance(move, JointMove) and move.moves_x:
        return move.jointly(key, x, z, data)
    return x, move(key, x, z, data)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Several moves in a fixed order."""

    moves: Sequence[NuisanceMove]

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return sum(move.evaluations for move in self.moves)

    @property
    def moves_x(self) -> bool:
        """Whether one of them can move coordinates of x along."""
        return any(isinstance(move, JointMove) and move.moves_x for move in self.moves)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Apply all moves."""
        for move, key_move in zip(self.moves, self._keys(key), strict=True):
            z = move(key_move, x, z, data)
        return z

    def jointly(self, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Nuisance]:
        """Apply all moves; those that can move coordinates of x along do so."""
        for move, key_move in zip(self.moves, self._keys(key), strict=True):
            x, z = move_jointly(move, key_move, x, z, data)
        return x, z

    def _keys(self, key: Array) -> Any:
        return [key] if len(self.moves) == 1 else split(key, len(self.moves))


STAY = Sweep(())


@partial(jax.tree_util.register_dataclass, data_fields=["stacked"], meta_fields=["length"])
@dataclass(frozen=True, eq=False)
class Stack:
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

    def part(self, i: Array) -> NuisanceMove:
        """The move number `i` alone."""
        return jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(jnp.asarray(a), i, keepdims=False), self.stacked)


@dataclass(frozen=True, eq=False)
class Turns:
    """One move at a time, for sweeps that cost more than a gradient: number `t` modulo the number of moves."""

    moves: Sequence[NuisanceMove]

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data, t: Array) -> Nuisance:
        """Apply the move whose turn it is; `t` must be the same for all chains, lest all moves be made."""
        lengths = [move.length if isinstance(move, Stack) else 1 for move in self.moves]
        starts = np.cumsum([0, *lengths])
        turn = t % starts[-1]

        def branch(move: NuisanceMove, start: int) -> Callable[[Nuisance], Nuisance]:
            if isinstance(move, Stack):
                return lambda z: move.part(turn - start)(key, x, z, data)
            return lambda z: move(key, x, z, data)

        branches = [branch(move, start) for move, start in zip(self.moves, starts.tolist(), strict=False)]
        return jax.lax.switch(jnp.searchsorted(starts[1:], turn, side="right"), branches, z)
