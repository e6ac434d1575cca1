"""Structure → Plan: what will be done with each discrete site, and why.

Sites are gathered into blocks: same method, same number of values, same colour. Blocks of one kind that are many (a
complete graph has as many colours as sites) are stacked, so that compiled code does not grow with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sumout.errors import OptionError
from sumout.nuisance.block import Block, build_block, stack_blocks
from sumout.nuisance.gibbs import Gibbs
from sumout.nuisance.metropolis import CountStep, FromSampler, Metropolis, UniformOther
from sumout.nuisance.sweep import NuisanceMove, Stack, Sweep
from sumout.program import DiscreteSite
from sumout.reading.structure import Structure
from sumout.supports import Count, Finite, Implicit

MOST_GIBBS_VALUES = 256  # beyond, a table of all values costs more than it is worth
MOST_UNROLLED = 4  # so many blocks of one kind are compiled each for itself

METHODS = {
    "gibbs": "drawn from exact conditionals, all sites of a colour at once",
    "metropolis": "updated by Metropolis steps, all sites of a colour at once",
    "prior": "updated by proposals from their own sampler, accepted by the density",
}


@dataclass(frozen=True)
class Choice:
    """What will be done with a site, and why."""

    method: str
    reason: str


@dataclass(frozen=True, eq=False)
class Plan:
    """How z is drawn.

    Attributes:
        structure: the reading the plan rests on.
        choices: the method for each discrete site.
        moves: the moves of one sweep.
    """

    structure: Structure
    choices: Mapping[str, Choice]
    moves: tuple[NuisanceMove, ...]

    @property
    def sweep(self) -> Sweep:
        """One move that gives every site its turn."""
        return Sweep(self.moves)


def make_plan(structure: Structure, wishes: Mapping[str, str] | None = None) -> Plan:
    """Choose a method for every site, the user's wishes first, and build the moves."""
    if wishes is not None and not isinstance(wishes, Mapping):
        raise OptionError(
            f'plan={wishes!r}: expected a dict from the name of a site to a method, such as {{"z": "gibbs"}}.'
        )
    wishes = dict(wishes or {})
    sites = structure.program.z
    for name in wishes:
        if name not in sites:
            raise OptionError(f"plan: there is no discrete site '{name}'; the sites are {', '.join(sites)}.")
    choices = {name: _choose(name, site, wishes.get(name)) for name, site in sites.items()}
    return Plan(structure, choices, _build_moves(structure, choices))


def _choose(name: str, site: DiscreteSite, wish: str | None) -> Choice:
    support = site.support
    if isinstance(support, Implicit):
        possible = {"prior": "only a sampler is known for it"}
    elif isinstance(support, Count):
        possible = {"metropolis": "it has infinitely many values"}
    elif support.num_values > MOST_GIBBS_VALUES:
        reason = f"{support.num_values} values are more than a table should hold"
        possible = {"metropolis": reason, "gibbs": "as you wished"}
    else:
        reason = f"a table of {support.num_values} values for each site is cheap"
        possible = {"gibbs": reason, "metropolis": "as you wished"}
    if wish is None:
        return Choice(*next(iter(possible.items())))
    if wish not in possible:
        raise OptionError(
            f"plan: '{name}' cannot be done by '{wish}' (its support: {support}); possible: {', '.join(possible)}."
        )
    return Choice(wish, "as you wished")


def _build_moves(structure: Structure, choices: Mapping[str, Choice]) -> tuple[NuisanceMove, ...]:
    moves: list[NuisanceMove] = []
    for names in _kinds(structure, choices):
        sites = np.concatenate([structure.site_numbers[name] for name in names])
        colours = structure.colours[sites]
        groups = [np.flatnonzero(colours == colour) for colour in np.unique(colours)]
        tables = _tables(structure, names)
        method = choices[names[0]].method
        if len(groups) <= MOST_UNROLLED:
            for group in groups:
                chosen = [_columns(table[group]) for table in tables]
                moves.append(_move(build_block(structure, sites[group]), method, chosen))
        else:
            block = stack_blocks(structure, [sites[group] for group in groups])
            padded = [np.concatenate([group, np.repeat(group[:1], block.size - len(group))]) for group in groups]
            stacked = [np.stack([table[group].T for group in padded]) for table in tables]
            moves.append(Stack(_move(block, method, stacked), len(groups)))
    return tuple(moves)


def _kinds(structure: Structure, choices: Mapping[str, Choice]) -> list[tuple[str, ...]]:
    """Names of sites that can share a block: same method, same type and number of values."""
    kinds: dict[Any, list[str]] = {}
    for name, site in structure.program.z.items():
        support = site.support
        label: Any = name  # an implicit variable has a sampler of its own
        if isinstance(support, Finite):
            label = (choices[name].method, support.num_values, support.dtype)
        elif isinstance(support, Count):
            label = "count"
        if site.num_elements:
            kinds.setdefault(label, []).append(name)
    return [tuple(names) for names in kinds.values()]


def _tables(structure: Structure, names: tuple[str, ...]) -> list[np.ndarray]:
    """What a move must know of the support of every element: values and allowed flags, or the lower end."""
    supports = [structure.program.z[name].support for name in names]
    if all(isinstance(support, Finite) for support in supports):
        rows = [support.rows() for support in supports if isinstance(support, Finite)]
        return [np.concatenate(part) for part in zip(*rows, strict=True)]
    counts = [support for support in supports if isinstance(support, Count)]
    return [np.concatenate([np.full((int(np.prod(s.shape)), 1), s.lower) for s in counts])] if counts else []


def _columns(values: np.ndarray) -> np.ndarray:
    """`(n, K)` as `(K, n)`, or as `(K, 1)` where all rows are the same."""
    columns = np.ascontiguousarray(values.T)
    return columns[:, :1] if (columns == columns[:, :1]).all() else columns


def _move(block: Block, method: str, tables: list[np.ndarray]) -> Any:
    """The move of a block, or of a stack of them (then every array has a leading axis)."""
    support = block.structure.program.z[block.names[0]].support
    if isinstance(support, Implicit):
        return Metropolis(block, FromSampler(support))
    if isinstance(support, Count):
        return Metropolis(block, CountStep(tables[0][..., 0, :]))
    values, allowed = tables
    if method == "gibbs":
        return Gibbs(block, values, None if allowed.all() else allowed)
    return Metropolis(block, UniformOther(values, allowed.sum(axis=-2)))
