"""Moves on z that can never reach some of its values.

One site at a time cannot cross from one possible state to another where all states between them are impossible: two
sites that must be equal, a sum that must be k. The chain is then reducible, and stays in the part where it started.

From several starts at one x sweeps are run, and of each site the values are noted that had a positive probability on
the way. If two starts have no value of a site in common, a barrier lies between them.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.doctor.examination import NUM_POINTS, Examination, quickly
from sumout.doctor.finding import Finding
from sumout.errors import OptionError
from sumout.nuisance.gibbs import Gibbs
from sumout.nuisance.sweep import Stack
from sumout.plan import plan_for
from sumout.program import Nuisance
from sumout.randomness import fold_in, new_key, split

SWEEPS = 30


def check_barriers(exam: Examination) -> Iterator[Finding]:
    """Every site that is drawn by Gibbs should reach the same values from everywhere."""
    moves = [move for move in exam.plan.moves if isinstance(_inner(move), Gibbs)]
    if not moves or not len(exam.anchors) or not (exam.tried == -np.inf).any():
        return  # nothing is impossible, so there are no barriers
    x = np.broadcast_to(exam.x[exam.anchors[0]], (NUM_POINTS, exam.program.num_x))
    z = exam.settle(x)
    is_possible = np.isfinite(exam.evaluate(x, z)[0])
    names: set[str] = set()
    for move, reached in zip(moves, _reach(exam, moves, x, z), strict=True):
        common = np.einsum("s...kn,t...kn->st...n", reached[is_possible].astype(int), reached[is_possible].astype(int))
        if (common == 0).any():
            columns = np.flatnonzero((common == 0).reshape(-1, common.shape[-1]).any(axis=0))
            names |= _names(exam, move, columns)
    if names:
        yield Finding(_describe(exam, [name for name in exam.program.z if name in names]))


def _reach(exam: Examination, moves: list[Any], x: np.ndarray, z: Nuisance) -> list[np.ndarray]:
    """For each move, which values of its members had a positive probability: axes start, (part of a stack,) K, n."""

    def possible(x: Array, z: Nuisance, data: Any) -> list[Array]:
        weights = []
        for move in moves:
            if isinstance(move, Stack):
                weights.append(jax.vmap(lambda one: one.log_weights(x, z, data))(move.stacked))
            else:
                weights.append(move.log_weights(x, z, data))
        return [w > -jnp.inf for w in weights]

    @quickly
    def run(keys: Array, x: Array, z: Nuisance, data: Any) -> list[Array]:
        def one(key: Array, x: Array, z: Nuisance) -> list[Array]:
            def sweep(i: Array, carry: tuple[Nuisance, list[Array]]) -> tuple[Nuisance, list[Array]]:
                z, seen = carry
                z = exam.plan.sweep(fold_in(key, i), x, z, data)
                return z, [a | b for a, b in zip(seen, possible(x, z, data), strict=True)]

            return jax.lax.fori_loop(0, SWEEPS, sweep, (z, possible(x, z, data)))[1]

        return jax.vmap(one)(keys, x, z)

    return [np.asarray(r) for r in run(split(new_key(3), len(x)), jnp.asarray(x), z, exam.program.data)]


def _inner(move: Any) -> Any:
    return move.stacked if isinstance(move, Stack) else move


def _names(exam: Examination, move: Any, columns: np.ndarray) -> set[str]:
    """The sites that members of a move belong to; of a stack, all its sites."""
    if isinstance(move, Stack):
        return set(move.stacked.block.names)
    members = move.block.members[columns]
    return {name for name, numbers in exam.plan.structure.site_numbers.items() if np.isin(members, numbers).any()}


def _describe(exam: Examination, names: list[str]) -> str:
    advice = "Write the model so that no states in between are impossible."
    for method in ("sum", "joint"):
        wishes = dict.fromkeys(names, method)
        try:
            plan_for(exam.program, wishes)
        except OptionError:
            continue
        advice = f"Ask for plan={wishes}, which moves them together."
        break
    return (
        f"{', '.join(repr(name) for name in names)} cannot be moved one site at a time to all possible values: impossible "
        f"states lie between them (sites that must be equal, a sum that must be a number), so that chains stay where "
        f"they start. {advice}"
    )
