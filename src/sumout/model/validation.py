"""Errors of a user's model, in words: sites that cannot work, and models that raise."""

import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.distributions import MaskedDistribution, constraints
from numpyro.distributions.constraints import is_dependent
from numpyro.primitives import Messenger

from sumout.errors import ModelError, SumoutError
from sumout.model.log_probs import is_in_support, log_prob_of

P = ParamSpec("P")
T = TypeVar("T")

OWN = Path(__file__).parents[1]
MOST_LINES = 4  # of what JAX or NumPyro say, in an error of ours


class UniqueNames(Messenger):
    """Refuses a plate with the name of a site, of which NumPyro would keep the later one only."""

    def __init__(self, fn: Any):
        super().__init__(fn)
        self._kinds: dict[str, str] = {}

    def process_message(self, msg: Any) -> None:
        """Note the kind of every name."""
        if msg["type"] not in ("plate", "sample", "deterministic", "param"):
            return
        kind = "plate" if msg["type"] == "plate" else "site"
        if self._kinds.setdefault(msg["name"], kind) != kind:
            raise ModelError(f"'{msg['name']}' is the name of a plate and of a site; give each a name of its own.")


def check_site(name: str, site: dict) -> None:
    """Refuse what cannot work, before anything is computed."""
    if "Tracer" in name:
        raise jax.errors.TracerArrayConversionError(site["value"])  # a name made from an array's value
    if name in ("chain", "draw") and site["type"] in ("sample", "deterministic"):
        raise ModelError(f"site '{name}': results use this name for their own dimension; call the site something else.")
    if "/" in name:
        raise ModelError(f"site '{name}': a name cannot contain '/', which separates the groups of a result.")
    if site["type"] == "sample" and site["is_observed"]:
        _check_observed(name, site)


def _check_observed(name: str, site: dict) -> None:
    """Data and distribution must have one shape, and the density must be one that can be computed."""
    shape, event_dim = jnp.shape(site["value"]), site["fn"].event_dim
    expected = site["fn"].shape()
    if jnp.size(site["value"]) and len(shape) >= event_dim and shape[-len(expected) :] != expected and expected:
        raise ModelError(
            f"observed site '{name}': its data have shape {shape}, its distribution (with its plates) {expected}; "
            "the two would be broadcast against each other. Reshape the data or the parameters."
        )
    try:
        log_density = log_prob_of(site)
    except Exception as error:
        raise ModelError(
            f"observed site '{name}': its log density cannot be computed for data of shape {shape}, as "
            f"{first_line(error)}"
        ) from error

    kind = jnp.result_type(site["value"])
    if not jnp.issubdtype(jnp.result_type(log_density), jnp.floating) or jnp.issubdtype(kind, jnp.complexfloating):
        raise ModelError(
            f"observed site '{name}': its data are of type {kind}, whose log density is not a real number; pass real "
            "data, for example real and imaginary parts apart."
        )


def is_inside(site: dict) -> Any:
    """Which data of an observed site lie in its support; those that are masked count as inside."""
    fn: Any = site["fn"]
    inside = is_in_support(site)
    while hasattr(fn, "base_dist"):
        if isinstance(fn, MaskedDistribution):
            inside = inside | ~jnp.asarray(fn._mask, bool)
        fn = fn.base_dist
    return inside


def check_data(name: str, fn: Any, value: np.ndarray, inside: np.ndarray | None) -> None:
    """Refuse data that cannot be, whatever the latents are; None stands for a support that depends on them."""
    if inside is None or np.all(inside):
        return
    index = tuple(int(i) for i in np.argwhere(~np.asarray(inside))[0])
    place = f"[{', '.join(map(str, index))}]" if index else ""
    datum = value[index] if np.ndim(value) >= len(index) else value
    why = "is missing (NaN)" if np.isnan(np.asarray(datum, float)).any() else f"cannot come from {describe_law(fn)}"
    number = int(np.sum(~np.asarray(inside)))
    others = f", and {number - 1} more like it" if number > 1 else ""
    raise ModelError(
        f"observed site '{name}': its datum {name}{place} = {datum} {why}{others}. Correct it, leave it out, or mask "
        "it in the model (numpyro.handlers.mask)."
    )


def traced_parameters(site: dict) -> dict[str, Any]:
    """Parameters of a law that JAX traces: NumPyro looks at all others itself. Of data that are masked they may be any.

    Whether a matrix is positive definite is left to the density, as rounding may decide it.
    """
    fn, found = site["fn"], {}
    while fn is not None and not isinstance(fn, MaskedDistribution):
        simple = {name: law for name, law in fn.arg_constraints.items() if not is_dependent(law) and law.event_dim < 2}
        found |= {name: vars(fn)[name] for name in simple if isinstance(vars(fn).get(name), Tracer)}
        fn = getattr(fn, "base_dist", None)
    return {} if isinstance(fn, MaskedDistribution) else found


