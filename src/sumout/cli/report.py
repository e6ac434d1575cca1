"""`sumout report`: a page about a run that was written to a file."""

import argparse
from pathlib import Path

from sumout.cli.options import MODELS, add_data, split_reference, worked_example
from sumout.errors import FileError, OptionError

EXAMPLE = worked_example(
    """\
sumout run model.py:mixture --data data.csv --out run.nc
sumout report run.nc --model model.py:mixture --data data.csv""",
    """\
    It writes run.html, one page that needs nothing beside itself: warnings, the
    plan and a picture of the structure, the summary, plots of the draws, and
    the exact probability of every value of z. `sumout report run.nc` alone
    leaves out plan and structure, and shows how often each value was drawn.""",
)


def add(subparsers: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "report",
        help="make a page about a run",
        description="Make one page of HTML about a run that `sumout run` wrote. Needs sumout[plots].",
        epilog=f"{MODELS}\n\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "result", type=Path, metavar="RUN", help="the file with the draws, such as run.nc, or the folder of --store"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page; by default beside RUN, ending in .html")
    parser.add_argument("--force", action="store_true", help="replace a page that is there already")
    parser.add_argument(
        "--model", metavar="MODEL", help="the model that was run, for plan, structure and exact marginals"
    )
    add_data(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the result, build the program if there is one, write the page."""
    from sumout.cli.options import check_output

    if options.model is None and (options.data or options.set):
        raise OptionError("--data and --set belong to a model; name it with --model model.py:name.")
    if not options.result.exists():
        raise FileError(f"{options.result} is not there; expected what `sumout run` wrote, such as run.nc.")
    out = options.out or options.result.with_suffix(".html")
    model = [] if options.model is None else [split_reference(options.model)[0]]
    check_output(out, force=options.force, inputs=[options.result, *model, *options.data])

    from sumout.reports.report import report
    from sumout.store.load import load

    result = load(options.result)
    if options.model is None:
        report(result, out)
    else:
        from sumout.cli.model_files import program_from

        with program_from(options) as program:
            report(result, out, program)
    print(f"Page: {out}")
    return 0
