"""Sums, draws, maxima and marginals over trees of tables, many trees at once.

Every cell, of one site or of m that are summed out together, has a table over its own K^m joint values (axis 0) and
those of its separator (J = K^(m width), flat). Cells stand in levels by their depth, deepest first, and in columns.
Columns are the last axis of all arrays: there may be thousands, of a few values each, and code that is compiled for
CPUs works along the last axis.
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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from sumout.compile.policy import FEW_RUNS, PRODUCT_VALUES, WRITTEN_OUT_LEVELS
from sumout.eliminate.chain_matrices import both_ways, draw_down, log_matrix_totals
from sumout.eliminate.chain_products import log_totals, most_product_levels
from sumout.eliminate.table_parts import Part, Tables, add_parts
from sumout.randomness import uniform
from sumout.tables.logsumexp import invert, log_sum_by, log_sum_exp

Reduce = Callable[[Array], Array]


def _highest(table: Float[Array, "*n K J C"]) -> Float[Array, "*n J C"]:
    return jnp.max(table, axis=-3)


def _log_sum(table: Float[Array, "*n K J C"]) -> Float[Array, "*n J C"]:
    """log Σ_k exp over the values of cells."""
    return log_sum_exp(table, -3)


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
        index: `(other levels, K^m J, columns)` for each entry of the parent's table the entry of the message that
            belongs to it; None where that is e // K^m throughout.
        allowed: `(levels, K^m, columns)` False for values that a cell does not have; None where all have all.
        chain: sums the straight levels at less cost, if a pattern was matched; else None.
    """

    num_values: int
    width: int
    sites: np.ndarray
    num_straight: int
    parents: np.ndarray
    index: np.ndarray | None
    allowed: np.ndarray | None
    chain: Any = None

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
        """Levels, joint values of a cell and of its separator, columns."""
        own = self.num_values**self.size
        levels, columns, _ = self.sites.shape
        return levels, own, own**self.width, columns

    @property
    def cell_numbers(self) -> np.ndarray:
        """The number of each cell, `(levels, columns)`: level by level, or, where columns are few, one after the other.

        Factors mostly lie along many short chains, or along one long one: so they are copied as they stand.
        """
        levels, columns, _ = self.sites.shape
        numbers = np.arange(levels * columns)
        return numbers.reshape(levels, columns) if self.by_level else numbers.reshape(columns, levels).T

    @property
    def numbering(self) -> tuple[int, int]:
        """The shape in which cells are numbered one after the other."""
        levels, columns, _ = self.sites.shape
        return (levels, columns) if self.by_level else (columns, levels)

    @property
    def by_level(self) -> bool:
        """Whether cells are numbered level by level."""
        return self.sites.shape[1] > FEW_RUNS

    @property
    def is_padding(self) -> np.ndarray:
        """Which cells have no site, `(levels, columns)`: columns are as long as the longest."""
        return np.asarray((self.sites < 0).all(axis=2))

    @property
    def _padding(self) -> Bool[Array, "L C"] | None:
        """The same as an array; None if all have one."""
        return jnp.asarray(self.is_padding) if self.is_padding.any() else None

    def log_total(self, tables: Tables) -> Float[Array, ""]:
        """The logarithm of the sum over all joint values, summed over the trees."""
        single = self._single(tables)
        if self._is_side_by_side:
            shared, linked = self._shared(tables)
            by_products = self._products_for(shared)
            if by_products is not None:
                return by_products(shared, linked, single, self._padding).sum()
        return self._go_across(tables, single, self._pass_straight(tables, single), _log_sum)[1]

    @property
    def _is_side_by_side(self) -> bool:
        """Whether these are chains side by side."""
        return self.width == 1 and 1 < self.shape[0] == self.num_straight + 1 and self.by_level

    def _products_for(self, shared: Float[Array, "depth K J columns"]) -> Callable[..., Array] | None:
        """How to take sums along chains side by side by products; None where exponentials cost less."""
        levels, own, _, _ = self.shape
        if own >= PRODUCT_VALUES:  # worth it as products of matrices
            return log_matrix_totals if shared.shape[-1] == 1 else None
        return log_totals if levels <= most_product_levels() else None

    def draw(self, key: Array, tables: Tables) -> Int[Array, "L C m"]:
        """For each site the number of a value: one joint draw from exp(table), trees independent of each other."""
        levels = uniform(key, self.sites.shape[:2], tables.single.dtype)
        shared, linked = self._shared(tables) if self._is_side_by_side else (jnp.zeros(0), jnp.zeros(0))
        if not shared.size or self._products_for(shared) is not log_matrix_totals:
            return self._numbers(self._choose(self.up(tables)[0], invert, levels))
        single = self._single(tables)
        passes = both_ways(shared, linked, single, self._padding)
        own = lax.cond(
            passes.is_right,
            lambda: draw_down(passes, shared, linked, single, levels),
            lambda: self._choose(self.up(tables)[0], invert, levels) // self.shape[2],
        )
        return own[..., None] // self._powers % self.num_values

    def most_probable(self, tables: Tables) -> Int[Array, "L C m"]:
        """For each site the number of a value: the joint values with the largest table."""
        filled, nothing = self.up(tables, _highest)[0], jnp.zeros(self.sites.shape[:2])
        return self._numbers(self._choose(filled, lambda logits, _: jnp.argmax(logits, axis=0), nothing))

    def log_marginals(self, tables: Tables) -> Float[Array, "L C m K"]:
        """Log probabilities of the values of every site."""
        levels, own, _, columns = self.shape
        given = self.log_conditionals(tables)
        cells = log_sum_exp(given + self._log_separators(given)[:, None])
        joint = cells.reshape(levels, *(self.num_values,) * self.size, columns)
        each = [jnp.moveaxis(joint, 1 + i, 1) for i in range(self.size)]
        each = [log_sum_exp(one.reshape(levels, self.num_values, own // self.num_values, columns)) for one in each]
        return jnp.moveaxis(jnp.stack(each, axis=1), -1, 1)

    def log_conditionals(self, tables: Tables) -> Float[Array, "L K J C"]:
        """Log probabilities of the values of each cell given its separator's; −∞ where these are impossible."""
        filled = self.up(tables)[0]
        message = _log_sum(filled)
        return filled - jnp.where(jnp.isfinite(message), message, 0.0)[:, None]

    def log_beliefs(
        self, tables: Tables, terms: Float[Array, "L C m K"], zeros: Float[Array, "L C m K"]
    ) -> Float[Array, "L C m K"]:
        """Log weights of the values of every site, up to a constant, with further terms of one site each.

        What a site's own zeros (terms of −∞) rule out is not lost: they count at the other sites only. To that end a
        value with one zero gets a very small weight instead, by which its belief is divided in the end. No
        belief in which two zeros meet is asked for.

        Args:
            tables: of all cells.
            terms: for each value of each site the sum of its further terms, leaving out those that are −∞.
            zeros: how many were left out.
        """
        single = self._single(Tables(tables.single + self._add_sites(terms), tables.joint))
        small = self._log_small(Tables(single, tables.joint))[:, :, None, None]
        weights = jnp.where(zeros == 0, 0.0, jnp.where(zeros == 1, small, -jnp.inf))
        beliefs = self.log_marginals(Tables(single + self._add_sites(weights), tables.joint))
        return jnp.where(zeros == 1, beliefs - small, beliefs)

    def _add_sites(self, terms: Float[Array, "L C m K"]) -> Float[Array, "L own C"]:
        """Terms of the sites of each cell, added up for its joint values."""
        levels, own, _, columns = self.shape
        sizes = [[self.num_values if axis == i else 1 for axis in range(self.size)] for i in range(self.size)]
        each = [terms[:, :, i].swapaxes(1, 2).reshape(levels, *size, columns) for i, size in enumerate(sizes)]
        return reduce(jnp.add, each).reshape(levels, own, columns)

    def _log_small(self, tables: Tables) -> Float[Array, "L C"]:
        """The logarithm of a weight that no other weights of the same tree make up for, if floats can tell."""
        levels, own, _, columns = self.shape
        parts = [tables.single, *(part.table.reshape(len(part.table), -1, columns) for part in tables.joint)]
        spans = [jnp.broadcast_to(_span(part), (levels, columns)) for part in parts]
        each = jnp.where(self.is_padding, 0.0, reduce(jnp.add, spans) + np.log(own))
        total = jax.ops.segment_sum(each.ravel(), self._trees.ravel(), num_segments=columns)[self._trees]
        epsilon = jnp.finfo(each.dtype).eps
        return jnp.maximum(-total + jnp.log(epsilon), -1 / np.sqrt(epsilon))  # half of the digits are for the rest

    @property
    def _trees(self) -> np.ndarray:
        """The tree of each cell, `(levels, columns)`, known by the column of its root."""
        levels, columns = self.sites.shape[:2]
        labels = [np.arange(columns)]
        for level in reversed(range(levels - 1)):
            is_straight = level < self.num_straight
            above = np.arange(columns) if is_straight else self.parents[level - self.num_straight]
            labels.insert(0, labels[0][np.minimum(above, columns - 1)])
        return np.stack(labels)

    @property
    def _powers(self) -> np.ndarray:
        """What the number of each site's value counts in the joint value of its cell: the last site varies fastest."""
        return self.num_values ** np.arange(self.size)[::-1]

    def _numbers(self, entries: Int[Array, "L C"]) -> Int[Array, "L C m"]:
        """The numbers of the values of each site, from the entry of its cell's table: (own joint values) · J + s."""
        return entries[..., None] // self.shape[2] // self._powers % self.num_values

    def up(self, tables: Tables, sum_out: Reduce = _log_sum) -> tuple[Float[Array, "L K J C"], Float[Array, ""]]:
        """B of all cells, and the sum of the roots' messages."""
        single = self._single(tables)
        message, straight = self._go_straight(tables, single, sum_out)
        across, total = self._go_across(tables, single, message, sum_out)
        return jnp.concatenate([*straight, *across]), total

    def _single(self, tables: Tables) -> Float[Array, "L K C"]:
        return tables.single if self.allowed is None else jnp.where(self.allowed, tables.single, -jnp.inf)

    def _pass_straight(self, tables: Tables, single: Array) -> Float[Array, "J C"]:
        """The sums over all straight levels, as messages of the last of them."""
        straight = self.num_straight
        if self.chain is not None:
            joint = self._joint(tables, 0, straight)
            if len(joint) == 1:  # one table for all levels
                is_padding = jnp.asarray(self.is_padding[:straight])
                table, own = jnp.moveaxis(joint[0], -1, 0), jnp.moveaxis(single[:straight], -1, 1)
                return self.chain.last_message(table, own, is_padding).T
        return self._go_straight(tables, single, _log_sum)[0]

    def _go_straight(self, tables: Tables, single: Array, sum_out: Reduce) -> tuple[Float[Array, "J C"], list[Array]]:
        """The messages of the last straight level, and B of all of them."""
        straight = self.num_straight
        first = jnp.zeros(self.shape[2:], single.dtype)
        if not straight:
            return first, []
        fill, levels = _filling(self._joint(tables, 0, straight), single[:straight])

        def step(message: Array, level: tuple) -> tuple[Array, Array]:
            tables, is_padding = level
            message = sum_out(fill(self._spread(message), tables))
            message = message if is_padding is None else jnp.where(is_padding, 0.0, message)
            return message, message

        is_padding = self.is_padding[:straight]
        is_padding = jnp.asarray(is_padding) if is_padding.any() else None
        _, messages = lax.scan(step, first, (levels, is_padding), unroll=self._unroll(straight))
        before = jnp.concatenate([first[None], messages[:-1]])
        return messages[-1], [fill(self._spread(before), levels)]

    def _go_across(
        self, tables: Tables, single: Array, message: Array, sum_out: Reduce
    ) -> tuple[list[Array], Float[Array, ""]]:
        """From the messages of the last straight level on: B of all levels that follow, and the sum of the totals."""
        num_levels, own, joint, columns = self.shape
        last, straight = num_levels - 1, self.num_straight
        incoming, parts = self._spread(message), []
        if straight < last:
            fill, levels = _filling(self._joint(tables, straight, last), single[straight:last])

            def step(incoming: Array, level: tuple) -> tuple[Array, Array]:
                tables, (parents, index) = level
                filled = fill(incoming, tables)
                message = sum_out(filled)
                spread = self._spread(message) if index is None else jnp.take_along_axis(message, index, axis=0)
                return _hand_on(spread.reshape(incoming.shape), parents), filled

            crossing = (levels, self._links())
            incoming, filled = lax.scan(step, incoming, crossing, unroll=self._unroll(last - straight))
            parts.append(filled)
        roots = jnp.broadcast_to(incoming + single[last][:, None], (own, joint, columns))
        total = jnp.where(self.is_padding[last], 0.0, sum_out(roots[:, :1])[0]).sum()
        return [*parts, roots[None]], total

    def _joint(self, tables: Tables, low: int, high: int) -> Float[Array, "depth K J C"]:
        """The parts of the tables of some levels that depend on separators, added up; one for all if that is enough."""
        _, own, joint, _ = self.shape
        needed = [part.table for part in tables.joint if part.levels[0] < high and low < part.levels[1]]
        needed = [table[low:high] if len(table) > 1 else table for table in needed]
        needed = needed or [jnp.zeros((1, *(1,) * self.num_axes, self.sites.shape[1]), tables.single.dtype)]
        added = add_parts(needed, (self.num_values,) * self.num_axes)
        return added.reshape(-1, own, joint, added.shape[-1])

    def _shared(self, tables: Tables) -> tuple[Float[Array, "depth K J columns"], Array | None]:
        """The joint tables of straight levels, in one column if they are the same in all that have them; and which.

        None if all have them.
        """
        straight, columns = self.num_straight, self.sites.shape[1]
        is_one = len(tables.joint) == 1 and tables.joint[0].mask is not None
        if not is_one:
            return self._joint(tables, 0, straight), None
        (part,) = tables.joint
        one = Tables(tables.single, (Part(part.content, None, part.levels),))
        mask = part.mask[:straight] if len(part.mask) > 1 else part.mask
        return self._joint(one, 0, straight), jnp.broadcast_to(mask, (straight, columns))

    def _spread(self, message: Float[Array, "*n J C"]) -> Float[Array, "*n K J C"]:
        """A message as it is added to the parent's table, straight on; of size 1 where it does not vary."""
        _, own, joint, columns = self.shape
        if self.width == 1:  # the separator is the parent, and J its own joint values
            return message[..., None, :]
        repeated = jnp.broadcast_to(message[..., None, :], (*message.shape[:-1], own, columns))
        return repeated.reshape(*message.shape[:-2], own, joint, columns)

    def _links(self) -> tuple[Array, Array | None]:
        """Parents and index of the levels that are not straight."""
        return jnp.asarray(self.parents), None if self.index is None else jnp.asarray(self.index)

    def _log_separators(self, given: Float[Array, "L K J C"]) -> Float[Array, "L J C"]:
        """Log probabilities of the joint values of the separators, from those of each cell's values given them."""
        _, own, joint, columns = self.shape

        def hand_down(separators: Array, level: tuple) -> tuple[Array, Array]:
            given, link = level
            belief = (given + separators).reshape(own * joint, columns)
            parents, index = (None, None) if link is None else link
            belief = belief if parents is None else belief[:, jnp.minimum(parents, columns - 1)]
            if index is None:
                separators = log_sum_exp(belief.reshape(joint, own, columns))
            else:
                separators = jax.vmap(partial(log_sum_by, size=joint), in_axes=1, out_axes=1)(belief, index)
            return separators, separators

        no_separator = jnp.where(jnp.arange(joint) == 0, 0.0, -jnp.inf).astype(given.dtype)
        roots = jnp.broadcast_to(no_separator[:, None], (joint, columns))
        return self._down(hand_down, roots, given[1:])

    def _choose(
        self, filled: Float[Array, "L K J C"], choose: Callable[[Array, Array], Array], hints: Array
    ) -> Int[Array, "L C"]:
        """From the roots to the leaves: for every cell the entry of its table that was chosen given its separator's.

        Args:
            filled: B of all cells.
            choose: from log probabilities `(K, columns)`, up to a constant, and the hints of a level, to numbers.
            hints: `(levels, columns)`.
        """
        _, own, joint, columns = self.shape

        def choose_at(filled: Array, separator: Array, hint: Array) -> Array:
            logits = jnp.take_along_axis(filled, separator[None, None], axis=1)[:, 0]
            return choose(logits, hint) * joint + separator

        def one(entry: Array, level: tuple) -> tuple[Array, Array]:
            (filled, hint), link = level
            parents, index = (None, None) if link is None else link
            above = entry if parents is None else entry[jnp.minimum(parents, columns - 1)]
            separator = above // own if index is None else jnp.take_along_axis(index, above[None], axis=0)[0]
            entry = choose_at(filled, separator, hint)
            return entry, entry

        roots = choose_at(filled[-1], jnp.zeros(columns, int), hints[-1])
        return self._down(one, roots, (filled[:-1], hints[:-1]))

    def _unroll(self, length: int) -> int:
        """How many levels to compile one after the other; few are all written out, and fused.

        Not where columns are many: XLA would compute tables and messages again for every entry that depends on them.
        """
        return length if length <= WRITTEN_OUT_LEVELS and not self.by_level else 1

    def _down(self, step: Callable[..., Any], roots: Array, levels: Any) -> Array:
        """Scan from the roots' children to the deepest level; `step` gets the link of a level too, None if straight."""
        straight, length = self.num_straight, self.sites.shape[0] - 1
        carry, parts = roots, [roots[None]]
        for low, high, links in ((straight, length, self._links()), (0, straight, None)):
            if low < high:
                some = (jax.tree.map(lambda each, low=low, high=high: each[low:high], levels), links)
                carry, kept = lax.scan(step, carry, some, reverse=True, unroll=self._unroll(high - low))
                parts.insert(0, kept)
        return jnp.concatenate(parts)


def _span(table: Float[Array, "*n K C"]) -> Float[Array, "*n C"]:
    """How far the finite entries for a column lie apart."""
    is_finite = jnp.isfinite(table)
    low = jnp.where(is_finite, table, jnp.inf).min(axis=-2)
    high = jnp.where(is_finite, table, -jnp.inf).max(axis=-2)
    return jnp.maximum(high - low, 0.0)


def _hand_on(messages: Float[Array, "*n C"], parents: Int[Array, " C"]) -> Float[Array, "*n C"]:
    """What each column gets from those whose parent it is; a scatter takes long, where columns are few."""
    columns = messages.shape[-1]
    if columns <= FEW_RUNS:
        is_parent = parents == np.arange(columns)[:, None]
        return jnp.where(is_parent, messages[..., None, :], 0.0).sum(axis=-1)
    handed = jax.ops.segment_sum(jnp.moveaxis(messages, -1, 0), parents, num_segments=columns + 1)
    return jnp.moveaxis(handed[:columns], 0, -1)


def _filling(joint: Float[Array, "depth K J C"], single: Float[Array, "L K C"]) -> tuple[Callable[..., Array], Any]:
    """How to add up the tables of a level and what comes in from below; and what there is for each level."""

    def fill(incoming: Array, level: tuple[Array, Array | None]) -> Array:
        own, both = level
        return (incoming + own[..., None, :]) + (joint[0] if both is None else both)

    return fill, (single, joint if len(joint) > 1 else None)
