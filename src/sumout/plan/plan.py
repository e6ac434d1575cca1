"""Structure → Plan: what will be done with each discrete site, and why.

Sites that can be drawn each together with a coordinate of x of its own are drawn so: with z summed out that coordinate
would have a spike or a mode for every value of its site, between which HMC hops rarely. Of the others a component is
summed out where the tables for that are small, or cost little more than a sweep would; all else is drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from sumout.calls import html_of
from sumout.compile.policy import (
    GRADIENT_COST,
    MOST_BESIDE,
    MOST_CHANGE_POINT_VALUES,
    MOST_ENTRIES,
    MOST_GIBBS_VALUES,
    MOST_WIDE_ENTRIES,
    SUM_WORTH,
)
from sumout.eliminate.components import Component, find_components
from sumout.eliminate.shared_tables import with_shared_tables
from sumout.eliminate.state_summation import (
    StateSummation,
    beside,
    build_state_summation,
    describe_states,
    find_states_worth,
)
from sumout.eliminate.summation import Summation, build_summation
from sumout.errors import OptionError
from sumout.jaxpr.equations import without_collection
from sumout.model.program import Data, Nuisance, Program
from sumout.model.rolled import roll_up
from sumout.model.supports import Count, Finite, Implicit
from sumout.moves.move import NuisanceMove
from sumout.moves.sweep import STAY, PartialScan, Sweep
from sumout.patterns.contract import BlockTable, Pattern
from sumout.patterns.registry import PATTERNS, find_match
from sumout.plan.build_moves import Partners, build_moves
from sumout.plan.count_bounds import count_bounds
from sumout.plan.count_ends import MOST_NEGLECTED, NOT_CUT, CountEnds, describe_ends, first_ends
from sumout.plan.count_tails import FEW_SHELLS
from sumout.randomness import split
from sumout.structure.count_sums import sums_as_sites
from sumout.structure.structure import Structure, read
from sumout.tables.blocks import as_columns, build_block, num_values, value_rows

METHODS = {
    "sum": "summed out exactly, then drawn exactly for each draw of x",
    "joint": "drawn jointly from the exact conditional",
    "gibbs": "drawn from exact conditionals, all sites of a colour at once",
    "metropolis": "updated by Metropolis steps, counts by draws from windows of a few values, all of a colour at once",
    "prior": "updated by proposals from their own sampler, accepted by the density",
    "forward": "drawn from their own law for each draw of all else",
}
UNPARTNERED = "without partners"  # in overrides made by us: summed out if that is cheap, else drawn
OVERRIDES = (*(method for method in METHODS if method != "forward"), "draw")  # "draw": by whatever method but a sum


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
        patterns: those that could be used.
        instead: the sites that are drawn with partners, and would be summed out by a kernel that cannot do so.
        ends: where sums over counts are cut; None where none is.
    """

    structure: Structure
    choices: Mapping[str, tuple[Choice, ...]]
    summation: Summation | StateSummation | None
    moves: tuple[NuisanceMove, ...]
    summing: float
    drawing: float
    patterns: Sequence[Pattern] = PATTERNS
    instead: tuple[str, ...] = ()
    ends: CountEnds | None = None

    def __repr__(self) -> str:
        made = [
            f"{name}: {', '.join(f'{choice.method} ({choice.num_sites:,})' for choice in choices)}"
            for name, choices in self.choices.items()
        ]
        return f"Plan({self.structure.program.name}; {'; '.join(made) or 'no discrete sites'})"

    def _repr_html_(self) -> str:
        return html_of(self)

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
        """Draws every site that is not summed out; it starts by drawing those that are."""
        if self.sums_all:
            return STAY
        return Sweep(self.moves if self.summation is None else (self.summation, *self.moves))

    @cached_property
    def partial_scan(self) -> Callable[[Any, Any, Nuisance, Data, Any], Nuisance] | None:
        """Where a sweep costs more than a gradient, a part of it, by the number of the step: `(key, x, z, data, t)`."""
        if sum(move.num_parts for move in self.moves) == 1 or self.sweep.evaluations <= GRADIENT_COST:
            return None
        scan, summation = PartialScan(self.moves), self.summation
        if summation is None:
            return scan

        def scan_with_summed(key: Any, x: Any, z: Nuisance, data: Data, t: Any) -> Nuisance:
            key_summed, key_scan = split(key)
            return scan(key_scan, x, summation(key_summed, x, z, data), data, t)

        return scan_with_summed

    def most_probable(self, x: Any, z: Nuisance, data: Data) -> Nuisance:
        """Z with the most probable values of the sites that are summed out, by the user's names."""
        z = z if self.summation is None else self.summation.most_probable(x, z, data)
        return self.structure.program.packs.unpack(z)

    def neglected(self, x: Any, z: Nuisance, data: Data) -> Any:
        """The part of the total that sums over counts leave out at x, at most.

        Any z gives a bound, and so do a few shells of parents' values; the most probable z and more shells, which take
        longer, give a smaller one, and are looked at where the other says too little.
        """
        ends = self.ends
        assert ends is not None
        found = ends.neglected(x, self.structure.program.packs.unpack(z), data, FEW_SHELLS)
        return jax.lax.cond(
            found <= MOST_NEGLECTED, lambda: found, lambda: ends.neglected(x, self.most_probable(x, z, data), data)
        )

    @cached_property
    def log_density(self) -> Callable[[Any, Nuisance, Data], Any]:
        """Log p(x, z, y) with the summed sites summed out."""
        # Jitted, so that it is traced once however often other compiled code calls it.
        return jax.jit(self.structure.log_density if self.summation is None else self.summation.log_density)


