"""The tables of the benchmark: rows of words, for the terminal and for the page, from the numbers that are kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.runs import OVER
from benchmarks.samplers.names import SAMPLERS
from benchmarks.score import RIGHT, Score
from benchmarks.targets import Target

HEADER = (
    "sampler", "cold, s", "warm, s", "ESS", "ESS/s warm", "ESS/s cold", "s to 1,000", "R̂", "mean error, sd", "sd ratio",
    "answer",
)  # fmt: skip
TARGET_HEADER = ("", "target", "asked", "found", "beside", "reached")
CAPTION = (
    "4 chains of 1,000 draws after 1,000 of warm-up, each run in a fresh process with empty caches of compiled code. "
    "Cold: from the start of the process to the result in memory; Stan's programs are built once, and the seconds of "
    "that are part of each of its cold starts. Warm: the draws after the warm-up alone, with "
    "compiled code at hand. ESS: the fewest effective draws of bulk, tail and squares over all elements of all "
    "continuous parameters. s to 1,000: cold seconds to 1,000 effective draws, (cold − warm) + 1,000 / (ESS/s warm). "
    "Mean error and sd ratio: the worst against a long exact reference. Wrong: a mean off by more than 0.1 sd or an sd "
    "by more than 5 %, beyond what Monte-Carlo error explains; chains apart: R̂ above 1.1. Neither counts."
)


@dataclass(frozen=True)
class Line:
    """The numbers of a sampler on a model, as they are kept; their meaning is that of `Score`'s properties.

    Attributes:
        said: why there are none.
    """

    sampler: str
    variant: str
    kind: str
    cold: float | None
    warm: float | None
    ess: float | None
    rate: float | None
    cold_rate: float | None
    seconds_to_enough: float | None
    rhat: float | None
    worst_mean_error: float | None
    worst_sd_ratio: float | None
    verdict: str | None
    said: str

    @classmethod
    def of(cls, score: Score) -> "Line":
        """The numbers of a score."""
        over = [record for record in score.records if record.status == OVER]
        said = f"over {over[0].settings['limit']:g} s" if over else score.trouble
        names = [name for name in cls.__dataclass_fields__ if name != "said"]
        return cls(**{name: getattr(score, name) for name in names}, said="" if score.done else said)


def score_row(line: Line) -> tuple[str, ...]:
    """A line of a model's table."""
    sampler = SAMPLERS[line.sampler]
    title = f"{sampler.title} ({line.variant})" if line.variant and not line.said else sampler.title
    if line.kind != sampler.kind:
        title += ", some of z summed out by hand"
    if line.said:
        return (title, *("",) * (len(HEADER) - 2), line.said)
    return (
        title,
        number(line.cold, ".1f"),
        number(line.warm, ".3g"),
        number(line.ess, ",.0f"),
        rate(line.rate),
        rate(line.cold_rate),
        number(line.seconds_to_enough, ",.1f"),
        number(line.rhat, ".3f"),
        number(line.worst_mean_error, ".3f"),
        number(line.worst_sd_ratio, ".3f"),
        line.verdict or "",
    )


def target_row(target: Target) -> tuple[str, ...]:
    """A line of a model's targets."""
    reached = {True: "yes", False: "NO", None: "–"}[target.is_reached]
    return (target.key, target.words, target.needed, number(target.ratio, ".3g"), target.note, reached)


def is_good(line: Line) -> bool:
    """Whether a line needs no mark."""
    return line.verdict == RIGHT


def number(value: float | None, form: str) -> str:
    """A number, or a dash."""
    return "–" if value is None else format(value, form)


def rate(value: float | None) -> str:
    """A rate with three digits or more."""
    return number(value, ",.0f" if value is not None and value >= 100 else ".3g")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [header, ["---"] + ["---:"] * (len(header) - 2) + ["---"], *escaped]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
