"""Sums, draws, maxima and marginals over trees of tables, many trees at once.

Every cell, of one site or of m that are summed out together, has a table over its own K^m joint values (axis 0) and
those of its separator (J = K^(m width), flat). Cells stand in levels by their depth, deepest first, and in columns.
Going up, level by level,

    B = table + messages from below        message(s) = log Σ_k exp B(k, s)

and at the last level, the roots, the messages are the logarithms of the totals. B is all that is needed to go down
again: given the values s of its separator a cell has the log probabilities B(·, s). Derivatives are those of the scan:
they are the marginals of the tables.

Levels are run through by `lax.scan`, so that compiled code does not grow with the length of a chain. What can be done
for all levels at once is done outside of it: an operation in a loop costs more than the few numbers it is for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from sumout.nuisance.gibbs import invert
from sumout.randomness import uniform

MOST_UNROLLED = 8  # levels; compiled code grows with them

MOST_WRITTEN_OUT = 4  # values that are added one by one

Reduce = Callable[[Array], Array]


@jax.custom_jvp
def log_sum_exp(table: Float[Array, "*n K J"]) -> Float[Array, "*n J"]:
    """log Σ_k exp over the second axis from the end; −∞ where all terms are, with derivative zero."""
    return _log_sum_exp(table)[0]


@log_sum_exp.defjvp
def _log_sum_exp_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    total, weights = _log_sum_exp(primals[0])
    return total, (weights * tangents[0]).sum(axis=-2)


def _log_sum_exp(table: Array) -> tuple[Array, Array]:
    highest = _fold(jnp.maximum, jnp.max, table)
    highest = lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0.0))
    terms = jnp.exp(table - highest)
    total = _fold(jnp.add, jnp.sum, terms)
    weights = terms / jnp.where(total == 0, 1.0, total)
    return (jnp.log(total) + highest).squeeze(-2), weights


def _fold(two: Callable[..., Array], many: Callable[..., Array], table: Array) -> Array:
    """Reduce the second axis from the end to size 1; few values one by one, which XLA fuses with what is around."""
    if table.shape[-2] > MOST_WRITTEN_OUT:
        return many(table, axis=-2, keepdims=True)
    return reduce(two, [table[..., k : k + 1, :] for k in range(table.shape[-2])])


@partial(jax.tree_util.register_dataclass, data_fields=["table"], meta_fields=["levels"])
@dataclass(frozen=True, eq=False)
class Part:
    """A part of the tables that depends on some of the separator.

    Attributes:
        table: `(levels or 1, columns, K, …, K)` with an axis for each site of the cell and of its separator, of size 1
            along those on which it does not vary, and along the levels where all of a column are alike.
        levels: the first level it is needed for and the first for which it is not any more; elsewhere it is zero.
    """

    table: Float[Array, "depth columns *axes"]
    levels: tuple[int, int]


@partial(jax.tree_util.register_dataclass, data_fields=["single", "joint"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of all cells in parts, which add up.

    Attributes:
        single: what depends on the cell's own sites alone.
        joint: what depends on its separator as well. Roots have no separator: what stands there does not count.
    """

    single: Float[Array, "levels columns own"]
    joint: tuple[Part, ...]


def _highest(table: Array) -> Array:
    return jnp.max(table, axis=-2)


