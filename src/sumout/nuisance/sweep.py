"""A sweep: one move after the other until every site has had its turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sumout.program import Data, Nuisance


@runtime_checkable
class NuisanceMove(Protocol):
    """Leaves p(z | x, y) invariant."""

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """New z."""
        ...


@dataclass(frozen=True, eq=False)
class Sweep:
    """Several moves in a fixed order."""

    moves: Sequence[NuisanceMove]

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Apply all moves."""
        keys = [key] if len(self.moves) == 1 else jax.random.split(key, len(self.moves))
        for move, key_move in zip(self.moves, keys, strict=True):
            z = move(key_move, x, z, data)
        return z


STAY = Sweep(())


@partial(jax.tree_util.register_dataclass, data_fields=["stacked"], meta_fields=["length"])
@dataclass(frozen=True, eq=False)
class Stack:
    """Many moves of one shape, compiled once and run one after the other."""

    stacked: Any  # a move whose arrays have a leading axis
    length: int

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Apply all moves."""

        def one(z: Nuisance, numbered: tuple[Array, Any]) -> tuple[Nuisance, None]:
            i, move = numbered
            return move(jax.random.fold_in(key, i), x, z, data), None

        return jax.lax.scan(one, z, (jnp.arange(self.length), self.stacked))[0]
