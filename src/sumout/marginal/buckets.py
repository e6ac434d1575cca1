"""Sums, draws, maxima and marginals over trees of tables, many trees at once.

Every site has a cell with a table over itself (axis 0, K values) and its separator (J = K^width joint values, flat).
Cells stand in levels by their depth, deepest first, and in columns. Going up, level by level,

    B = table + messages from below        message(s) = log Σ_k exp B(k, s)

and at the last level, the roots, the messages are the logarithms of the totals. B is all that is needed to go down
again: given the values s of its separator a site has the log probabilities B(·, s). Levels are run through by one
`lax.scan`, so that compiled code does not grow with the length of a chain. Derivatives are those of the scan: they are
the marginals of the tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from sumout.nuisance.gibbs import invert
from sumout.randomness import uniform

MOST_UNROLLED = 32  # levels; compiled code grows with them, and a loop costs more than a short level itself

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


@partial(jax.tree_util.register_dataclass, data_fields=["single", "joint"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of all cells in two parts, which add up.

    Attributes:
        single: what depends on the cell's own site alone.
        joint: what depends on its separator as well; of size 1 along the levels where all of a column are alike, as in
            a homogeneous chain. Roots have no separator: what stands there does not count.
    """

    single: Float[Array, "levels columns K"]
    joint: Float[Array, "depth columns K J"]


def _highest(table: Array) -> Array:
    return jnp.max(table, axis=-2)


