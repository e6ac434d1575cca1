"""`sumout.check`: a list of small checks of a program, each with its message."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sumout.calls import public
from sumout.checks.data_use import check_arguments, check_observed
from sumout.checks.discrete_sites import check_barriers, check_broadcasting, check_influence, check_outside
from sumout.checks.examination import Examination, Finding
from sumout.checks.indices import check_indices
from sumout.checks.not_finite import check_edges, check_nan, check_start
from sumout.checks.tails import check_flat, check_scales, check_tails
from sumout.checks.unbounded_counts import check_counts
from sumout.errors import ModelWarning
from sumout.model.front_ends import as_program
from sumout.model.program import Program
from sumout.plan.plan import Plan, plan_for

CHECKS = (
    check_outside,
    check_observed,
    check_arguments,
    check_start,
    check_indices,
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


@dataclass(frozen=True, repr=False)
class Checkup:
    """All that was found; prints as a list, and is true where nothing was.

    Attributes:
        name: of the program.
        findings: errors first.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[str]:
        """Why the program cannot be sampled."""
        return [finding.message for finding in self.findings if finding.error is not None]

    @property
    def warnings(self) -> list[str]:
        """What looks wrong, but does not stop a run."""
        return [finding.message for finding in self.findings if finding.error is None]

    def raise_or_warn(self) -> None:
        """Raise the first error; give the warnings if there is none."""
        for finding in self.findings:
            if finding.error is not None:
                raise finding.error(finding.message)
        for message in self.warnings:
            warnings.warn(message, ModelWarning, stacklevel=4)

    def __bool__(self) -> bool:
        return not self.findings

    def __repr__(self) -> str:
        if self:
            return f"{self.name}: nothing found."
        lines = [f"  {'warning' if found.error is None else 'error'}: {found.message}" for found in self.findings]
        return "\n".join([f"{self.name}:", *lines])


@public
def check(program: Program | Any, *, plan: Mapping[str, str] | None = None) -> Checkup:
    """Check a program before it is sampled, and say what is wrong with it.

    `sumout.sample` does this by itself before the first draw: it raises what is an error here and warns of the rest.

    Args:
        program: from `sumout.program` or `sumout.density`, or a PyMC model.
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
    return check_plan(plan_for(as_program(program), plan))


def check_plan(plan: Plan) -> Checkup:
    """What the checks find in a program with a plan, computed once."""
    program = plan.structure.program
    return program.remember(("checkup", id(plan)), lambda: _check(plan))


def examine(plan: Plan) -> Examination:
    """The examination of a program with a plan, made once."""
    return plan.structure.program.remember(("examination", id(plan)), lambda: Examination(plan))


def _check(plan: Plan) -> Checkup:
    exam = examine(plan).look()
    findings = [finding for check in CHECKS for finding in check(exam)]
    return Checkup(plan.structure.program.name, tuple(sorted(findings, key=lambda found: found.error is None)))
