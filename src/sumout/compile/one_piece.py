"""Small loops compiled in one piece.

On CPUs XLA makes a kernel of every few operations. Each takes some 20 ms to compile however small it is, and whatever
loops around them is interpreted, at about a microsecond a kernel: on small programs more than the arithmetic takes. A
call that is marked as small becomes one function of machine code instead, loops and branches included.

XLA marks loops by itself if they touch less than a kilobyte. What it cannot compile that way (sorting, what LAPACK
does) it refuses, and then the loop is compiled as usual. Products and sums of larger arrays are better off in kernels.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr

from sumout.jaxpr.primitives import Kind, names_of, row_of
from sumout.jaxpr.walk import all_equations, names_in

MARK = {"xla_cpu_small_call": "true", "inlineable": "false"}
# Without its newer emitters XLA writes scatters as loops, and without the library YNN reductions: both can be inside.
OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": ""}
MOST_ELEMENTS = 4096  # of an array that something is computed from or into
OF_LAYOUT = {"broadcast_in_dim", "dynamic_update_slice", "reshape"}  # nothing is computed, and in place at that
LOOK_UPS = names_of(Kind.GATHER, Kind.SLICE)  # whose first operand may be large: only what is found there counts
MOST_COPIED = 2**22  # elements of all arguments, as they are copied with every call
REFUSED = names_of(Kind.SORT, Kind.MATRIX, Kind.TRIANGULAR_SOLVE, Kind.TRANSFORM, Kind.CONVOLUTION)


def in_one_piece(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be compiled in one piece; it returns its arguments, too, in a second place.

    They come back because XLA stops the process at an argument that such a call does not use.
    """

    @jax.jit
    def both(*args: Any) -> tuple[Any, Any]:
        return fn(*args), jax.lax.optimization_barrier(args)  # JAX would leave out what merely passes through

    return lambda *args: set_xla_metadata(both(*args), **MARK)


def fits_one_piece(closed: ClosedJaxpr) -> bool:
    """Whether all that is computed is small, and of a kind that can be compiled in one piece."""
    names = names_in(closed)
    # JAX's own keys may not be used and returned as well.
    has_keys = any(jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.prng_key) for v in closed.jaxpr.invars)
    copied = sum(v.aval.size for v in closed.jaxpr.invars)
    is_small = largest_array(closed) <= MOST_ELEMENTS and copied <= MOST_COPIED
    return is_small and not has_keys and not REFUSED & names


def largest_array(closed: ClosedJaxpr) -> int:
    """Elements of the largest array that something is computed from or into."""
    whole = all_equations(closed.jaxpr)
    computing = [eqn for eqn in whole if not row_of(eqn).is_control and eqn.primitive.name not in OF_LAYOUT]
    operands = [v for eqn in computing for v in eqn.invars[eqn.primitive.name in LOOK_UPS :]]
    return max((v.aval.size for v in [*operands, *(v for eqn in computing for v in eqn.outvars)]), default=0)
