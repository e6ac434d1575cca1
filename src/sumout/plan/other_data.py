"""Whether what was built and compiled for a program serves another, of the same model with other data.

Three things must be the same. The form: sites, supports, shapes. The code: the model is traced again, and must compute
the same from its arguments, whatever has become of what it refers to beside them. The reading: either all that was
asked about the values of the data has the same answers (`structure/known_values.py`); or the data that differ are
hidden from a reading, and the code that results from it is the same, so that no value of them is in it. Then the new
data are read, too, which takes a tenth of a second: they must lead to the same plan.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sumout.jaxpr.equations import without_collection
from sumout.jaxpr.fingerprint import fingerprint
from sumout.model.program import Part, Program
from sumout.model.rolled import roll_up_like
from sumout.model.supports import Count, Finite, Support
from sumout.plan.free_data import hide, is_same_plan
from sumout.plan.plan import Plan, plan_for
from sumout.plan.target import Target, make_target
from sumout.structure.scopes import as_known
from sumout.structure.structure import facts_of, flat_density

Likelihoods = Callable[[Plan], Any]  # builds the log likelihood of every datum, or says why there is none


def has_same_code(one: Program, other: Program) -> bool:
    """Whether two programs differ in the values of their data only."""
    return _form(one) == _form(other) and code_of(one) == code_of(other)


def _form(program: Program) -> tuple[Any, ...]:
    """All of a program but its functions and the values of its data."""
    data = jax.tree.map(lambda leaf: (np.shape(leaf), str(leaf.dtype)), program.data)
    arrays = program.observed, program.constant
    return (
        dict(program.x),
        {name: _support(site.support) for name, site in program.z.items()},
        list(program.z),
        data,
        [{name: np.shape(value) for name, value in named.items()} for named in arrays],
        {name: np.asarray(value).tobytes() for name, value in program.initial.items()},
        {name: np.asarray(labels).tolist() for name, labels in program.coords.items()},
        (program.forward, program.order, dict(program.laws), dict(program.dims), program.fixed, program.by_value),
        (program.free, program.notes, program.name),
    )


def _support(support: Support) -> Any:
    """Equal for equal supports."""
    if not isinstance(support, Finite):
        return support
    return support.shape, *(None if a is None else (a.dtype, a.tolist()) for a in (support.values, support.allowed))


def code_of(program: Program) -> str:
    """A short name of all that the model computes, as it is traced now for the first time."""
    return program.remember("code", lambda: _code_of(program))


def _code_of(program: Program) -> str:
    x, z, data = program.abstract_arguments()
    named = jax.eval_shape(program.unravel, x)
    functions: list[Any] = [
        program.log_joint,
        program.constrain_named,
        program.log_likelihood_named,
        program.log_joint_without_data,
    ]
    whole = dict.fromkeys(fn.whole if isinstance(fn, Part) else fn for fn in functions if fn is not None)
    with without_collection():
        traced = [jax.make_jaxpr(fn)(named, z, data) for fn in whole]
        if program.draw_forward_named is not None:
            traced.append(jax.make_jaxpr(program.draw_forward_named)(_key(), named, z, data))
    return fingerprint(*traced)


def serves(plan: Plan, program: Program, overrides: Mapping[str, str] | None, likelihood: Likelihoods) -> bool:
    """Whether a plan for a program of the same code is what would be made for this one, down to compiled code.

    Args:
        plan: for the other program.
        program: the one with other data.
        overrides: of the plan.
        likelihood: builds what is compiled with the plan beside its target.
    """
    made_for = plan.structure.program
    if plan.ends is not None:  # tables of counts end where the data say
        return False
    leaves = list(map(as_known, jax.tree.leaves(program.data)))
    if facts_of(made_for).are_true_of(leaves):
        # How far a count can go is found by other means.
        has_counts = any(
            isinstance(site.support, Count) for name, site in program.z.items() if name not in program.forward
        )
        return not has_counts or _is_read_alike(plan, program, overrides)
    if not isinstance(program.data, dict) or made_for.free:
        return False
    source = made_for.source or made_for
    names = tuple(
        name
        for name, value in source.data.items()
        if name not in source.by_value and not _is_equal(value, program.data[name])
    )
    label = ("without", names, id(plan))
    same = source.remember(label, lambda: _code_without(source, plan, names, overrides, likelihood))
    return same is not None and facts_of(same).are_true_of(leaves) and _is_read_alike(plan, program, overrides)


def _is_read_alike(plan: Plan, program: Program, overrides: Mapping[str, str] | None) -> bool:
    """Whether a reading that knows the data finds the same: another would be as right, but its draws not the same.

    Draws are to depend on model, data and seed, not on what has been run before.
    """
    made_for = plan.structure.program
    rolled = roll_up_like(made_for, program, overrides or ())
    rolled.remember("flat", lambda: flat_density(made_for))
    return is_same_plan(plan_for(program, overrides), plan)


def _is_equal(one: Any, other: Any) -> bool:
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")


def _code_without(
    program: Program,
    plan: Plan,
    names: tuple[str, ...],
    overrides: Mapping[str, str] | None,
    likelihood: Likelihoods,
) -> Program | None:
    """The program with some data hidden, as it was read, if the code is the same; else None."""
    hidden = hide(program, names, overrides, plan)
    if hidden is None or _compiled(hidden, likelihood) != _compiled(plan, likelihood):
        return None
    return hidden.structure.program


def _compiled(plan: Plan, likelihood: Likelihoods) -> str:
    """A short name of the code of a plan: density, gradient, moves, recovery, likelihoods."""
    x, z, data = plan.structure.program.abstract_arguments()
    target = make_target(plan)
    with without_collection():
        traced = [jax.make_jaxpr(fn)(x, z, data) for fn in (target.log_density, target.value_and_gradient)]
        traced += [jax.make_jaxpr(fn)(_key(), x, z, data) for fn in _moves(target)]
        found = likelihood(plan)
        if callable(found):
            traced.append(jax.make_jaxpr(found)(x, z, data))
        structure = plan.structure
        traced += [jax.make_jaxpr(fn)(x, z, data) for fn in (structure.factors, structure.rest)]
    return fingerprint(*traced)


def _moves(target: Target) -> list[Callable[..., Any]]:
    scan = target.partial_scan
    at_start = [] if scan is None else [lambda key, x, z, data: scan(key, x, z, data, jnp.int32(0))]
    # The number of the step is an argument in what is compiled; here any one will do.
    return [target.recovered, *([] if target.is_marginalised else [target.move, target.move_jointly]), *at_start]


def _key() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2,), np.uint32)


def planned(program: Program, overrides: Mapping[str, str] | None) -> Plan:
    """The plan of a program, and the name of its code, which is traced at the same time."""
    code_of(program)
    return plan_for(program, overrides)
