"""The tables of the evaluation as rows of cells, for the terminal and the page alike, and all numbers as JSON."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sumout_studies.claims import CLAIMS, OURS, Verdict, judge, stand
from sumout_studies.evaluate import Evaluation
from sumout_studies.measure import MOST_MEAN_ERROR, MOST_SD_ERROR, REFERENCE, Deviation, Measurement
from sumout_studies.paper import PRINTED, REBUILT, Printed, Rebuilt

TITLES = {"survey": "Survey", "gmm": "GMM", "hmm": "HMM"}


@dataclass(frozen=True)
class Cell:
    """What was measured here, what the paper prints, what its system rebuilt gives.

    Attributes:
        here: a number, or words.
        printed: what the paper prints.
        rebuilt: what the paper's system gives today.
        is_off: whether it is to be marked.
        is_text: whether it is words.
    """

    here: str
    printed: str = ""
    rebuilt: str = ""
    is_off: bool = False
    is_text: bool = False


@dataclass(frozen=True)
class Table:
    """A table with one row for each study, or for each study and scheme."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def paper_tables(evaluation: Evaluation) -> list[Table]:
    """Tables 1 to 3."""
    spread = "mean ± sd over runs" if evaluation.budget.runs > 1 else "one run"
    return [
        _by_scheme(
            evaluation,
            f"Table 1: effective draws of {REFERENCE:,}",
            lambda one: _spread(one.ess, whole),
            lambda printed: _spread(printed.ess, whole),
            lambda rebuilt: whole(rebuilt.ess),
            f"{spread}; the fewest over parameters of bulk, tail and squares.",
        ),
        _by_scheme(
            evaluation,
            f"Table 2: seconds for {REFERENCE:,} draws",
            lambda one: _spread(one.seconds, short),
            lambda printed: _spread(printed.seconds, short),
            lambda rebuilt: short(rebuilt.seconds),
            f"{spread}; warm-up and compilation are not counted.",
        ),
        _by_scheme(
            evaluation,
            "Table 3: effective draws a second",
            lambda one: whole(one.rate),
            lambda printed: "" if printed.rate is None else whole(printed.rate),
            lambda rebuilt: whole(rebuilt.ess / rebuilt.seconds),
            "Table 1 over Table 2. Marked: draws of a distribution that is not the posterior, see below.",
        ),
    ]


def accuracy_table(evaluation: Evaluation) -> Table:
    """What the paper does not show."""
    header = (
        "", "worst error of a mean, sds", "worst sd / exact sd", "bias meter", "bias within bounds",
        "effective draws a second, unbiased only",
    )  # fmt: skip
    rows = []
    for study in evaluation.studies:
        for name, one in evaluation.of(study).items():
            rebuilt = REBUILT.get((study.name, name))
            rate = one.unbiased_rate
            rows.append(
                (
                    Cell(f"{TITLES[study.name]}: {one.scheme.title}"),
                    Cell(_deviation(one.mean_error), "", "" if rebuilt is None else f"{rebuilt.mean_error:g}"),
                    Cell(_deviation(one.sd_ratio), "", "" if rebuilt is None else _range(rebuilt.sd_ratio)),
                    Cell(_deviation(one.meter)),
                    Cell("no" if one.is_biased else "yes", is_off=one.is_biased),
                    Cell("0" if rate is None else whole(rate), is_off=rate is None),
                )
            )
    note = (
        "Over all runs together, ± Monte-Carlo error, against the exact posterior. Out of bounds: a mean off by more "
        f"than {MOST_MEAN_ERROR:g} posterior sds, or an sd by more than {MOST_SD_ERROR:.0%}, beyond what Monte-Carlo "
        "error explains. The bias meter needs no exact posterior: it is 1 where the draws are as wide as it."
    )
    return Table("Accuracy", header, tuple(rows), note)


def standing_table(evaluation: Evaluation) -> Table | None:
    """How far our schemes are ahead of the paper's."""
    others = [scheme for scheme in evaluation.schemes if not scheme.is_ours]
    if not others or not any(scheme.is_ours for scheme in evaluation.schemes):
        return None
    rows = []
    for study in evaluation.studies:
        by_scheme = evaluation.of(study)
        for name, standing in stand(by_scheme).items():
            cells = [Cell(f"{TITLES[study.name]}: {by_scheme[name].scheme.title}")]
            for other in others:
                ratio = standing.ahead[other.name]
                words = "biased" if math.isinf(ratio) else f"{ratio:.2g}×"
                cells.append(Cell(words, is_off=ratio <= 1 or standing.is_biased))
            rows.append(tuple(cells))
    note = "Effective draws a second, unbiased only, over those of the paper's schemes. Marked: not ahead."
    return Table("Ours beside the paper's", ("", *(scheme.title for scheme in others)), tuple(rows), note)


