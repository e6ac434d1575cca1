"""Unbounded counts that cannot be sampled: their probabilities do not add up, or no step of one alone is possible.

Given all else, the log density of a count n must fall faster than −log n, or its sum is not finite: a count whose
distribution was masked away, and of which the data say nothing above some value. And moves change one count at a
time: two that must add up to a number never move, though both could at once.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.checks.examination import Examination, Finding, quickly
from sumout.errors import ModelError
from sumout.model.program import Nuisance
from sumout.model.supports import Count, Finite
from sumout.moves.move import NuisanceMove
from sumout.moves.windows import CountWindows

FAR = np.array([10_007, 1_000_003, 100_000_007])  # counts at which tails are judged: at all three, as some fall late
SLOWEST_FALL = -1.01  # slope of the log density in log n; with −1 the sum diverges
STEPS = np.array([*range(1, 17), 32, 64, 128, 512])  # as windows have them, or of about their sizes
FEW_ANCHORS = 2  # points at which tails are judged; all must agree
MOST_STUCK = 4  # counts without a step of their own to look at
MOST_NEIGHBOURS = 16  # of such a count that are tried together with it
PAIRED = (1, -1, 2, -2, 3, -3)  # steps of another count


def check_counts(exam: Examination) -> Iterator[Finding]:
    """Every count should have a law that can be summed, and steps that are possible."""
    moves = [move for move in exam.plan.moves if move.lower is not None]
    if not moves or not len(exam.anchors):
        return
    anchors = exam.anchors[:FEW_ANCHORS].tolist()
    found = [_look(exam, moves, anchor) for anchor in anchors]
    is_open = np.all([is_open for is_open, _ in found], axis=0)
    members = _members(moves)
    names = _names(exam, members[is_open])
    if names:
        yield Finding(
            f"the log density does not fall as count {names} grows, so that its posterior is improper. Give it a "
            "distribution (is it masked, or missing?), or an upper bound.",
            ModelError,
        )
        return
    anchor, is_stuck = anchors[0], found[0][1]
    tied = {pair for site in members[is_stuck][:MOST_STUCK].tolist() for pair in _ties(exam, anchor, site)}
    if tied:
        names = _names(exam, np.unique([*tied]))
        yield Finding(
            f"{names} cannot move one at a time: every step of one alone is impossible where others stay as they are "
            "(a sum that must be a number, counts that must be equal), so that the chain is reducible. Write one "
            "as what the others leave of the total (of Poisson counts with a known sum each is Binomial), or draw the "
            "total and its parts given it."
        )


def _members(moves: list[NuisanceMove]) -> np.ndarray:
    """The sites that the moves move, as `_look` lists them; −1 for padding."""
    return np.concatenate([block.block.members for move in moves for block in move.split()])


def _look(exam: Examination, moves: list[NuisanceMove], anchor: int) -> tuple[np.ndarray, np.ndarray]:
    """For each member: whether its law has no end, and whether no step of it alone is possible."""
    far = np.stack([FAR, 2 * FAR], axis=1)

    run = exam.compiled(("look", tuple(map(id, moves))), lambda: _looking(moves, far))
    both = run(exam.x[anchor], exam.at(anchor), exam.program.data)
    values = np.concatenate([np.moveaxis(np.asarray(out, float), 1, 2).reshape(-1, far.size) for out, _ in both])
    can_move = np.concatenate([np.asarray(is_possible).ravel() for _, is_possible in both])
    near, beyond = np.moveaxis(values.reshape(-1, *far.shape), 2, 0)
    is_known = np.isfinite(near) & np.isfinite(beyond)
    with np.errstate(invalid="ignore"):
        falls = (beyond - near) / np.log(2) < SLOWEST_FALL
    return (is_known & ~falls).all(axis=1), ~can_move


def _looking(moves: list[NuisanceMove], far: np.ndarray) -> Callable[..., list[tuple[Array, Array]]]:
    """As `_look`, compiled: from x, z and data."""

    def of_block(one: CountWindows, x: Array, z: Nuisance, data: Any) -> tuple[Array, Array]:
        current = one.block.take(z)

        def at(values: Array) -> Array:
            sums = one.block.factor_sums(x, one.block.place(z, values), data)
            return jnp.where(values < one.lower, -jnp.inf, sums)

        out = jax.lax.map(lambda n: at(jnp.full_like(current, n)), jnp.asarray(far.ravel(), current.dtype))
        steps = jnp.asarray([*STEPS, *-STEPS], current.dtype)
        is_possible = jax.lax.map(lambda step: at(current + step) > -jnp.inf, steps)
        return out, is_possible.any(axis=0)

    @quickly
    def run(x: Array, z: Nuisance, data: Any) -> list[tuple[Array, Array]]:
        return [move.map_blocks(lambda block: of_block(block, x, z, data)) for move in moves]

    return run


def _ties(exam: Examination, anchor: int, site: int) -> set[int]:
    """The count and the first of its neighbours with which it could move at once, if there is one."""
    structure = exam.plan.structure
    beside = structure.edges[(structure.edges == site).any(axis=1)]
    for other in np.setdiff1d(beside, [site])[:MOST_NEIGHBOURS].tolist():
        tried = [
            _stepped(exam, exam.at(anchor), [(site, step), (other, paired)])
            for step, paired in product((1, -1, 2, -2), PAIRED)
        ]
        z = {name: np.stack([one[name] for one in tried]) for name in tried[0]}
        x = np.broadcast_to(exam.x[anchor], (len(tried), exam.program.num_x))
        if np.isfinite(exam.evaluate(x, z)[0]).any():
            return {site, other}
    return set()


def _stepped(exam: Examination, z: dict[str, np.ndarray], steps: list[tuple[int, int]]) -> dict[str, np.ndarray]:
    """Z with some sites changed: counts by a step, others to the value so many places on."""
    z = {name: np.array(value) for name, value in z.items()}
    for site, step in steps:
        name, element = _place(exam, site)
        flat, support = z[name].reshape(-1), exam.program.z[name].support
        if isinstance(support, Count):
            flat[element] = max(flat[element] + step, support.lower)
        elif isinstance(support, Finite):
            values, allowed = (rows[element] for rows in support.rows())
            now = int(np.argmax(values.astype(flat.dtype) == flat[element]))
            flat[element] = values[(now + step) % int(allowed.sum())]
    return z


def _place(exam: Examination, site: int) -> tuple[str, int]:
    """The name of a site and the number of its element."""
    for name, numbers in exam.plan.structure.site_numbers.items():
        if numbers[0] <= site <= numbers[-1]:
            return name, int(site - numbers[0])
    raise IndexError(site)


def _names(exam: Examination, sites: np.ndarray) -> str:
    """The names of some sites, with the numbers of their elements where these are not all."""
    told = []
    for name, numbers in exam.plan.structure.site_numbers.items():
        inside = np.intersect1d(numbers, sites) - numbers[0]
        if len(inside) == len(numbers):
            told.append(f"'{name}'")
        elif len(inside):
            shown = ", ".join(map(str, inside[:3])) + (", …" if len(inside) > 3 else "")
            told.append(f"'{name}' (element{'s' if len(inside) > 1 else ''} {shown})")
    return ", ".join(told)
