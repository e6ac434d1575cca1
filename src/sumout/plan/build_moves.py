"""The moves of a plan: how the sites that are drawn are gathered.

Sites that can be drawn each together with a coordinate of x of its own are drawn so. The others are gathered into
blocks: same method, same number of values, same colour. Blocks of one kind that are many (a complete graph has as many
colours as sites) are stacked, so that compiled code does not grow with them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from sumout.compile.policy import MOST_GIBBS_VALUES, MOST_QUADRATIC_SITES, MOST_WIDE_ENTRIES, WRITTEN_OUT_BLOCKS
from sumout.eliminate.components import find_components
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z, guess_x
from sumout.model.supports import Count, Finite, Implicit
from sumout.moves.metropolis import AroundTheCircle, FromSampler, Metropolis
from sumout.moves.move import NuisanceMove
from sumout.moves.sweep import Stack, Sweep
from sumout.moves.windows import NUM_ROUNDS, CountWindows
from sumout.patterns.contract import Pattern, SiteScan
from sumout.patterns.quadratic_gibbs import QuadraticGibbs
from sumout.patterns.registry import build_gibbs, find_match
from sumout.randomness import new_key, split
from sumout.structure.structure import Structure
from sumout.tables.blocks import Block, as_columns, build_block, stack_blocks, value_rows

GUESSES = 16  # draws of x at which it is judged whether modes are apart
FAR_APART = 4.0  # standard deviations between modes: half way the density is 0.27 times as high, at 6 only 0.02 times


MOST_FAILURES = 2  # sets of one size, of sites of the same names, that are looked at before the others are given up


class Partners:
    """Finds sites that can be drawn each together with a coordinate of x of its own; each set is looked at once.

    Each look takes a reading of the whole program: where some of hundreds of sets of one kind have no partners, the
    others have none either, or lose little without them.
    """

    def __init__(self, structure: Structure, patterns: Sequence[Pattern]):
        self._structure, self._patterns = structure, patterns
        self._known: dict[bytes, NuisanceMove | None] = {}
        self._failures: Counter[tuple[int, ...]] = Counter()
        names = enumerate(structure.site_numbers.values())
        rows = [np.full(len(numbers), i) for i, numbers in names]
        self._name_of = np.concatenate([np.zeros(0, np.int64), *rows])

    def sets(self, inside: np.ndarray) -> Iterator[np.ndarray]:
        """Of some sites, a mask, those that are joined by factors, and those of one variable that are on their own."""
        for component in find_components(self._structure, inside, ()):
            if not component.alone:
                yield component.sites
                continue
            for numbers in self._structure.site_numbers.values():
                alone = numbers[np.isin(numbers, component.sites)]
                if len(alone):
                    yield alone

    def find(self, sites: np.ndarray) -> NuisanceMove | None:
        """The move of such a set; None where some have no partner."""
        if len(sites) > min(self._structure.program.num_x, MOST_QUADRATIC_SITES):
            return None
        label = sites.tobytes()
        if label not in self._known:
            kind = tuple(self._name_of[sites].tolist())
            has_failed = self._failures[kind] >= MOST_FAILURES
            self._known[label] = None if has_failed else self._match(sites)
            self._failures[kind] += self._known[label] is None
        return self._known[label]

    def leave_modes(self, sites: np.ndarray) -> bool:
        """Whether partners would be left with modes that HMC hardly gets between, were their sites summed out.

        It is judged at the best of a few draws of x, partners and sites being drawn given the rest of it.
        """
        move, program = self.find(sites), self._structure.program
        if not isinstance(move, QuadraticGibbs):
            return False
        data, z = as_jax(program.data), any_z(program)

        @jax.jit
        def look(key: Array, x: Array) -> tuple[Array, Array]:
            x, drawn = move.jointly(key, x, z, data)
            return program.log_density(x, drawn, data), move.mode_distances(x, drawn, data).max()

        points = guess_x(np.random.default_rng(0), program, GUESSES)
        found = [look(key, x) for key, x in zip(split(new_key(0), GUESSES), points, strict=True)]
        heights, distances = (np.asarray(part, float) for part in zip(*found, strict=True))
        return bool(distances[np.argmax(np.nan_to_num(heights, nan=-np.inf))] > FAR_APART)

    def _match(self, sites: np.ndarray) -> NuisanceMove | None:
        structure = self._structure
        methods = np.full(structure.num_sites, "forward", object)
        methods[sites] = "gibbs"
        kinds = _kinds(structure, methods)
        if len(kinds) != 1 or not isinstance(structure.program.z[kinds[0][1][0]].support, Finite):
            return None
        names = kinds[0][1]
        numbers = np.concatenate([structure.site_numbers[name] for name in names])
        values, allowed = (table[np.isin(numbers, sites)] for table in _tables(structure, names))
        elements = np.diff(structure.scopes_by_site.indptr)[sites].sum()
        if values.shape[1] > MOST_GIBBS_VALUES and values.shape[1] * elements > MOST_WIDE_ENTRIES:
            return None
        moves = tuple(_by_colour(structure, "gibbs", sites, [values, allowed], self._patterns))
        by_colour = moves[0] if len(moves) == 1 else Sweep(moves)
        subject = SiteScan(structure, sites, as_columns(values), as_columns(allowed), by_colour)
        found = find_match(self._patterns, subject)
        return found if found is not None and found.moves_x else None


def build_moves(
    structure: Structure, methods: np.ndarray, patterns: Sequence[Pattern], partners: Partners
) -> Iterator[NuisanceMove]:
    """The moves on the sites that are drawn, by the method of each."""
    with_partners = np.zeros(structure.num_sites, bool)
    for sites in partners.sets(methods == "gibbs"):
        move = partners.find(sites)
        if move is not None:
            with_partners[sites] = True
            yield move
    for method, names in _kinds(structure, methods):
        numbers = np.concatenate([structure.site_numbers[name] for name in names])
        inside = (methods[numbers] == method) & ~with_partners[numbers]
        if inside.any():
            sites, tables = numbers[inside], [table[inside] for table in _tables(structure, names)]
            moves = list(_by_colour(structure, method, sites, tables, patterns))
            if method == "gibbs" and isinstance(moves[0], Stack):
                values, allowed = map(as_columns, tables)
                moves = [find_match(patterns, SiteScan(structure, sites, values, allowed, moves[0])) or moves[0]]
            yield from moves


def _by_colour(
    structure: Structure, method: str, sites: np.ndarray, tables: list[np.ndarray], patterns: Sequence[Pattern]
) -> Iterator[NuisanceMove]:
    """One move for each colour of some sites, or, if they are many, a stack of them."""
    colours = structure.colours[sites]
    groups = [np.flatnonzero(colours == colour) for colour in np.unique(colours)]
    if len(groups) <= WRITTEN_OUT_BLOCKS:
        for group in groups:
            chosen = [as_columns(table[group]) for table in tables]
            yield _move(build_block(structure, sites[group]), method, chosen, patterns)
        return
    # Blocks of a stack are of one size: the small ones are filled up with their first member's values, `(K, n)` for
    # each block; what is drawn for padding is not placed anywhere.
    block = stack_blocks(structure, [sites[group] for group in groups])
    padded = [np.concatenate([group, np.repeat(group[:1], block.size - len(group))]) for group in groups]
    stacked = [np.stack([table[group].T for group in padded]) for table in tables]
    yield Stack(_move(block, method, stacked, ()), len(groups))


def _kinds(structure: Structure, methods: np.ndarray) -> list[tuple[str, Sequence[str]]]:
    """Sites that can share a block: same method, same type and number of values."""
    kinds: dict[Any, tuple[str, list[str]]] = {}
    for name, site in structure.program.z.items():
        for method in np.unique(methods[structure.site_numbers[name]].astype(str)).tolist():
            if method in ("sum", "joint", "forward"):
                continue
            support = site.support
            label: Any = name  # an implicit variable has a sampler of its own
            if isinstance(support, Finite):
                label = (support.num_values, support.dtype)
            elif isinstance(support, Count):
                label = "count"
            kinds.setdefault((method, label), (method, []))[1].append(name)
    return list(kinds.values())


def _tables(structure: Structure, names: Sequence[str]) -> list[np.ndarray]:
    """What a move must know of the support of every element: values and allowed flags, or the lower end."""
    supports = [structure.program.z[name].support for name in names]
    if isinstance(supports[0], Finite):
        return list(value_rows(structure, names, supports[0].num_values))
    counts = [support for support in supports if isinstance(support, Count)]
    return [np.concatenate([np.full((int(np.prod(s.shape)), 1), s.lower) for s in counts])] if counts else []


def _move(block: Block, method: str, tables: list[np.ndarray], patterns: Sequence[Pattern]) -> Any:
    """The move of a block, or of a stack of them (then every array has a leading axis, and no pattern is known)."""
    support = block.structure.program.z[block.names[0]].support
    if isinstance(support, Implicit):
        return Metropolis(block, FromSampler(support))
    if isinstance(support, Count):
        lower = tables[0][..., 0, :]
        return CountWindows(block, lower, np.broadcast_to(np.arange(NUM_ROUNDS), (*lower.shape[:-1], NUM_ROUNDS)))
    values, allowed = tables
    if method == "gibbs":
        return build_gibbs(block, values, allowed, patterns)
    return Metropolis(block, AroundTheCircle.over(values, allowed.sum(axis=-2)))
