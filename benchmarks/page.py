"""What a benchmark leaves behind: `bench.json`, `bench.md`, and tables on the terminal.

The page is made of what stands in `bench.json` and nothing else, so that it can be made again and a test can hold the
one against the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measured import circumstances
from benchmarks.model import find_model
from benchmarks.samplers.names import SAMPLERS
from benchmarks.score import Score
from benchmarks.tables import CAPTION, HEADER, TARGET_HEADER, Line, is_good, markdown, score_row, target_row
from benchmarks.targets import Target

LIBRARIES = "sumout jax numpyro funsor pymc pytensor nutpie pystan".split()

Scores = Mapping[str, Mapping[str, Score]]  # by model and sampler
Targets = Mapping[str, Sequence[Target]]
Kept = dict[str, Any]


def show_model(console: Console, model: str, scores: Mapping[str, Score], targets: Sequence[Target]) -> None:
    """The tables of one model."""
    table = Table(*HEADER, title=find_model(model).title)
    for line in map(Line.of, scores.values()):
        table.add_row(*score_row(line), style="" if is_good(line) else "dim")
    console.print(table)
    asked = Table(*TARGET_HEADER)
    for target in targets:
        asked.add_row(*target_row(target), style="red" if target.is_reached is False else "")
    console.print(asked)


def to_json(scores: Scores, targets: Targets) -> Kept:
    """All numbers."""
    every = [score for found in scores.values() for score in found.values()]
    return {
        **circumstances(),
        "versions": {name: version(name) for name in LIBRARIES},
        "repeats": max((len(score.records) for score in every), default=0),
        "limits": sorted({record.settings["limit"] for score in every for record in score.records}),
        "models": {
            model: {
                "lines": [asdict(Line.of(score)) for score in of_model.values()],
                "targets": [asdict(target) for target in targets[model]],
                "reference": _reference(of_model),
            }
            for model, of_model in scores.items()
        },
    }


def lines_of(kept: Kept, model: str) -> list[Line]:
    """The lines of a model, as they are kept."""
    return [Line(**line) for line in kept["models"][model]["lines"]]


def page(kept: Kept, picture: str | None, more: Sequence[str] = ()) -> str:
    """All tables, the targets first.

    Args:
        kept: what `to_json` made.
        picture: a file to show.
        more: parts that follow the tables.
    """
    targets = {model: [Target(**one) for one in found["targets"]] for model, found in kept["models"].items()}
    every = [target for found in targets.values() for target in found if target.is_reached is not None]
    parts = ["# sumout beside its peers", _about(kept), CAPTION]
    if picture:
        parts.append(f"![Effective draws a second and cold seconds]({picture})")
    parts += ["## Targets", f"{sum(bool(target.is_reached) for target in every)} of {len(every)} are reached."]
    rows = []
    for model, found in targets.items():
        for target in found:
            key, *rest = target_row(target)
            rows.append((f"{find_model(model).title} ({key})", *rest, target.reason))
    parts.append(markdown(("model", *TARGET_HEADER[1:], "reason"), rows))
    for model in kept["models"]:
        parts += [
            f"## {find_model(model).title}",
            markdown(HEADER, [score_row(line) for line in lines_of(kept, model)]),
        ]
    parts += [*more, "## How warm seconds are taken"]
    parts += [f"- {sampler.title}: {sampler.clock}." for sampler in SAMPLERS.values()]
    parts += [f"- Reference of {find_model(name).title}: {one['reference']}." for name, one in kept["models"].items()]
    return "\n\n".join(parts) + "\n"


def _about(kept: Kept) -> str:
    libraries = ", ".join(f"{name} {number}" for name, number in kept["versions"].items())
    within = " to ".join(f"{limit:g}" for limit in dict.fromkeys((kept["limits"][0], kept["limits"][-1])))
    return (
        f"{kept['date']}, {kept['machine']}; {libraries}. Up to {kept['repeats']} run(s) of each sampler, interleaved, "
        f"each within {within} s."
    )


def _reference(scores: Mapping[str, Score]) -> str:
    found = next((score.reference for score in scores.values() if score.reference), None)
    return f"{found.source}; compared with {found.compared}" if found else "none"
