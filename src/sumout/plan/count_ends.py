"""Where sums over counts are cut: so far out that what is left out does not count, at every x that is visited.

Before anything is drawn, ends follow from the most probable z at some random x, found by a scan over values, count by
count. While chains run, what is left out is evaluated at every draw with the most probable z by the sum itself; where
that is too much, the ends are moved out by what that x needs. Lengths of tables are rungs of a ladder, so that tables
of few sizes are compiled, and seldom anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import Ahead
from sumout.model.arguments import as_jax
from sumout.model.initial_values import guess_x, value_number
from sumout.model.program import Data, Nuisance, Program
from sumout.model.supports import Count
from sumout.plan.count_bounds import CountBounds, Ends, count_bounds, cut_program
from sumout.plan.count_tails import LADDER, NUM_ENDS, CountTails

MOST_NEGLECTED = 1e-8  # part of the total that all sums together may leave out
AIM = 1e-12  # what ends are chosen for, so that they need not be moved with every step of x
MUCH_SHORTER = 0.7  # times the length of tables that is worth compiling others
ROOM = 1.2  # times as long as needed that tables are
AT_A_TIME = 1.5  # times as long as before that tables along chains become
POINTS, BEST = 16, 1  # random x, and how many of the best of them ends are chosen for
SCANNED = np.unique(
    np.round([*range(32), *np.geomspace(32, 2**17, 60)]).astype(int)
)  # values of a count, from its lowest
AROUND = np.linspace(0.85, 1.18, 12)  # factors by which the best of them is looked around
TURNS, CLIMBS, CLIMB = 4, 100, 0.2  # of an ascent: turns, steps in each, length of the first along each coordinate
SWEEPS = 3  # of scans over neighbouring sites
TRIES = 8  # rounds in which ends follow from those of parents
FAR_BELOW = -1e9  # in the place of −∞, so that impossible terms can be counted


@dataclass(frozen=True, eq=False)
class CountEnds:
    """The bound on what a program with cut counts leaves out, for some of its counts.

    Attributes:
        bounds: what is known.
        cut: the program with its counts cut.
    """

    bounds: CountBounds
    cut: Program

    @cached_property
    def _is_cut(self) -> np.ndarray:
        """Which elements of the bounded counts are cut; the others are drawn."""
        sizes = [(name in self.cut.upper, self.bounds.program.z[name].num_elements) for name in self.bounds.names]
        return np.concatenate([np.full(size, is_cut) for is_cut, size in sizes])

    @cached_property
    def states(self) -> list[Any] | None:
        """Joint values of parents."""
        return self.bounds.states(self.cut)

    def log_neglected(self, x: Array, z: Nuisance, data: Data, shells: int = NUM_ENDS) -> Array:
        """For each element that is cut the log of a bound on what its end leaves out, as a part of the total.

        Args:
            x: continuous variables.
            z: the most probable values given x, or any others: the bound is then larger.
            data: the data.
            shells: of the values of parents; with fewer of them the bound is larger, and found in less time.
        """
        upper = dict(self.cut.upper)
        if self.bounds.at_corners:
            ends = self.bounds.by_element({**self.bounds.ends(self.bounds.lower), **upper})
            tails = CountTails(self.bounds, tuple(upper)).within_tables(x, z, data, ends, shells)
        else:
            tails = self.bounds.log_tails(x, z, data, upper, self.states or [{}])
        return (tails + self.bounds.log_gaps(x, z, data))[np.flatnonzero(self._is_cut)]

    def neglected(self, x: Array, z: Nuisance, data: Data, shells: int = NUM_ENDS) -> Array:
        """The part of the total that is left out, at most."""
        found = jnp.exp(jnp.minimum(self.log_neglected(x, z, data, shells), 0.0)).sum()
        return jnp.where(jnp.isnan(found), jnp.inf, found)

    def grow(self, x: np.ndarray, z: Mapping[str, np.ndarray]) -> "CountEnds | None":
        """With ends that suit some points, too, and are further out where they did not; None if there are none.

        Args:
            x: points, `(points, num_x)`.
            z: the most probable values at each of them.
        """
        return find_ends(self.bounds, _points(x, z), self._further() if self.bounds.parents else self.cut.upper)

    def _further(self) -> Ends:
        """Ends of tables half as long again: along chains all grow together, as each time takes long to compile."""
        names = list(self.cut.upper)
        ends = {**self.bounds.ends(self.bounds.lower), **self.cut.upper}
        lengths = np.asarray(self.bounds.by_element(ends)) - self.bounds.lower + 1
        return _named(self.bounds, _rung(AT_A_TIME * lengths), names)

    def fit(self, x: np.ndarray, z: Mapping[str, np.ndarray]) -> "CountEnds | None":
        """With ends that suit some points and no more, if tables are much shorter then; None if they are not.

        Only along chains of counts, of which tables are squares: the others soon grow again.
        """
        if not self.bounds.parents:
            return None
        begin = self.bounds.ends(self.bounds.lower + LADDER[0] - 1)
        fitted = find_ends(self.bounds, _points(x, z), {name: begin[name] for name in self.cut.upper})
        return fitted if fitted is not None and fitted.length < MUCH_SHORTER * self.length else None

    @property
    def length(self) -> int:
        """Of all tables together."""
        names = self.cut.upper
        return sum(int(np.sum(end - self.bounds.lowest(name) + 1)) for name, end in names.items())


def _points(x: np.ndarray, z: Mapping[str, np.ndarray]) -> list[tuple[Any, Any]]:
    return [(one, {name: value[i] for name, value in z.items()}) for i, one in enumerate(x)]


def ends_at(program: Program, upper: Ends) -> CountEnds | None:
    """Given ends for some counts; None where there are none."""
    bounds = count_bounds(program)
    upper = {name: np.asarray(end) for name, end in upper.items() if bounds is not None and name in bounds.names}
    return None if bounds is None or not upper else CountEnds(bounds, cut_program(program, upper))


NOT_CUT: Any = object()  # in the place of ends: counts are drawn


def describe_ends(ends: CountEnds, names: Sequence[str]) -> str:
    """Where some counts end, in words."""
    last = np.concatenate([np.ravel(ends.cut.upper[name]) for name in names])
    lowest = min(int(_lowest(ends.bounds.program, name)[0]) for name in names)
    upto = f"{last.max()}" if last.min() == last.max() else f"between {last.min()} and {last.max()}"
    return f"cut at {lowest} … {upto}; what is left out is below {MOST_NEGLECTED:g} of the total at every draw"


def find_ends(bounds: CountBounds, points: Sequence[tuple[Any, Any]], ends: Ends) -> CountEnds | None:
    """Ends no nearer than those given, such that little is left out at some points; None where there are none.

    Args:
        bounds: what is known.
        points: x, and the most probable z there.
        ends: to begin with, of the counts that are cut.
    """
    program, data = bounds.program, as_jax(bounds.program.data)
    names = [name for name in bounds.names if name in ends]
    lengths = np.concatenate([np.ravel(ends[n]) if n in ends else _lowest(program, n) for n in bounds.names])
    lengths = lengths - bounds.lower + 1
    is_cut = np.concatenate([np.full(program.z[n].num_elements, n in ends) for n in bounds.names])
    aim = np.log(AIM / max(len(lengths), 1))
    tails = CountTails(bounds, tuple(names)) if bounds.at_corners else None
    for _ in range(TRIES):
        found = CountEnds(bounds, cut_program(program, _named(bounds, lengths, names)))
        needed_lengths = _by_states(found, aim) if tails is None else partial(_by_prior, tails, aim)
        if needed_lengths is None:
            return None
        longer = lengths.copy()
        for x, z in points:
            needed, is_all, is_enough = map(np.asarray, needed_lengths(x, z, data))
            if not is_enough[is_cut].all():
                return None
            # Tables that hold all values leave nothing out, and need no room.
            room = _rung(np.where(is_all, needed, ROOM * needed))
            longer = np.where(is_cut & (needed > lengths), np.maximum(longer, room), longer)
        if (longer == lengths).all():
            if tails is None or not tails.has_parents or _is_little(tails, lengths, points, data):
                return found
            longer = np.where(is_cut, _rung(ROOM * lengths), lengths)
        lengths = longer
    return None


def _is_little(tails: CountTails, lengths: np.ndarray, points: Any, data: Data) -> bool:
    """Whether what is told at draws, by a bound less close than that of ends, will be little at some points."""
    ends = tails.grid(tails.bounds.lower + lengths - 1)
    found = [tails.compiled(x, z, data, ends, True) for x, z in points]
    left_out = [np.asarray(tail)[-1] + np.asarray(gaps) for tail, gaps in found]
    return all(float(np.exp(np.minimum(one, 0.0)).sum()) <= MOST_NEGLECTED for one in left_out)


def _rung(lengths: np.ndarray) -> np.ndarray:
    """The next lengths of the ladder, its last at most."""
    return LADDER[np.minimum(np.searchsorted(LADDER, np.ceil(lengths)), len(LADDER) - 1)]


def _by_prior(tails: CountTails, log_aim: float, x: Any, z: Any, data: Data) -> tuple[Any, Any, Any]:
    """How long the table of each element must be; whether that is all of its values; whether it is enough."""
    end, tail, is_enough = tails.needed(lambda ends: tails.compiled(x, z, data, ends, False), log_aim)
    return end - tails.bounds.lower + 1, np.isneginf(tail), is_enough


def _by_states(ends: CountEnds, log_aim: float) -> Any:
    """The same by x, z and data, where all joint values of parents are gone through."""
    bounds = ends.bounds
    if ends.states is None:
        return None

    def by_states(x: Array, z: Nuisance, data: Data) -> tuple[Array, Array, Array]:
        def at(length: Array) -> Array:
            upper = bounds.ends(jnp.asarray(bounds.lower) + length - 1)
            return bounds.log_tails(x, z, data, upper, ends.states or [{}])

        tails = jax.lax.map(at, jnp.asarray(LADDER))
        enough = tails + bounds.log_gaps(x, z, data) < log_aim
        which = jnp.argmax(enough, axis=0)
        return jnp.asarray(LADDER)[which], jnp.isneginf(tails[which, np.arange(tails.shape[1])]), enough.any(axis=0)

    # Only the tables of parents differ between cuts.
    owner = ends.cut if bounds.parents else bounds.program
    return owner.remember("needed lengths", lambda: Ahead(by_states, times=1))


def _lowest(program: Program, name: str) -> np.ndarray:
    support = program.z[name].support
    assert isinstance(support, Count)
    return np.full(program.z[name].num_elements, support.lower)


def _named(bounds: CountBounds, lengths: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    ends = bounds.ends(bounds.lower + lengths - 1)
    return {name: ends[name] for name in names}


def first_ends(program: Program, names: Sequence[str]) -> CountEnds | None:
    """Ends for some counts before anything is drawn; None where no finite table would do."""
    bounds = count_bounds(program)
    if bounds is None or not names:
        return None
    return program.remember(("first ends", tuple(names)), lambda: _first_ends(bounds, names))


def _first_ends(bounds: CountBounds, names: Sequence[str]) -> CountEnds | None:
    program = bounds.program
    data = as_jax(program.data)
    scan = Scan(bounds)
    points = guess_x(np.random.default_rng(0), program, POINTS)
    found = [(x, scan.most_probable(x, data)) for x in points]
    heights = [scan.height(x, z, data) for x, z in found]
    best = [found[i] for i in np.argsort(heights)[::-1][:BEST]]
    if bounds.parents:  # along chains of counts lengths add up, and tables are squares
        best = [_climbed(bounds, scan, x, z) for x, z in best]
    begin = bounds.ends(bounds.lower + LADDER[0] - 1)
    return find_ends(bounds, best, {name: begin[name] for name in names})


def _climbed(bounds: CountBounds, scan: "Scan", x: Any, z: Any) -> tuple[Any, Any]:
    """A better point: x by ascent at its z, and z by scans at its x, in turns."""
    program, data = bounds.program, as_jax(bounds.program.data)

    def ascend(x: Array, z: Nuisance, data: Data) -> Array:
        slope = jax.grad(lambda x: program.log_density(x, z, data))

        def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            x, squares = state
            gradient = jnp.nan_to_num(slope(x))
            squares = 0.9 * squares + 0.1 * gradient**2
            return x + CLIMB / (1 + 0.1 * i) * gradient / (jnp.sqrt(squares) + 1e-8), squares

        return jax.lax.fori_loop(0, CLIMBS, step, (x, jnp.zeros_like(x)))[0]

    climb = Ahead(ascend, times=1)
    for _ in range(TURNS):
        x = np.asarray(climb(x, z, data))
        z = scan.most_probable(x, data)
    return x, z


class Scan:
    """Finds probable values of z at a given x by scans over values, one colour of sites after the other."""

    def __init__(self, bounds: CountBounds):
        self.bounds, self.program = bounds, bounds.program
        pairs = bounds.scopes.tocoo()
        self._rows, self._columns = pairs.row, pairs.col
        self._heights = Ahead(self._local_heights, times=POINTS)

    def _local_heights(self, x: Array, candidates: Nuisance, data: Data) -> Array:
        """For each candidate z the sum of the terms of each site, `(candidates, sites)`."""

        def one(z: Nuisance) -> Array:
            terms = jnp.nan_to_num(self.bounds.log_terms(x, z, data), nan=FAR_BELOW, neginf=FAR_BELOW, posinf=0.0)
            return jnp.zeros(self.program.num_z).at[self._columns].add(terms[self._rows])

        return jax.lax.map(one, candidates)

    def height(self, x: Any, z: Any, data: Data) -> float:
        """The sum of all terms."""
        return float(
            np.asarray(self._heights(x, jax.tree.map(lambda a: np.stack([a] * len(SCANNED)), z), data))[0].sum()
        )

    def most_probable(self, x: Any, data: Data) -> dict[str, np.ndarray]:
        """The best found; at least about as good as any that has one value for all counts."""
        same = self._candidates(self._all_at)
        heights = np.asarray(self._heights(x, same, data))
        z = jax.tree.map(lambda a: np.asarray(a)[int(np.argmax(heights.sum(axis=1)))], same)
        colours = self.bounds.graph.colours
        for _ in range(1 if colours.max(initial=0) == 0 else SWEEPS):
            for colour in range(int(colours.max(initial=0)) + 1):
                z = self._choose(x, z, data, colours == colour, self._candidates(self._all_at))
                z = self._choose(x, z, data, colours == colour, self._candidates(partial(self._near, z)))
        return z

    def _choose(self, x: Any, z: Any, data: Data, inside: np.ndarray, values: Any) -> dict[str, np.ndarray]:
        """Z with the best of some values for each of the sites inside, given all others."""
        split = np.cumsum([site.num_elements for site in self.program.z.values()])[:-1]
        masks = dict(zip(self.program.z, np.split(inside, split), strict=True))
        candidates = {
            name: np.where(masks[name].reshape(site.shape), values[name], np.asarray(z[name])).astype(site.dtype)
            for name, site in self.program.z.items()
        }
        heights = np.asarray(self._heights(x, candidates, data))
        best = dict(zip(self.program.z, np.split(np.argmax(heights, axis=0), split), strict=True))
        chosen = {}
        for name, site in self.program.z.items():
            flat = candidates[name].reshape(len(heights), -1)
            chosen[name] = flat[best[name], np.arange(flat.shape[1])].reshape(site.shape)
        return chosen

    def _candidates(self, value_of: Any) -> dict[str, np.ndarray]:
        """As many of each site as there are numbers to scan."""
        return {
            name: np.stack([value_of(name, i) for i in range(len(SCANNED))]).astype(site.dtype)
            for name, site in self.program.z.items()
        }

    def _all_at(self, name: str, i: int) -> np.ndarray:
        site = self.program.z[name]
        if isinstance(site.support, Count):
            return np.full(site.shape, site.support.lower + SCANNED[i])
        return value_number(site, i)

    def _near(self, z: Any, name: str, i: int) -> np.ndarray:
        site = self.program.z[name]
        if isinstance(site.support, Count):
            factor = AROUND[i % len(AROUND)]
            return site.support.lower + np.round((z[name] - site.support.lower) * factor).astype(int)
        return value_number(site, i)
