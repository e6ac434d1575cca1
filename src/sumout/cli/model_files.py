"""`model.py:name` → Program.

A function of that name may be a NumPyro model or may return a Program. It is called once with the data, under a
handler: a NumPyro statement shows that it is a model, and ends the call before anything is drawn.
"""

import argparse
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from numpyro import handlers
from numpyro.primitives import _PYRO_STACK, Messenger

from sumout.cli.arguments import bind
from sumout.cli.data_files import read_files
from sumout.cli.options import as_dict, split_reference
from sumout.errors import FileError, OptionError
from sumout.model.numpyro import program as numpyro_program
from sumout.model.program import Program

MOST_LINES = 5
OWN = Path(__file__).parents[1]


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


@contextmanager
def named(reference: str) -> Iterator[Any]:
    """The thing itself; as long as it is in use its file's neighbours can be imported."""
    path, name = split_reference(reference)
    if path.suffix != ".py":
        raise OptionError(f"{reference}: expected a Python file and a name in it, as in model.py:mixture.")
    if not path.is_file():
        raise FileError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; it should be a Python file.")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        module = _import(path)
        yield _find(module, path, name)
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _import(path: Path) -> ModuleType:
    """Run the file as an import would, under a name that no other module has."""
    name = f"sumout_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise FileError(f"{path} cannot be imported as a Python module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        lines = "\n".join(user_lines(error, path))
        raise FileError(f"{path} ends the program (sys.exit) when it is imported.\n{lines}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        lines = "\n".join(user_lines(error, path))
        raise FileError(f"{path} cannot be imported.\n{lines}\n{said}") from error
    return module


def _find(module: ModuleType, path: Path, name: str) -> Any:
    if name and name in vars(module):
        thing = vars(module)[name]
        if callable(thing) or isinstance(thing, Program):
            return thing
        raise OptionError(
            f"{path}:{name} is {type(thing).__name__}; it should be a NumPyro model, a Program, or a function that "
            "returns one."
        )
    there = _models(module)
    close = difflib.get_close_matches(name, there, 1)
    words = f"{path} has no '{name}'" if name else f"{path}: name the model as well"
    hint = f"Did you mean {path}:{close[0]}? " if close else ""
    listed = f"There are: {', '.join(there)}." if there else "It has no function of its own."
    raise OptionError(f"{words}. {hint}{listed}")


def _models(module: ModuleType) -> list[str]:
    """Names of what could be meant: functions of the file's own and programs."""
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (isinstance(thing, Program) or (callable(thing) and getattr(thing, "__module__", "") == module.__name__))
    ]


def user_lines(error: BaseException, model: Path) -> list[str]:
    """The lines of the model's file and its neighbours in the traceback, the innermost last."""
    folder = model.resolve().parent
    cause: BaseException | None = error
    while cause is not None:
        found = [
            _line(frame.filename, frame.lineno, frame.line, folder)
            for frame in traceback.extract_tb(cause.__traceback__)
        ]
        if isinstance(cause, SyntaxError) and cause.filename:
            found.append(_line(cause.filename, cause.lineno, cause.text, folder))
        lines = [line for line in found if line is not None]
        if lines:
            return lines[-MOST_LINES:]
        cause = cause.__cause__
    return []


def _line(filename: str, number: int | None, code: str | None, folder: Path) -> str | None:
    """A line of code as shown to its author; None if it is not theirs."""
    path = Path(filename).resolve()
    if filename.startswith("<"):  # of no file
        return None
    if folder not in path.parents or OWN in path.parents or "site-packages" in path.parts:
        return None
    return f"  {path.relative_to(folder)}, line {number}: {(code or '').strip()}"
