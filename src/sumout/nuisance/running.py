"""Sums of elements that change once while k runs through its values, for all k at once.

    Σ_e (first_e if k < p_e else last_e) = Σ_{e: p_e > k} first_e + Σ_{e: p_e ≤ k} last_e

Elements are added up by the value p_e at which they change; the rest are running totals, one from each end. Every sum
has the terms it would have if it were added up on its own, and no others: an impossible case (−∞) stays where it is
chosen, and nothing is subtracted that was added before.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from sumout.nuisance.sums import share


@dataclass(frozen=True, eq=False)
class RunningSums:
    """Sums by owner for every value.

    Attributes:
        num_values: K.
        size: number of owners n.
        until: how the elements are shared out that change, to owner · K + number of the last value before they do.
        since: likewise to owner · K + number of the value they change at; those that never change, at 0.
    """

    num_values: int
    size: int
    until: Any
    since: Any

    def __call__(self, first: Array, last: Array) -> Float[Array, "K n"]:
        """The sums, of elements with their values before and after they change."""
        bins = self.size * self.num_values
        parts = [(self.since, last, False), (self.until, first, True)]
        rows = [owned.sums(flat.ravel(), bins).reshape(self.size, -1) for owned, flat, _ in parts if owned is not None]
        ways = [is_reversed for owned, _, is_reversed in parts if owned is not None]
        return sum_up(rows, ways).T


def sum_up(rows: list[Array], is_reversed: list[bool]) -> Array:
    """The running totals of some arrays along the last axis, each from its own end, added."""
    turned = [a[..., ::-1] if way else a for a, way in zip(rows, is_reversed, strict=True)]
    steps = jnp.moveaxis(jnp.stack(turned), -1, 0)
    # One by one, which on CPUs takes less time, to run and to compile, than `cumsum` with its rounds of pairs.
    totals = jnp.moveaxis(lax.scan(_add, jnp.zeros_like(steps[0]), steps)[1], 0, -1)
    return reduce(jnp.add, [a[..., ::-1] if way else a for a, way in zip(totals, is_reversed, strict=True)])


def _add(total: Array, step: Array) -> tuple[Array, Array]:
    return total + step, total + step


def build_running(elements: np.ndarray, owners: np.ndarray, changes: np.ndarray, size: int, count: int) -> RunningSums:
    """The sums of some elements of an array.

    Args:
        elements: their numbers.
        owners: the owner of each.
        changes: for all elements of the array, the number of the value at which they change; 0 for those that never do.
        size: number of owners.
        count: number of values K.
    """
    at = changes.ravel()[elements]
    moves = at > 0
    since = share(elements, owners * count + at, changes.size, size * count) if len(elements) else None
    until = (
        share(elements[moves], (owners * count + at - 1)[moves], changes.size, size * count) if moves.any() else None
    )
    return RunningSums(count, size, until, since)