def check_parameters(name: str, fn: Any, values: dict[str, np.ndarray]) -> None:
    """Refuse parameters that follow from data alone and that a law cannot have."""
    for parameter, value in values.items():
        fn = _owner_of(parameter, fn)
        wrong = _is_wrong(value, fn.arg_constraints[parameter])
        if not wrong.any():
            continue
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"[{', '.join(map(str, index))}]" if index else ""
        allowed = _describe_support(fn.arg_constraints[parameter]) or str(fn.arg_constraints[parameter])
        allowed = {"the simplex": "probabilities that add up to one"}.get(allowed, allowed)
        raise ModelError(
            f"site '{name}': the parameter {parameter}{place} = {value[index]} of its law, {_name_of(fn)}, is not "
            f"among {allowed}. It follows from the data alone: correct these."
        )


def _owner_of(parameter: str, fn: Any) -> Any:
    """The distribution, of those wrapped in others, that has a parameter."""
    while parameter not in fn.arg_constraints:
        fn = fn.base_dist
    return fn


def _is_wrong(value: np.ndarray, constraint: Any) -> np.ndarray:
    """Where a parameter cannot be; log odds may be infinite, as the logarithm of what is impossible is."""
    if constraint in (constraints.real, constraints.real_vector):
        return np.isnan(value)
    return ~np.asarray(constraint(value))


def describe_law(fn: Any) -> str:
    """A distribution and its support, as in "Poisson, whose support is nonnegative integers"."""
    while type(fn).__name__ in ("ExpandedDistribution", "Independent", "MaskedDistribution"):
        fn = fn.base_dist
    name = _name_of(fn)
    support = _describe_support(getattr(fn, "support", None))
    return f"{name}, whose support is {support}" if support else name


def _name_of(fn: Any) -> str:
    return type(fn).__name__.removesuffix("Probs").removesuffix("Logits")


def _describe_support(constraint: Any) -> str:
    """The values a constraint allows; nothing where its ends depend on latents."""
    kind = type(constraint).__name__.strip("_").lower()
    if kind == "boolean":
        return "0 and 1"
    lower, upper = (getattr(constraint, end, None) for end in ("lower_bound", "upper_bound"))
    known = [end for end in (lower, upper) if end is not None]
    if any(isinstance(end, Tracer) or np.ndim(end) for end in known):
        return ""
    if not known:
        return {"real": "the real numbers", "simplex": "the simplex"}.get(kind, "")
    numbers = "the whole numbers" if getattr(constraint, "is_discrete", False) else "the numbers"
    return f"{numbers} {'above' if kind in ('positive', 'greaterthan') else 'from'} {lower}" + (
        "" if upper is None else f" to {upper}"
    )


def describe_failure(error: Exception, arguments: dict[str, Any]) -> str:
    """The error a model stopped with, at which site, and its likely cause."""
    if isinstance(error, AssertionError):
        return f"NumPyro refuses the model{where_raised(error)}: {error or 'a site and a plate have the same name'}"
    words = [f"the model stops{where_raised(error)} with {first_line(error)}"]
    said = str(error)
    if "must have integer" in said or "integer scalar" in said or "integer type" in said:
        words += [f"{advice}." for advice in _whole_floats(arguments)]
    if "ncompatible shapes" in said or "cannot broadcast" in said.lower():
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in arguments.items() if np.ndim(value))
        words.append(f"The shapes of the arguments: {shapes or 'none has any'}.")
    return " ".join(words)


def failing_in_words(run: Callable[P, T]) -> Callable[P, T]:
    """The function, which runs a user's model with values for its latents, with its errors as errors of the model."""

    @wraps(run)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return run(*args, **kwargs)
        except SumoutError:
            raise
        except Exception as error:
            raise ModelError(describe_failure(error, {})) from error

    return told


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of what it says; the next ones too, as long as one ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    said = lines[0]
    for line in lines[1:MOST_LINES]:
        if not said.endswith(":"):
            break
        said = f"{said} {line}"
    return f"{type(error).__name__}: {said.rstrip('.:')}."


def where_raised(error: Exception) -> str:
    """The NumPyro site in whose statement an error was raised, as NumPyro's own frames know it, or the user's line."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__", "").startswith("numpyro.") and frame.f_code.co_name in (
            "sample",
            "__init__",
        ):
            name = frame.f_locals.get("name")
            if isinstance(name, str):
                return f" at site '{name}'"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "site-packages" not in frame.filename and not Path(frame.filename).is_relative_to(OWN) and frame.line:
            return f" in `{frame.line}`"
    return ""


def _whole_floats(arguments: dict[str, Any]) -> list[str]:
    """Arguments that hold whole numbers as floats, and so cannot be indices or sizes."""
    found = []
    for name, value in arguments.items():
        array = np.asarray(value) if isinstance(value, np.ndarray | jax.Array | float) else None
        if array is not None and array.dtype.kind == "f" and array.size and (array == np.round(array)).all():
            found.append(
                f"Argument '{name}' holds whole numbers as {array.dtype}; where an index or a size is meant, pass "
                "integers, for example with `.astype(int)`"
            )
    return found


# NumPyro's stack of handlers and its setting of validation belong to the whole process: a model that is traced in one
# thread would be seen by the handlers of another. JAX traces a model whenever it needs to, so the lock is taken where
# the user's function is called, and nowhere further out: nothing that waits for another thread happens inside.

RUNNING = RLock()


def one_at_a_time(run: Callable[P, T]) -> Callable[P, T]:
    """The function, which runs a user's model, with no other model running meanwhile."""

    @wraps(run)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with RUNNING:
            return run(*args, **kwargs)

    return alone
