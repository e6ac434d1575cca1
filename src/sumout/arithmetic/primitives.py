"""Equations computed by NumPy: what is known when a program is read need not be compiled to be had.

`EXACT` are those that NumPy and XLA compute alike, to the last bit: movements of elements, comparisons, the arithmetic
of counters, indices and masks. `ROUNDED` may differ in the last place: they are for constants that take the place of
what the program would have computed, never to foretell what it will.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from sumout.arithmetic.movement import MOVEMENTS, dynamic_slice, dynamic_update_slice

EXACT: dict[str, Callable[..., Any]] = {
    **MOVEMENTS,
    "abs": lambda a, **_: np.abs(a),
    "add": lambda a, b, **_: a + b,
    "and": lambda a, b, **_: a & b,
    "clamp": lambda low, a, high, **_: np.clip(a, low, high),
    "convert_element_type": lambda a, *, new_dtype, **_: np.asarray(a).astype(new_dtype),
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "eq": lambda a, b, **_: a == b,
    "floor": lambda a, **_: np.floor(a),
    "ge": lambda a, b, **_: a >= b,
    "gt": lambda a, b, **_: a > b,
    "iota": lambda *, dtype, shape, dimension, **_: np.broadcast_to(
        np.arange(shape[dimension], dtype=dtype).reshape([-1 if i == dimension else 1 for i in range(len(shape))]),
        shape,
    ),
    "le": lambda a, b, **_: a <= b,
    "lt": lambda a, b, **_: a < b,
    "max": lambda a, b, **_: np.maximum(a, b),
    "min": lambda a, b, **_: np.minimum(a, b),
    "mul": lambda a, b, **_: a * b,
    "ne": lambda a, b, **_: a != b,
    "neg": lambda a, **_: -a,
    "not": lambda a, **_: ~a,
    "or": lambda a, b, **_: a | b,
    "reduce_and": lambda a, *, axes, **_: np.all(a, axis=axes),
    "reduce_max": lambda a, *, axes, **_: np.max(a, axis=axes),
    "reduce_min": lambda a, *, axes, **_: np.min(a, axis=axes),
    "reduce_or": lambda a, *, axes, **_: np.any(a, axis=axes),
    "select_n": lambda which, *cases, **_: np.select([np.asarray(which) == i for i in range(len(cases))], cases),
    "sub": lambda a, b, **_: a - b,
}

ROUNDED: dict[str, Callable[..., Any]] = {
    "div": lambda a, b, **_: a / b,
    "erf": lambda a, **_: special.erf(a),
    "exp": lambda a, **_: np.exp(a),
    "expm1": lambda a, **_: np.expm1(a),
    "integer_pow": lambda a, *, y, **_: a**y,
    "lgamma": lambda a, **_: special.gammaln(a),
    "log": lambda a, **_: np.log(a),
    "log1p": lambda a, **_: np.log1p(a),
    "logistic": lambda a, **_: special.expit(a),
    "reduce_prod": lambda a, *, axes, **_: np.prod(a, axis=axes),
    "reduce_sum": lambda a, *, axes, **_: np.sum(a, axis=axes, dtype=np.asarray(a).dtype),
    "rsqrt": lambda a, **_: 1 / np.sqrt(a),
    "sqrt": lambda a, **_: np.sqrt(a),
    "square": lambda a, **_: a * a,
    "tanh": lambda a, **_: np.tanh(a),
}


def is_exact_by_numpy(eqn: Any) -> bool:
    """Whether NumPy computes an equation as XLA does; sums of integers, too, as both wrap around."""
    if eqn.primitive.name == "reduce_sum":
        return not np.issubdtype(eqn.outvars[0].aval.dtype, np.inexact)
    return eqn.primitive.name in EXACT and not _truncates(eqn)


def is_known_to_numpy(eqn: Any) -> bool:
    """Whether NumPy computes an equation as XLA does, up to the last place."""
    return eqn.primitive.name in ROUNDED or is_exact_by_numpy(eqn)


def compute(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an equation that NumPy knows."""
    name = eqn.primitive.name
    with np.errstate(all="ignore"):
        out = (EXACT.get(name) or ROUNDED[name])(*operands, **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _truncates(eqn: Any) -> bool:
    """Whether an equation turns fractions into integers, which NumPy and XLA do differently at the extremes."""
    if eqn.primitive.name != "convert_element_type":
        return False
    old = eqn.invars[0].aval.dtype if hasattr(eqn.invars[0], "aval") else np.asarray(eqn.invars[0].val).dtype
    return np.issubdtype(old, np.floating) and not np.issubdtype(eqn.outvars[0].aval.dtype, np.floating)
