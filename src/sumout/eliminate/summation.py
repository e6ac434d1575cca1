"""log p(x, y) with some of z summed out exactly, and these sites again: drawn, most probable, or their marginals.

    log p(x, z_D, y) = rest + Σ_{factors free of S} factor + Σ_{components of S} log Σ_{z_S} exp Σ factors

S are the sites that are summed, D those that are not; where D is not empty, all is given its present values. Sites that
share no factor with another of S are handled as a block, the others as trees of tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from sumout.eliminate.components import Component
from sumout.eliminate.fill_tables import Round, fill_tables, plan_rounds
from sumout.eliminate.grid import find_grids
from sumout.eliminate.joint_tables import JointRound
from sumout.eliminate.layout import build_buckets, build_grid, grid_axes
from sumout.eliminate.messages import Buckets
from sumout.eliminate.state_chains import StateChains
from sumout.eliminate.state_tables import StateTables
from sumout.model.program import Data, Nuisance
from sumout.moves.gibbs import Gibbs
from sumout.moves.move import NuisanceMove
from sumout.patterns.contract import Pattern
from sumout.patterns.registry import PATTERNS, build_gibbs
from sumout.randomness import split
from sumout.structure.structure import Structure
from sumout.tables.blocks import Block, as_columns, build_block, num_values, pick, value_rows
from sumout.tables.factor_sums import Sums, build_sums


@dataclass(frozen=True, eq=False)
class Trees:
    """Buckets and the sites they stand for: the place of each member of a block in the cells, and its values."""

    buckets: Buckets | StateChains
    block: Block
    cells: np.ndarray
    values: np.ndarray

    def place(self, z: Nuisance, numbers: Array) -> Nuisance:
        """Z with the value of the given number in every member's place; `numbers` as the buckets have their sites."""
        return self.block.place(z, pick(self.values, numbers.ravel()[self.cells]))


