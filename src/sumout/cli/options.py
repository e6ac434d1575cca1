"""Options that several commands share."""

import argparse
import os
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sumout.errors import FileError, OptionError

MODEL_HELP = "the file and the name in it, as in model.py:mixture (see below)"
MODELS = """\
MODEL:
  model.py:name, where name in model.py is one of
    a NumPyro model: a function with numpyro.sample and the like in it,
    a Program: made by sumout.program or sumout.density,
    a function that returns a Program: def make(y): return sumout.density(…)
  The file is run as an import would; modules beside it can be imported.
  A function is called with the data. If it comes to a NumPyro statement, it is
  a NumPyro model, and the call ends there. If it returns a Program, that is it.

DATA:
  .csv     a header, then numbers; a column of whole numbers becomes integers
  .npz     arrays by name, as numpy.savez writes them
  .json    an object: names, each with a number or lists of numbers
  Each name is given to the parameter of that name. Names that no parameter has
  are left out, and reported. The only column of a .csv may have any name if the
  function needs one array only. Single numbers: --set K=3, --set is_on=true."""


def split_reference(reference: str) -> tuple[Path, str]:
    """`model.py:name` as file and name; the name is empty where there is none."""
    path, _, name = reference.rpartition(":")
    if not path or name.endswith(".py"):  # a colon may stand in the path, too
        return Path(reference), ""
    return Path(path), name


def add_data(parser: argparse.ArgumentParser) -> None:
    """Files with data, and single numbers."""
    parser.add_argument(
        "--data", action="append", default=[], metavar="FILE", help="data by name, .csv, .npz or .json; may be repeated"
    )
    parser.add_argument(
        "--set", action="append", default=[], type=setting, metavar="NAME=VALUE", help="a number; may be repeated"
    )


def add_plan(parser: argparse.ArgumentParser) -> None:
    """What to do with the discrete variables, and with which kernel."""
    parser.add_argument(
        "--kernel",
        metavar="NAME",
        help="ghmc, hmc, nuts, sghmc, split_sghmc, sgld, psgld or sgnht; by default hmc",
    )
    parser.add_argument(
        "--plan",
        action="append",
        default=[],
        type=override,
        metavar="SITE=METHOD",
        help="what to do with a discrete variable: sum, draw, joint, gibbs, metropolis or prior; may be repeated",
    )


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """What reads a whole number within bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least or (most is not None and number > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{number} should be {bounds}")
        return number

    return read


def setting(text: str) -> tuple[str, Any]:
    """`K=3` as a name and a number, or true or false."""
    name, value = _pair(text, "a name and a number, such as K=3")
    words = {"true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"{text!r}: {value!r} is neither a number nor true or false")


def override(text: str) -> tuple[str, str]:
    """`z=draw` as a name and a method."""
    return _pair(text, "a site and a method, such as z=draw")


def as_dict(pairs: list[tuple[str, Any]], option: str) -> dict[str, Any]:
    """What was given by an option that may be repeated; a name only once."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise OptionError(f"{option} {name}={value} is the second for '{name}'; give it once.")
        found[name] = value
    return found


def _pair(text: str, expected: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}")
    return name, value


def check_output(path: Path, *, force: bool, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before the work starts, a file that is in the way or a folder in which nothing can be written.

    Args:
        path: the file to write.
        force: replace a file that is there already.
        inputs: files that are read, never to be replaced.
    """
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it.")
    for other in map(Path, inputs):
        if path.exists() and other.exists() and path.samefile(other):
            raise FileError(f"{path} is read from; it cannot be written to as well.")
    if path.exists() and not force:
        raise FileError(f"{path} is there already; give --force to replace it, or another name.")
    if not path.parent.is_dir():
        raise FileError(f"there is no folder {path.parent}; make it first, or write elsewhere.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(
            f"nothing can be written in {path.parent.resolve()}: {os.strerror(error.errno or 0)}."
        ) from error


# The worked example in the help of every command; a test runs it as it is.
MODEL = """\
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
"""

DATA = """\
y
-2.1
-1.4
1.9
2.6
2.2
"""


def worked_example(commands: str, outcome: str) -> str:
    """The two files, the commands to type, and what comes out."""
    return "\n".join(
        [
            "example:",
            "  model.py holds",
            textwrap.indent(MODEL.strip(), "    "),
            "",
            "  data.csv holds",
            textwrap.indent(DATA.strip(), "    "),
            "",
            "  Type",
            textwrap.indent(commands.strip(), "    "),
            "",
            textwrap.indent(textwrap.dedent(outcome).strip(), "  "),
        ]
    )
