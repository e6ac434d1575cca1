"""Functions compiled ahead of time, in the background: while one is being compiled, the next can be traced.

Tracing is Python's work, and done where it is asked for, under the settings in force there: NumPyro traces one model at
a time, and settings of JAX such as its precision belong to a thread. Compiling is not, and gets a thread of its own.
What is compiled can be called from any thread.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any

import jax
import jax.numpy as jnp

from sumout.program import Program
from sumout.reading.structure import QUICK_COMPILE

FEW_SITES = 200


def has_few_sites(program: Program) -> bool:
    """Whether it is small as programs go."""
    return program.num_z <= FEW_SITES


def briefly(program: Program) -> dict[str, Any] | None:
    """Options for what runs only briefly: of a small program, compiling well takes longer than running slowly."""
    return QUICK_COMPILE if has_few_sites(program) else None


class Ahead:
    """A function, compiled once for all arguments of the same shapes and types."""

    def __init__(self, fn: Callable[..., Any], compiler_options: dict[str, Any] | None = None):
        self._fn = jax.jit(fn, compiler_options=compiler_options)
        self._compiled: dict[Any, Future[jax.stages.Compiled]] = {}

    def prepare(self, *args: Any) -> "Future[jax.stages.Compiled]":
        """Begin to compile for such arguments, which may be shapes and types only."""
        leaves, form = jax.tree.flatten(args)
        types = [(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)) for leaf in leaves]
        signature = form, tuple(types), jnp.result_type(float)
        if signature not in self._compiled:
            lowered, future = self._fn.lower(*args), Future()
            self._compiled[signature] = future
            Thread(target=_compile, args=(lowered, future)).start()
        return self._compiled[signature]

    def shapes(self, *args: Any) -> Any:
        """Shapes and types of what it returns for such arguments."""
        return jax.eval_shape(self._fn, *args)

    def __call__(self, *args: Any) -> Any:
        """Call it, once it is compiled. Arguments are arrays."""
        return self.prepare(*args).result()(*args)


def _compile(lowered: jax.stages.Lowered, future: "Future[jax.stages.Compiled]") -> None:
    try:
        future.set_result(lowered.compile())
    except BaseException as error:
        future.set_exception(error)