@dataclass(frozen=True, eq=False)
class Summation(NuisanceMove):
    """Sums over some sites of a program.

    Attributes:
        structure: the reading.
        summed: mask over the sites.
        blocks: sites on their own, by kind.
        trees: the others.
        rounds: how the tables of the trees are filled.
        free: the sum of the factors that depend on none of them; None if there are none.
        paths: sites that are summed out along paths of states, and how their tables are filled.
    """

    structure: Structure
    summed: np.ndarray
    blocks: tuple[Gibbs, ...]
    trees: tuple[Trees, ...]
    rounds: tuple[Round | JointRound, ...]
    free: Sums | None
    paths: tuple[tuple[Trees, StateTables], ...] = ()

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated to draw the sites."""
        in_tables = sum(filling.evaluations for filling in (*self.rounds, *(tables for _, tables in self.paths)))
        return sum(block.evaluations for block in self.blocks) + in_tables

    def log_density(self, x: Array, z: Nuisance, data: Data) -> Float[Array, ""]:
        """Log density with the sites summed out; their values in z are not looked at."""
        total = self.structure.rest(x, z, data)
        if self.free is not None:
            free = self.free(self.structure.live_factors(x, z, data))[0]
            total += jnp.where(free == -jnp.inf, -jnp.inf, free)  # no derivative there
        for block in self.blocks:
            total += block.log_totals(x, z, data).sum()
        for trees, table in self._tree_tables(x, z, data):
            total += trees.buckets.log_total(table)
        for _, tables in self.paths:
            total += tables.log_total(x, z, data)
        return total

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """The sites drawn jointly from their conditional given x and the rest of z; the others as they are."""
        number = len(self.blocks) + len(self.trees) + len(self.paths)
        keys = iter([key] if number == 1 else split(key, number))
        tables = self._tables(x, z, data)
        for block in self.blocks:
            z = block(next(keys), x, z, data)
        for trees, table in tables:
            z = trees.place(z, trees.buckets.draw(next(keys), table))
        return z

    def most_probable(self, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """The most probable joint values of the sites given x and the rest of z; the others as they are."""
        tables = self._tables(x, z, data)
        for block in self.blocks:
            highest = jnp.argmax(block.log_weights(x, z, data), axis=0)
            z = block.block.place(z, pick(block.values, highest))
        for trees, table in tables:
            z = trees.place(z, trees.buckets.most_probable(table))
        return z

    def log_marginals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "sites K"]:
        """Log probabilities of the values of every site given x and the rest of z; NaN for those not summed."""
        most = int(num_values(self.structure)[self.summed].max(initial=1))
        found = jnp.full((self.structure.num_sites, most), jnp.nan)
        for block in self.blocks:
            log_probabilities = block.log_weights(x, z, data) - block.log_totals(x, z, data)
            found = _fill(found, block.block.members, log_probabilities.T)
        for trees, table in self._tables(x, z, data):
            by_cell = trees.buckets.log_marginals(table).reshape(-1, trees.buckets.num_values)
            found = _fill(found, trees.block.members, by_cell[trees.cells])
        return found

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """The marginals of the sites."""
        sites = np.flatnonzero(self.summed)
        yield sites, jnp.exp(self.log_marginals(x, z, data))[sites]

    def log_beliefs(
        self, x: Array, z: Nuisance, data: Data, terms: Float[Array, "K sites"], zeros: Float[Array, "K sites"]
    ) -> Float[Array, "K sites"]:
        """Log weights of the values of every site, up to a constant for each, where sites have further terms.

        Args:
            x: continuous variables.
            z: those of the other sites count.
            data: the data.
            terms: for each value of each site the sum of its further terms, leaving out those that are −∞.
            zeros: how many were left out. At other sites than the one in question they count.
        """
        found = jnp.full(terms.shape, -jnp.inf)
        for block in self.blocks:
            weights = block.log_weights(x, z, data)
            members = as_index(block.block.members)
            found = found.at[: len(weights), members].set(weights + terms[: len(weights), members])
        for trees, table in self._tables(x, z, data):
            buckets, members = trees.buckets, as_index(trees.block.members)
            beliefs = buckets.log_beliefs(table, *(_by_cell(buckets, array) for array in (terms, zeros)))
            beliefs = beliefs.reshape(-1, buckets.num_values)[trees.cells]
            found = found.at[: buckets.num_values, members].set(beliefs.T)
        return found

    def _tables(self, x: Array, z: Nuisance, data: Data) -> list[tuple[Trees, Any]]:
        return [*self._tree_tables(x, z, data), *((trees, tables(x, z, data)) for trees, tables in self.paths)]

    def _tree_tables(self, x: Array, z: Nuisance, data: Data) -> list[tuple[Trees, Any]]:
        groups = [trees.buckets for trees in self.trees if isinstance(trees.buckets, Buckets)]
        return list(zip(self.trees, fill_tables(self.rounds, groups, x, z, data), strict=True))


def _fill(found: Array, sites: np.ndarray, rows: Array) -> Array:
    missing = found.shape[1] - rows.shape[1]
    return found.at[sites].set(jnp.pad(rows, ((0, 0), (0, missing)), constant_values=-jnp.inf))


def as_index(sites: np.ndarray) -> np.ndarray | slice:
    """Sites as a slice where they stand in a row, which is not looked up one by one."""
    in_a_row = len(sites) > 0 and np.array_equal(sites, np.arange(sites[0], sites[0] + len(sites)))
    return slice(int(sites[0]), int(sites[0]) + len(sites)) if in_a_row else sites


def _by_cell(buckets: Buckets | StateChains, by_site: Float[Array, "K sites"]) -> Float[Array, "L C m K"]:
    """What belongs to the sites, as the buckets have them; 0 where there is none."""
    is_site = (buckets.sites >= 0)[..., None]
    return jnp.where(is_site, by_site[: buckets.num_values].T[np.maximum(buckets.sites, 0)], 0.0)


def build_summation(
    structure: Structure,
    components: Sequence[Component],
    patterns: Sequence[Pattern] = PATTERNS,
    paths: Sequence[StateTables] = (),
    states: np.ndarray | None = None,
) -> Summation:
    """The sums over some components, and along some paths of states.

    Args:
        structure: the reading.
        components: of sites that are not on the paths.
        patterns: those that may be used.
        paths: of other sites.
        states: mask over the sites of the structure that are states on the paths.
    """
    summed = np.zeros(structure.num_sites, bool)
    for component in components:
        summed[component.sites] = True
    for tables in paths:
        summed[tables.chains.sites[tables.chains.sites >= 0]] = True
    chains = [component.sites for component in components if _is_chain(component)]
    alone = [component.sites for component in components if component.alone]
    grids = find_grids(structure, chains, alone)
    in_grid = np.zeros(structure.num_sites, bool)
    for grid in grids:
        in_grid[grid] = True
    left = [component for component in components if not in_grid[component.sites].all()]
    alone = np.concatenate([np.zeros(0, np.int64), *alone])
    joined = [component for component in left if not component.alone]
    groups: dict[tuple, list[Component]] = {}
    for component in joined:
        assert component.shape is not None
        shape = component.shape
        # Trees of very different height would be mostly padding: those within a factor of two stand together.
        key = (component.num_values, shape.order.width, shape.members.shape[1], int(np.log2(shape.num_levels)))
        groups.setdefault(key, []).append(component)
    allowed = _allowed(structure)
    buckets = [build_grid(grid, allowed, patterns) for grid in grids]
    for (count, width, *_), group in groups.items():
        placed = [(component.sites, component.shape) for component in group if component.shape is not None]
        buckets.append(build_buckets(placed, count, width, allowed, patterns))
    axes = [grid_axes(grid) for grid in grids] + [
        np.stack([*component.sites[rows[:, :2].T], rows[:, 2]], axis=1)
        for component in joined
        if component.shape is not None
        for rows in [component.shape.axes()]
    ]
    rounds = plan_rounds(structure, buckets, np.concatenate(axes), summed) if buckets else ()
    trees = tuple(_trees(structure, one) for one in buckets)
    blocks = _blocks(structure, alone[~in_grid[alone]], patterns)
    free = _free(structure, summed if states is None else summed | states)
    along_paths = tuple((_trees(structure, tables.chains), tables) for tables in paths)
    return Summation(structure, summed, blocks, trees, rounds, free, along_paths)


def _is_chain(component: Component) -> bool:
    """Whether sites are summed out one by one, and none has more than one neighbour left."""
    shape = component.shape
    return shape is not None and shape.members.shape[1] == 1 and shape.order.width == 1


def _allowed(structure: Structure) -> np.ndarray:
    """Which of its values each site may take, `(sites, K)`; none for sites that are not finite."""
    counts = num_values(structure)
    allowed = np.zeros((structure.num_sites, int(counts.max(initial=1))), bool)
    for name, numbers in structure.site_numbers.items():
        if len(numbers) and counts[numbers[0]]:
            allowed[numbers] = value_rows(structure, [name], allowed.shape[1])[1]
    return allowed


def _blocks(structure: Structure, sites: np.ndarray, patterns: Sequence[Pattern]) -> tuple[Gibbs, ...]:
    """Sites on their own, as Gibbs blocks: one for each number and type of values."""
    kinds: dict[tuple, list[str]] = {}
    for name, site in structure.program.z.items():
        if np.isin(structure.site_numbers[name], sites).any():
            kinds.setdefault((int(num_values(structure)[structure.site_numbers[name][0]]), site.dtype), []).append(name)
    blocks = []
    for (count, _), names in kinds.items():
        numbers = np.concatenate([structure.site_numbers[name] for name in names])
        inside = np.isin(numbers, sites)
        values, allowed = (part[inside] for part in value_rows(structure, names, count))
        block = build_block(structure, numbers[inside])
        blocks.append(build_gibbs(block, as_columns(values), as_columns(allowed), patterns))
    return tuple(blocks)


def _trees(structure: Structure, buckets: Buckets | StateChains) -> Trees:
    flat, count = buckets.sites.ravel(), buckets.num_values
    members = np.sort(flat[flat >= 0])
    names = [name for name, numbers in structure.site_numbers.items() if np.isin(numbers, members).any()]
    dtype = np.result_type(*(structure.program.z[name].dtype for name in names))
    values = np.zeros((structure.num_sites, count), dtype)
    for name in names:
        values[structure.site_numbers[name]], _ = value_rows(structure, [name], count)
    cell = np.zeros(structure.num_sites, np.int64)
    cell[flat[flat >= 0]] = np.flatnonzero(flat >= 0)
    block = build_block(structure, members, with_sums=False)
    return Trees(buckets, block, cell[members], as_columns(values[members]))


def _free(structure: Structure, summed: np.ndarray) -> Sums | None:
    """The factors that depend on no summed site, all to one owner."""
    sizes = np.diff(sp.csr_array(structure.scopes[:, np.flatnonzero(summed)]).indptr)
    rows = np.flatnonzero((sizes == 0) & structure.is_live)
    return build_sums(structure, (rows, np.zeros(len(rows), np.int64)), 1) if len(rows) else None
