"""`sumout.report`: one page about a run, to look at, keep and send."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.adaptation.bias_meter import TOLERANCE
from sumout.calls import public
from sumout.errors import OptionError, SumoutError
from sumout.model.front_ends import as_program
from sumout.model.program import Program
from sumout.plan.plan import Plan, plan_for
from sumout.reports.data_section import data_section
from sumout.reports.discrete_section import discrete_section
from sumout.reports.explain import describe
from sumout.reports.figures import (
    MOST_CHAINS,
    REPLICATES,
    density_plot,
    pick_replicates,
    predictive_plot,
    rank_plot,
    trace_plot,
)
from sumout.reports.graph_drawing import network
from sumout.reports.html import Html, Section, assemble, facts, join, note, table, tag
from sumout.reports.svg import check_matplotlib, colour, house_style
from sumout.results.convergence import FEWEST_EFFECTIVE, FEWEST_OF_DENSITY
from sumout.results.effective_draws import LEAST_RHAT
from sumout.results.predict import predict
from sumout.results.summary import Summary, examine
from sumout.results.summary_table import VALUES, badness, cell, fold, folded, number

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

LEFT_OUT = {"mcse_mean", "mcse_sd", "bias_error"}  # of the columns of the summary
MARKED = (
    f"Marked: r_hat above {LEAST_RHAT} and above what chance explains, fewer than {FEWEST_EFFECTIVE} effective draws "
    f"for each chain (of lp {FEWEST_OF_DENSITY}), a bias meter outside {1 - TOLERANCE:.2f} to {1 + TOLERANCE:.2f} by "
    "more than its error."
)
MOST_ROWS = 200
MOST_COORDINATES = 24
MOST_CHECKS = 6  # predictive
STATS = {
    "acceptance_rate": "acceptance rate",
    "step_size": "step size",
    "noise_share": "noise share",
    "diverging": "divergences",
}


@public
def report(idata: "xr.DataTree", path: str | os.PathLike[str], program: Program | Any = None) -> Path:
    """Write one page of HTML about a run: warnings, plan, summary, draws, z and predictive checks.

    The page needs nothing beside itself: no network, no other files, no scripts. The same run gives the same page.
    Needs matplotlib: `pip install sumout[plots]`.

    Args:
        idata: from `sumout.sample`. A group `posterior_predictive` with names of `observed_data`, as `sumout.predict`
            adds it, is shown as a predictive check.
        path: the file to write; one that is there already is replaced.
        program: the one that was sampled from, or the PyMC model. With it the page also shows the plan and a picture
            of the structure, exact marginals of z in place of frequencies, and a predictive check.

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
    program = None if program is None else as_program(program)
    target = _check(idata, path, program)
    idata = idata if program is None else with_replicates(idata, program)
    check_matplotlib()
    discrete = np.atleast_1d(idata["posterior"].attrs["discrete"]).tolist()
    continuous = [str(name) for name in idata["posterior"].data_vars if name not in discrete]
    found = examine(idata)
    overrides = json.loads(idata["posterior"].attrs.get("plan", "{}"))
    plan = None if program is None else plan_for(program, overrides)
    arguments = program.data if program is not None and isinstance(program.data, dict) else {}
    with house_style():
        sections: list[Section | None] = [
            None if plan is None else plan_section(idata, plan),
            summary_section(found),
            draws_section(idata, continuous, found.table),
            discrete_section(idata, discrete, plan, overrides),
            data_section(idata, discrete, arguments),
            predictive_section(idata),
        ]
    lead = join([warnings_box(found.warnings), run_facts(idata, found.table)])
    title = "Posterior draws" if program is None else program.name
    page = assemble("report of a run", title, lead, [section for section in sections if section is not None])
    target.write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    return target