def plan_for(program: Program, overrides: Mapping[str, str] | None = None, ends: CountEnds | None = None) -> Plan:
    """The plan for a program, the same object whenever the overrides and the ends are the same.

    Args:
        program: as the user wrote it, or rolled up.
        overrides: methods by name of site, as in `plan=` of `sumout.sample`.
        ends: where sums over counts are cut. Without, some that suit a first look; `NOT_CUT`: such counts are drawn.
    """
    checked = check_overrides(program, overrides)
    label = ("plan", tuple(sorted(checked.items())))
    if program.source is not None or program.upper or program.count_terms_named is None or ends is NOT_CUT:
        return _plan_as_it_is(program, checked)
    if ends is not None:
        return ends.cut.remember(label, lambda: _plan_with_ends(checked, ends))
    return program.remember(("first", *label), lambda: _first_plan(program, checked))


def without_partners(
    program: Program, overrides: Mapping[str, str] | None = None, ends: CountEnds | None = None
) -> dict[str, str]:
    """Overrides for what moves z alone: sites that would be drawn with partners are not."""
    plan = plan_for(program, overrides, ends)
    names = [user for name in plan.instead for user in plan.structure.program.packs.names(name)]
    return {**dict.fromkeys(names, UNPARTNERED), **(overrides or {})}


def _plan_as_it_is(program: Program, checked: dict[str, str]) -> Plan:
    with without_collection():
        rolled = _with_sums(roll_up(program, checked), program, checked)
    structure = read(rolled)
    label = ("plan", tuple(sorted(checked.items())))
    return rolled.remember(label, lambda: make_plan(structure, checked, prefers_partners=True))


def _with_sums(rolled: Program, program: Program, checked: Mapping[str, str]) -> Program:
    """With sums of counts that are cut in the place of counts of which only sums matter."""
    users = {name: rolled.packs.names(name) for name in rolled.z}
    names = [n for n, own in users.items() if all(user in program.upper and user not in checked for user in own)]
    return rolled.remember(("sums", *names), lambda: sums_as_sites(rolled, names)) if names else rolled


def _plan_with_ends(checked: dict[str, str], ends: CountEnds) -> Plan:
    """The plan for counts that are cut, each with the reason for it."""
    plan = _plan_as_it_is(ends.cut, checked)
    choices = dict(plan.choices)
    for name, chosen in choices.items():
        members = [user for user in _users(plan, name) if user in ends.cut.upper]
        if members:
            reason = describe_ends(ends, members)
            choices[name] = tuple(replace(choice, reason=f"{choice.reason}, {reason}") for choice in chosen)
    return replace(plan, choices=choices, ends=ends)


