"""`sumout.report`: one page about a run, to look at, keep and send."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.diagnose.summary import examine
from sumout.errors import OptionError
from sumout.pages.discrete import discrete_section
from sumout.pages.page import Section, assemble, join
from sumout.pages.sections import (
    draws_section,
    plan_section,
    predictive_section,
    run_facts,
    summary_section,
    warnings_box,
    wishes,
)
from sumout.pages.svg import check_matplotlib, house_style
from sumout.plan import plan_for
from sumout.program import Program

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


def report(idata: "xr.DataTree", path: str | os.PathLike[str], program: Program | None = None) -> Path:
    """Write one page of HTML about a run: warnings, plan, summary, draws, z and predictive checks.

    The page needs nothing beside itself: no network, no other files, no scripts. The same run gives the same page.
    Needs matplotlib: `pip install sumout[plots]`.

    Args:
        idata: from `sumout.sample`. A group `posterior_predictive` with names of `observed_data`, if you add one, is
            shown as a predictive check.
        path: the file to write; one that is there already is replaced.
        program: the one that was sampled from. With it the page also shows the plan and a picture of the structure, and
            exact marginals of z in place of frequencies.

    Returns:
        The path of the page.

    Example:
        >>> import tempfile, sumout
        >>> from numpyro.distributions import Normal, constraints
        >>> def shifted(x, z, data):
        ...     return Normal(z["shift"], 1.0).log_prob(x["x"])
        >>> program = sumout.density(shifted, x={"x": (constraints.real, ())}, z={"shift": sumout.finite(2)})
        >>> result = sumout.sample(program, draws=100, tune=100, chains=2)
        >>> page = sumout.report(result, tempfile.mkdtemp() + "/shifted.html", program)
        >>> page.name, "<h1>shifted</h1>" in page.read_text()
        ('shifted.html', True)
    """
    target = _check(idata, path, program)
    check_matplotlib()
    discrete = np.atleast_1d(idata["posterior"].attrs["discrete"]).tolist()
    continuous = [str(name) for name in idata["posterior"].data_vars if name not in discrete]
    table, complaints = examine(idata)
    plan = None if program is None else plan_for(program, wishes(idata))
    with house_style():
        sections: list[Section | None] = [
            None if plan is None else plan_section(idata, plan),
            summary_section(table),
            draws_section(idata, continuous, table),
            discrete_section(idata, discrete, program, None if plan is None else plan.structure),
            predictive_section(idata),
        ]
    lead = join([warnings_box(complaints), run_facts(idata, table)])
    title = "Posterior draws" if program is None else program.name
    page = assemble("report of a run", title, lead, [section for section in sections if section is not None])
    target.write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    return target


def _check(idata: Any, path: Any, program: Any) -> Path:
    groups = getattr(idata, "children", {})
    if "posterior" not in groups or "sample_stats" not in groups or "discrete" not in idata["posterior"].attrs:
        raise OptionError(
            f"report: expected the result of sumout.sample, got {type(idata).__name__} without its groups and notes "
            "(posterior with attrs['discrete'], sample_stats); pass on what sumout.sample returned."
        )
    if program is not None and not isinstance(program, Program):
        raise OptionError(
            f"report: program is a {type(program).__name__}; it should be the Program that was sampled from, or None."
        )
    for name in () if program is None else (*program.x, *program.z):
        if name not in idata["posterior"] and name not in groups.get("unconstrained_posterior", ()):
            raise OptionError(f"report: the result has no '{name}'; was it another program that was sampled from?")
    if not isinstance(path, str | os.PathLike):
        raise OptionError(f"report: path={path!r} should be the name of a file, such as 'run.html'.")
    target = Path(path)
    if target.is_dir():
        raise OptionError(f"report: {target} is a folder; name a file in it, such as {target / 'run.html'}.")
    if not target.parent.is_dir():
        raise OptionError(f"report: there is no folder {target.parent}; make it first, or write elsewhere.")
    return target
