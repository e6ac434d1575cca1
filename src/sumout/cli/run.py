"""`sumout run`: draws, a file with them, a summary, and a page if wanted."""

import argparse
import sys
import warnings
from pathlib import Path

from sumout.cli.options import MODEL_HELP, MODELS, add_data, add_plan, as_dict, split_reference, whole, worked_example
from sumout.cli.processes import add_processes, is_one_of_many, join, mesh_for, start
from sumout.errors import OptionError, UntrustedWarning

EXAMPLE = worked_example(
    "sumout run model.py:mixture --data data.csv --out run.nc --report run.html",
    """\
    It prints the plan in a line (z is summed out), a progress bar, and a table
    of means, spreads and diagnostics of mu and z, with warnings in words where
    the draws should not be trusted. run.nc then holds all draws, for
    `sumout report` or xarray.open_datatree. run.html is a page to look at.""",
)


def add(subparsers: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "run",
        help="draw from the posterior of a model, and summarise",
        description="Draw from the posterior of a model, write the draws and print a summary.",
        epilog=f"{MODELS}\n\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_data(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write the draws (netCDF); by default NAME.nc"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FOLDER",
        help="write draws there as they are made; the same command resumes the run, and replaces what it wrote before",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write a page of HTML; needs sumout[plots]")
    parser.add_argument("--force", action="store_true", help="replace files that are there already")
    parser.add_argument("--draws", type=whole(1), default=1000, metavar="N", help="draws of each chain (1000)")
    parser.add_argument("--tune", type=whole(0), default=1000, metavar="N", help="draws of warm-up before them (1000)")
    parser.add_argument("--chains", type=whole(1), default=4, metavar="N", help="number of chains (4)")
    parser.add_argument("--seed", type=whole(0, 2**32 - 1), default=0, metavar="N", help="same seed, same draws (0)")
    parser.add_argument(
        "--steps", type=whole(1), metavar="N", help="steps between draws; by default as many as mixing needs"
    )
    add_plan(parser)
    add_processes(parser)
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check the outputs, build the program, sample, write, summarise; in several processes if that is asked for."""
    if not is_one_of_many(options):
        return start(options) if options.processes > 1 else run_here(options)
    import jax

    join(options)
    options.quiet |= jax.process_index() > 0
    return run_here(options, is_first=jax.process_index() == 0)


def run_here(options: argparse.Namespace, is_first: bool = True) -> int:
    """The same in this process; only the first of several writes, and speaks."""
    from sumout.cli.options import check_output

    model, name = split_reference(options.model)
    out = options.out or Path(f"{name or model.stem}.nc")
    for path in (out, options.report):
        if path is not None:
            force = options.force or is_of_stored_run(path, options.store)
            check_output(path, force=force, inputs=[model, *options.data])
    if options.report is not None and options.report.resolve() == out.resolve():
        raise OptionError(f"--out and --report are both {out}; they are two files.")

    from sumout.cli.model_files import program_from
    from sumout.cli.show import one_line, show_summary
    from sumout.kernels.registry import find_kernel, suit_kernel
    from sumout.plan.plan import plan_for
    from sumout.reports.report import report
    from sumout.reports.svg import check_matplotlib
    from sumout.run.sample import sample
    from sumout.store.netcdf import save_result

    if options.report is not None:
        check_matplotlib()
    with program_from(options, quiet=options.quiet) as program:
        overrides = as_dict(options.plan, "--plan")
        plan = plan_for(program, suit_kernel(options.kernel, program, overrides))
        kernel = find_kernel(options.kernel, plan)
        if not options.quiet:
            print(one_line(plan, kernel), flush=True)
        warnings.simplefilter("ignore", UntrustedWarning)  # the summary says it, and more
        result = sample(
            program, kernel, draws=options.draws, tune=options.tune, steps=options.steps, chains=options.chains,
            seed=options.seed, plan=overrides, progress=False if options.quiet else None, store=options.store,
            **mesh_for(options),
        )  # fmt: skip
        if not is_first:
            return 0 if result["posterior"].attrs["complete"] else 130
        try:
            save_result(result, out)
        finally:  # if the file cannot be written, at least this is left of the run
            show_summary(result, quiet=options.quiet)
        if options.report is not None:
            report(result, options.report, program)
    if not options.quiet:
        print(f"Draws: {out}" + ("" if options.report is None else f"\nPage: {options.report}"))
    if result["posterior"].attrs["complete"]:
        return 0
    print(f"sumout: stopped after {result['posterior'].sizes['draw']} of {options.draws} draws.", file=sys.stderr)
    return 130


def is_of_stored_run(path: Path, store: Path | None) -> bool:
    """Whether the command that is being resumed has written this file: a result, or a page, of a run that is stored."""
    from sumout.store.format import ABOUT

    if store is None or not (store / ABOUT).is_file() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(4096)
    return b" \xc2\xb7 sumout</title>" in start or (start.startswith(b"\x89HDF\r\n") and _is_result(path))


def _is_result(path: Path) -> bool:
    """Whether an HDF5 file is a result of sumout: another one is not to be replaced unasked."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return "posterior" in file and file["posterior"].attrs.get("inference_library") in ("sumout", b"sumout")
    except OSError:
        return False