def _first_plan(program: Program, checked: dict[str, str]) -> Plan:
    """Counts are cut where that is enough to sum them out, or where the user asks for what needs an end."""
    bounds = count_bounds(program)
    names = [] if bounds is None else bounds.names
    names = [name for name in names if checked.get(name) not in ("draw", "metropolis")]
    too_long: dict[str, str] = {}  # what sums over counts that are not cut would take
    while names:
        ends = first_ends(program, names)
        if ends is None:
            too_long |= dict.fromkeys(names, "no table is long enough at x that are possible")
            break
        plan = plan_for(program, checked, ends)
        costly = {**{name: "" for name in plan.drawn if name not in plan.instead}, **_wide_tables(plan)}
        drawn = {user: why for name, why in costly.items() for user in _users(plan, name)}
        left = [name for name in names if name not in drawn or name in checked]
        if left == names:
            return _with_reasons(plan, too_long)
        reasons = {user: choices[0].reason for name, choices in plan.choices.items() for user in _users(plan, name)}
        too_long |= {name: drawn[name] or reasons[name] for name in names if name not in left}
        names = left
    return _with_reasons(_plan_as_it_is(program, checked), too_long)


def _users(plan: Plan, name: str) -> list[str]:
    """The names that the user has for a site of the plan."""
    return list(plan.structure.program.packs.names(name))


def _with_reasons(plan: Plan, reasons: Mapping[str, str]) -> Plan:
    """The plan that says of counts which have a bound why they are drawn all the same."""
    choices = dict(plan.choices)
    for name, chosen in choices.items():
        why = [reasons[user] for user in _users(plan, name) if user in reasons]
        if why and all(choice.method == "metropolis" for choice in chosen):
            reason = f"it has infinitely many values; cut, {why[0]}"
            choices[name] = tuple(replace(choice, reason=reason) for choice in chosen)
    return replace(plan, choices=choices) if reasons else plan


def _wide_tables(plan: Plan) -> dict[str, str]:
    """The sites whose tables cost more than they are worth to begin with, and what they take."""
    supports = {name: site.support for name, site in plan.structure.program.z.items()}
    wide = {n: s for n, s in supports.items() if isinstance(s, Finite) and s.num_values > MOST_GIBBS_VALUES}
    entries = {name: _table_entries(plan.structure, name, s) for name, s in wide.items()}
    return {
        name: f"tables of {wide[name].num_values} values would take {number:,} entries"
        for name, number in entries.items()
        if number > MOST_WIDE_ENTRIES
    }


def make_plan(
    structure: Structure,
    overrides: Mapping[str, str] | None = None,
    patterns: Sequence[Pattern] = PATTERNS,
    prefers_partners: bool = False,
) -> Plan:
    """Choose a method for every site, the user's overrides first, and build the sums and the moves.

    Args:
        structure: the reading.
        overrides: methods by name of site, as in `plan=` of `sumout.sample`.
        patterns: those that may be used. With fewer of them sums and draws are as right, but cost more, so that other
            sites may be summed out.
        prefers_partners: whether sites that can be drawn with partners are, where they could be summed out.
    """
    overrides = check_overrides(structure.program, overrides)
    methods = np.full(structure.num_sites, "", object)
    reasons = np.full(structure.num_sites, "", object)
    for name in structure.program.z:
        numbers = structure.site_numbers[name]
        methods[numbers], reasons[numbers] = _first_choice(structure, name, overrides.get(name), patterns)
    partners = Partners(structure, patterns)
    instead = _draw_with_partners(structure, partners, methods, reasons, overrides) if prefers_partners else ()
    asked = {method: np.zeros(structure.num_sites, bool) for method in ("sum", "joint")}
    for name, override in overrides.items():
        if override in asked:
            asked[override][structure.site_numbers[name]] = True
    summation, summing, drawing = _sum_out(structure, methods, reasons, asked["sum"], patterns)
    components = find_components(structure, methods == "joint", patterns)
    components = _choose_components(structure, components, methods, reasons, asked["joint"])
    joint = [build_summation(structure, components, patterns)] if components else []
    return Plan(
        structure,
        {name: _count(methods[numbers], reasons[numbers]) for name, numbers in structure.site_numbers.items()},
        summation,
        (*joint, *build_moves(structure, methods, patterns, partners)),
        summing,
        drawing,
        patterns,
        instead,
    )


