"""The contract of a move on z."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from sumout.model.program import Data, Nuisance


class NuisanceMove(ABC):
    """Leaves p(z | x, y) invariant, and answers what plans, checks and reports ask of it.

    The answers given here are those of a move of one block, of z alone, without a table of conditionals.
    """

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""

    @abstractmethod
    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """New z."""

    @property
    def moves_x(self) -> bool:
        """Whether some coordinates of x can be moved together with z."""
        return False

    def jointly(self, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Nuisance]:
        """New x and z, the coordinates of x that can be moved along being moved; leaves p(x, z | y) invariant."""
        return x, self(key, x, z, data)

    @property
    def num_parts(self) -> int:
        """How many parts a scan can be cut into, to be made at different steps."""
        return 1

    def part(self, i: Array) -> "NuisanceMove":
        """The part number `i` alone."""
        del i
        return self

    def split(self) -> list[Any]:
        """The moves of one block each that it consists of."""
        return [self]

    def map_blocks(self, function: Callable[[Any], Any]) -> Any:
        """What a function returns for each move of `split`, along a leading axis."""
        return jax.tree.map(lambda a: a[None], function(self))

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """Sites and the probabilities of their values `(n, K)`, given x and all sites that are not drawn with them."""
        del x, z, data
        yield from ()

    @property
    def shows_barriers(self) -> bool:
        """Whether it has tables, `log_weights`, in which values show that one site alone cannot reach."""
        return False

    @property
    def lower(self) -> Any:
        """Where the supports of its members begin, if they have no upper end; None if they have one."""
        return None

    @property
    def pattern(self) -> str | None:
        """What the conditionals are derived from, if not from values of the factors; `verify` then has an answer."""
        return None

    def verify(
        self, x: Array, z: Nuisance, other_x: Array, other_z: Nuisance, data: Data
    ) -> tuple[Array, Array, Array]:
        """The log density, what it is after going to another point in one site alone, and the changes as derived."""
        raise NotImplementedError

    def describe(self) -> str | None:
        """What there is to say of it beside its method, in words."""
        return None
