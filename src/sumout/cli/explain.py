"""`sumout explain`: what would be done with a model, and why."""

import argparse

from sumout.cli.options import MODEL_HELP, MODELS, add_data, add_plan, as_dict, worked_example

EXAMPLE = worked_example(
    "sumout explain model.py:mixture --data data.csv",
    """\
    It prints which variables there are, how the discrete ones depend on each
    other (here: 5 sites on their own), what will be done with each and why (here: z
    is summed out), what that costs, and the kernel. Nothing is drawn.""",
)


def add(subparsers: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "explain",
        help="say what would be done with a model, and why",
        description="Say in plain words what would be done with the discrete variables of a model.",
        epilog=f"{MODELS}\n\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_data(parser)
    add_plan(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Build the program and print its explanation."""
    from sumout.cli.model_files import program_from
    from sumout.reports.explain import explain

    with program_from(options) as program:
        print(explain(program, plan=as_dict(options.plan, "--plan"), kernel=options.kernel))
    return 0
