"""Structure → Plan: what will be done with each discrete site, and why.

A component is summed out where the tables for that are small, or cost little more than a sweep would; the other sites
are drawn. Those that are drawn one by one are gathered into blocks: same method, same number of values, same colour.
Blocks of one kind that are many (a complete graph has as many colours as sites) are stacked, so that compiled code does
not grow with them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from sumout.eliminate.components import MOST_ENTRIES, Component, find_components
from sumout.eliminate.summation import Summation, build_summation
from sumout.errors import OptionError
from sumout.model.program import Data, DiscreteSite, Nuisance, Program
from sumout.model.supports import Count, Finite, Implicit
from sumout.moves.gibbs import Gibbs
from sumout.moves.metropolis import AroundTheCircle, CountStep, FromSampler, Metropolis
from sumout.moves.move import NuisanceMove
from sumout.moves.sweep import STAY, PartialScan, Stack, Sweep
from sumout.patterns.change_points import build_gibbs, build_switches
from sumout.patterns.quadratic_forms import find_quadratic
from sumout.patterns.quadratic_gibbs import build_quadratic
from sumout.randomness import split
from sumout.structure.structure import Structure, read
from sumout.tables.blocks import Block, as_columns, build_block, num_values, stack_blocks, value_rows

MOST_GIBBS_VALUES = 256  # beyond, a table of all values costs more than it is worth
MOST_SWITCHED_VALUES = 4096  # of sites whose tables are running totals
MOST_BESIDE = 8  # elements for each of them that may still be computed for every value
MOST_UNROLLED = 4  # so many blocks of one kind are compiled each for itself
GRADIENT = 3  # evaluations of the density that cost as much as its gradient
WORTH = 16  # summing may cost so many times a sweep: it saves more than that in draws

METHODS = {
    "sum": "summed out exactly, then drawn exactly for each draw of x",
    "joint": "drawn jointly from the exact conditional",
    "gibbs": "drawn from exact conditionals, all sites of a colour at once",
    "metropolis": "updated by Metropolis steps, all sites of a colour at once",
    "prior": "updated by proposals from their own sampler, accepted by the density",
    "forward": "drawn from their own law for each draw of all else",
}
WISHES = (*(method for method in METHODS if method != "forward"), "draw")


@dataclass(frozen=True)
class Choice:
    """What will be done with so many elements of a site, and why."""

    method: str
    num_sites: int
    reason: str


@dataclass(frozen=True, eq=False)
class Plan:
    """What is done with z.

    Attributes:
        structure: the reading the plan rests on.
        choices: the methods for each discrete site; more than one where its elements fare differently.
        summation: the sites that are summed out; None if there are none.
        moves: the moves of one sweep over the others.
        summing: work of one sum, in entries of tables.
        drawing: work of one sweep over the same sites.
    """

    structure: Structure
    choices: Mapping[str, tuple[Choice, ...]]
    summation: Summation | None
    moves: tuple[NuisanceMove, ...]
    summing: float
    drawing: float

    @property
    def drawn(self) -> list[str]:
        """The discrete sites of which elements are drawn between gradients."""
        methods = {name: {choice.method for choice in choices} for name, choices in self.choices.items()}
        return [name for name, used in methods.items() if used - {"sum", "forward"}]

    @property
    def sums_all(self) -> bool:
        """Whether nothing is left to draw between gradients."""
        return not self.moves

    @cached_property
    def recover(self) -> NuisanceMove:
        """Draws the sites that are summed out given x and the others."""
        return STAY if self.summation is None else self.summation

    @cached_property
    def sweep(self) -> Sweep:
        """One move that gives every site its turn that is not summed out; it starts by drawing those that are."""
        if self.sums_all:
            return STAY
        return Sweep(self.moves if self.summation is None else (self.summation, *self.moves))

    @cached_property
    def part(self) -> Callable[[Any, Any, Nuisance, Data, Any], Nuisance] | None:
        """Where a sweep costs more than a gradient, a part of it; t counts: `(key, x, z, data, t)`."""
        if sum(move.num_parts for move in self.moves) == 1 or self.sweep.evaluations <= GRADIENT:
            return None
        turns = PartialScan(self.moves)
        if self.summation is None:
            return turns
        summation = self.summation

        def part(key: Any, x: Any, z: Nuisance, data: Data, t: Any) -> Nuisance:
            key_summed, key_turn = split(key)
            return turns(key_turn, x, summation(key_summed, x, z, data), data, t)

        return part

    @cached_property
    def log_density(self) -> Callable[[Any, Nuisance, Data], Any]:
        """Log p(x, z, y) with the summed sites summed out."""
        # Jitted, so that it is traced once however often other compiled code calls it.
        return jax.jit(self.structure.log_density if self.summation is None else self.summation.log_density)


def plan_for(program: Program, wishes: Mapping[str, str] | None = None) -> Plan:
    """The plan for a program, the same object whenever the same is wished for."""
    structure = read(program)
    checked = _check_wishes(structure, wishes)
    label = ("plan", tuple(sorted(checked.items())))
    return program.remember(label, lambda: make_plan(structure, checked))


def make_plan(structure: Structure, wishes: Mapping[str, str] | None = None) -> Plan:
    """Choose a method for every site, the user's wishes first, and build the sums and the moves."""
    wishes = _check_wishes(structure, wishes)
    methods = np.full(structure.num_sites, "", object)
    reasons = np.full(structure.num_sites, "", object)
    for name, site in structure.program.z.items():
        numbers = structure.site_numbers[name]
        most = MOST_SWITCHED_VALUES if _has_running_totals(structure, name) else MOST_GIBBS_VALUES
        method, reason = _choose(name, site, wishes.get(name), name in structure.program.forward, most)
        methods[numbers], reasons[numbers] = method, reason
    summed = _settle(structure, methods, reasons, wishes, "sum")
    joint = _settle(structure, methods, reasons, wishes, "joint")
    summation = build_summation(structure, summed) if summed else None
    together = (build_summation(structure, joint),) if joint else ()
    return Plan(
        structure,
        {name: _count(methods[numbers], reasons[numbers]) for name, numbers in structure.site_numbers.items()},
        summation,
        (*together, *_build_moves(structure, methods)),
        sum(component.summing for component in summed),
        sum(component.drawing for component in summed),
    )


