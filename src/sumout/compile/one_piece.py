"""Small loops compiled in one piece.

On CPUs XLA makes a kernel of every few operations. Each takes some 20 ms to compile however small it is, and whatever
loops around them is interpreted, at about a microsecond a kernel: on small programs more than the arithmetic takes. A
call that is marked as small becomes one function of machine code instead, loops and branches included.

XLA marks loops by itself if they touch less than a kilobyte. What it cannot compile that way (sorting, what LAPACK
does) it refuses, and then the loop is compiled as usual. Products and sums of larger arrays are better off in kernels.

The mark is an attribute that XLA does not document, and XLA ends the process where a call so marked is not as it wants
it. So it is used with the releases of jaxlib that the tests run with, and with no other; options of the compiler, which
are not documented either, likewise. With another release everything is compiled as JAX compiles it: slower, as right.
"""

import logging
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import jax
import jaxlib
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

from sumout.compile.policy import ONE_PIECE_ARGUMENTS, ONE_PIECE_ARRAY
from sumout.jaxpr.primitives import Kind, names_of, row_of
from sumout.jaxpr.walk import all_equations, names_in, shape_of

LOG = logging.getLogger("sumout.compile")
TESTED = ("0.10",)  # releases of jaxlib; `make test` with a new one tells whether it can be added
MARK = {"xla_cpu_small_call": "true", "inlineable": "false"}
# Without its newer emitters XLA writes scatters as loops, and without the library YNN reductions: both can be inside.
OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": ""}
OF_LAYOUT = {"broadcast_in_dim", "dynamic_update_slice", "reshape"}  # nothing is computed, and in place at that
LOOK_UPS = names_of(Kind.GATHER, Kind.SLICE)  # whose first operand may be large: only what is found there counts
REFUSED = names_of(Kind.SORT, Kind.MATRIX, Kind.TRIANGULAR_SOLVE, Kind.TRANSFORM, Kind.CONVOLUTION)


def is_tested() -> bool:
    """Whether the tests run with this release of XLA's compiler."""
    return _is_tested(jaxlib.__version__)


@cache
def _is_tested(version: str) -> bool:
    known = ".".join(version.split(".")[:2]) in TESTED
    if not known:
        LOG.info(
            "jaxlib %s: compilation in one piece is tested with jaxlib %s only, and not used.", version, TESTED[-1]
        )
    return known


def in_one_piece(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be compiled in one piece; it returns its arguments, too, in a second place.

    They come back because XLA stops the process at an argument that such a call does not use.
    """

    @jax.jit
    def both(*args: Any) -> tuple[Any, Any]:
        return fn(*args), jax.lax.optimization_barrier(args)  # JAX would leave out what merely passes through

    def marked(*args: Any) -> Any:
        from jax.experimental.xla_metadata import set_xla_metadata  # experimental: other releases may not have it

        return set_xla_metadata(both(*args), **MARK)

    return marked


def fits_one_piece(closed: ClosedJaxpr) -> bool:
    """Whether all that is computed is small, and of a kind that this XLA can compile in one piece."""
    if not is_tested():
        return False
    names = names_in(closed)
    # JAX's own keys may not be used and returned as well.
    has_keys = any(jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.prng_key) for v in closed.jaxpr.invars)
    copied = sum(v.aval.size for v in closed.jaxpr.invars)
    is_small = largest_array(closed) <= ONE_PIECE_ARRAY and copied <= ONE_PIECE_ARGUMENTS
    return is_small and not has_keys and not REFUSED & names


def elements_computed(jaxpr: Jaxpr) -> int:
    """Elements of all arrays that are computed in a call; loops of unknown length count as one step."""
    total = 0
    for eqn in jaxpr.eqns:
        inner = list(jaxprs_in_params(eqn.params))
        steps = eqn.params.get("length", 1) if row_of(eqn).kind is Kind.SCAN else 1
        total += steps * sum(map(elements_computed, inner)) if inner else sum(prod(shape_of(v)) for v in eqn.outvars)
    return total


def largest_array(closed: ClosedJaxpr) -> int:
    """Elements of the largest array that something is computed from or into."""
    whole = all_equations(closed.jaxpr)
    computing = [eqn for eqn in whole if not row_of(eqn).is_control and eqn.primitive.name not in OF_LAYOUT]
    operands = [v for eqn in computing for v in eqn.invars[eqn.primitive.name in LOOK_UPS :]]
    return max((v.aval.size for v in [*operands, *(v for eqn in computing for v in eqn.outvars)]), default=0)
