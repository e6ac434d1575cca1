"""Functions compiled ahead of time, in the background: while one is being compiled, the next can be traced.

Tracing is Python's work, and done where it is asked for, under the settings in force there: NumPyro traces one model at
a time, and settings of JAX such as its precision belong to a thread. Compiling is not, and gets a thread of its own.
What is compiled can be called from any thread.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sumout.compile.one_piece import OPTIONS, elements_computed, fits_one_piece, in_one_piece, is_tested, largest_array
from sumout.compile.policy import FEW_SITES, LITTLE_WORK, MEDIUM_ARRAY, MUCH_WORK
from sumout.compile.spread import SpreadCall, mesh_of, trace_spread
from sumout.model.program import Program
from sumout.threads import attentively, begin, wait

# XLA's newer way to write kernels gains nothing on arrays of medium size.
MEDIUM_COMPILE: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False} if is_tested() else {}
# Code that runs once should not be optimised as if it ran a million times.
QUICK_COMPILE: dict[str, Any] = {"xla_backend_optimization_level": 0, **MEDIUM_COMPILE} if is_tested() else {}

# Between the two: most of what optimising gains, for half of what it takes.
BRISK_COMPILE: dict[str, Any] = {"xla_backend_optimization_level": 1, **MEDIUM_COMPILE} if is_tested() else {}


def has_few_sites(program: Program) -> bool:
    """Whether it is small as programs go."""
    return program.num_z <= FEW_SITES


def briefly(program: Program) -> dict[str, Any] | None:
    """Options for what runs only briefly: of a small program, compiling well takes longer than running slowly."""
    return QUICK_COMPILE if has_few_sites(program) else None


class Ahead:
    """A function, compiled once for all arguments of the same shapes and types; in one piece if it is small.

    Where an argument is spread over devices (`spread.py`), so is the work; results are then whole on each of them.

    Args:
        fn: the function.
        times: how often it will be called, if that is known to be seldom: if that is little work in all, it is compiled
            quickly rather than well.
    """

    def __init__(self, fn: Callable[..., Any], *, times: int | None = None):
        self._fn, self._times = jax.jit(fn), times
        self._whole = jax.jit(in_one_piece(self._fn))
        self._compiled: dict[Any, Future[Callable[..., Any]]] = {}

    def prepare(self, *args: Any) -> "Future[Callable[..., Any]]":
        """Begin to compile for such arguments, which may be shapes and types only."""
        leaves, form = jax.tree.flatten(args)
        types = [(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)) for leaf in leaves]
        mesh = mesh_of(leaves)
        signature = form, tuple(types), jnp.result_type(float), mesh
        if signature not in self._compiled:
            traced = self._fn.trace(*args) if mesh is None else trace_spread(mesh, self._fn, args)
            # What devices tell each other cannot be inside of one piece.
            whole = self._whole.lower(*args) if mesh is None and fits_one_piece(traced.jaxpr) else None
            usual = traced.lower if whole else partial(lambda lowered: lowered, traced.lower())
            options = self._options(largest_array(traced.jaxpr), elements_computed(traced.jaxpr.jaxpr))
            self._compiled[signature] = begin(_compile, whole, usual, options, mesh)
        return self._compiled[signature]

    @property
    def is_ready(self) -> bool:
        """Whether all that was begun is compiled."""
        return all(future.done() for future in list(self._compiled.values()))

    def _options(self, largest: int, elements: int) -> dict[str, Any]:
        """How to compile what handles arrays of that many elements at most, and computes so many in a call."""
        if self._times is not None and self._times * elements <= MUCH_WORK:
            return QUICK_COMPILE if self._times * elements <= LITTLE_WORK else BRISK_COMPILE
        return MEDIUM_COMPILE if largest <= MEDIUM_ARRAY else {}

    def shapes(self, *args: Any) -> Any:
        """Shapes and types of what it returns for such arguments."""
        return jax.eval_shape(self._fn, *args)

    def __call__(self, *args: Any) -> Any:
        """Call it, once it is compiled. Arguments are arrays."""
        return attentively(self.compiled(*args), *args)

    def compiled(self, *args: Any) -> Callable[..., Any]:
        """It, compiled for such arguments."""
        return wait(self.prepare(*args))


def _compile(
    whole: jax.stages.Lowered | None, usual: Callable[[], jax.stages.Lowered], options: dict[str, Any], mesh: Any = None
) -> Callable[..., Any]:
    """In one piece, if it can be; as usual if not."""
    if whole is not None:
        with suppress(jax.errors.JaxRuntimeError):
            compiled = whole.compile(compiler_options={**OPTIONS, **options})
            return lambda *args: compiled(*args)[0]
    compiled = usual().compile(compiler_options=options)
    return compiled if mesh is None else SpreadCall(mesh, compiled)


# No collection of garbage while programs are traced.
#
# Tracing makes objects by the hundred thousand, nearly all of which are still in use when Python looks for garbage
# among them, again and again: a tenth of the time that tracing takes.