def _check_wishes(structure: Structure, wishes: Mapping[str, str] | None) -> dict[str, str]:
    if wishes is not None and not isinstance(wishes, Mapping):
        raise OptionError(
            f'plan={wishes!r}: expected a dict from the name of a site to a method, such as {{"z": "draw"}}.'
        )
    wishes = dict(wishes or {})
    sites = structure.program.z
    for name, wish in wishes.items():
        if name not in sites:
            raise OptionError(f"plan: there is no discrete site '{name}'; the sites are {', '.join(sites)}.")
        if wish not in WISHES:
            raise OptionError(f"plan: '{name}' cannot be done by {wish!r}; the methods are {', '.join(WISHES)}.")
    return wishes


def _has_running_totals(structure: Structure, name: str) -> bool:
    """Whether a site of many values is on its own, and its table takes little work for each of them."""
    support, numbers = structure.program.z[name].support, structure.site_numbers[name]
    if not isinstance(support, Finite) or not MOST_GIBBS_VALUES < support.num_values <= MOST_SWITCHED_VALUES:
        return False
    met = np.diff(structure.scopes.indptr)[structure.scopes_by_site[numbers].indices]
    values, allowed = value_rows(structure, [name], support.num_values)
    if (met > 1).any() or not allowed.all():
        return False
    switches = build_switches(build_block(structure, numbers), as_columns(values))
    return switches is not None and switches.work <= MOST_BESIDE * len(numbers)


def _choose(name: str, site: DiscreteSite, wish: str | None, is_forward: bool, most: int) -> tuple[str, str]:
    """The method to try first for a site of up to so many values, looking at it alone; of a sum, why it is tried."""
    support = site.support
    if is_forward:
        possible = {"forward": "nothing else depends on it, and its law sums to one"}
    elif isinstance(support, Implicit):
        possible = {"prior": "only a sampler is known for it"}
    elif isinstance(support, Count):
        possible = {"metropolis": "it has infinitely many values, and no bound is known on what a sum would leave out"}
    elif support.num_values > most:
        reason = f"{support.num_values} values are more than a table should hold"
        possible = {"metropolis": reason, "gibbs": "", "sum": "", "joint": ""}
    else:
        possible = {"sum": "", "joint": "", "gibbs": "", "metropolis": ""}
    if wish == "draw":
        wish = next(method for method in possible if method != "sum")
    if wish is None:
        return next(iter(possible.items()))
    if wish not in possible:
        why = next(iter(possible.values())) or f"its support is {support}"
        others = ", ".join([*(method for method in possible if method in WISHES), "draw"])
        raise OptionError(f"plan: '{name}' cannot be done by '{wish}', as {why}; possible: {others}.")
    return wish, "as you wished"


