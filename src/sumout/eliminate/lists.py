"""Rows of tables that are looked up by lists known beforehand, in both directions, so that nothing is scattered."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

NONE = -1  # in lists: there is none
MOST_SPREAD = 8  # times as many places as rows that lists may have before a scatter takes less time


def take_rows(table: Array, rows: np.ndarray) -> Array:
    """Rows of a table, anything where the number is `NONE`; the derivative adds up by lists, not by a scatter."""
    lists = lists_of(rows, len(table))
    if lists.size > MOST_SPREAD * len(rows):
        return table[np.maximum(rows, 0)]

    @jax.custom_vjp
    def take(table: Array) -> Array:
        return table[np.maximum(rows, 0)]

    def add_up(_: None, gradient: Array) -> tuple[Array]:
        wide = jnp.concatenate([gradient, jnp.zeros_like(gradient[:1])])
        return (wide[lists].sum(axis=1) if lists.shape[1] > 1 else wide[lists[:, 0]],)

    take.defvjp(lambda table: (take(table), None), add_up)
    return take(table)


def lists_of(out: np.ndarray, num_states: int) -> np.ndarray:
    """For each state the entries that lead there: along the axis of entries, two axes of states and of these."""
    if out.ndim == 3:
        by_column = [lists_of(out[..., c], num_states) for c in range(out.shape[2])]
        return np.stack(_filled_up(by_column), axis=-1)
    if out.ndim == 2:
        return np.stack(_filled_up([lists_of(level, num_states) for level in out]))
    entries = np.flatnonzero(out != NONE)
    entries = entries[np.argsort(out[entries], kind="stable")]
    states = out[entries]
    rank = np.arange(len(states)) - np.searchsorted(states, states)
    lists = np.full((num_states, int(rank.max(initial=0)) + 1), NONE)
    lists[states, rank] = entries
    return lists


def _filled_up(lists: Sequence[np.ndarray]) -> list[np.ndarray]:
    """To the same length of the last axis but for columns."""
    most = max(one.shape[-1] for one in lists)
    return [np.pad(one, [(0, 0)] * (one.ndim - 1) + [(0, most - one.shape[-1])], constant_values=NONE) for one in lists]