@dataclass(frozen=True, eq=False)
class Buckets:
    """Trees of tables, laid out in levels and columns.

    Attributes:
        num_values: K.
        width: size of the largest separator.
        sites: `(levels, columns)` which site has the cell; −1 for none.
        parents: `(levels, columns)` column of the parent, one level on; `columns` for none.
        index: `(levels, columns, K J)` for each entry of the parent's table the entry of the message that belongs to
            it; None where a separator is the parent alone, so that the message lies along the parent's own axis.
        num_straight: so many levels hand on their messages within their columns.
        allowed: `(levels, columns, K)` False for values that a site does not have; None where all have K.
    """

    num_values: int
    width: int
    sites: np.ndarray
    parents: np.ndarray
    index: np.ndarray | None
    num_straight: int
    allowed: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Levels, columns, values and joint values of a separator."""
        return (*self.sites.shape, self.num_values, self.num_values**self.width)

    def log_total(self, tables: Tables) -> Float[Array, ""]:
        """The logarithm of the sum over all joint values, summed over the trees."""
        return self._up(tables, log_sum_exp)[1]

    def draw(self, key: Array, tables: Tables) -> Int[Array, "L C"]:
        """For each cell the number of a value: one joint draw from exp(table), trees independent of each other."""
        levels = uniform(key, self.sites.shape, tables.single.dtype)
        return self._down(self._up(tables, log_sum_exp)[0], invert, levels)[0]

    def log_probability(self, tables: Tables, numbers: Int[Array, "L C"]) -> Float[Array, ""]:
        """The log probability that `draw` returns these numbers."""
        _, each = self._down(self._up(tables, log_sum_exp)[0], lambda _, number: number, numbers)
        return jnp.where(self.sites >= 0, each, 0.0).sum()

    def most_probable(self, tables: Tables) -> Int[Array, "L C"]:
        """For each cell the number of a value: the joint values with the largest table."""
        nothing = jnp.zeros(self.sites.shape)
        return self._down(self._up(tables, _highest)[0], lambda logits, _: jnp.argmax(logits, axis=0), nothing)[0]

    def log_marginals(self, tables: Tables) -> Float[Array, "L C K"]:
        """Log probabilities of the values of every cell."""
        filled = self._up(tables, log_sum_exp)[0]
        _, columns, _, joint = self.shape

        def believe(filled: Array, separators: Array) -> tuple[Array, Array]:
            """Log probabilities of the entries of each table, and of the values of each cell."""
            message = log_sum_exp(filled)
            conditional = filled - jnp.where(jnp.isfinite(message), message, 0.0)[:, None]
            belief = conditional + separators[:, None]
            return belief, _log_sum_last(belief)

        def one(above: Array, level: tuple) -> tuple[Array, Array]:
            filled, parents, index = level
            given = above[jnp.minimum(parents, columns - 1)]
            if index is None:
                return believe(filled, _log_sum_last(given))
            by_entry = jax.vmap(partial(_log_sum_by, size=joint))
            return believe(filled, by_entry(given.reshape(columns, -1), index))

        nothing_above = jnp.broadcast_to(jnp.where(jnp.arange(joint) == 0, 0.0, -jnp.inf), (columns, joint))
        above, roots = believe(filled[-1], nothing_above)
        _, others = lax.scan(one, above, (filled[:-1], *self._links()), reverse=True, unroll=_unroll(len(filled) - 1))
        return jnp.concatenate([others, roots[None]])

    def _links(self) -> tuple[Array, Array | None]:
        """For all levels but the roots' the parents and the index."""
        return jnp.asarray(self.parents[:-1]), None if self.index is None else jnp.asarray(self.index[:-1])

    def _up(self, tables: Tables, sum_out: Reduce) -> tuple[Array, Array]:
        """B of all cells, and the sum of the roots' messages."""
        num_levels, columns, num_values, joint = self.shape
        single = tables.single
        if self.allowed is not None:
            single = jnp.where(self.allowed, single, -jnp.inf)
        last, straight = num_levels - 1, self.num_straight
        is_idle = jnp.asarray(self.sites < 0)

        def levels(low: int, high: int) -> tuple:
            """What a scan over some levels is given of each."""
            pairs = tables.joint[low:high] if len(tables.joint) > 1 else None
            index = None if self.index is None else jnp.asarray(self.index[low:high])
            return single[low:high], pairs, is_idle[low:high], jnp.asarray(self.parents[low:high]), index

        def fill(incoming: Array, single: Array, pairs: Array | None) -> Array:
            pairs = tables.joint[0] if pairs is None else pairs
            return (incoming + single.reshape(columns, num_values, 1)) + pairs

        def go_straight(incoming: Array, level: tuple) -> tuple[Array, Array]:
            single, pairs, is_idle, _, _ = level
            filled = fill(incoming, single, pairs)
            return jnp.where(is_idle[:, None], 0.0, sum_out(filled))[..., None], filled

        def go_across(incoming: Array, level: tuple) -> tuple[Array, Array]:
            single, pairs, _, parents, index = level
            filled = fill(incoming, single, pairs)
            message = sum_out(filled)
            spread = message[..., None] if index is None else jnp.take_along_axis(message, index, axis=1)
            spread = spread.reshape(incoming.shape)
            return jax.ops.segment_sum(spread, parents, num_segments=columns + 1)[:columns], filled

        incoming = jnp.zeros((columns, num_values, 1 if self.index is None else joint), single.dtype)
        parts = []
        for step, low, high in ((go_straight, 0, straight), (go_across, straight, last)):
            if low < high:
                incoming, filled = lax.scan(step, incoming, levels(low, high), unroll=_unroll(high - low))
                parts.append(filled)
        roots = jnp.broadcast_to(incoming + single[last].reshape(columns, num_values, 1), (columns, num_values, joint))
        total = jnp.where(is_idle[last], 0.0, sum_out(roots)[:, 0]).sum()
        return jnp.concatenate([*parts, roots[None]]), total

    def _down(self, filled: Array, choose: Callable[[Array, Array], Array], hints: Array) -> tuple[Array, Array]:
        """From the roots to the leaves: the value chosen for every cell given its separator's, and its log probability.

        Args:
            filled: B of all cells.
            choose: from log probabilities `(K, columns)`, up to a constant, and the hints of a level, to numbers.
            hints: `(levels, columns)`.
        """
        _, columns, _, joint = self.shape

        def choose_at(filled: Array, separator: Array, hint: Array) -> tuple[Array, tuple[Array, Array]]:
            logits = jnp.take_along_axis(filled, separator[:, None, None], axis=2)[..., 0].T
            chosen = choose(logits, hint)
            log_probability = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=0), chosen[None], axis=0)[0]
            return chosen * joint + separator, (chosen, log_probability)

        def one(entry: Array, level: tuple) -> tuple[Array, tuple[Array, Array]]:
            (filled, hint), (parents, index) = level
            above = entry[jnp.minimum(parents, columns - 1)]
            separator = above // joint if index is None else jnp.take_along_axis(index, above[:, None], axis=1)[:, 0]
            return choose_at(filled, separator, hint)

        entry, roots = choose_at(filled[-1], jnp.zeros(columns, int), hints[-1])
        _, others = lax.scan(
            one, entry, ((filled[:-1], hints[:-1]), self._links()), reverse=True, unroll=_unroll(len(filled) - 1)
        )
        return jax.tree.map(lambda below, root: jnp.concatenate([below, root[None]]), others, roots)


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
