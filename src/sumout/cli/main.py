"""The parser, put together from the commands, and the way out: every failure ends in words and an exit code."""

import argparse
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from threading import current_thread, main_thread
from typing import Any

import sumout
from sumout.cli import explain, predict, report, run
from sumout.cli.model_files import user_lines
from sumout.cli.options import split_reference
from sumout.cli.processes import end_alone
from sumout.errors import FileError, OptionError, SumoutError
from sumout.threads import note_interrupt

COMMANDS = (run, explain, report, predict)
OTHERS = "sumout.commands"  # group of entry points: commands of packages that build on sumout
ABOUT = """\
Draw from the posterior of models with discrete variables. A model is a function
in a Python file of yours, with its discrete variables left in.

  sumout explain model.py:mixture --data data.csv
      says what would be done, and why
  sumout run model.py:mixture --data data.csv --out run.nc
      draws, writes the draws to run.nc and prints a summary
  sumout report run.nc
      makes a page of that run, run.html
  sumout predict model.py:mixture run.nc --data data.csv
      draws data from that run, for the same or new rows: run.predicted.nc
  sumout studies
      repeats the case studies of the paper behind sumout
"""
MORE = """\
sumout COMMAND --help shows what a command takes, with an example to copy.
Exit codes: 0 done, 1 the model or the run failed, 2 what was asked for is not
there or makes no sense, 130 interrupted.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser with all its commands."""
    parser = argparse.ArgumentParser(
        "sumout", description=ABOUT, epilog=MORE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(run=None)
    parser.add_argument("--version", action="version", version=f"sumout {sumout.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (*COMMANDS, *(entry.load() for entry in entry_points(group=OTHERS))):
        command.add(subparsers)
    for of_command in subparsers.choices.values():
        of_command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: what was typed after `sumout`; None takes it from the command line.

    Returns:
        The exit code.
    """
    parser = build_parser()
    try:
        options = parser.parse_args(argv)
        options.argv = sys.argv[1:] if argv is None else list(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    if options.run is None:
        parser.print_help()
        return 0
    try:
        with warnings.catch_warnings(), _ended_by_sigterm():
            warnings.showwarning = _show_warning
            code = options.run(options)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt as error:
        note_interrupt()
        print(f"sumout: {str(error) or 'interrupted.'}", file=sys.stderr)
        return end_alone(options, 130)
    except BrokenPipeError:  # whoever was reading has stopped, as in `sumout explain … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        print(f"sumout: {_words(error, getattr(options, 'model', None))}", file=sys.stderr)
        return end_alone(options, 2 if isinstance(error, OptionError | FileError) else 1)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM as Ctrl-C, so that what a command has begun, processes of its own among it, is ended with it."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _words(error: Exception, model: str | None) -> str:
    """What went wrong, with the lines of the user's code that led there."""
    lines: list[str] = []
    if model is not None and not isinstance(error, FileError):  # which names its lines itself
        lines = user_lines(error, split_reference(model)[0])
    if isinstance(error, SumoutError):
        return "\n".join([str(error), *lines])
    said = f"{type(error).__name__}: {error}"
    if lines:
        return "\n".join(["the model stopped with an error.", *lines, said])
    if isinstance(error, OSError):
        return said
    return f"{said}\nThis should not happen: please report it, with what --debug shows."


def _show_warning(message: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    print(f"Warning: {message}", file=sys.stderr)
