"""`sumout.check`: a list of small checks of a program, each with its message."""

from collections.abc import Mapping

from sumout.checks.discrete_sites import check_barriers, check_broadcasting, check_influence, check_outside
from sumout.checks.examination import Examination
from sumout.checks.finding import Checkup
from sumout.checks.not_finite import check_edges, check_nan, check_start
from sumout.checks.tails import check_flat, check_scales, check_tails
from sumout.checks.unbounded_counts import check_counts
from sumout.model.program import Program
from sumout.plan.plan import Plan, plan_for

CHECKS = (
    check_outside,
    check_start,
    check_flat,
    check_nan,
    check_edges,
    check_tails,
    check_scales,
    check_influence,
    check_broadcasting,
    check_barriers,
    check_counts,
)


def check(program: Program, *, plan: Mapping[str, str] | None = None) -> Checkup:
    """Look at a program before it is sampled, and say what is wrong with it.

    `sumout.sample` does this by itself before the first draw: it raises what is an error here and warns of the rest.

    Args:
        program: from `sumout.program` or `sumout.density`.
        plan: what to do with a discrete site, by name, as for `sumout.sample`.

    Returns:
        What was found, with `errors` and `warnings` in words; it prints as a list.

    Example:
        >>> import sumout
        >>> from numpyro.distributions import constraints
        >>> def shifted(x, z, data):
        ...     return -0.5 * (x["a"] - z["z"]) ** 2
        >>> x = {"a": (constraints.real, ()), "b": (constraints.real, ())}
        >>> found = sumout.check(sumout.density(shifted, x=x, z={"z": sumout.finite(2)}))
        >>> print(found.errors[0][:49])
        the log density does not depend on 'b': its poste
    """
    return check_plan(plan_for(program, plan))


def check_plan(plan: Plan) -> Checkup:
    """The checkup of a program with a plan, done once."""
    program = plan.structure.program
    return program.remember(("checkup", id(plan)), lambda: _check(plan))


def examine(plan: Plan) -> Examination:
    """The examination of a program with a plan, made once."""
    return plan.structure.program.remember(("examination", id(plan)), lambda: Examination(plan))


def _check(plan: Plan) -> Checkup:
    exam = examine(plan).look()
    findings = [finding for check in CHECKS for finding in check(exam)]
    return Checkup(plan.structure.program.name, tuple(sorted(findings, key=lambda found: found.error is None)))