def _settle(
    structure: Structure, methods: np.ndarray, reasons: np.ndarray, wishes: Mapping[str, str], method: str
) -> list[Component]:
    """The components for which a sum (or a joint draw) is worth its cost; the others fall back on single sites."""
    components = find_components(structure, methods == method)
    insisted = np.zeros(structure.num_sites, bool)
    for name, wish in wishes.items():
        insisted[structure.site_numbers[name]] = wish == method
    left, kept = float(MOST_ENTRIES), []
    for component in sorted(components, key=lambda c: c.summing):
        is_dear = component.summing > WORTH * component.drawing
        if insisted[component.sites].any() and not np.isfinite(component.summing):
            raise OptionError(_refusal(structure, component, method))
        if not np.isfinite(component.summing) or (
            is_dear and component.summing > left and not insisted[component.sites].any()
        ):
            _fall_back(structure, component, methods, reasons)
            continue
        left -= component.summing if is_dear else 0.0
        kept.append(component)
        if not insisted[component.sites].any():
            reasons[component.sites] = _praise(component)
    return kept


def _praise(component: Component) -> str:
    if component.alone:
        return f"a table of {component.num_values} values for each site"
    assert component.shape is not None
    return f"tables of {component.num_values**component.shape.table_size:,} entries"


def _refusal(structure: Structure, component: Component, method: str) -> str:
    names = [name for name, numbers in structure.site_numbers.items() if np.isin(numbers, component.sites).any()]
    return (
        f"plan: {', '.join(names)} cannot be done by '{method}': {len(component.sites)} sites with up to "
        f"{component.num_values} values hang together so that some table would exceed {MOST_ENTRIES:,} entries. "
        "Choose 'draw' for it, or draw another site whose value would cut the group apart."
    )


def _fall_back(structure: Structure, component: Component, methods: np.ndarray, reasons: np.ndarray) -> None:
    """Draw the sites of a component one colour after the other."""
    needs = f"{component.summing:.0e}" if np.isfinite(component.summing) else f"more than {MOST_ENTRIES:,}"
    dear = f"to sum over {len(component.sites)} sites that hang together would take tables of {needs} entries"
    large = num_values(structure)[component.sites] > MOST_GIBBS_VALUES
    methods[component.sites] = np.where(large, "metropolis", "gibbs")
    reasons[component.sites] = dear


def _count(methods: np.ndarray, reasons: np.ndarray) -> tuple[Choice, ...]:
    """The distinct choices for the elements of a site, the most frequent first."""
    counted: dict[tuple[str, str], int] = {}
    for label in zip(methods.tolist(), reasons.tolist(), strict=True):
        counted[label] = counted.get(label, 0) + 1
    choices = [Choice(method, number, reason) for (method, reason), number in counted.items()]
    return tuple(sorted(choices, key=lambda choice: -choice.num_sites))


def _build_moves(structure: Structure, methods: np.ndarray) -> Iterator[NuisanceMove]:
    for method, names in _kinds(structure, methods):
        numbers = np.concatenate([structure.site_numbers[name] for name in names])
        inside = methods[numbers] == method
        sites = numbers[inside]
        tables = [table[inside] for table in _tables(structure, names)]
        colours = structure.colours[sites]
        groups = [np.flatnonzero(colours == colour) for colour in np.unique(colours)]
        if len(groups) <= MOST_UNROLLED:
            for group in groups:
                chosen = [as_columns(table[group]) for table in tables]
                yield _move(build_block(structure, sites[group]), method, chosen)
            continue
        block = stack_blocks(structure, [sites[group] for group in groups])
        padded = [np.concatenate([group, np.repeat(group[:1], block.size - len(group))]) for group in groups]
        stacked = [np.stack([table[group].T for group in padded]) for table in tables]
        stack = Stack(_move(block, method, stacked), len(groups))
        form = find_quadratic(structure, sites) if method == "gibbs" else None
        yield stack if form is None else build_quadratic(form, as_columns(tables[0]), as_columns(tables[1]), stack)


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


def _move(block: Block, method: str, tables: list[np.ndarray]) -> Any:
    """The move of a block, or of a stack of them (then every array has a leading axis)."""
    support = block.structure.program.z[block.names[0]].support
    if isinstance(support, Implicit):
        return Metropolis(block, FromSampler(support))
    if isinstance(support, Count):
        return Metropolis(block, CountStep(tables[0][..., 0, :]))
    values, allowed = tables
    if method == "gibbs":
        is_single = values.ndim == 2
        return (
            build_gibbs(block, values, allowed)
            if is_single
            else Gibbs(block, values, None if allowed.all() else allowed)
        )
    return Metropolis(block, AroundTheCircle.over(values, allowed.sum(axis=-2)))
