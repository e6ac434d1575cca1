"""The factor graph compared with the program itself, once, at the first start that is found for it.

Some sites are changed: no factor may change that has none of them in its scope, and the factors must add up to the log
density. Where sites are drawn by a quadratic form, its conditionals must tell how the log density changes, one site,
with the coordinate of x drawn along with it, at a time.
"""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import Ahead
from sumout.errors import ReadingError
from sumout.model.arguments import as_jax
from sumout.model.initial_values import guess_z
from sumout.model.program import Data, Nuisance, Program
from sumout.moves.move import NuisanceMove
from sumout.plan.plan import Plan
from sumout.randomness import Key, generator
from sumout.structure.structure import Structure


class MoveGuard:
    """Compares the conditionals that a move derives from a pattern with the program itself, one site at a time."""

    def __init__(self, program: Program, move: NuisanceMove):
        self.move, self.program = move, program
        self._evaluate = Ahead(move.verify, times=1)

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
        is_sound = np.isfinite(before) & np.isfinite(after) & ~np.isnan(changes)
        is_right = np.abs(after - before - changes) <= _tolerance(np.abs(before) + np.abs(after))
        if not is_right[is_sound].all():
            raise ReadingError(
                f"internal error while reading '{self.program.name}': the conditionals of {len(changes)} sites do not "
                f"follow from {self.move.pattern} as they should. Please report the program."
            )


FLIPS = 4  # times that a random half of the sites is changed


class ReadingGuard:
    """Compares the factors of a program with its log density."""

    def __init__(self, structure: Structure):
        self.structure = structure
        self._evaluate = Ahead(self._values, times=FLIPS + 1)  # one z at a time, as it runs for a few only

    def prepare(self) -> None:
        """Begin to compile."""
        if self.structure.program.z:
            self._evaluate.prepare(*self.structure.program.abstract_arguments())

    def compare(self, x: Array, z: Nuisance, others: Nuisance) -> None:
        """Change some sites and see which factors move.

        Args:
            x: a point.
            z: nuisance values at that point.
            others: as z, with a leading axis of alternatives.

        Raises:
            ReadingError: a factor moved that depends on none of the changed sites, or the factors do not add up.
        """
        program = self.structure.program
        count = len(next(iter(others.values())))
        all_z = [z, *({name: other[i] for name, other in others.items()} for i in range(count))]
        arguments = [as_jax((x, one, program.data)) for one in all_z]
        factors, totals, wholes, sizes = (
            np.stack(part) for part in zip(*(self._evaluate(*each) for each in arguments), strict=True)
        )
        _check_sums(totals, wholes, sizes)
        base, moved = factors[0], factors[1:]
        for i, alternative in enumerate(moved):
            changed = np.concatenate(
                [
                    (np.asarray(z[name]) != np.asarray(others[name][i])).reshape(site.num_elements, -1).any(axis=1)
                    for name, site in program.z.items()
                ]
            )
            may_move = self.structure.scopes @ changed
            differs = ~np.isclose(alternative, base, equal_nan=True)
            if (differs & ~may_move).any():
                element = int(np.flatnonzero(differs & ~may_move)[0])
                raise ReadingError(
                    f"internal error while reading '{program.name}': factor element {element} moved although none of "
                    f"the {int(changed.sum())} changed sites is in its scope. Please report this program."
                )

    def _values(self, x: Array, z: Nuisance, data: Data) -> tuple[Array, Array, Array, Array]:
        """The factors, their sum with the rest, what it should be, and the size of the terms."""
        factors, rest = self.structure.factors(x, z, data), self.structure.rest(x, z, data)
        flat = jnp.concatenate([jnp.zeros(0), *(factor.ravel() for factor in factors)])
        size = jnp.abs(flat).sum() + jnp.abs(rest)
        return flat, flat.sum() + rest, self.structure.program.log_density(x, z, data), size


class Guard:
    """All such comparisons for a plan."""

    def __init__(self, plan: Plan):
        self.program = plan.structure.program
        self._reading = ReadingGuard(plan.structure)
        self._moves = [MoveGuard(self.program, move) for move in plan.moves if move.pattern is not None]

    def of(self, plan: Plan) -> "Guard":
        """The same of a plan with the same code for other data; what is compiled is shared."""
        other = copy.copy(self)
        other.program = plan.structure.program
        other._reading = copy.copy(self._reading)
        other._reading.structure = plan.structure
        other._moves = [copy.copy(guard) for guard in self._moves]
        for guard in other._moves:
            guard.program = other.program
        return other

    def prepare(self) -> None:
        """Begin to compile."""
        for guard in (self._reading, *self._moves):
            guard.prepare()

    def compare(self, key: Key, x: Any, z: Nuisance) -> None:
        """Compare reading and program at a point, a random half of the sites changed."""
        program = self.program
        if not program.z:
            return
        rng = generator(key)
        chosen = {name: rng.uniform(size=(FLIPS, *program.z[name].support.shape)) < 0.5 for name in z}
        spread = {name: c.reshape(c.shape + (1,) * (1 + np.ndim(z[name]) - c.ndim)) for name, c in chosen.items()}
        others = guess_z(rng, program, FLIPS)
        flips: Any = {name: np.where(spread[name], others[name], z[name]) for name in z}
        self._reading.compare(x, z, flips)
        for guard in self._moves:
            guard.compare(x, z, x + 1.0, jax.tree.map(lambda a: a[0], flips))


def _tolerance(size: np.ndarray) -> np.ndarray:
    """How far sums of terms of this size may lie apart: the digits that remain where many terms are added up."""
    return (1e-3 if size.dtype == np.float32 else 1e-8) * (1 + size)


def _check_sums(totals: np.ndarray, wholes: np.ndarray, sizes: np.ndarray) -> None:
    """Compare the sums, relative to the size of their terms: large ones may cancel."""
    sound = np.isfinite(wholes)
    if not (np.abs(totals[sound] - wholes[sound]) <= _tolerance(sizes[sound])).all():
        raise ReadingError(
            f"internal error while reading the program: its factors add up to {totals[sound]}, its log density is "
            f"{wholes[sound]}. Please report this program."
        )
