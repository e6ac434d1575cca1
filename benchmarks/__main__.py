"""`python -m benchmarks`: run sumout and its peers on the same models and data, and say who is how fast and right.

Every run is a fresh process; samplers take turns. Each way to run a sampler's chains is tried in the first repeat, then
the better one is kept to; what has no result within the time limit is not tried again. What was found is kept in the
folder, and the same command goes on from there. With --report nothing is run.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.bytecode import write_bytecode
from benchmarks.check import check_model
from benchmarks.model import NAMES
from benchmarks.page import lines_of, page, show_model, to_json
from benchmarks.picture import draw_picture
from benchmarks.references import STORE, load_reference
from benchmarks.runs import DONE, OVER, Bench, Record, read_record
from benchmarks.samplers.names import SAMPLERS
from benchmarks.samplers.sampler import Settings
from benchmarks.score import Score, better
from benchmarks.targets import judge, read_reasons

WIDTH = 170  # of tables that go to a file
QUICK_LIMIT, FULL_LIMIT, FULL_REPEATS = 60.0, 300.0, 3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="MODEL", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--sampler", nargs="+", choices=SAMPLERS, metavar="NAME", help=f"of {', '.join(SAMPLERS)}")
    parser.add_argument("--quick", action="store_true", help="one repeat, one variant, 60 s for each run")
    parser.add_argument("--repeats", type=int, help=f"runs of each; {FULL_REPEATS}, or 1 with --quick")
    parser.add_argument("--limit", type=float, help="seconds for a result; 300, or 60 with --quick")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for what is found")
    parser.add_argument("--report", action="store_true", help="only write the tables again from what was found")
    parser.add_argument("--check", action="store_true", help="only check that all forms have the same density")
    parser.add_argument("--stan", action="store_true", help="with --check: those of Stan, too, a minute for each model")
    return parser.parse_args()


def run_all(bench: Bench, models: list[str], samplers: list[str], repeats: int, quick: bool, console: Console) -> None:
    """All runs, samplers in turns."""
    shown = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*shown, console=console) as progress:
        task = progress.add_task("", total=repeats * len(models) * len(samplers))
        for repeat in range(repeats):
            for model in models:
                for name in samplers:
                    for variant in _variants(bench, model, name, repeat, quick):
                        words = " ".join(filter(None, (model, SAMPLERS[name].title, variant, f"repeat {repeat + 1}")))
                        progress.update(task, description=words)
                        record = bench.run(model, name, variant, repeat)
                        console.print(f"{words}: {_outcome(record)}", highlight=False)
                        if record.status == OVER:
                            break
                    progress.advance(task)


def _variants(bench: Bench, model: str, sampler: str, repeat: int, quick: bool) -> tuple[str, ...]:
    """All in the first repeat, then the better one, if it had a result; in a quick run the first."""
    variants = SAMPLERS[sampler].variants
    if repeat == 0:
        return variants[:1] if quick else variants
    paths = [bench.path(model, sampler, variant, 0) for variant in variants]
    done = [record for path in paths if path.exists() and (record := read_record(path)).status == DONE]
    return (max(done, key=lambda record: record.rate).variant,) if done else ()


def _outcome(record: Record) -> str:
    if record.summary is None or record.cold is None:
        return f"{record.status}, {record.message}"
    warm = "–" if record.warm is None else f"{record.warm:.3g}"
    return f"{record.summary.fewest:,.0f} effective draws, {record.cold:.1f} s cold, {warm} s warm"


def gather(bench: Bench, models: list[str], samplers: list[str]) -> dict[str, dict[str, Score]]:
    """Scores by model and sampler, from all runs that are kept."""
    records = list(bench.records())
    found: dict[str, dict[str, Score]] = {}
    for model in models:
        reference = load_reference(model) if (STORE / f"{model}.json").exists() else None
        for name in samplers:
            scores = []
            for variant in SAMPLERS[name].variants:
                mine = [one for one in records if (one.model, one.sampler, one.variant) == (model, name, variant)]
                if mine:
                    scores.append(Score(model, name, variant, mine, reference))
            if scores:
                found.setdefault(model, {})[name] = better(scores)
    return found


def report(bench: Bench, models: list[str], samplers: list[str], console: Console) -> None:
    """Tables, page, numbers and picture."""
    scores = gather(bench, models, samplers)
    reasons = read_reasons()
    targets = {model: judge(model, found, reasons.get(model, {})) for model, found in scores.items()}
    for model, found in scores.items():
        show_model(console, model, found, targets[model])
    kept = to_json(scores, targets)
    lines = {model: lines_of(kept, model) for model in scores}
    draw_picture([bench.folder / "bench.svg", bench.folder / "bench.png"], lines)
    (bench.folder / "bench.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (bench.folder / "bench.md").write_text(page(kept, "bench.svg"), encoding="utf-8")
    console.print(f"Written: {bench.folder}/bench.md, bench.json, bench.svg, bench.png")


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no run is left behind
    models, samplers = options.only or NAMES, options.sampler or list(SAMPLERS)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if options.check:
        wrong = [name for name in models if not check_model(name, console, options.stan)]
        sys.exit(f"The forms of {wrong} differ." if wrong else 0)
    limit = options.limit or (QUICK_LIMIT if options.quick else FULL_LIMIT)
    bench = Bench(options.out, Settings(), limit)
    if not options.report:
        write_bytecode()
        repeats = options.repeats or (1 if options.quick else FULL_REPEATS)
        run_all(bench, models, samplers, repeats, options.quick, console)
    report(bench, models, samplers, console)


if __name__ == "__main__":
    main()
