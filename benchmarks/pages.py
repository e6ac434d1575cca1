"""The numbers of the docs, made of `docs/measured/`: `python -m benchmarks.pages [--take [FOLDER]]`.

A page has places for tables, `<!-- made: NAME -->` to `<!-- end -->`; what stands between is made here and nothing else
is touched. `docs/bench.md` is made as a whole. With --take what was measured last is shown from now on: the JSON files
of the folder that have a namesake in `docs/measured/`, and `studies.json` beside it. A test holds pages and JSON
together.
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measured import KEPT, LAST, ROOT, read_kept
from benchmarks.model import find_model
from benchmarks.page import Kept, lines_of, page
from benchmarks.picture import best_line
from benchmarks.samplers.names import BY_HAND, LEFT_IN, OURS, SAMPLERS
from benchmarks.tables import Line, markdown, number
from sumout_studies.tables import short, whole

DOCS = ROOT / "docs"
OF_JAGS = """## Beside JAGS

JAGS draws z by Gibbs steps in C++ and compiles nothing, so that it starts at once, where sumout imports, traces and
compiles; once it draws, sumout leads. It takes all ten models: each is in `benchmarks/bugs_programs/`, the coupling of
the picture as coins that are known to have come up. Here are the five small ones, samplers in turns, each run once
(`python -m benchmarks --sampler sumout gibbs jags`); the large ones were not measured."""
PLACE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
STUDIES = {"survey": "Survey", "gmm": "GMM", "hmm": "HMM"}
QUIET = 2.0  # the load of a run on two cores of its own


def about(kept: Kept) -> str:
    """When and where it was measured."""
    load = kept.get("load")
    busy = f", beside other work (load {load:g}): only ratios count" if load is not None and load > QUIET else ""
    return f"Measured {kept['date']} on {kept['machine']}{busy}."


def peers() -> str:
    """sumout and the best of its peers, by effective draws a second."""
    kept = read_kept("bench")
    rows = []
    for model in kept["models"]:
        best = {kind: best_line(kind, lines_of(kept, model), "rate") for kind in (OURS, LEFT_IN, BY_HAND)}
        ours = best.pop(OURS)
        rows.append((find_model(model).title, whole_or_dash(ours), *map(with_name, best.values())))
    header = ("effective draws a second, warm", "sumout", "best peer, z left in", "best peer, z summed out")
    return f"{about(kept)}\n\n{aligned(header, rows)}\n\n{cold(kept)}"


def whole_or_dash(line: Line | None) -> str:
    """A rate with three digits."""
    return "–" if line is None or line.rate is None else whole(line.rate)


def with_name(line: Line | None) -> str:
    """A rate, and whose it is."""
    return "–" if line is None else f"{whole_or_dash(line)} ({SAMPLERS[line.sampler].title.removesuffix(', by hand')})"


def cold(kept: Kept) -> str:
    """Seconds until there are enough draws."""
    rows = []
    for model in kept["models"]:
        lines = lines_of(kept, model)
        ours = best_line(OURS, lines, "seconds_to_enough")
        others = [best_line(kind, lines, "seconds_to_enough") for kind in (LEFT_IN, BY_HAND)]
        known = [line for line in others if line and line.seconds_to_enough is not None]
        fastest = min(known, key=lambda line: line.seconds_to_enough or 0.0, default=None)
        rows.append((find_model(model).title, *(seconds_and_name(line) for line in (ours, fastest))))
    return aligned(("seconds from the start of the process to 1,000 effective draws", "sumout", "fastest peer"), rows)


def seconds_and_name(line: Line | None) -> str:
    """Seconds to enough draws, and whose."""
    if line is None or line.seconds_to_enough is None:
        return "–"
    name = "" if line.sampler == "sumout" else f" ({SAMPLERS[line.sampler].title})"
    return f"{short(line.seconds_to_enough)}{name}"


def jags() -> str:
    """JAGS beside sumout in a run of its own: ratios."""
    kept = read_kept("bench_jags")
    rows = []
    for model in kept["models"]:
        lines = {line.sampler: line for line in lines_of(kept, model)}
        ours = lines["sumout"]
        for name, line in lines.items():
            if name != "sumout":
                found = (times(ours.rate, line.rate), times(line.seconds_to_enough, ours.seconds_to_enough))
                exact = (number(line.rhat, ".3f"), number(line.worst_mean_error, ".3f"))
                rows.append((find_model(model).title, SAMPLERS[name].title, *found, *exact, line.verdict or line.said))
    header = (
        "model", "peer, z left in", "sumout's ESS/s warm over the peer's", "the peer's s to 1,000 over sumout's",
        "the peer's R̂", "its mean error, sd", "answer",
    )  # fmt: skip
    return f"{about(kept)}\n\n{markdown(header, rows)}"


def times(one: float | None, other: float | None) -> str:
    """A ratio with two digits."""
    return "–" if not one or not other else f"{one / other:.2g}" if one < 100 * other else whole(one / other)


def marginal() -> str:
    """A gradient with z summed out."""
    kept = read_kept("marginal")
    by_case: dict[tuple[str, int], dict[str, float]] = {}
    for row in kept["rows"]:
        by_case.setdefault((row["model"], row["chains"]), {})[row["form"]] = row["ms"]
    rows = [
        (model, str(chains), form, f"{ms:.3f}", f"{ms / each['by hand']:.2f}", f"{ms / each['enumeration']:.2f}")
        for (model, chains), each in by_case.items()
        for form, ms in each.items()
        if form.startswith("sumout")
    ]
    return f"{about(kept)}\n\n{aligned(('model', 'chains', 'form', 'ms', '/ by hand', '/ enumeration'), rows)}"


def gradients() -> str:
    """The same for many structures."""
    kept = read_kept("gradients")
    rows = []
    for row in kept["rows"]:
        ratio = row["us"] / row["by_hand_us"]
        rows.append((row["structure"].replace("_", " "), f"{row['sites']:,}", f"{row['us']:.1f}", f"{ratio:.2f}"))
    return f"{about(kept)}\n\n{aligned(('structure', 'sites', 'µs', '/ by hand'), rows)}"


def sweep() -> str:
    """A Gibbs sweep."""
    kept = read_kept("gibbs_sweep")
    header = ("sites", "values", "sweep, ms", "table, ms", "table by hand, ms", "sweep / table")
    rows = [
        (f"{row['sites']:,}", str(row["values"]), *(f"{row[key]:.3f}" for key in ("sweep", "table", "table_by_hand")),
         f"{row['ratio']:.2f}")
        for row in kept["rows"]
    ]  # fmt: skip
    return f"{about(kept)}\n\n{aligned(header, rows)}"


def pymc() -> str:
    """PyMC models, z left in."""
    kept = read_kept("pymc_models")
    ours = {row["model"]: row for row in kept["rows"] if row["sampler"] == "sumout"}
    rows = []
    for row in kept["rows"]:
        mine = ours[row["model"]]
        ratios = [mine["ess"] / mine[key] / (row["ess"] / row[key]) for key in ("first", "sampling")]
        if row is not mine:
            rows.append((row["model"].replace("_", " "), row["sampler"], *(times(ratio, 1.0) for ratio in ratios)))
    header = ("model", "peer", "first call: sumout's ESS/s over its", "sampling alone: sumout's ESS/s over its")
    return f"{about(kept)}\n\n{aligned(header, rows)}"


def studies() -> str:
    """The paper's studies: a table for each, with a row for each scheme."""
    kept = read_kept("studies")
    budget = kept["budget"]
    words = f"{about(kept)} {budget['runs']} run(s) of 4 chains of {budget['draws']:,} draws, quoted for 10,000 draws."
    header = ("effective draws", "seconds", "a second", "worst mean error, sd", "sd ratio")
    parts = [words]
    for study, found in kept["studies"].items():
        rows = [(one["title"], *(marked(one, cell) for cell in quantities(one))) for one in found["schemes"].values()]
        parts.append(aligned((STUDIES[study], *header), rows))
    return "\n\n".join(parts)


