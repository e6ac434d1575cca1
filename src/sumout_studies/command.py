"""`sumout studies`: the paper's evaluation, repeated, with the exact posterior beside it."""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sumout.cli.options import whole
from sumout.errors import OptionError

if TYPE_CHECKING:  # takes half a second to import
    from sumout_studies.tables import Table

MODELS = ("survey", "gmm", "hmm")
SCHEMES = ("sghmc-1", "sghmc-10", "mh-hmc", "hmc", "split", "ghmc", "sum", "nuts")
MORE = """\
MODEL:   survey  60 answers, each behind a coin
         gmm     100 points of two normals
         hmm     16 observations of a chain with three states
SCHEME:  sghmc-1, sghmc-10, mh-hmc, hmc    those of the paper
         split, ghmc, sum, nuts            those of sumout

Example: only the Markov model, two schemes, into a folder of its own
  sumout studies --model hmm --scheme hmc --scheme nuts --out hmm
It prints the paper's Tables 1 to 3 with its numbers beside what was measured
here, how far each scheme is from the exact posterior, and which of the paper's
claims hold. hmm/studies.html is a page to look at, hmm/studies.json holds all
numbers."""


def add(subparsers: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "studies",
        help="repeat the case studies of the paper behind sumout",
        description="Repeat the evaluation of Tolpin, Zhou and Yang (2020) on sumout.",
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="two short runs of each scheme, a few minutes (default)")
    size.add_argument("--full", action="store_true", help="ten runs of 10,000 draws, as in the paper; half an hour")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this model; may be repeated")
    parser.add_argument("--scheme", action="append", choices=SCHEMES, help="only this scheme; may be repeated")
    parser.add_argument("--stan", action="store_true", help="also run the programs in Stan; needs sumout[bench]")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="where to write (out)")
    parser.add_argument("--seed", type=whole(0, 2**32 - 1), default=0, metavar="N", help="same seed, same draws (0)")
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, print, write."""
    from sumout.reports.svg import check_matplotlib
    from sumout.run.bars import bar
    from sumout_studies.agreement import agreement_table, agreement_to_json, check_stan, run_stan
    from sumout_studies.evaluate import FULL, QUICK, Evaluator
    from sumout_studies.models import STUDIES
    from sumout_studies.page import build_page
    from sumout_studies.tables import accuracy_table, claims_table, paper_tables, standing_table, to_json

    check_matplotlib()
    if options.stan:
        check_stan()
    if options.out.exists() and not options.out.is_dir():
        raise OptionError(f"--out {options.out} is a file; name a folder to write to.")
    options.out.mkdir(parents=True, exist_ok=True)
    models = [name for name in MODELS if name in (options.model or MODELS)]
    schemes = [name for name in SCHEMES if name in (options.scheme or SCHEMES)]
    # All of Stan's work first: it forks, and JAX must not have started its threads by then.
    moments = {}
    for name in models if options.stan else ():
        if not options.quiet:
            print(f"Stan: {name} (compiled first, about a minute)", file=sys.stderr, flush=True)
        moments[name] = run_stan(STUDIES[name])
    agreement = moments or None
    evaluator = Evaluator(models, schemes, FULL if options.full else QUICK, options.seed)
    done = 0
    with bar(False if options.quiet else None) as drawn:
        drawn.phase("compiling the first scheme")

        def report(what: str) -> None:
            nonlocal done
            done += 1
            drawn.show("studies", done, evaluator.num_pieces, what)

        evaluation = evaluator.run(report)
    tables = [*paper_tables(evaluation), accuracy_table(evaluation)]
    tables += [table for table in (claims_table(evaluation), standing_table(evaluation)) if table is not None]
    if agreement is not None:
        tables.append(agreement_table(evaluation, agreement))
    page, numbers = options.out / "studies.html", options.out / "studies.json"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    load = round(os.getloadavg()[1], 1) if hasattr(os, "getloadavg") else None
    found = {"date": time.strftime("%Y-%m-%d"), "machine": machine, "load": load, **to_json(evaluation)}
    if agreement is not None:
        found["agreement_with_stan"] = agreement_to_json(evaluation, agreement)
    numbers.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page.write_text(build_page(evaluation, agreement), encoding="utf-8")
    if not options.quiet:
        _print(tables)
        print(f"Page: {page}\nNumbers: {numbers}")
    return 0


def _print(tables: "list[Table]") -> None:
    from rich.console import Console
    from rich.table import Table as Drawn

    console = Console()
    for table in tables:
        drawn = Drawn(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
        for number, name in enumerate(table.header):
            drawn.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
        for row in table.rows:
            drawn.add_row(*(_lines(cell) for cell in row))
        console.print(drawn)


def _lines(cell: Any) -> Any:
    from rich.text import Text

    text = Text(cell.here, style="bold red" if cell.is_off else "")
    for words, name in ((cell.printed, "paper"), (cell.rebuilt, "rebuilt")):
        if words:
            text.append(f"\n{name} {words}", style="dim not bold")
    return text
