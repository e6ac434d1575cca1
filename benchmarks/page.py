"""What a benchmark leaves behind: `bench.json`, `bench.md`, and tables on the terminal."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.model import find_model
from benchmarks.samplers.names import SAMPLERS
from benchmarks.score import Score
from benchmarks.tables import CAPTION, HEADER, TARGET_HEADER, is_good, markdown, score_row, target_row
from benchmarks.targets import Target

LIBRARIES = "sumout jax numpyro funsor pymc pytensor nutpie pystan".split()

Scores = Mapping[str, Mapping[str, Score]]  # by model and sampler
Targets = Mapping[str, Sequence[Target]]


def show_model(console: Console, model: str, scores: Mapping[str, Score], targets: Sequence[Target]) -> None:
    """The tables of one model."""
    table = Table(*HEADER, title=find_model(model).title)
    for score in scores.values():
        table.add_row(*score_row(score), style="" if is_good(score) else "dim")
    console.print(table)
    asked = Table(*TARGET_HEADER)
    for target in targets:
        asked.add_row(*target_row(target), style="red" if target.is_reached is False else "")
    console.print(asked)


def write_page(path: Path, scores: Scores, targets: Targets, picture: str | None) -> None:
    """All tables, the targets first."""
    every = [target for found in targets.values() for target in found if target.is_reached is not None]
    parts = ["# sumout beside its peers", _about(scores), CAPTION]
    if picture:
        parts.append(f"![Effective draws a second and cold seconds]({picture})")
    parts.append("## Targets")
    parts.append(f"{sum(bool(target.is_reached) for target in every)} of {len(every)} are reached.")
    rows = []
    for model, found in targets.items():
        for target in found:
            key, *rest = target_row(target)
            rows.append((f"{find_model(model).title} ({key})", *rest, target.reason))
    parts.append(markdown(("model", *TARGET_HEADER[1:], "reason"), rows))
    for model, found in scores.items():
        parts += [f"## {find_model(model).title}", markdown(HEADER, [score_row(score) for score in found.values()])]
    parts.append("## How warm seconds are taken")
    parts += [f"- {sampler.title}: {sampler.clock}." for sampler in SAMPLERS.values()]
    parts += [f"- Reference of {find_model(model).title}: {_reference(found)}." for model, found in scores.items()]
    path.write_text("\n\n".join(parts) + "\n")


def write_json(path: Path, scores: Scores, targets: Targets) -> None:
    """All numbers."""
    names = (
        "cold warm ess rhat rate cold_rate seconds_to_enough worst_mean_error worst_sd_ratio verdict trouble".split()
    )
    found = {
        model: {
            "samplers": {
                name: {
                    "variant": score.variant,
                    "runs": len(score.records),
                    "done": len(score.done),
                    **{name: getattr(score, name) for name in names},
                }
                for name, score in of_model.items()
            },
            "targets": [vars(target) for target in targets[model]],
        }
        for model, of_model in scores.items()
    }
    about = {"machine": _machine(), "versions": {name: version(name) for name in LIBRARIES}}
    path.write_text(json.dumps({**about, "models": found}, indent=2, ensure_ascii=False) + "\n")


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _about(scores: Scores) -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    every = [score for found in scores.values() for score in found.values()]
    repeats = max((len(score.records) for score in every), default=0)
    limits = sorted({record.settings["limit"] for score in every for record in score.records})
    within = " to ".join(f"{limit:g}" for limit in dict.fromkeys((limits[0], limits[-1]))) if limits else "no"
    return f"{_machine()}; {libraries}. Up to {repeats} run(s) of each sampler, interleaved, each within {within} s."


def _reference(scores: Mapping[str, Score]) -> str:
    found = next((score.reference for score in scores.values() if score.reference), None)
    return f"{found.source}; compared with {found.compared}" if found else "none"
