"""`sumout predict`: data drawn from a run that was written to a file, or from the prior."""

import argparse
from pathlib import Path

from sumout.cli.options import (
    MODEL_HELP,
    MODELS,
    add_data,
    check_output,
    split_reference,
    whole,
    worked_example,
)

EXAMPLE = worked_example(
    """\
sumout run model.py:mixture --data data.csv --out run.nc
sumout predict model.py:mixture run.nc --data data.csv""",
    """\
    It writes run.predicted.nc: the run with a group posterior_predictive, data
    drawn as the model says from every draw of mu and z. With --new new.csv the
    data are for the rows of new.csv, each with a z of its own; without run.nc
    they are drawn from the prior.""",
)


def add(subparsers: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "predict",
        help="draw data from a run, for the same or new rows, or from the prior",
        description="Draw data from the posterior predictive distribution of a run, or from the prior.",
        epilog=f"{MODELS}\n\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "result",
        type=Path,
        nargs="?",
        metavar="RUN",
        help="the file with the draws, such as run.nc, or the folder of --store; left out, draws are from the prior",
    )
    add_data(parser)
    parser.add_argument(
        "--new",
        action="append",
        default=[],
        metavar="FILE",
        help="new data by name, as --data; of what is observed only the length counts",
    )
    parser.add_argument(
        "--redraw",
        action="append",
        metavar="NAME",
        help="a latent to draw anew; may be repeated; by default those that belong to new rows",
    )
    parser.add_argument(
        "--draws", type=whole(1), metavar="N", help="draws of each chain; by default all, from the prior 1000"
    )
    parser.add_argument("--seed", type=whole(0, 2**32 - 1), default=0, metavar="N", help="same seed, same draws (0)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write (netCDF); by default RUN.predicted.nc or NAME.prior.nc"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there already")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the result, build the program, predict, write."""
    model, name = split_reference(options.model)
    prior = Path(f"{name or model.stem}.prior.nc")
    out = options.out or (prior if options.result is None else options.result.with_suffix(".predicted.nc"))
    given = [] if options.result is None else [options.result]
    check_output(out, force=options.force, inputs=[model, *options.data, *options.new, *given])

    from sumout.cli.data_files import read_files
    from sumout.cli.model_files import program_from
    from sumout.results.predict import predict
    from sumout.store.load import load
    from sumout.store.netcdf import save_result

    result = None if options.result is None else load(options.result)
    new = {key: item.read() for key, item in read_files(options.new).items()} if options.new else None
    with program_from(options) as program:
        made = predict(program, result, data=new, redraw=options.redraw, draws=options.draws, seed=options.seed)
    save_result(made, out)
    group = made["prior_predictive" if result is None else "posterior_predictive"]
    for variable, values in group.to_dataset().data_vars.items():
        print(f"{variable}: {' × '.join(f'{size} {dim}' for dim, size in values.sizes.items())}")
    print(f"Predicted: {out}")
    return 0
