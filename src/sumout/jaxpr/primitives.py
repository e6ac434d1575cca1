"""The table of primitives: one row for each that the passes over a program know, described once.

A primitive that is not in the table is opaque: everything it computes depends on everything it takes. To add one, add
a row; what a pass asks (how do scopes go through it, is it linear, can NumPy compute it) follows from the row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import special

from sumout.jaxpr import numpy_forms as forms
from sumout.jaxpr.walk import equations_within


class Kind(Enum):
    """How elements of operands and results belong together."""

    ELEMENTWISE = auto()  # each result follows from the elements in its place, once operands are broadcast
    SELECT = auto()  # element-wise: a case for each element
    COPY = auto()  # element-wise: the operand as it is
    CONVERSION = auto()  # element-wise: the operand in another type
    MOVEMENT = auto()  # each result is an element of an operand
    REDUCTION = auto()  # along `axes`
    POSITION = auto()  # of the largest or smallest element along `axes`
    CUMULATIVE = auto()  # along `axis`
    SORT = auto()
    CONTRACTION = auto()
    GATHER = auto()
    SCATTER = auto()
    SLICE = auto()  # at computed starts
    UPDATE = auto()  # of a slice at computed starts
    WINDOW = auto()  # a reduction over sliding windows
    TRANSFORM = auto()  # of Fourier
    CONVOLUTION = auto()
    MATRIX = auto()  # a decomposition of the last two axes
    TRIANGULAR_SOLVE = auto()
    BARRIER = auto()  # each result is its operand
    SOURCE = auto()  # without operands
    CALL = auto()  # of a function, differentiated by what is in it
    RULED_CALL = auto()  # of a function with a derivative rule of its own
    LINEAR_SOLVE = auto()  # by functions that are given
    SCAN = auto()
    WHILE = auto()
    BRANCH = auto()
    OPAQUE = auto()  # not in the table


CALLS = frozenset((Kind.CALL, Kind.RULED_CALL))
LOOPS = frozenset((Kind.SCAN, Kind.WHILE))
CONTROL = CALLS | LOOPS | {Kind.BRANCH, Kind.LINEAR_SOLVE}
PLACEWISE = frozenset((Kind.ELEMENTWISE, Kind.SELECT, Kind.COPY, Kind.CONVERSION))


class Linear(Enum):
    """In which operands results are linear."""

    ALL = auto()  # in all of them together, as a sum is
    EACH = auto()  # in each of two, with the other fixed, as a product is
    FIRST = auto()  # in the first, with the others fixed
    CASES = auto()  # in all but the first together, with the first fixed


class Regular(Enum):
    """Where a function of one operand takes values at which other functions are singular (zero, for one)."""

    NEVER_ZERO = auto()  # nowhere
    WITH_OPERAND = auto()  # only where the operand is at certain numbers


@dataclass(frozen=True)
class Primitive:
    """A row of the table.

    Attributes:
        name: JAX's.
        kind: which selects the rule for scopes.
        numpy: the same as a function of NumPy arrays and parameters; None if NumPy is not to compute it.
        is_rounded: whether NumPy and XLA may differ in the last place of a fraction; of integers they never do.
        linear: in which operands it is; None if in none.
        signs: of a sum of its operands, or of some of them with the sign changed.
        power: to which it takes its operand: a number, or the parameter that holds it.
        singular: operands at which it may have no value or no derivative.
        regular: where it is zero or singular; None if that is not known.
        masks: whether its derivative by one operand is zero by the value of the other.
        neutral: the second operand that leaves the first as it is.
        commutes: whether its two operands may be swapped.
        absorbing: the operand that alone decides the result; a truth (True, False) does so of truths only.
        of_equal: the reduction of equal numbers, from the number and how many there are.
        keeps_order: whether a movement leaves all elements it keeps in their order.
    """

    name: str
    kind: Kind
    numpy: Callable[..., Any] | None = None
    is_rounded: bool = False
    linear: Linear | None = None
    signs: tuple[int, ...] = ()
    power: int | str | None = None
    singular: tuple[int, ...] = ()
    regular: Regular | None = None
    masks: bool = False
    neutral: int | None = None
    commutes: bool = False
    absorbing: int | None = None
    of_equal: Callable[[Any, Any], Any] | None = None
    keeps_order: bool = False

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether each result follows from the elements in its place."""
        return self.kind in PLACEWISE

    @cached_property
    def is_movement(self) -> bool:
        """Whether each result is an element of an operand, where `numpy` says."""
        return self.kind is Kind.MOVEMENT or self.kind is Kind.COPY

    @cached_property
    def is_call(self) -> bool:
        """Whether it calls one function, once."""
        return self.kind in CALLS

    @cached_property
    def is_control(self) -> bool:
        """Whether it runs other equations."""
        return self.kind in CONTROL

    @cached_property
    def has_scope_rule(self) -> bool:
        """Whether the scopes of its results follow from those of its operands by its kind."""
        return not self.is_control and self.kind not in (Kind.SOURCE, Kind.OPAQUE)

    @cached_property
    def is_function(self) -> bool:
        """Whether it is a function of one number."""
        return self.kind is Kind.ELEMENTWISE and self.regular is not None

    def is_linear_in(self, varying: Sequence[bool]) -> bool:
        """Whether the results are linear in the operands that vary, taken together, the others fixed."""
        if self.linear is Linear.EACH:
            return sum(varying) <= 1
        if self.linear is Linear.FIRST:
            return not any(varying[1:])
        return self.linear is Linear.ALL or (self.linear is Linear.CASES and not varying[0])

    def exponent(self, params: dict[str, Any]) -> int | None:
        """The power to which it takes its operand; None if it does not, or to a negative one."""
        power = params[self.power] if isinstance(self.power, str) else self.power
        return power if power is not None and power >= 0 else None


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function of the operands alone: parameters, of precision for one, do not matter to it."""
    return lambda *operands, **_: function(*operands)


def _rows(names: str, kind: Kind, numpy: Callable[..., Any] | None = None, **facts: Any) -> list[Primitive]:
    """Primitives of which the same is to be said."""
    return [Primitive(name, kind, numpy, **facts) for name in names.split()]


def _elementwise(names: str, numpy: Callable[..., Any] | None = None, **facts: Any) -> list[Primitive]:
    return _rows(names, Kind.ELEMENTWISE, None if numpy is None else _plain(numpy), **facts)


def _along_axes(numpy: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, *, axes, **_: numpy(a, axis=axes)


def _in_type(numpy: Callable[..., Any]) -> Callable[..., Any]:
    """Short integers are not summed up in long ones."""
    return lambda a, *, axes, **_: numpy(a, axis=axes, dtype=np.asarray(a).dtype)


_ALL, _EACH, _FIRST, _CASES = Linear.ALL, Linear.EACH, Linear.FIRST, Linear.CASES
_NEVER_ZERO: dict[str, Any] = {"regular": Regular.NEVER_ZERO}
_SMOOTH: dict[str, Any] = {"regular": Regular.WITH_OPERAND}
_SINGULAR: dict[str, Any] = {"regular": Regular.WITH_OPERAND, "singular": (0,)}
_MOVEMENT = partial(_rows, kind=Kind.MOVEMENT, linear=_ALL)
_REDUCTION = partial(_rows, kind=Kind.REDUCTION)

ROWS = (
    # Arithmetic
    *_elementwise("add", np.add, linear=_ALL, signs=(1, 1), neutral=0, commutes=True),
    *_elementwise("add_any", linear=_ALL, signs=(1, 1), neutral=0, commutes=True),
    *_elementwise("sub", np.subtract, linear=_ALL, signs=(1, -1), neutral=0),
    *_elementwise("mul", np.multiply, linear=_EACH, masks=True, neutral=1, commutes=True, absorbing=0),
    *_elementwise("div", forms.divide, is_rounded=True, linear=_FIRST, singular=(1,), neutral=1),
    *_elementwise("max", np.maximum, masks=True),
    *_elementwise("min", np.minimum, masks=True),
    *_elementwise("clamp", lambda low, a, high: np.clip(a, low, high)),
    *_elementwise("abs", np.abs),
    *_elementwise("floor", np.floor),
    *_elementwise("ceil nextafter reduce_precision round sign"),
    *_elementwise("stop_gradient"),  # hands on its operand, but not its derivative
    *_elementwise("rem", forms.remainder, is_rounded=True, singular=(1,)),
    *_elementwise("atan2 pow", singular=(0, 1)),
    *_rows("convert_element_type", Kind.CONVERSION, forms.convert, linear=_ALL, signs=(1,), **_SMOOTH),
    *_rows("copy copy_p", Kind.COPY, _plain(lambda a: a), linear=_ALL, signs=(1,), keeps_order=True, **_SMOOTH),
    # Functions of one number
    *_elementwise("neg", np.negative, linear=_ALL, signs=(-1,), **_SMOOTH),
    *_elementwise("square", np.square, is_rounded=True, power=2, **_SMOOTH),
    *_rows("integer_pow", Kind.ELEMENTWISE, forms.integer_pow, is_rounded=True, power="y", **_SMOOTH),
    *_elementwise("exp", np.exp, is_rounded=True, **_NEVER_ZERO),
    *_elementwise("logistic", special.expit, is_rounded=True, **_NEVER_ZERO),
    *_elementwise("cosh exp2", **_NEVER_ZERO),
    *_elementwise("expm1", np.expm1, is_rounded=True, **_SMOOTH),
    *_elementwise("tanh", np.tanh, is_rounded=True, **_SMOOTH),
    *_elementwise("erf", special.erf, is_rounded=True, **_SMOOTH),
    *_elementwise("asinh atan cos erfc sin sinh", **_SMOOTH),
    *_elementwise("log", np.log, is_rounded=True, **_SINGULAR),
    *_elementwise("log1p", np.log1p, is_rounded=True, **_SINGULAR),
    *_elementwise("sqrt", np.sqrt, is_rounded=True, **_SINGULAR),
    *_elementwise("rsqrt", lambda a: 1 / np.sqrt(a), is_rounded=True, **_SINGULAR),
    *_elementwise("lgamma", special.gammaln, is_rounded=True, **_SINGULAR),
    *_elementwise("acos acosh asin atanh cbrt digamma erf_inv tan", **_SINGULAR),
    # Other functions
    *_elementwise("bessel_i0e bessel_i1e igamma_grad_a"),
    *_elementwise("igamma igammac polygamma random_gamma_grad zeta", singular=(0, 1)),
    *_elementwise("regularized_incomplete_beta", singular=(0, 1, 2)),
    *_elementwise("complex conj imag real", linear=_ALL),
    # Comparisons, truths and bits
    *_elementwise("eq", np.equal),
    *_elementwise("ne", np.not_equal),
    *_elementwise("lt", np.less),
    *_elementwise("le", np.less_equal),
    *_elementwise("gt", np.greater),
    *_elementwise("ge", np.greater_equal),
    *_elementwise("and", np.bitwise_and, absorbing=0),
    *_elementwise("or", np.bitwise_or, absorbing=True),
    *_elementwise("not", np.invert),
    *_elementwise("eq_to is_finite le_to lt_to"),
    *_elementwise("clz population_count shift_left shift_right_arithmetic shift_right_logical xor"),
    *_rows("select_n", Kind.SELECT, _plain(forms.select_n), linear=_CASES),
    # Movements: all operands are moved, none is an index
    *_MOVEMENT("broadcast_in_dim", numpy=forms.broadcast_in_dim, keeps_order=True),
    *_MOVEMENT("reshape", numpy=forms.reshape, keeps_order=True),
    *_MOVEMENT("squeeze", numpy=lambda a, *, dimensions, **_: np.squeeze(a, axis=dimensions), keeps_order=True),
    *_MOVEMENT("expand_dims", numpy=lambda a, *, dimensions, **_: np.expand_dims(a, dimensions), keeps_order=True),
    *_MOVEMENT("slice", numpy=forms.static_slice, keeps_order=True),
    *_MOVEMENT("tile", numpy=lambda a, *, reps, **_: np.tile(a, reps), keeps_order=True),
    *_MOVEMENT("transpose", numpy=lambda a, *, permutation, **_: a.transpose(permutation)),
    *_MOVEMENT("rev", numpy=lambda a, *, dimensions, **_: np.flip(a, dimensions)),
    *_MOVEMENT("pad", numpy=forms.pad),
    *_MOVEMENT("concatenate", numpy=lambda *arrays, dimension, **_: np.concatenate(arrays, axis=dimension)),
    *_MOVEMENT("stack", numpy=lambda *arrays, axis, **_: np.stack(arrays, axis=axis)),
    *_MOVEMENT("split", numpy=forms.split),
    # Reductions
    *_REDUCTION("reduce_sum", numpy=_in_type(np.sum), is_rounded=True, linear=_ALL, of_equal=lambda a, n: a * n),
    *_REDUCTION("reduce_prod", numpy=_in_type(np.prod), is_rounded=True, of_equal=lambda a, n: a**n),
    *_REDUCTION("reduce_max", numpy=_along_axes(np.max), of_equal=lambda a, _: a),
    *_REDUCTION("reduce_min", numpy=_along_axes(np.min), of_equal=lambda a, _: a),
    *_REDUCTION("reduce_and", numpy=_along_axes(np.all), of_equal=lambda a, _: a),
    *_REDUCTION("reduce_or", numpy=_along_axes(np.any), of_equal=lambda a, _: a),
    *_REDUCTION("reduce_xor"),
    *_rows("argmax argmin", Kind.POSITION),
    *_rows("cumsum", Kind.CUMULATIVE, linear=_ALL),
    *_rows("cumlogsumexp cummax cummin cumprod", Kind.CUMULATIVE),
    *_rows("reduce_window_sum", Kind.WINDOW, linear=_ALL),
    *_rows("reduce_window_max reduce_window_min", Kind.WINDOW),
    # Look-ups and updates
    *_rows("gather", Kind.GATHER, linear=_FIRST),
    *_rows("dynamic_slice", Kind.SLICE, forms.dynamic_slice, linear=_FIRST),
    *_rows("dynamic_update_slice", Kind.UPDATE, forms.dynamic_update_slice),
    *_rows("scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub", Kind.SCATTER),
    *_rows("sort top_k", Kind.SORT),
    # Linear algebra and transforms
    *_rows("dot_general", Kind.CONTRACTION, linear=_EACH),
    *_rows("conv_general_dilated", Kind.CONVOLUTION, linear=_EACH),
    *_rows("fft", Kind.TRANSFORM, linear=_ALL),
    *_rows("cholesky eigh lu qr svd", Kind.MATRIX),
    *_rows("triangular_solve", Kind.TRIANGULAR_SOLVE),
    # Neither computed nor moved
    *_rows("optimization_barrier", Kind.BARRIER, linear=_ALL),
    *_rows("iota", Kind.SOURCE, forms.iota),
    # Calls, under all names they have had, and control flow
    *_rows("call checkpoint closed_call core_call jit pjit remat2", Kind.CALL),
    *_rows("custom_jvp_call custom_vjp_call", Kind.RULED_CALL),
    *_rows("custom_linear_solve", Kind.LINEAR_SOLVE),
    *_rows("scan", Kind.SCAN),
    *_rows("while", Kind.WHILE),
    *_rows("cond", Kind.BRANCH),
)

TABLE: dict[str, Primitive] = {row.name: row for row in ROWS}
_OPAQUE = Primitive("", Kind.OPAQUE)


def row_of(eqn: Any) -> Primitive:
    """The row of an equation's primitive."""
    return TABLE.get(eqn.primitive.name, _OPAQUE)


def names_of(*kinds: Kind) -> frozenset[str]:
    """The names of all primitives of some kinds."""
    return frozenset(row.name for row in ROWS if row.kind in kinds)


def is_elementwise(eqn: Any) -> bool:
    """Whether it is such an equation, or a function with a derivative rule of its own made of such equations."""
    if eqn.primitive.name != "custom_jvp_call":
        return row_of(eqn).is_elementwise
    if len(eqn.outvars) != 1:
        return False
    shape = eqn.outvars[0].aval.shape
    is_in_place = all(_fills(v.aval.shape, shape) for v in eqn.invars)
    return is_in_place and all(map(_stays_in_place, equations_within(eqn)))


def _fills(part: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an operand is a number, or an array that is repeated along axes of size 1."""
    return not part or (len(part) == len(shape) and all(a in (1, b) for a, b in zip(part, shape, strict=True)))


def is_function(eqn: Any) -> bool:
    """Whether it is a function of one number, or calls one."""
    return row_of(eqn).is_function or any(row_of(inner).is_function for inner in equations_within(eqn))


def _stays_in_place(eqn: Any) -> bool:
    row = row_of(eqn)
    return row.is_elementwise or row.is_call or row.name == "broadcast_in_dim"