def quantities(one: dict[str, Any]) -> tuple[str, ...]:
    """Of a scheme: effective draws, seconds, their ratio, and the mean and the sd that are furthest off."""
    error = max(abs(value) for value, _ in one["mean_errors"])
    ratio = max((value for value, _ in one["sd_ratios"]), key=lambda value: abs(value - 1))
    speed = (spread(one["ess"], whole), spread(one["seconds"], short), whole(one["ess_per_second"]))
    return (*speed, f"{error:.2f}", f"{ratio:.2f}")


def claims() -> str:
    """What was found for each of the paper's claims."""
    kept = read_kept("studies")["studies"]
    header = ("the paper's claim", *(STUDIES[study] for study in kept))
    rows = [
        (each[0]["claim"], *(f"{'holds' if one['holds'] else 'does not hold'}: {one['found']}" for one in each))
        for each in zip(*(one["claims"] for one in kept.values()), strict=True)
    ]
    return markdown(header, rows).replace("---:", "---")


def marked(one: dict[str, Any], words: str) -> str:
    """In brackets if the draws are not of the posterior."""
    return f"({words})" if one["is_biased"] else words


def spread(values: list[float], show: Callable[[float], str]) -> str:
    """Mean and sd over runs."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return show(mean)
    sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{show(mean)} ± {show(sd)}"


def aligned(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table whose last column is numbers, too."""
    lines = markdown(header, rows).splitlines()
    lines[1] = f"| {' | '.join(['---'] + ['---:'] * (len(header) - 1))} |"
    return "\n".join(lines)


MADE = {made.__name__: made for made in (peers, marginal, gradients, sweep, pymc, studies, claims)}


def fill(text: str) -> str:
    """The page with its places filled."""
    return PLACE.sub(lambda place: f"{place[1]}\n{MADE[place[2]]()}\n\n{place[3]}", text)


def pages() -> dict[Path, str]:
    """All pages with numbers, as they should read."""
    found = {DOCS / name: fill((DOCS / name).read_text(encoding="utf-8")) for name in ("performance.md", "studies.md")}
    return {**found, DOCS / "bench.md": page(read_kept("bench"), "bench.png", [OF_JAGS, jags()])}


def take(folder: Path) -> None:
    """Show what was measured last from now on."""
    for path in [*folder.glob("*.json"), folder.parent / "studies.json"]:
        if (KEPT / path.name).exists() and path.exists():
            json.loads(path.read_text(encoding="utf-8"))  # whole
            shutil.copy(path, KEPT / path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", nargs="?", type=Path, const=LAST, help="folder of what was measured; out/bench")
    options = parser.parse_args()
    if options.take:
        take(options.take)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
