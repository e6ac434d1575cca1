"""Sums, draws, maxima and marginals along paths of states (`patterns/state_paths.py`), many paths at once.

    B_l(s, k) = m_l(s) + table_l(s, k)        m_{l+1}(s') = log Σ_{(s, k): out_l(s, k) = s'} exp B_l(s, k)

A level has an entry for each state and value, (s, k) as s · K + k, and columns, one for each path; the total is the sum
over all entries of the last level. Which entries lead to a state is known beforehand: messages are looked up, never
scattered. The derivative by the table is the probability of each entry, which goes from level to level by the same
look-ups the other way. In front of a path that is shorter than others stands padding, where nothing happens yet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from sumout.eliminate.lists import NONE, lists_of
from sumout.eliminate.state_products import is_worth_products, last_message
from sumout.randomness import uniform
from sumout.tables.logsumexp import invert, log_sum_exp

ALL = slice(None)  # levels


@dataclass(frozen=True, eq=False)
class Maps:
    """Which state each entry leads to, and which entries lead to each state.

    Attributes:
        out: `(S · K)`, or `(L, S · K)` where levels differ, or `(L, S · K, C)` where columns do, too; `NONE` for an
            entry that there is not. Where those of the last level lead does not matter.
        lists: for some of the states, in their order, the entries that lead there, `(S', D)`, `(L, S', D)` or
            `(L, S', D, C)`, filled up by `NONE`.
    """

    out: np.ndarray
    lists: tuple[np.ndarray, ...]

    @property
    def is_one(self) -> bool:
        """Whether it is the same for all levels and columns."""
        return self.out.ndim == 1

    def by_level(self, span: slice = ALL) -> tuple[Any, Any]:
        """What steps at some levels need of their level."""
        return (
            (None, None)
            if self.is_one
            else (jnp.asarray(self.out[span]), tuple(jnp.asarray(x[span]) for x in self.lists))
        )

    def collect(self, filled: Float[Array, "n C"], lists: Any, reduce: Callable[..., Array]) -> Float[Array, "S C"]:
        """The entries that lead to each state, reduced."""
        wide = jnp.concatenate([filled, jnp.full_like(filled[:1], -jnp.inf)])
        parts = []
        for entries in self.lists if lists is None else lists:
            if entries.ndim == 3:
                flat = entries.reshape(-1, entries.shape[-1])
                found = jnp.take_along_axis(wide, flat % len(wide), axis=0).reshape(entries.shape)
            else:
                found = wide[entries]  # the last row is that of NONE
            parts.append(found[:, 0] if entries.shape[1] == 1 else reduce(found))
        return jnp.concatenate(parts) if len(parts) > 1 else parts[0]

    def look_up(self, states: Float[Array, "S C"], out: Any) -> Float[Array, "n C"]:
        """For each entry what there is for the state it leads to; anything where there is none."""
        index = self.out if out is None else out
        return jnp.take_along_axis(states, index % len(states), axis=0) if index.ndim == 2 else states[index]


def _highest(found: Float[Array, "S D C"]) -> Float[Array, "S C"]:
    return found.max(axis=1)


@dataclass(frozen=True, eq=False)
class StateChains:
    """Paths side by side.

    Attributes:
        num_values: K.
        num_states: S.
        sites: `(levels, columns, 1)` the site of each level; −1 for padding.
        start: the state that all begin with.
        maps: between the levels.
        allowed: `(levels, K, columns)` False for values that a site does not have; None where all have all.
    """

    num_values: int
    num_states: int
    sites: np.ndarray
    start: int
    maps: Maps
    allowed: np.ndarray | None

    @property
    def is_padding(self) -> np.ndarray:
        """Which levels of which columns have no site."""
        return np.asarray((self.sites < 0).all(axis=2))

    @property
    def num_entries(self) -> int:
        """Of all levels and columns."""
        levels, columns, _ = self.sites.shape
        return levels * columns * self.num_states * self.num_values

    def log_total(self, table: Float[Array, "L n C"], shared: Float[Array, "l n 1"] | None = None) -> Float[Array, ""]:
        """The logarithm of the sum over all joint values, summed over the columns.

        Args:
            table: of all levels, or of those that follow the shared ones.
            shared: the table of the first levels, if it is the same in all columns: they are gone through once.
        """
        first = jnp.asarray(self._begin, table.dtype)
        if shared is not None:
            if self.maps.is_one and is_worth_products(len(shared), self.num_states):
                first = last_message(shared, self.maps.out, self.start, self.num_states)
            else:
                first = self._messages(slice(0, len(shared)))(shared, first)
        first = jnp.broadcast_to(first, (self.num_states, table.shape[-1]))
        return self._messages(slice(len(self.sites) - len(table), None))(table, first)[0].sum()

    def draw(self, key: Array, table: Float[Array, "L n C"]) -> Int[Array, "L C 1"]:
        """For each site the number of a value: one joint draw."""
        levels = uniform(key, self.sites.shape[:2], table.dtype)
        return self._choose(self._fill(table, log_sum_exp)[0], invert, levels)

    def most_probable(self, table: Float[Array, "L n C"]) -> Int[Array, "L C 1"]:
        """For each site the number of a value: the joint values with the largest table."""
        nothing = jnp.zeros(self.sites.shape[:2])
        return self._choose(self._fill(table, _highest)[0], lambda weights, _: jnp.argmax(weights, axis=0), nothing)

    def log_marginals(self, table: Float[Array, "L n C"]) -> Float[Array, "L C 1 K"]:
        """Log probabilities of the values of every site."""
        given, _ = self._given(table)
        first = jnp.zeros((self.num_states, table.shape[-1]), table.dtype)

        def step(after: Array, level: Any) -> tuple[Array, Array]:
            given, is_padding, (out, _) = level
            belief = given + self.maps.look_up(after, out)
            belief = belief.reshape(self.num_states, self.num_values, -1)
            before = jnp.where(is_padding, after, log_sum_exp(belief))
            return before, log_sum_exp(belief, -3)

        found = lax.scan(step, first, (given, self._padding, self.maps.by_level()), reverse=True)[1]
        return found.swapaxes(1, 2)[:, :, None]

    def log_beliefs(
        self, table: Float[Array, "L n C"], terms: Float[Array, "L C 1 K"], zeros: Float[Array, "L C 1 K"]
    ) -> Float[Array, "L C 1 K"]:
        """Log weights of the values of every site, up to a constant, with further terms: as `Buckets.log_beliefs`."""
        table = table + self._for_states(terms)
        finite = jnp.isfinite(table)
        low = jnp.where(finite, table, jnp.inf).min(axis=1)
        high = jnp.where(finite, table, -jnp.inf).max(axis=1)
        spans = jnp.where(self.is_padding, 0.0, jnp.maximum(high - low, 0.0) + np.log(table.shape[1]))
        epsilon = jnp.finfo(table.dtype).eps
        small = jnp.maximum(-spans.sum(axis=0) + jnp.log(epsilon), -1 / np.sqrt(epsilon))[:, None, None]
        weights = jnp.where(zeros == 0, 0.0, jnp.where(zeros == 1, small, -jnp.inf))
        beliefs = self.log_marginals(table + self._for_states(weights))
        return jnp.where(zeros == 1, beliefs - small, beliefs)

    def _for_states(self, terms: Float[Array, "L C 1 K"]) -> Float[Array, "L n C"]:
        """Terms of the values of sites, for each state."""
        by_value = terms[:, :, 0].swapaxes(1, 2)[:, None]
        levels, _, num_values, columns = by_value.shape
        shape = (levels, self.num_states, num_values, columns)
        return jnp.broadcast_to(by_value, shape).reshape(levels, -1, columns)

    @cached_property
    def _padding(self) -> np.ndarray:
        return self.is_padding[:, None]

    @property
    def _begin(self) -> np.ndarray:
        return np.where(np.arange(self.num_states) == self.start, 0.0, -np.inf)[:, None]

    def _fill(
        self, table: Float[Array, "l n C"], reduce: Callable[..., Array], first: Array | None = None, span: slice = ALL
    ) -> tuple[Array, Array]:
        """B of some levels, and the messages after each; after the last of all the total, for whatever state."""
        begin = jnp.asarray(self._begin, table.dtype)

        def step(message: Array, level: Any) -> tuple[Array, Array]:
            table, is_padding, (_, lists) = level
            after = self.maps.collect(self._add(message, table), lists, reduce)
            after = jnp.where(is_padding, begin, after)
            return after, after

        first = jnp.broadcast_to(begin if first is None else first, (self.num_states, table.shape[-1]))
        _, after = lax.scan(step, first, (table, self._padding_of(table, span), self.maps.by_level(span)))
        filled = self._add(jnp.concatenate([first[None], after[:-1]]), table)
        if span.stop is not None:
            return filled, after
        total = jnp.broadcast_to(reduce(filled[-1:]), first.shape)
        return filled, jnp.concatenate([after[:-1], total[None]])

    def _padding_of(self, table: Array, span: slice) -> np.ndarray:
        """Which cells of some levels are padding; levels that columns share have none."""
        return self._padding[span][..., : table.shape[-1]]

    def _add(self, message: Float[Array, "*l S C"], table: Float[Array, "*l n C"]) -> Float[Array, "*l n C"]:
        """Messages and tables; a state that is not reached has no say, whatever the table has there."""
        wide = jnp.repeat(message, self.num_values, axis=-2)
        return jnp.where(wide == -jnp.inf, -jnp.inf, wide + table)

    def _given(
        self, table: Float[Array, "l n C"], first: Array | None = None, span: slice = ALL
    ) -> tuple[Array, Array]:
        """The log probability of each entry given the state it leads to; and the last messages."""
        filled, after = self._fill(table, log_sum_exp, first, span)
        out = self.maps.out if self.maps.is_one else self.maps.out[span]
        if out.ndim == 3:
            known = jnp.take_along_axis(after, jnp.asarray(out % self.num_states), axis=1)
        elif out.ndim == 2:
            known = jax.vmap(lambda states, out: states[out])(after, jnp.asarray(out))
        else:
            known = after[:, out]
        is_entry = out != NONE
        is_entry = is_entry.reshape((-1, *is_entry.shape[1:], 1)[-3:] if is_entry.ndim < 3 else is_entry.shape)
        is_reached = is_entry & (known > -jnp.inf) & ~self._padding_of(table, span)
        return jnp.where(is_reached, filled - jnp.where(is_reached, known, 0.0), -jnp.inf), after[-1]

    def _messages(self, span: slice) -> Callable[[Array, Array], Array]:
        """The messages after some levels, from their table and the messages before them, with derivatives."""

        @jax.custom_vjp
        def messages(table: Float[Array, "l n C"], first: Float[Array, "S C"]) -> Float[Array, "S C"]:
            return self._fill(table, log_sum_exp, first, span)[1][-1]

        def forward(table: Array, first: Array) -> tuple[Array, Array]:
            given, last = self._given(table, first, span)
            return last, given

        def backward(given: Array, gradient: Array) -> tuple[Array, Array]:
            if span.stop is None:  # all states after the last level stand for the same total
                gradient = jnp.broadcast_to(gradient.sum(axis=0), gradient.shape)

            def step(after: Array, level: Any) -> tuple[Array, Array]:
                weights, is_padding, (out, _) = level
                each = weights * self.maps.look_up(after, out)
                before = each.reshape(self.num_states, self.num_values, -1).sum(axis=1)
                return jnp.where(is_padding, after, before), each

            levels = (jnp.exp(given), self._padding_of(given, span), self.maps.by_level(span))
            before, by_table = lax.scan(step, gradient, levels, reverse=True)
            return by_table, before

        messages.defvjp(forward, backward)
        return messages

    def _choose(
        self, filled: Float[Array, "L n C"], choose: Callable[[Array, Array], Array], hints: Array
    ) -> Int[Array, "L C 1"]:
        """From the last level to the first: for every site the number of a value, given the state after it."""
        outs = None if self.maps.is_one else jnp.asarray(self.maps.out)

        def step(state: Array, level: Any) -> tuple[Array, Array]:
            filled, hint, is_padding, is_last, out = level
            out = jnp.asarray(self.maps.out) if out is None else out
            leads_there = is_last | ((out if out.ndim == 2 else out[:, None]) == state)
            entry = choose(jnp.where(leads_there, filled, -jnp.inf), hint)
            return jnp.where(is_padding[0], state, entry // self.num_values), entry % self.num_values

        last = jnp.zeros(filled.shape[-1], int)
        is_last = np.arange(len(filled)) == len(filled) - 1
        levels = (filled, hints, self._padding, is_last, outs)
        return lax.scan(step, last, levels, reverse=True)[1][..., None]


MOST_FILLING = 2  # times as many places as entries that the lists of some states may have


def number_states(out: np.ndarray, num_states: int) -> np.ndarray:
    """New numbers of states: those that few entries lead to come first, so that they can share short lists."""
    degrees = np.bincount(out[out != NONE], minlength=num_states)
    numbers = np.zeros(num_states, np.int64)
    numbers[np.argsort(degrees, kind="stable")] = np.arange(num_states)
    return numbers


def build_maps(out: np.ndarray, num_states: int) -> Maps:
    """Maps from where each entry leads."""
    if out.ndim > 1:
        return Maps(out, (lists_of(out, num_states),))
    sizes = np.maximum(np.bincount(out[out != NONE], minlength=num_states), 1)
    lists, start = [], 0
    while start < num_states:
        # As many states as can share a list without too much of it being empty.
        ends = np.arange(start + 1, num_states + 1)
        filling = (ends - start) * sizes[start:] / np.cumsum(sizes[start:])
        end = int(ends[np.flatnonzero(filling <= MOST_FILLING)[-1]])
        inside = (out >= start) & (out < end)
        lists.append(lists_of(np.where(inside, out - start, NONE), end - start))
        start = end
    return Maps(out, tuple(lists))
