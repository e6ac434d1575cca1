"""The conditionals of a quadratic form compared with the program itself: one site, and its partner, at a time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.arrays import as_jax
from sumout.compiling.ahead import Ahead
from sumout.errors import ReadingError
from sumout.nuisance.quadratic import QuadraticGibbs
from sumout.program import Data, Nuisance


class FormGuard:
    """Watches over a move by a quadratic form."""

    def __init__(self, move: QuadraticGibbs):
        self.move, self.program = move, move.form.structure.program
        self._evaluate = Ahead(self._values, times=1)

    def prepare(self) -> None:
        """Begin to compile."""
        x, z, data = self.program.abstract_arguments()
        self._evaluate.prepare(x, z, x, z, data)

    def compare(self, x: Any, z: Nuisance, other_x: Any, other_z: Nuisance) -> None:
        """Go from one point to another, each site by itself.

        Raises:
            ReadingError: the log density does not change as the conditionals say.
        """
        found = self._evaluate(*as_jax((x, z, other_x, other_z, self.program.data)))
        before, after, changes = map(np.asarray, found)
        is_sound = np.isfinite(before) & np.isfinite(after)
        tolerance = (1e-3 if after.dtype == np.float32 else 1e-8) * (1 + np.abs(before) + np.abs(after))
        is_right = np.abs(after - before - changes) <= tolerance
        if not is_right[is_sound].all():
            raise ReadingError(
                f"internal error while reading '{self.program.name}': the conditionals of the sites "
                f"{self.move.form.sites} do not follow from a quadratic form as they should. Please report the program."
            )

    def _values(
        self, x: Array, z: Nuisance, other_x: Array, other_z: Nuisance, data: Data
    ) -> tuple[Array, Array, Array]:
        """The log density, the one after each change, and by how much the conditionals say it changes."""
        move, num_x, log_density = self.move, self.program.num_x, self.program.log_density
        now, then, sites = move.block.take(z), move.block.take(other_z), jnp.arange(move.block.size)
        partners = move.form.partners if move.moves_x else np.full(move.block.size, num_x)

        def changed(j: Array) -> Array:
            x_j = jnp.where(jnp.arange(num_x) == jnp.asarray(partners)[j], other_x, x)
            return log_density(x_j, move.block.place(z, jnp.where(sites == j, then, now)), data)

        return log_density(x, z, data), jax.vmap(changed)(sites), move.log_changes(x, z, other_x, other_z, data)
