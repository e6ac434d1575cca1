"""The evaluation on one page of HTML."""

from collections.abc import Iterator

from sumout.kernels.registry import find_kernel
from sumout.plan.plan import plan_for
from sumout.reports.explain import describe
from sumout.reports.graph_drawing import network
from sumout.reports.html import Html, Section, assemble, facts, join, note, tag
from sumout.reports.html import table as html_table
from sumout.reports.svg import house_style, to_svg
from sumout_studies import two_normals
from sumout_studies.agreement import Agreement, agreement_table
from sumout_studies.claims import stand
from sumout_studies.evaluate import Evaluation
from sumout_studies.figures import densities, key, rates, searches, traces
from sumout_studies.measure import CHAINS, MOST_MEAN_ERROR, MOST_SD_ERROR, REFERENCE
from sumout_studies.models import Study
from sumout_studies.paper import LISTINGS, REBUILT_TUNED
from sumout_studies.tables import TITLES, Cell, Table, accuracy_table, claims_table, paper_tables, standing_table

ABOUT = {
    "survey": "60 employees toss a coin each. On heads they answer honestly whether they are satisfied, on tails they "
    "toss again and say what falls. What share θ is satisfied? z: the 60 coins.",
    "gmm": "100 points from two normals of equal weight; means and spreads are wanted. z: which normal each point is "
    "from. Labels mean nothing; draws are put in order, the lower mean first.",
    "hmm": "16 noisy observations of a chain with three states; the transition matrix is wanted, by its logits. z: "
    "the 16 states.",
}
BOUNDS = f"means within {MOST_MEAN_ERROR:g} sd and its sds within {MOST_SD_ERROR:.0%} of the exact ones, but for chance"


def build_page(evaluation: Evaluation, agreement: Agreement | None) -> str:
    """The whole page."""
    with house_style():
        sections = [*_sections(evaluation, agreement)]
    title = "Stochastically differentiable programs: three case studies"
    return assemble("the evaluation of Tolpin, Zhou and Yang (2020), repeated", title, _lead(evaluation), sections)


def _sections(evaluation: Evaluation, agreement: Agreement | None) -> Iterator[Section]:
    yield Section("Tables", join([_legend(), *(_table(one) for one in paper_tables(evaluation))]))
    yield Section("Accuracy", _table(accuracy_table(evaluation), titled=False))
    claims, standing = claims_table(evaluation), standing_table(evaluation)
    if claims is not None:
        yield Section("Claims", _table(claims, titled=False))
    if standing is not None:
        yield Section("Ours beside the paper's", _table(standing, titled=False))
    for study in evaluation.studies:
        yield Section(TITLES[study.name], _study(evaluation, study))
    if evaluation.crossings:
        yield Section("Two normals", _two_normals(evaluation))
    if agreement is not None:
        yield Section("Agreement with Stan", _table(agreement_table(evaluation, agreement), titled=False))
    yield Section("How it was done", _methods(evaluation))


def _lead(evaluation: Evaluation) -> Html:
    budget = evaluation.budget
    words = tag(
        "p",
        "Programs with discrete variables z left in, sampled by the four schemes of the paper and by four of ours: "
        "how many effective draws in how much time, and, what the paper leaves out, how far from the exact posterior.",
    )
    pairs = [
        ("runs of each scheme", str(budget.runs)),
        ("draws of a run", f"{CHAINS} chains × {budget.draws:,}"),
        ("warm-up draws", f"{budget.tune:,}"),
        *((f"step size, {TITLES[name]}", f"{size:g}") for name, size in evaluation.step_sizes.items()),
    ]
    return join([words, _verdict(evaluation), facts(pairs)])


def _verdict(evaluation: Evaluation) -> Html:
    """In a box: are ours within bounds and ahead?"""
    biased, behind = [], []
    for study in evaluation.studies:
        by_scheme = evaluation.of(study)
        for name, standing in stand(by_scheme).items():
            title = f"{by_scheme[name].scheme.title} on {TITLES[study.name]}"
            if standing.is_biased:
                biased.append(title)
            elif not standing.is_first:
                behind.append(title)
    if not biased and not behind:
        words = f"Each of our schemes has its {BOUNDS}, and is ahead of all of the paper's on every model."
        return tag("div", words, class_="fine")
    items = []
    if biased:
        items.append(tag("li", f"Bias out of bounds: {'; '.join(biased)}."))
    else:
        items.append(tag("li", f"Each of our schemes has its {BOUNDS}."))
    if behind:
        items.append(tag("li", f"Not ahead of all of the paper's schemes: {'; '.join(behind)}."))
    return tag("div", tag("strong", "In short"), tag("ul", *items), class_="alarm")


