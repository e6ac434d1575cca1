"""Programs of some rows of several plates that stand side by side.

    log p(x, y) = G(x) + Σ_plates Σ_rows ℓ_i(x)

Each plate is looked at by itself, in the program without the terms of the others: there its rows are independent given
x, or are refused, as those of a program with one plate (`model/row_program.py`). What has then still to be seen is that
nothing is lost between them: a term in one plate that depends on discrete sites in another is refused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from sumout.errors import ModelError, OptionError
from sumout.jaxpr.equations import used_inputs
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z, guess_x, guess_z
from sumout.model.program import Program
from sumout.model.row_program import Attempt, RowProgram, check_rows, rounding, take_rows


def apart_from(program: Program, others: Sequence[str]) -> Program:
    """The program without the terms that stand in other plates, and without the discrete sites there."""
    left_out = {name for plate in others for name in program.plates[plate].dims}
    local_z = {name: value for name, value in any_z(program).items() if name in left_out}

    def apart(fn: Any, names: Sequence[str] = ()) -> Any:
        out = (*program.forward, *names, *sorted(left_out))
        return None if fn is None else lambda x, z, data: fn(out, x, {**local_z, **z}, data)

    def left_out_of(fn: Any) -> Any:
        return None if fn is None else lambda names, x, z, data: apart(fn, names)(x, z, data)

    def named(fn: Any, dropped: Collection[str]) -> Any:
        if fn is None:
            return None
        return lambda x, z, data: {n: a for n, a in fn(x, {**local_z, **z}, data).items() if n not in dropped}

    def with_rows(plate: str, batch: int) -> list[Attempt]:
        assert program.with_rows is not None

        def fewer(attempt: Attempt) -> tuple[Program, Mapping[str, int], str | None]:
            made, axes, index = attempt()
            return apart_from(made, others), axes, index

        return [partial(fewer, attempt) for attempt in program.with_rows(plate, batch)]

    return replace(
        program,
        z={name: site for name, site in program.z.items() if name not in left_out},
        log_joint=apart(program.log_joint_left_out),
        log_joint_without_jacobian=apart(program.log_joint_left_out_without_jacobian),
        constrain_named=named(program.constrain_named, {n for plate in others for n in program.plates[plate].values}),
        log_terms_named=named(program.log_terms_named, left_out),
        log_joint_left_out=left_out_of(program.log_joint_left_out),
        log_joint_left_out_without_jacobian=left_out_of(program.log_joint_left_out_without_jacobian),
        **dict.fromkeys(("log_likelihood_named", "log_joint_without_data"), None),
        **dict.fromkeys(("draw_forward_named", "count_terms_named", "with_arrays", "predictor"), None),
        arguments_as_data=None,
        with_rows=None if program.with_rows is None else with_rows,
        plates={name: plate for name, plate in program.plates.items() if name not in others},
        forward=(),
        observed={},
    )


def take_rows_of_plates(program: Program, batches: Mapping[str, int]) -> tuple[RowProgram, ...]:
    """For each of several plates the program of so many of its rows and of what all share, without the other plates."""
    for plate, batch in batches.items():
        check_rows(program, plate, batch)
    if len(batches) == 1:
        return tuple(take_rows(program, plate, batch) for plate, batch in batches.items())
    if program.few is not None:
        raise OptionError("minibatch: rows on the disk go with a minibatch of one plate only: name that one.")
    owner: dict[str, str] = {}
    for plate in batches:
        for name in program.plates[plate].dims:
            other = owner.setdefault(name, plate)
            if other != plate:
                raise ModelError(
                    f"minibatch: '{name}' is inside plate '{other}' and inside plate '{plate}': rows of the one have "
                    "terms for rows of the other, so that few of both tell no sum over z. Take rows of one of them."
                )

    program.remember(("plates apart", tuple(batches)), lambda: _refuse_met(program, tuple(batches)))

    def made(plate: str, batch: int) -> RowProgram:
        others = tuple(other for other in batches if other != plate)
        apart = program.remember(("apart from", others), lambda: apart_from(program, others))
        return take_rows(apart, plate, batch)

    return tuple(made(plate, batch) for plate, batch in batches.items())


def _refuse_met(program: Program, plates: tuple[str, ...]) -> None:
    """Refuse terms in one plate that depend on discrete sites in another."""
    if program.log_terms_named is None:
        _compare_plates(program, plates)
        return
    x, z, data = program.abstract_arguments()
    closed, terms = jax.make_jaxpr(program.log_terms, return_shape=True)(x, z, data)
    for name, used in zip(sorted(terms), used_inputs(closed), strict=True):
        sites = {site for site, is_used in zip(sorted(z), used[1:], strict=False) if is_used}
        homes = [plate for plate in plates if name in program.plates[plate].dims]
        for other in plates:
            met = sorted(sites & set(program.plates[other].dims))
            if homes and other not in homes and met:
                raise ModelError(
                    f"minibatch: '{name}', inside plate '{homes[0]}', depends on the discrete '{met[0]}' inside plate "
                    f"'{other}': a sum over that joins rows of both. Take rows of one of them, or of none."
                )


def _compare_plates(program: Program, plates: tuple[str, ...]) -> None:
    """In a plain density the rows of each plate must add the same whatever rows of the others there are."""
    rng = np.random.default_rng(0)
    x = program.unravel(as_jax(guess_x(rng, program, 1)[0]))
    z = as_jax({name: value[0] for name, value in guess_z(rng, program, 1).items()})
    assert program.log_joint_left_out is not None
    compute = jax.jit(program.log_joint_left_out, static_argnums=0)
    names = {plate: tuple(program.plates[plate].dims) for plate in plates}

    def with_only(kept: Collection[str]) -> float:
        out = tuple(name for plate in plates if plate not in kept for name in names[plate])
        return float(compute(out, x, z, as_jax(program.data)))

    whole, nothing = with_only(plates), with_only(())
    each = [with_only((plate,)) - nothing for plate in plates]
    tolerance = (1 + abs(whole) + abs(nothing) + sum(map(abs, each))) * rounding()
    if not abs(whole - nothing - sum(each)) <= tolerance:
        raise ModelError(
            f"minibatch: in '{program.name}' the log density is not a sum over rows of {' and of '.join(plates)}: rows "
            "of the one depend on rows of the other. Take rows of one of them, or sample without minibatch."
        )
