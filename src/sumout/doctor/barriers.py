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

from sumout.doctor.examination import NUM_POINTS, ROUNDS, SETTLING_SWEEPS, Examination, quickly
from sumout.doctor.finding import Finding
from sumout.errors import OptionError
from sumout.nuisance.gibbs import Gibbs
from sumout.nuisance.sweep import Stack, Sweep
from sumout.plan import plan_for
from sumout.program import Nuisance
from sumout.randomness import fold_in, new_key, split

SWEEPS = 30


def check_barriers(exam: Examination) -> Iterator[Finding]:
    """Every site that is drawn by Gibbs should reach the same values from everywhere."""
    moves = [move for move in exam.plan.moves if isinstance(_inner(move), Gibbs)]
    if not moves or not len(exam.anchors) or not exam.plan.structure.num_edges or not (exam.tried == -np.inf).any():
        return  # nothing is impossible, or only what a site can leave by itself: no barriers
    x = np.broadcast_to(exam.x[exam.anchors[0]], (NUM_POINTS, exam.program.num_x))
    z, reach = _wander(exam, moves, x)
    is_possible = np.isfinite(exam.evaluate(x, z)[0])
    names: set[str] = set()
    for move, reached in zip(moves, reach, strict=True):
        common = np.einsum("s...kn,t...kn->st...n", reached[is_possible].astype(int), reached[is_possible].astype(int))
        if (common == 0).any():
            columns = np.flatnonzero((common == 0).reshape(-1, common.shape[-1]).any(axis=0))
            names |= _names(exam, move, columns)
    if names:
        yield Finding(_describe(exam, [name for name in exam.program.z if name in names]))


def _wander(exam: Examination, moves: list[Any], x: np.ndarray) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Where z ends from several starts; for each move, which values of its members had a positive probability.

    Axes: start, (part of a stack,) value, member.
    """

    def possible(x: Array, z: Nuisance, data: Any) -> list[Array]:
        weights = [
            jax.vmap(lambda one: one.log_weights(x, z, data))(move.stacked)
            if isinstance(move, Stack)
            else move.log_weights(x, z, data)
            for move in moves
        ]
        return [w > -jnp.inf for w in weights]

    @quickly
    def run(keys: Array, x: Array, z: Nuisance, data: Any) -> tuple[Nuisance, list[Array]]:
        def one(key: Array, x: Array, z: Nuisance) -> tuple[Nuisance, list[Array]]:
            def sweep(i: Array, carry: tuple[Nuisance, list[Array]]) -> tuple[Nuisance, list[Array]]:
                z, seen = carry
                z = sweep_over(fold_in(key, i), x, z, data)
                now = possible(x, z, data)
                return z, [a | (b & (i >= SETTLING_SWEEPS)) for a, b in zip(seen, now, strict=True)]

            nothing = [jnp.zeros(a.shape, bool) for a in jax.eval_shape(possible, x, z, data)]
            return jax.lax.fori_loop(0, SETTLING_SWEEPS + SWEEPS, sweep, (z, nothing))

        return jax.vmap(one)(keys, x, z)

    apart = _summed_apart(exam)
    sweep_over = Sweep(exam.plan.moves) if apart else exam.plan.sweep  # compiled sooner without the sums
    starts = {name: value[:, 0] for name, value in exam.draw(ROUNDS + 1, 1)[1].items()}
    anchor = exam.at(int(exam.anchors[0]))
    starts |= {name: np.broadcast_to(anchor[name], starts[name].shape) for name in apart}
    z, reach = run(split(new_key(3), len(x)), x, starts, exam.program.data)
    return {name: np.asarray(value) for name, value in z.items()}, [np.asarray(r) for r in reach]


def _summed_apart(exam: Examination) -> list[str]:
    """The sites that are summed out, if none of them hangs together with one that is drawn."""
    plan, structure = exam.plan, exam.plan.structure
    summed = [name for name, choices in plan.choices.items() if all(choice.method == "sum" for choice in choices)]
    labels = {
        is_summed: {
            int(label)
            for name, numbers in structure.site_numbers.items()
            if (name in summed) == is_summed
            for label in np.unique(structure.components[numbers])
        }
        for is_summed in (False, True)
    }
    return [] if labels[False] & labels[True] else summed


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
        f"{', '.join(repr(name) for name in names)} cannot be moved one site at a time to all possible values: "
        "impossible states lie between them (sites that must be equal, a sum that must be a number), so that chains "
        f"stay where they start. {advice}"
    )
