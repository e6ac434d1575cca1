"""Where the cells of many trees of tables stand: in which level, in which column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sumout.eliminate.messages import Buckets
from sumout.eliminate.order import Order
from sumout.patterns.contract import ChainSum, Pattern
from sumout.patterns.registry import find_match


@dataclass(frozen=True, eq=False)
class Shape:
    """A connected graph, its sites numbered from 0, ready to be laid out.

    Attributes:
        members: `(cells, m)` the sites that are summed out together; −1 for none.
        order: the order in which the cells go.
        columns: of the cells.
    """

    members: np.ndarray
    order: Order
    columns: np.ndarray

    @property
    def num_columns(self) -> int:
        """How many columns it takes."""
        return int(self.columns.max()) + 1

    @property
    def num_levels(self) -> int:
        """How many levels it takes."""
        return int(self.order.depths.max()) + 1

    @property
    def table_size(self) -> int:
        """How many sites the table of a cell is over, at most."""
        return self.members.shape[1] * (1 + self.order.width)

    def axes(self) -> np.ndarray:
        """Rows of a site, another of its cell or of its cell's separator, and the axis this has in the cell's table."""
        count, size = self.members.shape
        cells = np.full((count, 1 + self.order.width), -1)
        cells[:, 0] = np.arange(count)
        for cell, separator in enumerate(self.order.separators):
            cells[cell, 1 : 1 + len(separator)] = separator
        others = np.where(cells[..., None] >= 0, self.members[cells], -1).reshape(count, -1)
        shape = (count, size, others.shape[1])
        rows = np.stack(
            [
                np.broadcast_to(self.members[:, :, None], shape),
                np.broadcast_to(others[:, None], shape),
                np.broadcast_to(np.arange(others.shape[1]), shape),
            ],
            axis=-1,
        ).reshape(-1, 3)
        return rows[(rows >= 0).all(axis=1)]


def lay_out(order: Order, members: np.ndarray) -> Shape:
    """Give every cell a column: the one its parent has to the child with the tallest tree, a free one to the others."""
    depths, parents = order.depths, order.parents
    height = np.zeros(len(depths), np.int64)
    for site in np.argsort(-depths, kind="stable"):
        if parents[site] >= 0:
            height[parents[site]] = max(height[parents[site]], height[site] + 1)
    columns = np.zeros(len(depths), np.int64)
    by_depth = np.argsort(depths, kind="stable")
    for level in np.split(by_depth, np.flatnonzero(np.diff(depths[by_depth])) + 1)[1:]:
        taken: set[int] = set()
        homeless = []
        for site in level[np.argsort(-height[level], kind="stable")].tolist():
            column = int(columns[parents[site]])
            if column in taken:
                homeless.append(site)
            else:
                columns[site] = column
                taken.add(column)
        free = iter(column for column in range(len(level) + len(taken)) if column not in taken)
        for site in homeless:
            columns[site] = next(free)
    return Shape(members, order, columns)


def build_buckets(
    components: Sequence[tuple[np.ndarray, Shape]],
    num_values: int,
    width: int,
    allowed: np.ndarray,
    patterns: Sequence[Pattern],
) -> Buckets:
    """The buckets of some components, each given by its sites in ascending order and its shape.

    Args:
        components: at least one, of at most this width each, all with the same number of sites in a cell.
        num_values: K.
        width: number of cells of a separator.
        allowed: `(all sites, K)` which values a site has.
        patterns: those that may be used.
    """
    size = components[0][1].members.shape[1]
    own = num_values**size
    num_levels = max(shape.num_levels for _, shape in components)
    starts = np.cumsum([0, *(shape.num_columns for _, shape in components)])
    num_columns = int(starts[-1])
    sites = np.full((num_levels, num_columns, size), -1)
    parents = np.full((num_levels, num_columns), num_columns)
    index = np.zeros((num_levels, own ** (width + 1), num_columns), np.int32) if width > 1 else None
    for (numbers, shape), start in zip(components, starts, strict=False):
        levels = num_levels - 1 - shape.order.depths
        columns = start + shape.columns
        sites[levels, columns] = np.where(shape.members >= 0, numbers[shape.members], -1)
        has_parent = shape.order.parents >= 0
        parents[levels[has_parent], columns[has_parent]] = columns[shape.order.parents[has_parent]]
        if index is not None:
            index[levels, :, columns] = _indices(shape.order, own, width)
    # Axes of the parent's table: the parent p, its separator s₁ … s_w, each of `own` joint values, the last varying
    # fastest. The message of a child straight below has the axes p, s₁ … s_{w−1}: its entry is e // own.
    straight_on = np.arange(own ** (width + 1))[:, None] // own
    is_bent = parents != np.arange(num_columns)
    if index is not None:
        is_bent |= (index != straight_on).any(axis=1)
    bent: Any = ((sites >= 0).any(axis=2) & is_bent).any(axis=1)
    num_straight = int(np.argmax(bent))  # the roots, last of all, have no parents
    crossing = slice(num_straight, num_levels - 1)
    if index is not None:
        index = None if (index[crossing] == straight_on).all() else index[crossing]
    mask = joint_mask(sites, allowed[:, :num_values])
    chain = find_match(patterns, ChainSum(num_straight * num_columns, own, width)) if num_straight else None
    return Buckets(num_values, width, sites, num_straight, parents[crossing], index, mask, chain)


def build_grid(sites: np.ndarray, allowed: np.ndarray, patterns: Sequence[Pattern]) -> Buckets:
    """The buckets of a grid of sites, `(levels, columns)`, each joined to the next in its column or to none.

    Args:
        sites: their numbers.
        allowed: `(all sites, K)` which values a site has.
        patterns: those that may be used.
    """
    num_levels, num_columns = sites.shape
    count = int(np.flatnonzero(allowed[sites.ravel()].any(axis=0)).max(initial=0)) + 1
    mask = joint_mask(sites[..., None], allowed[:, :count])
    chain = find_match(patterns, ChainSum((num_levels - 1) * num_columns, count, 1))
    no_parents = np.zeros((0, num_columns), np.int64)
    return Buckets(count, 1, sites[..., None], num_levels - 1, no_parents, None, mask, chain)


def grid_axes(sites: np.ndarray) -> np.ndarray:
    """Rows of a site, itself or the one on which its message depends, and the axis this has in its table."""
    own = np.stack([sites.ravel(), sites.ravel(), np.zeros(sites.size, np.int64)], axis=1)
    below, above = sites[:-1].ravel(), sites[1:].ravel()
    return np.concatenate([own, np.stack([below, above, np.ones_like(below)], axis=1)])


def joint_mask(sites: np.ndarray, allowed: np.ndarray) -> np.ndarray | None:
    """Which joint values the cells have, `(levels, K^m, columns)`; None where they have all.

    Where a site is missing its first value stands.
    """
    size, num_values = sites.shape[-1], allowed.shape[1]
    first = np.arange(num_values) == 0
    mask = np.ones((*sites.shape[:2], 1), bool)
    for member in range(size):
        each = np.where(sites[..., member, None] >= 0, allowed[sites[..., member]], first)
        mask = (mask[..., None] & each[..., None, :]).reshape(*sites.shape[:2], -1)
    mask |= (sites < 0).all(axis=2, keepdims=True)
    return None if mask.all() else mask.swapaxes(1, 2)


def _indices(order: Order, num_values: int, width: int) -> np.ndarray:
    """For each cell and each entry of its parent's table, the entry of the cell's message that belongs to it."""
    values = np.indices((num_values,) * (width + 1)).reshape(width + 1, -1)
    powers = num_values ** np.arange(width - 1, -1, -1)
    rows = np.zeros((len(order.parents), values.shape[1]), np.int32)
    for site, (parent, separator) in enumerate(zip(order.parents.tolist(), order.separators, strict=True)):
        if parent >= 0:
            scope = (parent, *order.separators[parent])
            axes = [scope.index(other) for other in separator]
            rows[site] = (powers[: len(axes), None] * values[axes]).sum(axis=0)
    return rows
