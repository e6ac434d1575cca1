"""What public functions and types do for their users: name the option that was meant, end errors at his line, and draw.

The traceback of an error of sumout's shows the lines of the user only: where he called, and where in his model it
happened. What lies between, in sumout, JAX and NumPyro, is left out.
"""

import inspect
import sysconfig
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from sumout.errors import OptionError, SumoutError

P = ParamSpec("P")
T = TypeVar("T")

OWN = str(Path(__file__).parent)
JAX_NOTE = "JAX has removed its internal frames"
STANDARD = sysconfig.get_path("stdlib")

# What other libraries call an option, and what it is here: a name, or what to do instead.
FOREIGN = {
    "num_samples": "draws",
    "n_samples": "draws",
    "num_draws": "draws",
    "n_draws": "draws",
    "samples": "draws",
    "iter_sampling": "draws",
    "num_results": "draws",
    "num_warmup": "tune",
    "warmup": "tune",
    "iter_warmup": "tune",
    "n_tune": "tune",
    "burnin": "tune",
    "burn_in": "tune",
    "num_burnin_steps": "tune",
    "num_chains": "chains",
    "n_chains": "chains",
    "nchains": "chains",
    "rng_key": "seed",
    "rng_seed": "seed",
    "random_seed": "seed",
    "random_state": "seed",
    "key": "seed",
    "progress_bar": "progress",
    "progressbar": "progress",
    "show_progress": "progress",
    "verbose": "progress",
    "nuts_sampler": "kernel",
    "sampler": "kernel",
    "algorithm": "kernel",
    "step": "kernel",
    "thinning": "steps",
    "thin": "steps",
    "trace": "store",
    "backend": "store",
    "model": "program",
    "idata": "result",
    "posterior": "result",
    "posterior_samples": "result",
    "trace_or_idata": "result",
    "new_data": "data",
    "overrides": "plan",
    "target_accept": "kernel=sumout.HMC(target_acceptance=…)",
    "target_accept_prob": "kernel=sumout.HMC(target_acceptance=…)",
    "adapt_delta": "kernel=sumout.HMC(target_acceptance=…)",
    "target_acceptance": "kernel=sumout.HMC(target_acceptance=…)",
    "step_size": "kernel=sumout.HMC(step_size=…)",
    "num_leapfrog": "kernel=sumout.HMC(num_leapfrog=…)",
    "dense_mass": "kernel=sumout.HMC(dense=True)",
    "max_treedepth": "kernel=sumout.NUTS(max_depth=…)",
    "max_tree_depth": "kernel=sumout.NUTS(max_depth=…)",
    "cores": "none: chains run side by side on all cores by themselves",
    "n_jobs": "none: chains run side by side on all cores by themselves",
    "parallel_chains": "none: chains run side by side on all cores by themselves",
    "chain_method": "none: chains run side by side on all cores by themselves",
    "return_inferencedata": "none: call sumout.to_inference_data(result)",
    "init": "none: starts are found by themselves",
    "initvals": "none: starts are found by themselves",
    "init_params": "none: starts are found by themselves",
    "compute_convergence_checks": "none: call sumout.summary(result)",
}


def html_of(thing: Any) -> str:
    """How a notebook shows a program, a plan, a kernel or an explanation."""
    # What draws comes last in the order of packages, what is drawn first: so it is looked up when it is asked for.
    return import_module("sumout.reports.notebook").as_html(thing)


def public(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which suggests the name of an option that it does not know, and ends errors at the user's line."""
    parameters = inspect.signature(function).parameters
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    names = [name for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            for name in () if is_open else kwargs:
                if name not in names:
                    raise OptionError(suggest(function.__name__, name, names))
            return function(*args, **kwargs)
        except SumoutError as error:
            shorten(error)
            raise

    return called


def suggest(function: str, given: str, names: list[str]) -> str:
    """What to write in place of an option that is not there."""
    said = f"{function}: there is no option '{given}'."
    meant = FOREIGN.get(given)
    if meant is not None and meant.startswith("none: "):
        return f"{said} None is needed: {meant.removeprefix('none: ')}."
    if meant is not None and meant.partition("=")[0] in names:
        return f"{said} Here it is {meant if '=' in meant else f'{meant}=…'}."
    near = get_close_matches(given, names, 1)
    if near:
        return f"{said} Did you mean '{near[0]}'?"
    return f"{said} The options are {', '.join(names)}."


def shorten(error: BaseException) -> None:
    """Leave the user's lines of a traceback only; those of its cause, which lead on into his model, after them."""
    if hasattr(error, "__notes__"):  # what JAX has left out itself no longer matters
        error.__notes__ = [note for note in error.__notes__ if JAX_NOTE not in note]
    frames = list(_users(error.__traceback__))
    cause = error.__cause__
    while cause is not None:
        deeper = list(_users(cause.__traceback__))
        frames = frames or deeper
        cause.__traceback__ = _chained(deeper)
        cause.__suppress_context__ = True  # the same error as JAX raised it, or what it was handling meanwhile
        cause = cause.__cause__
    error.__traceback__ = _chained(frames)


def _users(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        is_library = file.startswith((OWN, STANDARD, "<frozen")) or "site-packages" in file
        if not is_library:
            yield traceback
        traceback = traceback.tb_next


def _chained(frames: list[TracebackType]) -> TracebackType | None:
    chained = None
    for frame in reversed(frames):
        chained = TracebackType(chained, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return chained
