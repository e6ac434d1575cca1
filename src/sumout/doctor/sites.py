"""Discrete sites that nothing depends on, arrays stretched by accident, arrays changed behind the program's back."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from sumout.dependence import used_inputs
from sumout.doctor.examination import Examination
from sumout.doctor.finding import Finding
from sumout.errors import ModelError
from sumout.program import Program


def check_influence(exam: Examination) -> Iterator[Finding]:
    """A discrete site that influences nothing is most often one that was forgotten in a later line."""
    program, structure = exam.program, exam.plan.structure
    if program.log_terms_named is not None:
        idle = _unused_by_terms(program)
    else:
        degree = np.diff(structure.scopes_by_site.indptr)
        idle = [name for name, numbers in structure.site_numbers.items() if (degree[numbers] == 0).all()]
    for name in idle:
        yield Finding(
            f"discrete site '{name}' has no influence: no other site, datum or factor depends on it, and its own law "
            "depends on nothing. Use it where it was meant to be used, or leave it out."
        )


def check_outside(exam: Examination) -> Iterator[Finding]:
    """Arguments are copied when a program is made; what a model takes from around it is not."""
    changed = exam.program.changed_outside()
    if changed:
        yield Finding(
            f"{', '.join(changed)} has been changed since the program was made, an array that the model refers to "
            "without being given it: some of the program would use the old values, some the new. Pass the array as an "
            "argument, which is copied, or make the program anew.",
            ModelError,
        )


def _unused_by_terms(program: Program) -> list[str]:
    """Discrete sites that occur in their own term only, where that depends on nothing else, and in no deterministic."""
    terms_named = program.log_terms_named
    assert terms_named is not None
    terms = _inputs(lambda x, z, data: terms_named(program.unravel(x), z, data), program)
    idle = [
        name
        for name in program.z
        if name not in program.forward
        and terms.get(name, {"x"}) <= {name}
        and not any(name in used for term, used in terms.items() if term != name)
    ]
    if idle:
        shown = _inputs(program.constrain, program)
        idle = [name for name in idle if not any(name in used for used in shown.values())]
    return idle


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
        is_stretched = (sites == sites[:, :1]).all() or (sites == sites[:1]).all()
        against = [name for name, s in shapes.items() if [n for n in s if n > 1] == [size]]
        if is_stretched and against and len(np.unique(sites)) == size:
            name = next(name for name, numbers in structure.site_numbers.items() if sites[0, 0] in numbers)
            yield Finding(
                f"{size} elements of '{name}' meet {size} elements of '{against[0]}' in {size} × {size} terms, every "
                "one with every other, so that each datum counts many times. Shapes seem to have been stretched "
                f"against each other, ({size}, 1) against ({size},): give both the same shape."
            )
            return
