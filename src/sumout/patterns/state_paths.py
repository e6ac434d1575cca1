"""Sums over a group of sites one by one, over what must be remembered of those before.

    m_{l+1}(s') = log Σ_{(s, k): f_l(s, k) = s'} exp(m_l(s) + factors_l(s, k))

Sites are gone through in an order. A state s is what later sites and factors still need to know: values of sites and of
variables that follow from them, and how far sums (maxima, …) have come. Only those states are listed that are reached
from the beginning, all at once for several that are carried together. A level l has an entry for each state and each
value k of its site, which leads to one state of the next level; each factor is added at the level where all is known
that it depends on. There are as many entries as states times values, however many sites came before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sumout.compile.policy import MOST_STATE_ENTRIES
from sumout.patterns.state_groups import Kind, parents_of
from sumout.structure.reachable import FOLDS, NOTHING, Fold, Function, Reachable, distinguish

NEARBY = 6  # sites that are compared for the next place in the order


@dataclass(frozen=True, eq=False)
class StateList:
    """The states that may be at hand between two levels: the values of what is remembered, a row each.

    Attributes:
        labels: what the columns mean.
        rows: `(S, columns)`.
    """

    labels: tuple[tuple[str, int], ...]
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Level:
    """One site, and what is known with it.

    Attributes:
        site: its place among those of the group.
        before: the states it meets.
        out: for each state and value, entry `s · K + k`, the state it leads to; −1 where the site has no such value.
        terms: the factors that are added, by number, and for each entry the joint value of what the factor depends on.
    """

    site: int
    before: StateList
    out: np.ndarray
    terms: tuple[tuple[int, np.ndarray], ...]


@dataclass(frozen=True, eq=False)
class Path:
    """All levels of a group of one kind; the last leads to one state, of nothing to be remembered."""

    levels: tuple[Level, ...]

    @cached_property
    def num_entries(self) -> int:
        """Of all levels."""
        return sum(len(level.out) for level in self.levels)

    @property
    def most_states(self) -> int:
        """Of any level."""
        return max(len(level.before.rows) for level in self.levels)


def find_path(kind: Kind, reachable: Reachable, sizes: Sequence[int]) -> Path | None:
    """The path of least cost that was found; None if all have too many entries.

    Args:
        kind: of group.
        reachable: what its numbers of arrays refer to.
        sizes: how many values sites and states have, by number of name.
    """
    natural = sorted(range(len(kind.sites)), key=lambda i: kind.positions[i])
    orders = [natural, _greedy(kind, reachable, natural)]
    costs = [_estimate(kind, reachable, order) for order in orders]
    for i in np.argsort(costs, kind="stable").tolist():
        path = _enumerate(kind, reachable, orders[i], sizes)
        if path is not None:
            return path
    return None


class _Progress:
    """What is known, and what must be remembered, after some sites."""

    def __init__(self, kind: Kind):
        self.kind = kind
        self.missing = [len(set(parents_of(source))) for source in kind.sources]
        self.children: list[list[int]] = [[] for _ in kind.sources]
        self.factors: list[list[int]] = [[] for _ in kind.sources]
        for i, source in enumerate(kind.sources):
            for parent in set(parents_of(source)):
                self.children[parent].append(i)
        self.waiting = []
        for i, (_, members) in enumerate(kind.factors):
            scope = {member.variable for member in members} - {NOTHING}
            self.waiting.append(len(scope))
            for variable in scope:
                self.factors[variable].append(i)
        # Who still asks for a variable; folds take it in at once.
        self.asked = [
            len(self.factors[i]) + sum(isinstance(kind.sources[child], Function) for child in self.children[i])
            for i in range(len(kind.sources))
        ]
        self.live: set[int] = set()
        self.begun: set[int] = set()

    def copy(self) -> "_Progress":
        """To try a site."""
        other = object.__new__(_Progress)
        other.__dict__.update(self.__dict__)
        other.missing, other.waiting, other.asked = list(self.missing), list(self.waiting), list(self.asked)
        other.live, other.begun = set(self.live), set(self.begun)
        return other

    def add(self, variable: int) -> tuple[list[int], list[int]]:
        """Take in a site: the variables, parents first, and the factors that are known with it."""
        known, factors = [variable], []
        for one in known:
            self.live.add(one)
            for child in self.children[one]:
                self.missing[child] -= 1
                if isinstance(self.kind.sources[child], Fold):
                    (self.begun.add if self.missing[child] else self.begun.discard)(child)
                if not self.missing[child]:
                    known.append(child)
            for factor in self.factors[one]:
                self.waiting[factor] -= 1
                if not self.waiting[factor]:
                    factors.append(factor)
        for one in known:
            for parent in set(parents_of(self.kind.sources[one])):
                if isinstance(self.kind.sources[one], Function):
                    self._answer(parent)
        for factor in factors:
            for parent in {member.variable for member in self.kind.factors[factor][1]} - {NOTHING}:
                self._answer(parent)
        self.live -= {one for one in known if not self.asked[one]}
        return sorted(known), factors

    def _answer(self, variable: int) -> None:
        self.asked[variable] -= 1
        if not self.asked[variable]:
            self.live.discard(variable)

    def log_states(self, reachable: Reachable) -> float:
        """The logarithm of the number of joint values of what must be remembered."""
        return sum(np.log(len(reachable.arrays[self.kind.values[one]])) for one in (*self.live, *self.begun))

    def near(self, is_left: set[int]) -> list[int]:
        """Sites that meet what must be remembered."""
        found: set[int] = set()
        for one in (*self.live, *self.begun):
            for child in (*self.children[one], one):
                for parent in parents_of(self.kind.sources[child]):
                    found.update((parent, *parents_of(self.kind.sources[parent])))
            for factor in self.factors[one]:
                for member in self.kind.factors[factor][1]:
                    if member.variable != NOTHING:
                        found.update((member.variable, *parents_of(self.kind.sources[member.variable])))
        return sorted(found & is_left)


def _greedy(kind: Kind, reachable: Reachable, natural: list[int]) -> list[int]:
    """Always the site after which least must be remembered, of those nearby."""
    progress, order = _Progress(kind), []
    place = {kind.sites[i]: i for i in natural}
    rank = {kind.sites[i]: j for j, i in enumerate(natural)}
    left = {kind.sites[i]: None for i in natural}
    while left:
        near = sorted(progress.near(set(left)), key=rank.__getitem__)[:NEARBY]
        tried = near or [next(iter(left))]
        costs = []
        for variable in tried:
            attempt = progress.copy()
            attempt.add(variable)
            costs.append(attempt.log_states(reachable))
        best = tried[int(np.argmin(costs))]
        progress.add(best)
        order.append(place[best])
        del left[best]
    return order


def _estimate(kind: Kind, reachable: Reachable, order: list[int]) -> float:
    progress, cost = _Progress(kind), 0.0
    for i in order:
        before = progress.log_states(reachable)
        cost += float(np.exp(min(before, 50.0))) * len(reachable.arrays[kind.values[kind.sites[i]]])
        progress.add(kind.sites[i])
    return cost


def _enumerate(kind: Kind, reachable: Reachable, order: list[int], sizes: Sequence[int]) -> Path | None:
    """The path through the sites in an order, on all states that are reached."""
    progress, levels, total = _Progress(kind), [], 0
    before, values, partial = StateList((), np.zeros((1, 0))), {}, {}
    for i in order:
        variable = kind.sites[i]
        count, num_states = len(reachable.arrays[kind.values[variable]]), len(before.rows)
        total += num_states * count
        if total > MOST_STATE_ENTRIES:
            return None
        known, factors = progress.add(variable)
        values = {one: np.repeat(numbers, count) for one, numbers in values.items()}
        partial = {one: np.repeat(numbers, count) for one, numbers in partial.items()}
        values[variable] = np.tile(np.arange(count), num_states)
        _follow(progress, reachable, known, values, partial)
        constant = [f for f, (_, members) in enumerate(kind.factors) if all(m.variable == NOTHING for m in members)]
        factors = factors if levels else [*factors, *constant]
        terms = tuple((f, _joint(kind, reachable, f, values, sizes, num_states * count)) for f in factors)
        is_allowed = np.tile(np.array(kind.allowed[i])[:count], num_states)
        after, out, first = _project(kind, reachable, progress, values, partial, is_allowed)
        levels.append(Level(i, before, out, terms))
        values = {one: values[one][first] for one in progress.live}
        partial = {one: partial[one][first] for one in progress.begun}
        before = after
    return Path(tuple(levels))


def _follow(progress: _Progress, reachable: Reachable, known: list[int], values: dict, partial: dict) -> None:
    """The values of all variables that are known now, and how far folds have come."""
    kind = progress.kind
    for one in known:
        source = kind.sources[one]
        if isinstance(source, Function):
            shape = [len(reachable.arrays[kind.values[parent]]) for parent in source.parents]
            joint = np.ravel_multi_index([values[parent] for parent in source.parents], shape)
            values[one] = reachable.arrays[source.table][joint]
        elif isinstance(source, Fold):
            listed = reachable.arrays[kind.values[one]]
            values[one] = _nearest(listed, partial.pop(one))
        for child in progress.children[one]:
            fold = kind.sources[child]
            if isinstance(fold, Fold):
                array = next(array for variable, array in fold.terms if variable == one)
                _take_in(reachable, fold, child, reachable.arrays[array][values[one]], partial)


def _take_in(reachable: Reachable, fold: Fold, number: int, term: np.ndarray, partial: dict) -> None:
    ufunc = FOLDS[fold.operation]
    if number in partial:
        partial[number] = ufunc(partial[number], term)
    else:
        partial[number] = term if fold.constant is None else ufunc(reachable.arrays[fold.constant][0], term)


def _nearest(listed: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The number of each value in a list in ascending order, up to rounding."""
    if listed.dtype == bool or not np.issubdtype(listed.dtype, np.floating):
        return np.searchsorted(listed, values)
    above = np.clip(np.searchsorted(listed, values), 0, len(listed) - 1)
    below = np.maximum(above - 1, 0)
    with np.errstate(invalid="ignore"):
        is_below = np.abs(values - listed[below]) < np.abs(values - listed[above])
    return np.where(is_below, below, above)