def _sum_out(
    structure: Structure, methods: np.ndarray, reasons: np.ndarray, asked: np.ndarray, patterns: Sequence[Pattern]
) -> tuple[Summation | StateSummation | None, float, float]:
    """The sums over all sites that are worth it, the work of one, and of drawing the same sites."""
    components = find_components(structure, methods == "sum", patterns)
    match = find_states_worth(structure, components, methods == "sum", patterns)
    if match is None:
        chosen = _choose_components(structure, components, methods, reasons, asked)
        summation = build_summation(structure, chosen, patterns) if chosen else None
        return summation, sum(c.summing for c in chosen), sum(c.drawing for c in chosen)
    is_on_path = np.isin(np.arange(structure.num_sites), match.sites)
    reasons[is_on_path & ~asked] = describe_states(match)
    drawing = sum(c.drawing for c in components if is_on_path[c.sites].any())
    others = find_components(match.states.structure, beside(match, methods == "sum"), patterns)
    others = _choose_components(structure, others, methods, reasons, asked)
    summation = build_state_summation(structure, match, others, patterns)
    return summation, match.cost + sum(c.summing for c in others), drawing + sum(c.drawing for c in others)


def check_overrides(program: Program, overrides: Mapping[str, str] | None) -> dict[str, str]:
    """The overrides of a plan as a dict; refused where a site or a method is not known."""
    if overrides is not None and not isinstance(overrides, Mapping):
        raise OptionError(
            f'plan={overrides!r}: expected a dict from the name of a site to a method, such as {{"z": "draw"}}.'
        )
    overrides = dict(overrides or {})
    sites = program.z
    for name, method in overrides.items():
        if name not in sites:
            raise OptionError(f"plan: there is no discrete site '{name}'; the sites are {', '.join(sites)}.")
        if method not in (*OVERRIDES, UNPARTNERED):
            raise OptionError(f"plan: '{name}' cannot be done by {method!r}; the methods are {', '.join(OVERRIDES)}.")
    return overrides


def _first_choice(
    structure: Structure, name: str, override: str | None, patterns: Sequence[Pattern]
) -> tuple[str, str]:
    """The method to try first for a site, looking at it alone, and why; a sum has its reason when it is chosen."""
    possible = _possible_methods(structure, name, patterns)
    if override in (None, UNPARTNERED):
        return next(iter(possible.items()))
    method = next(method for method in possible if method != "sum") if override == "draw" else override
    if method not in possible:
        why = next(iter(possible.values())) or f"its support is {structure.program.z[name].support}"
        others = ", ".join([*(method for method in possible if method in OVERRIDES), "draw"])
        raise OptionError(f"plan: '{name}' cannot be done by '{method}', as {why}; possible: {others}.")
    return method, "as you asked"


def _possible_methods(structure: Structure, name: str, patterns: Sequence[Pattern]) -> dict[str, str]:
    """What can be done with a site, the best first, and why that is the best."""
    support = structure.program.z[name].support
    if name in structure.program.forward:
        return {"forward": "nothing else depends on it, and its law sums to one"}
    if isinstance(support, Implicit):
        return {"prior": "only a sampler is known for it"}
    if isinstance(support, Count):
        reason = "it has infinitely many values, and no bound is known on what a sum would leave out"
        bounds = count_bounds(structure.program)
        why = "" if bounds is None else bounds.why_not.get(name, "")
        return {"metropolis": f"{reason}: {why}" if why else reason}
    entries = _table_entries(structure, name, support)
    most = MOST_ENTRIES if structure.program.upper else MOST_WIDE_ENTRIES  # tables of counts may have to grow
    is_affordable = support.num_values <= MOST_GIBBS_VALUES or entries <= most
    if is_affordable or _has_cheap_table(structure, name, support, patterns):
        return {"sum": "", "joint": "", "gibbs": "", "metropolis": ""}
    reason = f"tables of {support.num_values} values would take {entries:,} entries"
    return {"metropolis": reason, "gibbs": "", "sum": "", "joint": ""}


def _table_entries(structure: Structure, name: str, support: Finite) -> int:
    """Values times elements of factors, of all elements of a site: what its tables cost, given all other sites."""
    factors = np.diff(structure.scopes_by_site.indptr)[structure.site_numbers[name]]
    return support.num_values * int(np.maximum(factors, 1).sum())


def _has_cheap_table(structure: Structure, name: str, support: Finite, patterns: Sequence[Pattern]) -> bool:
    """Whether a pattern fills the table of a site of many values at little cost, no factor joining it to others."""
    numbers = structure.site_numbers[name]
    num_joined = np.diff(structure.scopes.indptr)[structure.scopes_by_site[numbers].indices]
    if support.num_values > MOST_CHANGE_POINT_VALUES or (num_joined > 1).any():
        return False
    values, allowed = map(as_columns, value_rows(structure, [name], support.num_values))
    matched = find_match(patterns, BlockTable(build_block(structure, numbers), values, allowed))
    return matched is not None and matched.cost <= MOST_BESIDE * support.num_values * len(numbers)