def _legend() -> Html:
    return note(
        "In each cell: measured here; below it the paper's printed number; below that the paper's own system, rebuilt "
        "and run on the same data (infergo 1.2.4, one chain, one core)."
    )


def _table(table: Table, *, titled: bool = True) -> Html:
    rows = [[tag("th", row[0].here, scope="row", title=row[0].here), *map(_cell, row[1:])] for row in table.rows]
    heading = [tag("h3", table.title)] if titled else []
    return join([*heading, html_table(table.header, rows), note(table.note)])


def _cell(cell: Cell) -> Html:
    below = [tag("small", words) for words in (cell.printed, cell.rebuilt) if words]
    classes = [name for name, holds in (("off", cell.is_off), ("words", cell.is_text)) if holds]
    label = {"class_": " ".join(classes)} if classes else {}
    return tag("td", cell.here, *below, **label)


def _study(evaluation: Evaluation, study: Study) -> Html:
    measurements = evaluation.of(study)
    program = evaluation.programs[study.name]
    plan = plan_for(program)
    return join(
        [
            tag("p", ABOUT[study.name]),
            tag("h3", "Effective draws a second"),
            rates(measurements),
            tag("h3", "Posterior densities"),
            key(measurements),
            densities(measurements),
            tag("h3", "Traces"),
            note("The first draws of one chain, of the parameter on which the scheme does worst. Band: mean ± 2 sd."),
            traces(measurements),
            tag("h3", "Program and plan"),
            tag("pre", describe(plan, repr(find_kernel(None, plan)))),
            network(plan.structure),
        ]
    )


def _two_normals(evaluation: Evaluation) -> Html:
    words = (
        "The paper's Figure 2: z says which of two normals x is from. With z held through a trajectory, x stays on "
        "one side for long; with a fresh z for every gradient it follows the density with z summed out, and crosses."
    )
    figure = to_svg(two_normals.draw(evaluation.crossings), "Paths of the schemes on two normals")
    return join([tag("p", words), tag("div", figure, class_="wide scroll")])


def _methods(evaluation: Evaluation) -> Html:
    schemes = [
        tag("li", tag("b", scheme.title), f": {scheme.words}" + ("" if scheme.is_ours else " (paper)"))
        for scheme in evaluation.schemes
    ]
    tuned = "; ".join(
        f"{TITLES[name]}: {one.ess:,.0f} effective draws, worst mean error {one.mean_error:g} sds, sd ratio "
        f"{one.sd_ratio[0]:.2f}–{one.sd_ratio[1]:.2f}"
        for name, one in REBUILT_TUNED.items()
    )
    pieces = [
        tag("h3", "Schemes"),
        tag("ul", *schemes),
        tag(
            "p",
            f"A run is {CHAINS} chains, vectorised, {evaluation.budget.draws:,} draws each after warm-up; numbers are "
            f"quoted for {REFERENCE:,} draws. Timed are the draws alone. The paper's schemes have 10 gradients "
            "between draws, no scales, and one step size for each model: the one with the largest bulk ESS of HMC on "
            "the marginal. Runs of all schemes take turns, so that a slow minute of the machine falls on all.",
        ),
    ]
    if evaluation.searched:
        pieces += [tag("h3", "Bulk ESS of HMC on the marginal by step size"), searches(evaluation.searched, TITLES)]
    pieces += [
        note(
            "The paper's own system with friction and noise of sgHMC, one sample, tuned by hand knowing the exact "
            f"posterior: {tuned}."
        ),
        tag("h3", "Where the paper's listings were not taken as they stand"),
        tag("ul", *(tag("li", words) for words in LISTINGS)),
    ]
    return join(pieces)