def _joint(
    kind: Kind, reachable: Reachable, factor: int, values: dict, sizes: Sequence[int], num_entries: int
) -> np.ndarray:
    """For each entry the joint value of what a factor depends on, the last varying fastest."""
    joint = np.zeros(num_entries, np.int64)
    for member in kind.factors[factor][1]:
        places = reachable.arrays[member.places]
        joint = joint * sizes[member.name] + (
            places[0] if member.variable == NOTHING else places[values[member.variable]]
        )
    return joint


def _project(
    kind: Kind, reachable: Reachable, progress: _Progress, values: dict, partial: dict, is_allowed: np.ndarray
) -> tuple[StateList, np.ndarray, np.ndarray]:
    """The states after a level, the one each entry leads to, and an entry that leads to each."""
    columns = [
        *((("value", kind.labels[one]), one, reachable.arrays[kind.values[one]][values[one]]) for one in progress.live),
        *((("so far", kind.labels[one]), one, _rounded(partial[one])) for one in progress.begun),
    ]
    columns.sort(key=lambda column: column[:2])
    labels = tuple(label for label, _, _ in columns)
    rows = (
        np.stack([np.asarray(c, float) for _, _, c in columns], axis=1) if columns else np.zeros((len(is_allowed), 0))
    )
    inside = np.flatnonzero(is_allowed)
    codes = np.zeros(len(inside), np.int64)
    for column in rows[inside].T:
        codes = np.unique(codes * (len(codes) + 1) + _ranks(column), return_inverse=True)[1].reshape(-1)
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    out = np.full(len(is_allowed), -1)
    out[inside] = place.reshape(-1)
    return StateList(labels, rows[inside[first]]), out, inside[first]


def _ranks(column: np.ndarray) -> np.ndarray:
    return np.unique(column, return_inverse=True)[1].reshape(-1)


def _rounded(values: np.ndarray) -> np.ndarray:
    distinct, numbers = distinguish(values)
    return distinct[numbers]