def _check(idata: Any, path: Any, program: Any) -> Path:
    groups = getattr(idata, "children", {})
    if "posterior" not in groups or "sample_stats" not in groups or "discrete" not in idata["posterior"].attrs:
        raise OptionError(
            f"report: expected the result of sumout.sample, got {type(idata).__name__} without its groups and "
            "attributes (posterior with attrs['discrete'], sample_stats); pass on what sumout.sample returned."
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


def warnings_box(warnings: list[str]) -> Html:
    """What `summary` warns of, or that it warns of nothing."""
    if not warnings:
        return tag("div", "The diagnostics give no warning.", class_="fine")
    words = "This run should not be trusted as it is." if len(warnings) == 1 else "This run should not be trusted:"
    items = tag("ul", *(tag("li", words[:1].upper() + words[1:]) for words in warnings))
    return tag("div", tag("strong", words), items, class_="alarm", role="alert")


def run_facts(idata: "xr.DataTree", summary: Any) -> Html:
    """How the run was made, and what the warm-up has tuned."""
    posterior = idata["posterior"]
    attrs = posterior.attrs
    pairs = [("chains", str(posterior.sizes["chain"])), ("draws of each", f"{posterior.sizes['draw']:,}")]
    names = {"tune": "warm-up draws", "steps": "steps between draws", "seed": "seed"}
    pairs += [(words, f"{int(attrs[name]):,}") for name, words in names.items() if name in attrs]
    pairs += [(words, number(summary.attrs[name])) for name, words in STATS.items() if name in summary.attrs]
    if "tuned" in idata.children:
        for name, values in idata["tuned"].to_dataset().data_vars.items():
            pairs.append((f"tuned {str(name).replace('_', ' ')}", _range(np.asarray(values.values))))
    pieces = [facts(pairs)]
    if not attrs.get("complete", True):
        pieces.append(note("The run was stopped before it was complete."))
    if "kernel" in attrs:
        pieces.insert(0, tag("p", "Kernel ", tag("code", str(attrs["kernel"]))))
    if "log_likelihood" in attrs:
        pieces.append(note(f"Log likelihood: {attrs['log_likelihood']}."))
    return join(pieces)


def _range(values: np.ndarray) -> str:
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"


def plan_section(idata: "xr.DataTree", plan: Plan) -> Section:
    """What was planned, in words, and a picture of the structure."""
    kernel = str(idata["posterior"].attrs.get("kernel", "not known"))
    text = tag("pre", describe(plan, kernel))
    return Section("Plan and structure", join([text, network(plan.structure)]))


def summary_section(found: Summary) -> Section:
    """The table; cells out of the bounds that the warnings go by are marked."""
    summary = found.table
    columns = [str(name) for name in summary.columns if name not in LEFT_OUT]
    words: dict[str, str] = summary.attrs.get(VALUES, {})
    together = folded(summary)
    hidden = {i for numbers in together.values() for i in numbers}
    single = [i for i in badness(summary).tolist() if i not in hidden]
    firsts = {numbers[0]: name for name, numbers in together.items()}
    rows = []
    for i in sorted([*single[:MOST_ROWS], *firsts]):
        name = str(summary.index[i])
        if i in firsts:
            name, *texts = fold(summary.iloc[together[firsts[i]]], firsts[i], columns)
            cells = [tag("td", text) for text in texts]
        else:
            cells = [_cell(found, i, column) for column in columns]
        rows.append(_with_words(name, cells, words.get(name, ""), columns))
    notes = [note(MARKED)]
    if len(single) > MOST_ROWS:
        left = len(single) - MOST_ROWS
        notes.append(note(f"{left:,} rows are left out; shown are those with the worst diagnostics."))
    return Section("Summary", join([table(["", *columns], rows), *notes]))


def _with_words(name: str, cells: list[Html], words: str, columns: list[str]) -> list[Html]:
    """A row, what is to be said of a discrete variable in the place of its moments or, if it has any, by its name."""
    head = tag("th", name, scope="row", title=name)
    if not words:
        return [head, *cells]
    num = sum(column in ("mean", "sd") or column.endswith(("_lb", "_ub")) for column in columns)
    if all(cell == tag("td", number(np.nan)) for cell in cells[:num]):
        return [head, tag("td", words, class_="words", colspan=str(num)), *cells[num:]]
    return [tag("th", name, tag("small", words), scope="row", title=name), *cells]


def _cell(found: Summary, i: int, column: str) -> Html:
    j = list(found.table.columns).index(column)
    content = [cell(column, found.table.iat[i, j])]
    error = found.table["bias_error"].iloc[i] if column == "bias_meter" else np.nan
    content += [tag("small", f"± {cell('bias_error', error)}")] if np.isfinite(error) else []
    return tag("td", *content, class_="off") if found.is_off[i, j] else tag("td", *content)


def draws_section(idata: "xr.DataTree", continuous: list[str], summary: Any) -> Section | None:
    """Density, trace and ranks of the coordinates with the largest r_hat or the fewest effective draws."""
    arrays = [np.asarray(idata["posterior"][name].values) for name in continuous]
    columns = [array.reshape(*array.shape[:2], -1) for array in arrays if array.size]
    if not columns:
        return None
    draws = np.concatenate(columns, axis=-1)
    together = folded(summary)
    hidden = {i for numbers in together.values() for i in numbers}
    single = [i for i in range(draws.shape[-1]) if i not in hidden]  # in the order of the table
    if not single:
        return None
    draws, rows = draws[..., single], summary.iloc[single]
    kept = badness(rows)[:MOST_COORDINATES]
    num_chains = draws.shape[0]
    chips = [tag("span", tag("i", "●", style=f"color:{colour(c)}"), f"chain {c}") for c in range(num_chains)]
    pieces: list[Html] = [tag("div", *chips[:MOST_CHAINS], class_="key")]
    for i in sorted(kept) if len(rows) <= MOST_COORDINATES else kept:
        pieces.append(_coordinate(draws[..., i], str(rows.index[i]), rows.iloc[i]))
    words = (
        "Ranks: how often the draws of a chain have a rank among all draws, as a multiple of what is expected. Where "
        "chains agree the steps stay near 1; independent draws would be in the band 19 times in 20."
    )
    pieces.append(note(words))
    if draws.shape[-1] > len(kept):
        left = f"{draws.shape[-1] - len(kept):,} of {draws.shape[-1]:,} coordinates are left out"
        pieces.append(note(f"{left}; shown are those with the largest r_hat or the fewest effective draws."))
    if together:
        pieces.append(note(f"Deterministics with many elements are not drawn: {', '.join(together)}."))
    if num_chains > MOST_CHAINS:
        pieces.append(note(f"Drawn are the first {MOST_CHAINS} of {num_chains} chains."))
    return Section("Draws", join(pieces))


def _coordinate(draws: np.ndarray, name: str, row: Any) -> Html:
    ess = number(np.round(row["ess_bulk"]))
    numbers = f"r_hat {number(row['r_hat'], 'r_hat')} · {ess} effective draws"
    caption = tag("figcaption", tag("b", name), tag("span", numbers))
    lost = int((~np.isfinite(draws)).sum())
    remark = [note(f"{lost:,} draws that are not finite are left out of the density.")] if lost else []
    plots = (density_plot(draws, name), trace_plot(draws, name), rank_plot(draws, name))
    return tag("figure", caption, tag("div", *plots, class_="trio"), *remark)


def with_replicates(idata: "xr.DataTree", program: Program) -> "xr.DataTree":
    """The run with some data replicated from the posterior, unless it has them or the model has no laws."""
    if "posterior_predictive" in idata.children or program.predictor is None or not program.observed:
        return idata
    observed = idata["observed_data"].data_vars if "observed_data" in idata.children else ()
    if set(observed) != set(program.observed):
        return idata
    try:
        return predict(program, idata, draws=-(-REPLICATES // idata["posterior"].sizes["chain"]))
    except SumoutError:  # what cannot be predicted is no reason to do without the page
        return idata


def predictive_section(idata: "xr.DataTree") -> Section | None:
    """Replicated data over the observed ones, where there are any."""
    groups = idata.children
    if "posterior_predictive" not in groups or "observed_data" not in groups:
        return None
    observed = idata["observed_data"].to_dataset()
    replicated = idata["posterior_predictive"].to_dataset()
    names = [str(name) for name in replicated.data_vars if name in observed and observed[name].dtype.kind in "biuf"]
    if not names:
        return None
    pieces = [note("Thick: the observed data. Thin: data replicated from draws of the posterior.")]
    for name in names[:MOST_CHECKS]:
        some = pick_replicates(np.asarray(replicated[name].values))
        drawn = predictive_plot(some, np.asarray(observed[name].values).ravel(), name)
        pieces.append(tag("figure", tag("figcaption", tag("b", name)), tag("div", drawn, class_="wide scroll")))
    if len(names) > MOST_CHECKS:
        pieces.append(note(f"Not drawn: {', '.join(names[MOST_CHECKS:])}."))
    return Section("Predictive check", join(pieces))
