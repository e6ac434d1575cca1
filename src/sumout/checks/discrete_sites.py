"""Discrete sites that nothing depends on or that Gibbs cannot move, arrays broadcast or changed by accident.

Moves of one site at a time cannot cross from one possible state to another where all states between them are
impossible: two sites that must be equal, a sum that must be k. The chain is then reducible, and stays in the part where
it started. To see that, sweeps are run from several starts at one x, and of each site the values are recorded that had
a positive probability on the way. If two starts have no value of a site in common, a barrier lies between them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.checks.examination import EQUILIBRATION_SWEEPS, NUM_POINTS, ROUNDS, Examination, Finding, quickly
from sumout.errors import ModelError, OptionError
from sumout.jaxpr.equations import used_inputs
from sumout.jaxpr.flatten import flatten
from sumout.model.program import Nuisance, Program
from sumout.moves.move import NuisanceMove
from sumout.moves.sweep import Sweep
from sumout.plan.plan import plan_for
from sumout.randomness import fold_in, new_key, split
from sumout.structure.structure import Structure, element_scopes

SWEEPS = 30  # after those for equilibration


def check_influence(exam: Examination) -> Iterator[Finding]:
    """A discrete site that influences nothing is most often one that was forgotten in a later line."""
    program, structure = exam.program, exam.plan.structure
    if program.packs:
        unused = _unused_elements(program, structure)
    elif program.log_terms_named is not None:
        unused = _unused_by_terms(program)
    else:
        degree = np.diff(structure.scopes_by_site.indptr)
        unused = [name for name, numbers in structure.site_numbers.items() if (degree[numbers] == 0).all()]
    for name in unused:
        yield Finding(
            f"discrete site '{name}' has no influence: no other site, datum or factor depends on it, and its own "
            "distribution depends on nothing. Use it where it was meant to be used, or leave it out."
        )


def check_outside(exam: Examination) -> Iterator[Finding]:
    """Arguments are copied when a program is made; what a model takes from around it is not."""
    changed = exam.program.changed_outside()
    if changed:
        yield Finding(
            f"{', '.join(changed)} has been changed since the program was made, an array that the model refers to "
            "but does not take as an argument: some of the program would use the old values, some the new. Pass the "
            "array as an argument, which is copied, or make the program anew.",
            ModelError,
        )


def _unused_by_terms(program: Program) -> list[str]:
    """Discrete sites that occur in their own term only, where that depends on nothing else, and in no deterministic."""
    terms = _inputs(program.log_terms, program)
    unused = [
        name
        for name in program.z
        if name not in program.forward
        and terms.get(name, {"x"}) <= {name}
        and not any(name in used for term, used in terms.items() if term != name)
    ]
    if unused:
        shown = _inputs(program.constrain, program)
        unused = [name for name in unused if not any(name in used for used in shown.values())]
    return unused


def _unused_elements(program: Program, structure: Structure) -> list[str]:
    """The same where many sites are one array: those that occur in one element of one term, and there alone."""
    if program.log_terms_named is None:
        degree = np.diff(structure.scopes_by_site.indptr)
        return [name for name, numbers in structure.user_site_numbers.items() if (degree[numbers] == 0).all()]
    of_x = {name: "x" in used for name, used in _inputs(program.log_terms, program).items()}
    terms = _scopes(program.log_terms, program)
    uses, shown = _count(terms, program), _count(_scopes(program.constrain, program), program)
    unused = []
    for name, numbers in structure.site_numbers.items():
        if name in program.forward or name not in terms or of_x[name] or terms[name].shape[0] != len(numbers):
            continue
        alone = np.diff(terms[name].indptr) <= 1  # its own term depends on nothing else
        is_unused = alone & (uses[numbers] == 1) & (shown[numbers] == 0)
        rows = is_unused.reshape(len(program.packs.names(name)), -1).all(axis=1)
        unused += [user_name for user_name, row in zip(program.packs.names(name), rows, strict=True) if row]
    return unused


def _count(scopes: dict[str, Any], program: Program) -> np.ndarray:
    """In how many elements each site occurs."""
    none = np.zeros(program.num_z, int)
    return sum((np.bincount(one.indices, minlength=program.num_z) for one in scopes.values()), start=none)


def _scopes(fn: Any, program: Program) -> dict[str, Any]:
    """For each named output of `fn(x, z, data)`, which of its elements depend on which site."""
    names = sorted(jax.eval_shape(fn, *program.abstract_arguments()))
    closed = flatten(lambda *args: [fn(*args)[name] for name in names], *program.abstract_arguments())
    return dict(zip(names, element_scopes(program, closed), strict=True))


def _inputs(fn: Any, program: Program) -> dict[str, set[str]]:
    """For each named output of `fn(x, z, data)`, which of x ("x") and the discrete sites it depends on, or may."""
    arguments = program.abstract_arguments()
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*arguments)
    labels = ["x", *sorted(program.z)]
    each = zip(sorted(shapes), used_inputs(closed), strict=True)  # JAX sorts dicts
    return {name: {label for label, is_used in zip(labels, used, strict=False) if is_used} for name, used in each}


def check_broadcasting(exam: Examination) -> Iterator[Finding]:
    """N sites against N data should meet in N factors, not in N × N."""
    program, structure = exam.program, exam.plan.structure
    shapes = {name or "data": np.shape(leaf) for name, leaf in program.data.items()}
    others = [*shapes.values(), *(site.shape for site in program.x.values()), *(s.shape for s in program.z.values())]
    start = 0
    for shape in structure.factor_shapes:
        rows = structure.scopes[start : start + int(np.prod(shape))]
        start += int(np.prod(shape))
        square = [n for n in shape if n > 1]
        if len(square) != 2 or square[0] != square[1] or any(s.count(square[0]) > 1 for s in others):
            continue
        size = square[0]
        if not (np.diff(rows.indptr) == 1).all():
            continue
        sites = rows.indices.reshape(size, size)
        is_broadcast = (sites == sites[:, :1]).all() or (sites == sites[:1]).all()
        against = [name for name, s in shapes.items() if [n for n in s if n > 1] == [size]]
        if is_broadcast and against and len(np.unique(sites)) == size:
            name = next(name for name, numbers in structure.site_numbers.items() if sites[0, 0] in numbers)
            yield Finding(
                f"{size} elements of '{name}' meet {size} elements of '{against[0]}' in {size} × {size} terms, every "
                "one with every other, so that each datum counts many times. Shapes seem to have been broadcast "
                f"against each other, ({size}, 1) against ({size},): give both the same shape."
            )
            return


def check_barriers(exam: Examination) -> Iterator[Finding]:
    """Every site that is drawn by Gibbs should reach the same values from everywhere."""
    moves = [move for move in exam.plan.moves if move.shows_barriers]
    if not moves or not len(exam.anchors) or not exam.plan.structure.num_edges or not (exam.tried == -np.inf).any():
        return  # nothing is impossible, or only what a site can leave by itself: no barriers
    x = np.broadcast_to(exam.x[exam.anchors[0]], (NUM_POINTS, exam.program.num_x))
    z, reach = _wander(exam, moves, x)
    is_possible = np.isfinite(exam.evaluate(x, z)[0])
    stuck = [np.zeros(0, np.int64)]
    for move, reached in zip(moves, reach, strict=True):
        seen = reached[is_possible].astype(int)
        common = np.einsum("sbkn,tbkn->stbn", seen, seen)  # values that two starts s and t have in common
        members = np.stack([block.block.members for block in move.split()])
        stuck.append(members[(common == 0).any(axis=(0, 1))])
    numbers = exam.plan.structure.site_numbers
    names = [name for name in exam.program.z if np.isin(numbers[name], np.concatenate(stuck)).any()]
    if names:
        yield Finding(_describe(exam, names))


def _wander(
    exam: Examination, moves: list[NuisanceMove], x: np.ndarray
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Where z ends from several starts; for each move, which values of its members had a positive probability.

    Axes: start s, block b, value k, member n.
    """
    apart = _summed_apart(exam)  # compiled sooner without the sums
    starts = {name: value[:, 0] for name, value in exam.draw(ROUNDS + 1, 1)[1].items()}
    anchor = exam.at(int(exam.anchors[0]))
    starts |= {name: np.broadcast_to(anchor[name], starts[name].shape) for name in apart}
    label = ("wander", tuple(map(id, moves)))
    run = exam.compiled(label, lambda: _wandering(moves, Sweep(exam.plan.moves) if apart else exam.plan.sweep))
    z, reach = run(split(new_key(3), len(x)), x, starts, exam.program.data)
    return {name: np.asarray(value) for name, value in z.items()}, [np.asarray(r) for r in reach]


