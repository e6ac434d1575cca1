"""`model.py:name` → what has that name in the user's file."""

import difflib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sumout.cli.blame import blame
from sumout.cli.options import split_reference
from sumout.errors import FileError, OptionError
from sumout.program import Program


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
        lines = "\n".join(blame(error, path))
        raise FileError(f"{path} ends the program (sys.exit) when it is imported.\n{lines}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        lines = "\n".join(blame(error, path))
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
