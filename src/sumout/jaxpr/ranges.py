"""Between which numbers the elements of an array lie, whatever the arguments of the program, and what follows from it.

    p = max(tiny, min(sigmoid(x), 1 − ε))        tiny ≤ p ≤ 1 − ε, so neither p = 0 nor p = 1

A density as it is written looks for such cases: it tells zeros and ones apart, which needs a second density for them,
and clips what has been clipped. A comparison that comes out the same for all numbers in range is a constant, and a
bound that is never reached leaves its operand as it is. Both hold to the last bit: every rule below is monotone in
floating-point numbers as well, and of what may be no number (NaN) nothing is said that would not hold of that, too.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from sumout.jaxpr.primitives import Kind, row_of


class Range(NamedTuple):
    """The least and the largest number that an element may be, if it is a number."""

    low: Any
    high: Any


ANY, NON_NEGATIVE = Range(-np.inf, np.inf), Range(0.0, np.inf)
OF_RESULTS = {"logistic": Range(0.0, 1.0), "exp": NON_NEGATIVE, "exp2": NON_NEGATIVE, "abs": NON_NEGATIVE}
OF_FIRST = frozenset((Kind.SLICE, Kind.COPY))  # whose results are elements of the first operand
BOUNDS: dict[str, Callable[..., Any]] = {"max": max, "min": min}
MONOTONE: dict[str, Callable[[Range, Range], tuple[Any, Any]]] = {
    "add": lambda a, b: (a.low + b.low, a.high + b.high),
    "sub": lambda a, b: (a.low - b.high, a.high - b.low),
}
# Whether a comparison is the same for all numbers of two ranges, and for what is no number: that is equal to nothing,
# and neither above nor below anything.
DECIDED: dict[str, tuple[Callable[[Range, Range], bool], bool]] = {
    "eq": (lambda a, b: a.high < b.low or b.high < a.low, False),
    "ne": (lambda a, b: a.high < b.low or b.high < a.low, True),
    "lt": (lambda a, b: a.low >= b.high, False),
    "le": (lambda a, b: a.low > b.high, False),
    "gt": (lambda a, b: a.high <= b.low, False),
    "ge": (lambda a, b: a.high < b.low, False),
}


def range_of(value: Any) -> Range | None:
    """The range of an array that is known; None if that has no number in it, or something that is none."""
    value = np.asarray(value)
    if not value.size or not jax.dtypes.issubdtype(value.dtype, np.floating) or np.isnan(value).any():
        return None
    return Range(value.min(), value.max())


def range_of_result(eqn: Any, operands: Sequence[Range | None]) -> Range | None:
    """The range of the one result of an equation; None if nothing is known of it."""
    dtype = eqn.outvars[0].aval.dtype
    if not jax.dtypes.issubdtype(dtype, np.floating) or not operands:
        return None
    found = _range(eqn, operands)
    with np.errstate(all="ignore"):
        found = found and Range(*(np.asarray(number, dtype)[()] for number in found))
    return None if found is None or np.isnan(found).any() else found


def _range(eqn: Any, operands: Sequence[Range | None]) -> tuple[Any, Any] | None:
    row, first = row_of(eqn), operands[0]
    if row.name in OF_RESULTS:
        return OF_RESULTS[row.name]
    if row.kind is Kind.CONVERSION:
        return first if _is_wider(eqn) else None
    if row.kind in OF_FIRST:
        return first
    if row.name in BOUNDS and any(operands):
        ends = zip(*(operand or ANY for operand in operands), strict=True)
        low, high = (BOUNDS[row.name](each) for each in ends)
        return low, high
    cases = operands[1:] if row.kind is Kind.SELECT else operands
    if any(case is None for case in cases):
        return None
    known = [case for case in cases if case is not None]
    if row.kind is Kind.SELECT or row.kind is Kind.MOVEMENT:
        return min(case.low for case in known), max(case.high for case in known)
    if row.name == "neg":
        return -known[0].high, -known[0].low
    with np.errstate(all="ignore"):
        return MONOTONE[row.name](known[0], known[1]) if row.name in MONOTONE else None


def _is_wider(eqn: Any) -> bool:
    """Whether a conversion is one of fractions that keeps them as they are."""
    old, new = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
    return jax.dtypes.issubdtype(old, np.floating) and np.can_cast(old, new)


def decided(eqn: Any, operands: Sequence[Range | None]) -> bool | None:
    """What a comparison comes to for all numbers in range; None if that is not certain, or it is none."""
    if eqn.primitive.name not in DECIDED or any(operand is None for operand in operands):
        return None
    is_certain, outcome = DECIDED[eqn.primitive.name]
    return outcome if is_certain(*operands) else None  # type: ignore[arg-type]


def bounded(eqn: Any, operands: Sequence[Range | None], are_numbers: Sequence[bool]) -> int | None:
    """The operand of a maximum or minimum that is the result wherever in range it lies; None if it may be the other.

    Args:
        eqn: the equation.
        operands: their ranges.
        are_numbers: which operands are known, and so numbers: the other operand then decides what is none.
    """
    if eqn.primitive.name not in BOUNDS or any(operand is None for operand in operands):
        return None
    for bound, other in ((0, 1), (1, 0)):
        limit, kept = operands[bound], operands[other]
        assert limit is not None and kept is not None
        is_past = kept.low >= limit.high if eqn.primitive.name == "max" else kept.high <= limit.low
        # The maximum of 0 and −0 is 0, so a bound of zero may change what it is equal to.
        if are_numbers[bound] and is_past and not (limit.low == limit.high == 0):
            return other
    return None