def claims_table(evaluation: Evaluation) -> Table | None:
    """The paper's claims, one by one."""
    judged = {study.name: judge(evaluation.of(study)) for study in evaluation.studies}
    if not all(judged.values()):
        return None
    rows = []
    for claim in CLAIMS:
        verdicts = [judged[study.name][claim] for study in evaluation.studies]
        cells = [Cell(_words(one), is_off=not _holds(one), is_text=True) for one in verdicts]
        rows.append((Cell(claim.words), *cells))
    note = (
        "Counted as the paper counts, all draws alike, and counted without bias: draws of a scheme whose bias is out "
        "of bounds count for nothing. Marked: does not hold in one way or the other."
    )
    return Table("The paper's claims", ("", *(TITLES[name] for name in judged)), tuple(rows), note)


def _holds(verdict: Verdict) -> bool:
    return verdict.holds and verdict.holds_without_bias is not False


def _words(verdict: Verdict) -> str:
    holds = "holds" if verdict.holds else "does not hold"
    without = verdict.holds_without_bias
    if without is not None and without != verdict.holds:
        holds += ", but not without bias" if verdict.holds else ", but does without bias"
    return f"{holds}: {verdict.found}"


def _by_scheme(
    evaluation: Evaluation,
    title: str,
    here: Callable[[Measurement], str],
    printed: Callable[[Printed], str],
    rebuilt: Callable[[Rebuilt], str],
    note: str,
) -> Table:
    rows = []
    for study in evaluation.studies:
        cells = [Cell(TITLES[study.name])]
        for name, one in evaluation.of(study).items():
            key = (study.name, name)
            of_paper = printed(PRINTED[key]) if key in PRINTED else ""
            of_rebuilt = rebuilt(REBUILT[key]) if key in REBUILT else ""
            cells.append(Cell(here(one), of_paper, of_rebuilt, one.is_biased and title.startswith("Table 3")))
        rows.append(tuple(cells))
    return Table(title, ("", *(scheme.title for scheme in evaluation.schemes)), tuple(rows), note)


def whole(value: float) -> str:
    """A count: three digits, thousands separated."""
    if not math.isfinite(value):
        return "–"
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, min(digits, 0)):,.0f}"


def short(value: float) -> str:
    """Seconds: two digits."""
    return f"{value:.2g}" if value < 100 else whole(value)


def _spread(pair: tuple[float, float], show: Callable[[float], str]) -> str:
    return show(pair[0]) if math.isnan(pair[1]) else f"{show(pair[0])} ± {show(pair[1])}"


def _range(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.2f}" if pair[0] == pair[1] else f"{pair[0]:.2f}–{pair[1]:.2f}"


def _deviation(one: Deviation) -> str:
    return f"{one.value:.3f} ± {one.error:.3f}"


def to_json(evaluation: Evaluation) -> dict[str, Any]:
    """All numbers, with names."""
    return {
        "budget": vars(evaluation.budget),
        "step_sizes": evaluation.step_sizes,
        "bulk_ess_of_hmc_by_step_size": evaluation.searched,
        "studies": {study.name: _study_to_json(evaluation, study.name) for study in evaluation.studies},
        "two_normals": {name: made.per_gradient for name, made in evaluation.crossings.items()},
    }


def _study_to_json(evaluation: Evaluation, study: str) -> dict[str, Any]:
    by_scheme = {scheme.name: evaluation.measurements[study, scheme.name] for scheme in evaluation.schemes}
    claims = [{"claim": claim.words, **vars(verdict)} for claim, verdict in judge(by_scheme).items()]
    ahead = {
        name: {other: None if math.isinf(ratio) else ratio for other, ratio in standing.ahead.items()}
        for name, standing in stand(by_scheme).items()
    }
    return {
        "schemes": {name: _measurement_to_json(study, one) for name, one in by_scheme.items()},
        "claims": claims,
        "ahead_of_the_papers": ahead,
    }


def _measurement_to_json(study: str, one: Measurement) -> dict[str, Any]:
    printed, rebuilt = PRINTED.get((study, one.scheme.name)), REBUILT.get((study, one.scheme.name))
    return {
        "title": one.scheme.title,
        "is_ours": one.scheme.name in OURS,
        "ess": [outcome.ess for outcome in one.outcomes],
        "seconds": [outcome.time for outcome in one.outcomes],
        "steps": [outcome.steps for outcome in one.outcomes],
        "ess_per_second": one.rate,
        "unbiased_ess_per_second": one.unbiased_rate,
        "is_biased": one.is_biased,
        "mean_errors": _deviations(one.mean_errors),
        "sd_ratios": _deviations(one.sd_ratios),
        "bias_meter": [one.meter.value, one.meter.error],
        "printed": None if printed is None else vars(printed),
        "rebuilt": None if rebuilt is None else vars(rebuilt),
    }


def _deviations(found: Sequence[Deviation]) -> list[list[float]]:
    return [[one.value, one.error] for one in found]
