"""From what was typed to a Program.

A function may be a NumPyro model or may return a Program. It is called once with the data, under a listener: a NumPyro
statement tells that it is a model, and ends the call before anything is drawn.
"""

import argparse
import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numpyro import handlers
from numpyro.primitives import _PYRO_STACK, Messenger

from sumout.cli.arguments import bind
from sumout.cli.data import read_files
from sumout.cli.models import named
from sumout.cli.options import as_dict, split_reference
from sumout.errors import OptionError
from sumout.frontends.numpyro import program as numpyro_program
from sumout.program import Program


@contextmanager
def program_from(options: argparse.Namespace, *, quiet: bool = False) -> Iterator[Program]:
    """The program of `options.model`, with `options.data` and `options.set`."""
    with named(options.model) as thing:
        items, settings = read_files(options.data), as_dict(options.set, "--set")
        if isinstance(thing, Program):
            if items or settings:
                raise OptionError(
                    f"{options.model} is a Program, which has its data already: leave --data and --set out."
                )
            yield thing
            return
        bound = bind(thing, split_reference(options.model)[1], items, settings, quiet=quiet)
        yield _call(thing, bound, options.model)


def _call(function: Any, bound: inspect.BoundArguments, reference: str) -> Program:
    returned = None
    with suppress(_NumPyroStatementError), _Listener() as listener:
        returned = function(*bound.args, **bound.kwargs)
    if listener.has_heard:
        return numpyro_program(function, *bound.args, **bound.kwargs)
    if isinstance(returned, Program):
        return returned
    raise OptionError(
        f"{reference} has no NumPyro statement in it and returns {type(returned).__name__}. It should be a NumPyro "
        "model, or return a Program made by sumout.program or sumout.density."
    )


class _NumPyroStatementError(BaseException):
    """Not an Exception, so that no `except Exception` on the way keeps it."""


class _Listener(Messenger):
    """Ends a call at the first NumPyro statement of its own.

    `sumout.program`, called inside, runs its model under a trace of its own, which is none of our business.
    """

    has_heard = False

    def __enter__(self) -> "_Listener":
        super().__enter__()
        return self

    def process_message(self, msg: Any) -> None:
        del msg
        inside = _PYRO_STACK[_PYRO_STACK.index(self) + 1 :]
        if not any(isinstance(handler, handlers.trace) for handler in inside):
            self.has_heard = True
            raise _NumPyroStatementError
