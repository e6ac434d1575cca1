"""What makes a run the one it is: if any of it changes, the draws that are there cannot be gone on from."""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from sumout.program import Program


def identify(program: Program, options: Mapping[str, Any]) -> dict[str, str]:
    """Names of what the draws depend on, each with a digest or the value itself.

    Args:
        program: whose draws they are.
        options: of the run, by name.
    """
    found = {"the model": _digest_of_code(program)}
    for path, array in jax.tree_util.tree_leaves_with_path(program.data):
        found[f"the data '{_name(path)}'"] = _digest_of_array(array)
    found.update({name: repr(value) for name, value in options.items()})
    found["precision"] = "double" if jax.config.jax_enable_x64 else "single"  # pyright: ignore[reportAttributeAccessIssue]
    found.update({f"the version of {package}": version(package) for package in ("sumout", "jax", "numpyro")})
    return found


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not as it was, in words."""
    said = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None or new is None:
            said.append(f"{name}, which {'was not there' if old is None else 'is no longer there'}")
        elif name.startswith("the data") or name == "the model":
            said.append(name)
        else:
            said.append(f"{name} ({new}, was {old})")
    return said


def _digest_of_code(program: Program) -> str:
    """Of the density and of the named values, as traced: constants in the code included."""
    arguments = program.abstract_arguments()
    texts = [jax.jit(fn).lower(*arguments).as_text() for fn in (program.log_density, program.constrain)]
    return _digest("\n".join(texts).encode())


def _digest_of_array(array: Any) -> str:
    values = np.ascontiguousarray(array)
    return _digest(f"{values.dtype} {values.shape} ".encode() + values.tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) or "data"