@dataclass(frozen=True, eq=False)
class Buckets:
    """Trees of tables, laid out in levels and columns.

    A level is straight if every message goes to the parent in the same column, and along the first axes of its table:
    entry e of the parent's table has entry e // K^m of the message. All levels of a chain are.

    Attributes:
        num_values: K.
        width: how many cells the largest separator has.
        sites: `(levels, columns, m)` which sites have the cell; −1 for none.
        num_straight: so many levels, from the deepest on, are straight.
        parents: `(other levels, columns)` column of the parent, one level on; `columns` for none. Roots have no row.
        index: `(other levels, columns, K^m J)` for each entry of the parent's table the entry of the message that
            belongs to it; None where that is e // K^m throughout.
        allowed: `(levels, columns, K^m)` False for values that a cell does not have; None where all have all.
    """

    num_values: int
    width: int
    sites: np.ndarray
    num_straight: int
    parents: np.ndarray
    index: np.ndarray | None
    allowed: np.ndarray | None

    @property
    def size(self) -> int:
        """How many sites a cell has: m."""
        return self.sites.shape[2]

    @property
    def num_axes(self) -> int:
        """How many sites the table of a cell is over."""
        return self.size * (1 + self.width)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Levels, columns, joint values of a cell and of its separator."""
        own = self.num_values**self.size
        return (*self.sites.shape[:2], own, own**self.width)

    @property
    def is_idle(self) -> np.ndarray:
        """Which cells have no site, `(levels, columns)`."""
        return np.asarray((self.sites < 0).all(axis=2))

    def log_total(self, tables: Tables) -> Float[Array, ""]:
        """The logarithm of the sum over all joint values, summed over the trees."""
        return self.up(tables, log_sum_exp)[1]

    def draw(self, key: Array, tables: Tables) -> Int[Array, "L C m"]:
        """For each site the number of a value: one joint draw from exp(table), trees independent of each other."""
        levels = uniform(key, self.sites.shape[:2], tables.single.dtype)
        return self._numbers(self._choose(self.up(tables, log_sum_exp)[0], invert, levels))

    def log_probability(self, tables: Tables, numbers: Int[Array, "L C m"]) -> Float[Array, ""]:
        """The log probability that `draw` returns these numbers."""
        filled = self.up(tables, log_sum_exp)[0]
        entries = self._choose(filled, lambda _, number: number, (numbers * self._powers).sum(axis=-1))
        given = _log_conditionals(filled).reshape(*self.sites.shape[:2], -1)
        each = jnp.take_along_axis(given, entries[..., None], axis=-1)[..., 0]
        return jnp.where(self.is_idle, 0.0, each).sum()

    def most_probable(self, tables: Tables) -> Int[Array, "L C m"]:
        """For each site the number of a value: the joint values with the largest table."""
        filled, nothing = self.up(tables, _highest)[0], jnp.zeros(self.sites.shape[:2])
        return self._numbers(self._choose(filled, lambda logits, _: jnp.argmax(logits, axis=0), nothing))

    def log_marginals(self, tables: Tables) -> Float[Array, "L C m K"]:
        """Log probabilities of the values of every site."""
        given = _log_conditionals(self.up(tables, log_sum_exp)[0])
        cells = _log_sum_last(given + self._log_separators(given)[:, :, None])
        joint = cells.reshape(*self.sites.shape[:2], *(self.num_values,) * self.size)
        each = [jnp.moveaxis(joint, 2 + i, 2) for i in range(self.size)]
        each = [_log_sum_last(one.reshape(*self.sites.shape[:2], self.num_values, -1)) for one in each]
        return jnp.stack(each, axis=2)

    @property
    def _powers(self) -> np.ndarray:
        return self.num_values ** np.arange(self.size)[::-1]

    def _numbers(self, entries: Int[Array, "L C"]) -> Int[Array, "L C m"]:
        """The numbers of the values of each site, from the entry of its cell's table."""
        return entries[..., None] // self.shape[-1] // self._powers % self.num_values

    def up(self, tables: Tables, sum_out: Reduce) -> tuple[Float[Array, "L C K J"], Float[Array, ""]]:
        """B of all cells, and the sum of the roots' messages."""
        num_levels, columns, own, joint = self.shape
        single = tables.single
        if self.allowed is not None:
            single = jnp.where(self.allowed, single, -jnp.inf)
        last, straight = num_levels - 1, self.num_straight
        is_idle = jnp.asarray(self.is_idle)

        message = jnp.zeros((columns, joint), single.dtype)
        parts = []
        if straight:
            fill, levels = self._levels(tables, single, 0, straight)

            def go_straight(message: Array, level: tuple) -> tuple[Array, Array]:
                tables, is_idle = level
                message = jnp.where(is_idle[:, None], 0.0, sum_out(fill(self._spread(message), tables)))
                return message, message

            _, messages = lax.scan(go_straight, message, (levels, is_idle[:straight]), unroll=_unroll(straight))
            before = jnp.concatenate([message[None], messages[:-1]])
            parts.append(fill(self._spread(before), levels))
            message = messages[-1]
        incoming = self._spread(message)
        if straight < last:
            fill_across, levels = self._levels(tables, single, straight, last)

            def go_across(incoming: Array, level: tuple) -> tuple[Array, Array]:
                tables, (parents, index) = level
                filled = fill_across(incoming, tables)
                message = sum_out(filled)
                spread = self._spread(message) if index is None else jnp.take_along_axis(message, index, axis=1)
                spread = spread.reshape(incoming.shape)
                return jax.ops.segment_sum(spread, parents, num_segments=columns + 1)[:columns], filled

            crossing = (levels, self._links())
            incoming, filled = lax.scan(go_across, incoming, crossing, unroll=_unroll(last - straight))
            parts.append(filled)
        roots = jnp.broadcast_to(incoming + single[last][..., None], (columns, own, joint))
        total = jnp.where(is_idle[last], 0.0, sum_out(roots)[:, 0]).sum()
        return jnp.concatenate([*parts, roots[None]]), total

    def _levels(self, tables: Tables, single: Array, low: int, high: int) -> tuple[Callable[..., Array], Any]:
        """How to add up the tables of some levels and what comes in from below; and what there is for each level."""
        _, columns, own, joint = self.shape
        needed = [part.table for part in tables.joint if part.levels[0] < high and low < part.levels[1]]
        needed = [table[low:high] if len(table) > 1 else table for table in needed]
        needed = needed or [jnp.zeros((1, columns, *(1,) * self.num_axes), single.dtype)]
        depth = max(len(table) for table in needed)
        # Axes along which the same parts vary are one: of arrays with many axes XLA computes each index at length.
        varies = [tuple(table.shape[2 + axis] > 1 for table in needed) for axis in range(self.num_axes)]
        runs = [(which, self.num_values ** len(list(axes))) for which, axes in groupby(varies)]
        flat = [
            table.reshape(*table.shape[:2], *(size if which[i] else 1 for which, size in runs))
            for i, table in enumerate(needed)
        ]
        whole = jnp.broadcast_to(reduce(jnp.add, flat), (depth, columns, *(size for _, size in runs)))
        whole = whole.reshape(depth, columns, own, joint)

        def fill(incoming: Array, level: tuple[Array, Array | None]) -> Array:
            single, joint = level
            return (incoming + single[..., None]) + (whole[0] if joint is None else joint)

        return fill, (single[low:high], whole if depth > 1 else None)

    def _spread(self, message: Float[Array, "*n J"]) -> Float[Array, "*n K J"]:
        """A message as it is added to the parent's table, straight on; of size 1 where it does not vary."""
        _, _, own, joint = self.shape
        if self.width == 1:
            return message[..., None]
        repeated = jnp.broadcast_to(message[..., None], (*message.shape, own))
        return repeated.reshape(*message.shape[:-1], own, joint)

    def _links(self) -> tuple[Array, Array | None]:
        """Parents and index of the levels that are not straight."""
        return jnp.asarray(self.parents), None if self.index is None else jnp.asarray(self.index)

    def _log_separators(self, given: Float[Array, "L C K J"]) -> Float[Array, "L C J"]:
        """Log probabilities of the joint values of the separators, from those of each cell's values given them."""
        columns, joint = given.shape[1], given.shape[-1]

        def hand_down(separators: Array, level: tuple) -> tuple[Array, Array]:
            given, link = level
            belief = (given + separators[:, None]).reshape(columns, -1)
            parents, index = (None, None) if link is None else link
            belief = belief if parents is None else belief[jnp.minimum(parents, columns - 1)]
            if index is None:
                separators = _log_sum_last(belief.reshape(columns, joint, -1))
            else:
                separators = jax.vmap(partial(_log_sum_by, size=joint))(belief, index)
            return separators, separators

        no_separator = jnp.where(jnp.arange(joint) == 0, 0.0, -jnp.inf).astype(given.dtype)
        roots = jnp.broadcast_to(no_separator, (columns, joint))
        return self._down(hand_down, roots, given[1:])

    def _choose(
        self, filled: Float[Array, "L C K J"], choose: Callable[[Array, Array], Array], hints: Array
    ) -> Int[Array, "L C"]:
        """From the roots to the leaves: for every cell the entry of its table that was chosen given its separator's.

        Args:
            filled: B of all cells.
            choose: from log probabilities `(K, columns)`, up to a constant, and the hints of a level, to numbers.
            hints: `(levels, columns)`.
        """
        _, columns, own, joint = self.shape

        def choose_at(filled: Array, separator: Array, hint: Array) -> Array:
            logits = jnp.take_along_axis(filled, separator[:, None, None], axis=2)[..., 0].T
            return choose(logits, hint) * joint + separator

        def one(entry: Array, level: tuple) -> tuple[Array, Array]:
            (filled, hint), link = level
            parents, index = (None, None) if link is None else link
            above = entry if parents is None else entry[jnp.minimum(parents, columns - 1)]
            separator = above // own if index is None else jnp.take_along_axis(index, above[:, None], axis=1)[:, 0]
            entry = choose_at(filled, separator, hint)
            return entry, entry

        roots = choose_at(filled[-1], jnp.zeros(columns, int), hints[-1])
        return self._down(one, roots, (filled[:-1], hints[:-1]))

    def _down(self, step: Callable[..., Any], roots: Array, levels: Any) -> Array:
        """Scan from the roots' children to the deepest level; `step` gets the link of a level too, None if straight."""
        straight, length = self.num_straight, self.sites.shape[0] - 1
        carry, parts = roots, [roots[None]]
        for low, high, links in ((straight, length, self._links()), (0, straight, None)):
            if low < high:
                some = (jax.tree.map(lambda each, low=low, high=high: each[low:high], levels), links)
                carry, kept = lax.scan(step, carry, some, reverse=True, unroll=_unroll(high - low))
                parts.insert(0, kept)
        return jnp.concatenate(parts)


def _log_conditionals(filled: Float[Array, "L C K J"]) -> Float[Array, "L C K J"]:
    """Log probabilities of the values of each cell given its separator's; −∞ where these are impossible."""
    message = log_sum_exp(filled)
    return filled - jnp.where(jnp.isfinite(message), message, 0.0)[..., None, :]


def _unroll(length: int) -> int:
    """How many levels to compile one after the other; few are all written out, and fused."""
    return length if length <= MOST_UNROLLED else 1


def _log_sum_last(terms: Array) -> Array:
    return log_sum_exp(terms[..., None]).squeeze(-1)


def _log_sum_by(terms: Float[Array, " n"], owners: Int[Array, " n"], size: int) -> Float[Array, " size"]:
    """log Σ exp of the terms of each owner."""
    highest = jax.ops.segment_max(terms, owners, num_segments=size)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return jnp.log(jax.ops.segment_sum(jnp.exp(terms - highest[owners]), owners, num_segments=size)) + highest