def _choose_components(
    structure: Structure, components: list[Component], methods: np.ndarray, reasons: np.ndarray, asked: np.ndarray
) -> list[Component]:
    """The components for which a sum (or a joint draw) is worth its cost; the others fall back on single sites.

    Those that cost much more than a sweep share the entries that tables may have, the small ones first.
    """
    left, kept = float(MOST_ENTRIES), []
    if sum(c.summing for c in components if np.isfinite(c.summing)) > left:
        components = with_shared_tables(structure, components)
    for component in sorted(components, key=lambda c: c.summing):
        is_asked, is_possible = asked[component.sites].any(), np.isfinite(component.summing)
        is_expensive = component.summing > SUM_WORTH * component.drawing
        if is_asked and not is_possible:
            raise OptionError(_refusal(structure, component, str(methods[component.sites[0]])))
        if not is_possible or (is_expensive and component.summing > left and not is_asked):
            _fall_back(structure, component, methods, reasons)
            continue
        left -= component.summing if is_expensive else 0.0
        kept.append(component)
        if not is_asked:
            reasons[component.sites] = _explain(component)
    return kept


def _explain(component: Component) -> str:
    if component.shape is None:
        return f"a table of {component.num_values} values for each site"
    return f"tables of {component.num_values**component.shape.table_size:,} entries"


def _refusal(structure: Structure, component: Component, method: str) -> str:
    names = [name for name, numbers in structure.site_numbers.items() if np.isin(numbers, component.sites).any()]
    return (
        f"plan: {', '.join(names)} cannot be done by '{method}': {len(component.sites)} sites with up to "
        f"{component.num_values} values depend on each other so that some table would exceed {MOST_ENTRIES:,} entries. "
        "Choose 'draw' for it, or draw another site whose value would cut the group apart."
    )


def _fall_back(structure: Structure, component: Component, methods: np.ndarray, reasons: np.ndarray) -> None:
    """Draw the sites of a component one colour after the other."""
    entries = f"{component.summing:.0e}" if np.isfinite(component.summing) else f"more than {MOST_ENTRIES:,}"
    large = num_values(structure)[component.sites] > MOST_GIBBS_VALUES
    methods[component.sites] = np.where(large, "metropolis", "gibbs")
    reasons[component.sites] = (
        f"to sum over {len(component.sites)} sites that depend on each other would take tables of {entries} entries"
    )


def _count(methods: np.ndarray, reasons: np.ndarray) -> tuple[Choice, ...]:
    """The distinct choices for the elements of a site, the most frequent first."""
    counted: dict[tuple[str, str], int] = {}
    for label in zip(methods.tolist(), reasons.tolist(), strict=True):
        counted[label] = counted.get(label, 0) + 1
    choices = [Choice(method, number, reason) for (method, reason), number in counted.items()]
    return tuple(sorted(choices, key=lambda choice: -choice.num_sites))


def _draw_with_partners(
    structure: Structure, partners: Partners, methods: np.ndarray, reasons: np.ndarray, overrides: Mapping[str, str]
) -> tuple[str, ...]:
    """Draw what has partners instead of summing it out; the names of these sites."""
    is_free = methods == "sum"
    for name in overrides:
        is_free[structure.site_numbers[name]] = False
    if not is_free.any():
        return ()
    drawn = np.zeros(structure.num_sites, bool)
    is_count = np.zeros(structure.num_sites, bool)
    for name, numbers in structure.site_numbers.items():
        is_count[numbers] = any(user in structure.program.upper for user in structure.program.packs.names(name))
    for sites in partners.sets(methods == "sum"):
        if not is_free[sites].all() or partners.find(sites) is None:
            continue
        # A single site, such as a change point, is summed out at little cost, and of its values few count at a time;
        # of a count neighbouring ones do. Unless they are seen to leave modes that are apart, these are summed out.
        if (len(sites) > 1 and not is_count[sites].any()) or partners.leave_modes(sites):
            drawn[sites] = True
    methods[drawn] = "gibbs"
    reasons[drawn] = "each with a coordinate of x that would else be left with a mode for every value"
    return tuple(name for name, numbers in structure.site_numbers.items() if drawn[numbers].any())