def _wandering(moves: list[NuisanceMove], sweep_over: Sweep) -> Callable[..., tuple[Nuisance, list[Array]]]:
    """As `_wander`, compiled: from keys, x, z and data."""

    def possible(x: Array, z: Nuisance, data: Any) -> list[Array]:
        return [move.map_blocks(lambda block: block.log_weights(x, z, data) > -jnp.inf) for move in moves]

    @quickly
    def run(keys: Array, x: Array, z: Nuisance, data: Any) -> tuple[Nuisance, list[Array]]:
        def one(key: Array, x: Array, z: Nuisance) -> tuple[Nuisance, list[Array]]:
            def sweep(i: Array, carry: tuple[Nuisance, list[Array]]) -> tuple[Nuisance, list[Array]]:
                z, seen = carry
                z = sweep_over(fold_in(key, i), x, z, data)
                now = possible(x, z, data)
                return z, [a | (b & (i >= EQUILIBRATION_SWEEPS)) for a, b in zip(seen, now, strict=True)]

            nothing = [jnp.zeros(a.shape, bool) for a in jax.eval_shape(possible, x, z, data)]
            return jax.lax.fori_loop(0, EQUILIBRATION_SWEEPS + SWEEPS, sweep, (z, nothing))

        return jax.vmap(one)(keys, x, z)

    return run


def _summed_apart(exam: Examination) -> list[str]:
    """The sites that are summed out, if no factor, nor a chain of them, joins one to a site that is drawn."""
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


def _describe(exam: Examination, names: list[str]) -> str:
    advice = "Write the model so that no states in between are impossible."
    for method in ("sum", "joint"):
        overrides = dict.fromkeys(names, method)
        try:
            plan_for(exam.program, overrides)
        except OptionError:
            continue
        advice = f"Ask for plan={overrides}, which moves them together."
        break
    return (
        f"{', '.join(repr(name) for name in names)} cannot be moved one site at a time to all possible values: "
        "impossible states lie between them (sites that must be equal, a sum that must be a number), so that the "
        f"chain is reducible and stays where it starts. {advice}"
    )
