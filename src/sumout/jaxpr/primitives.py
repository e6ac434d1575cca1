"""The table of primitives."""

from typing import Any

ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp clz complex conj convert_element_type copy copy_p cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2
    expm1 floor ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt
    lt_to max min mul ne neg nextafter not or polygamma population_count pow random_gamma_grad real
    reduce_precision regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta""".split()
)


def is_elementwise(eqn: Any) -> bool:
    """Whether it is such an equation, or a function with a derivative rule of its own made of such equations."""
    if eqn.primitive.name != "custom_jvp_call":
        return eqn.primitive.name in ELEMENTWISE
    has_one_shape = len({v.aval.shape for v in (*eqn.invars, *eqn.outvars)}) == 1
    return len(eqn.outvars) == 1 and has_one_shape and names_within(eqn) <= ELEMENTWISE | {"broadcast_in_dim"}


def names_within(eqn: Any) -> set[str]:
    """Names of all primitives that an equation runs."""
    inner = next((eqn.params[name] for name in ("jaxpr", "call_jaxpr") if name in eqn.params), None)
    if inner is None:
        return {eqn.primitive.name}
    return set().union(*(names_within(one) for one in inner.jaxpr.eqns))
