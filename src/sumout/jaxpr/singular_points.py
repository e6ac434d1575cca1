"""Derivatives at singular points: what counts for nothing changes nothing.

A value of z may make something impossible: log(z · p) is −∞ at z = 0, and p(z = 0 | x, y) is zero. Such a branch adds
nothing to the gradient of a sum over z. The chain rule as it is computed says otherwise: it multiplies the weight of
the branch, 0, by the derivative of the logarithm there, 1/0, which is no number. So two rules are added to it, in

    cotangent of operand = derivative · cotangent of result

- a cotangent that is exactly zero stays zero, whatever the derivative: what nobody looks at, an impossible branch or a
  case that was not chosen, need not have a derivative;
- where a product is by exactly zero, or a maximum or minimum is that of the other operand, the operand's cotangent is
  zero, whatever arrives: z · p at z = 0 does not depend on p, however steep the function of it.

An infinite derivative at a possible value remains infinite. An equation gets these rules by a primitive of the same
name that takes the place of its own, so that all who read the program find what they know. They cost a comparison each
and are given only where something can be singular because of z or the data, which is looked up in the program
(`with_rules`): a scale σ[z] chosen from those in x is not, z · σ is. Functions of complex numbers keep their own rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from sumout.jaxpr.equations import bind
from sumout.jaxpr.primitives import Kind, Linear, Regular, is_elementwise, row_of
from sumout.jaxpr.walk import arguments, equations_within, read, walk

product_p = Primitive("product")


def multiply(first: Any, second: Any, *, both: bool = False) -> Any:
    """The product, but zero where the second is zero, whatever the first; with `both` also where the first is.

    Its derivatives are products of the same kind. Of numbers that are known (NumPy's) it is known.
    """
    if isinstance(second, np.ndarray) and (second != 0).all() and not both:
        return first * second if (second != 1).any() or second.ndim > np.ndim(first) else first
    shape = jnp.broadcast_shapes(np.shape(first), np.shape(second))
    return product_p.bind(*(jnp.broadcast_to(a, shape) for a in (first, second)), both=both)


def _in_batches(primitive: Primitive, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> Any:
    """An element-wise primitive for a batch: the batch comes first, and all operands have the same shape."""
    size = next(a.shape[axis] for a, axis in zip(operands, axes, strict=True) if axis is not None)
    whole = [batching.bdim_at_front(a, axis, size) for a, axis in zip(operands, axes, strict=True)]
    most = max(a.ndim for a in whole)
    whole = [a.reshape(a.shape + (1,) * (most - a.ndim)) for a in whole]  # of operands that were numbers
    shape = jnp.broadcast_shapes(*(a.shape for a in whole))
    return primitive.bind(*(jnp.broadcast_to(a, shape) for a in whole), **params), 0


def _product(derivative: Any, cotangent: Any, *, both: bool) -> Any:
    nothing = lax.eq(cotangent, lax.full_like(cotangent, 0))
    if both:
        nothing = lax.bitwise_or(nothing, lax.eq(derivative, lax.full_like(derivative, 0)))
    return lax.select(nothing, lax.full_like(cotangent, 0), lax.mul(derivative, cotangent))


def _product_jvp(primals: Any, tangents: Any, *, both: bool) -> tuple[Any, Any]:
    derivative, cotangent = primals
    parts = []
    if type(tangents[0]) is not ad.Zero:
        parts.append(product_p.bind(tangents[0], cotangent, both=both))
    if type(tangents[1]) is not ad.Zero:
        parts.append(product_p.bind(derivative, tangents[1], both=both))
    out = product_p.bind(derivative, cotangent, both=both)
    return out, reduce(ad.add_jaxvals, parts) if parts else _no_tangent(out)


def _product_transpose(cotangent: Any, first: Any, second: Any, *, both: bool) -> list[Any]:
    if type(cotangent) is ad.Zero:
        return [None, None]
    if ad.is_undefined_primal(second):
        return [None, product_p.bind(first, cotangent, both=both)]
    return [product_p.bind(second, cotangent, both=both), None]


product_p.def_impl(_product)
product_p.def_abstract_eval(lambda derivative, cotangent, *, both: cotangent)
ad.primitive_jvps[product_p] = _product_jvp
ad.primitive_transposes[product_p] = _product_transpose
batching.primitive_batchers[product_p] = partial(_in_batches, product_p)
mlir.register_lowering(product_p, mlir.lower_fun(_product, multiple_results=False))


@cache
def with_rule(primitive: Primitive, both: bool) -> Primitive:
    """An element-wise primitive that computes the same, under the same name, and is differentiated as said above."""
    ruled = Primitive(primitive.name)

    def run(*operands: Any, **params: Any) -> Any:
        return primitive.bind(*operands, **params)

    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        out = ruled.bind(*primals, **params)
        parts = []
        for i, tangent in enumerate(tangents):
            if type(tangent) is ad.Zero:
                continue
            slope = _slope(primitive, primals, i, params)
            if type(slope) is not ad.Zero:
                parts.append(multiply(slope, tangent, both=both))
        return out, reduce(ad.add_jaxvals, parts) if parts else _no_tangent(out)

    ruled.def_impl(run)
    ruled.def_abstract_eval(lambda *avals, **params: primitive.abstract_eval(*avals, **params)[0])
    ad.primitive_jvps[ruled] = jvp
    batching.primitive_batchers[ruled] = partial(_in_batches, ruled)
    mlir.register_lowering(ruled, mlir.lower_fun(run, multiple_results=False))
    return ruled


def _no_tangent(primal: Any) -> Any:
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def _slope(primitive: Primitive, primals: Sequence[Any], i: int, params: Any) -> Any:
    """The derivative of each element of the result by that of operand `i` in its place."""
    ones = [lax.full_like(p, 1) if j == i else _no_tangent(p) for j, p in enumerate(primals)]
    return ad.primitive_jvps[primitive](tuple(primals), tuple(ones), **params)[1]


MATRICES = frozenset((Kind.MATRIX, Kind.TRIANGULAR_SOLVE))
# What is as regular as the first operand: some of its elements, or a summary of them.
PARTS = frozenset((Kind.REDUCTION, Kind.CUMULATIVE, Kind.GATHER, Kind.SLICE))
DIFFERENTIATED_WITHIN = frozenset((Kind.CALL, Kind.SCAN, Kind.WHILE, Kind.BRANCH))
KNOWN = PARTS | {Kind.MOVEMENT, Kind.CONTRACTION}


@dataclass(frozen=True)
class Traits:
    """What is known of an array.

    Attributes:
        from_x: whether it has a derivative by x.
        from_z: whether it depends on z.
        is_regular: whether z and data alone never lead it to zero, or to another point where a function is singular.
        may_be_infinite: whether elements may be infinite, or no numbers, because of z.
        sees_x: whether it depends on x at all, be it by comparison.
        has_numbers: whether some elements are fractions chosen by z, as in `where(z, p, 0.5)`, from which one step of
            arithmetic may lead to a singular point.
    """

    from_x: bool = False
    from_z: bool = False
    is_regular: bool = False
    may_be_infinite: bool = False
    sees_x: bool = False
    has_numbers: bool = False

    @property
    def may_be_singular(self) -> bool:
        """Whether z or data can lead it to a singular point; data by themselves are as they are."""
        return self.may_be_infinite or (not self.is_regular and (self.from_x or self.from_z))


UNKNOWN = Traits(from_x=True, from_z=True, may_be_infinite=True, sees_x=True)
OF_X, OF_Z = Traits(from_x=True, is_regular=True, sees_x=True), Traits(from_z=True)


def with_rules(closed: ClosedJaxpr, num_x: int, num_z: int) -> ClosedJaxpr:
    """The same program, differentiated by the rules above; of its arguments so many are x, and so many after them z."""
    num_data = len(closed.jaxpr.invars) - num_x - num_z
    return _with_rules(closed, [OF_X] * num_x + [OF_Z] * num_z + [Traits()] * num_data)


def _with_rules(closed: ClosedJaxpr, given: Sequence[Traits]) -> ClosedJaxpr:
    jaxpr = closed.jaxpr

    def of_literal(literal: Literal) -> Traits:
        return _constant_traits(literal.val)

    def forward(eqn: Any, operands: list[Traits]) -> list[Traits]:
        traits = _result_traits(eqn, operands)
        return [traits if _is_real(v) else replace(traits, from_x=False) for v in eqn.outvars]

    start = arguments(jaxpr, map(_constant_traits, closed.consts), given)
    found = walk(jaxpr.eqns, start, forward, of_literal)
    steep: set[Any] = set()  # whose cotangent may be infinite
    equations = []
    for eqn in reversed(jaxpr.eqns):
        operands = read(found, eqn.invars, of_literal)
        if any(found[v].from_x for v in eqn.outvars):
            is_steep = not steep.isdisjoint(eqn.outvars)
            places = range(len(operands)) if is_steep else _singular_places(eqn, operands)
            steep.update(eqn.invars[i] for i in places if operands[i].from_x)
            eqn = _with_rule(eqn, operands, is_steep)
        equations.append(eqn)
    return ClosedJaxpr(jaxpr.replace(eqns=equations[::-1]), closed.consts)


def _is_real(variable: Any) -> bool:
    return jnp.issubdtype(variable.aval.dtype, jnp.inexact)


def _constant_traits(value: Any) -> Traits:
    if isinstance(value, Tracer) or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        return Traits()
    numbers = np.asarray(value)
    is_finite = bool(np.isfinite(numbers).all())
    return Traits(is_regular=is_finite and not (numbers == np.round(numbers)).any(), may_be_infinite=not is_finite)


def _result_traits(eqn: Any, operands: list[Traits]) -> Traits:
    from_x, from_z, sees_x = (any(getattr(o, name) for o in operands) for name in ("from_x", "from_z", "sees_x"))
    row = row_of(eqn)
    if _has_body(eqn) or not (row.kind in KNOWN or _is_in_place(eqn)):
        return Traits(from_x, from_z, False, from_z, sees_x)
    may_be_infinite = any(o.may_be_infinite for o in operands) or bool(_singular_places(eqn, operands))
    is_regular = not may_be_infinite and _is_regular(eqn, operands)
    is_choice = row.kind is Kind.SELECT and not all(operand.from_x for operand in operands[1:])
    has_numbers = is_choice or any(operand.has_numbers for operand in operands)
    return Traits(from_x, from_z, is_regular, may_be_infinite, sees_x, has_numbers)


def _is_regular(eqn: Any, operands: list[Traits]) -> bool:
    """Whether z and data alone never lead a result to a singular point."""
    row, regular = row_of(eqn), [operand.is_regular for operand in operands]
    if row.regular is Regular.NEVER_ZERO:
        return True
    if row.regular is Regular.WITH_OPERAND or row.kind in PARTS:
        return regular[0]
    if row.kind is Kind.MOVEMENT:
        return all(regular)
    if row.kind is Kind.SELECT:  # by x, it may be there to keep from a function what that cannot take
        return any(regular[1:]) if operands[0].sees_x else all(regular[1:])
    if row.name in ("max", "min"):  # bounds are there for the same
        return any(regular) and not any(o.from_z for o in operands if not o.is_regular)
    if any(operand.has_numbers for operand in operands):
        return False
    if row.kind is Kind.CONTRACTION:
        return all(regular)
    if row.signs:  # p − p[z] may be zero
        return any(regular) and (not all(o.from_x for o in operands) or not any(o.from_z for o in operands))
    if row.name in ("mul", "div"):
        fixed = [v for v, is_regular in zip(eqn.invars, regular, strict=True) if not is_regular]
        return all(isinstance(v, Literal) and v.val != 0 for v in fixed)
    return False


def _singular_places(eqn: Any, operands: list[Traits]) -> list[int]:
    """The operands that z can lead to a singular point of the equation."""
    row = row_of(eqn)
    if _has_body(eqn):
        return [i for i, operand in enumerate(operands) if operand.from_x]
    places: Sequence[int] = row.singular
    if row.name == "integer_pow" and eqn.params["y"] < 0:
        places = (0,)
    if row.kind in MATRICES or (row.kind is Kind.RULED_CALL and _is_in_place(eqn)):
        places = range(len(operands))
    return [i for i in places if operands[i].may_be_singular]


def _with_rule(eqn: Any, operands: list[Traits], is_steep: bool) -> Any:
    """The equation with the derivative rule that it needs."""
    row = row_of(eqn)
    if _has_body(eqn):
        return eqn.replace(params={key: _within(value) for key, value in eqn.params.items()})
    if row.kind in MATRICES:
        return _matrices_with_rule(eqn) if _singular_places(eqn, operands) else eqn
    has_constant_slope = row.linear in (Linear.ALL, Linear.CASES) or row.name == "stop_gradient"
    if has_constant_slope or not _is_in_place(eqn) or _is_complex(eqn):
        return eqn
    may_be_infinite = any(operand.may_be_infinite for operand in operands)
    is_singular = may_be_infinite or bool(_singular_places(eqn, operands))
    if row.kind is Kind.RULED_CALL:
        return _custom_with_rule(eqn) if is_singular else eqn
    is_mask = is_steep and row.masks and not _is_by_number(eqn)
    if is_mask or (is_singular and row.name not in ("max", "min")):
        return eqn.replace(primitive=with_rule(eqn.primitive, is_mask))
    return eqn


def _is_complex(eqn: Any) -> bool:
    """Whether an equation takes or gives complex numbers, along whose axes its slopes may differ, as of |w|."""
    return any(jnp.issubdtype(v.aval.dtype, jnp.complexfloating) for v in (*eqn.invars, *eqn.outvars))


def _is_in_place(eqn: Any) -> bool:
    """Whether each element of the result follows from those in its place, once operands are broadcast as by NumPy."""
    if eqn.primitive.name != "custom_jvp_call" or len(eqn.outvars) != 1:
        return is_elementwise(eqn)
    return all(row_of(one).is_elementwise or _broadcasts(one) for one in equations_within(eqn))


def _broadcasts(eqn: Any) -> bool:
    """Whether an equation only adds axes in front, or repeats along axes of size 1; or calls others."""
    if row_of(eqn).kind is Kind.CALL:
        return True
    if eqn.primitive.name not in ("broadcast_in_dim", "reshape"):
        return False
    old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    ends = all(a in (1, b) for a, b in zip(old[::-1], new[::-1], strict=False))
    axes = eqn.params.get("broadcast_dimensions", range(len(new) - len(old), len(new)))
    return ends and len(old) <= len(new) and tuple(axes) == tuple(range(len(new) - len(old), len(new)))


def _is_by_number(eqn: Any) -> bool:
    """Whether it is a product by a number other than zero."""
    return eqn.primitive.name == "mul" and any(isinstance(v, Literal) and v.val != 0 for v in eqn.invars)


def _has_body(eqn: Any) -> bool:
    """Whether an equation is a loop, a branch or a call that is differentiated by what is in it."""
    return row_of(eqn).kind in DIFFERENTIATED_WITHIN


def _within(param: Any) -> Any:
    """A body with the rules for all that it computes; other parameters as they are."""
    if isinstance(param, ClosedJaxpr):
        return _with_rules(param, [UNKNOWN] * len(param.in_avals))
    if isinstance(param, Jaxpr):
        return _with_rules(ClosedJaxpr(param, ()), [UNKNOWN] * len(param.invars)).jaxpr
    return tuple(map(_within, param)) if isinstance(param, tuple) else param


def _custom_with_rule(eqn: Any) -> Any:
    """A function with a derivative rule of its own: where that gives no finite number, what is in it is asked.

    Of x log y at 0 log 0 the rule says 0/0, but what is in it says that x = 0 was told apart.
    """
    body = eqn.params["call_jaxpr"]
    opened = jaxpr_as_fun(_with_rules(body, [UNKNOWN] * len(body.in_avals)))

    def run(*operands: Any) -> Any:
        return jaxpr_as_fun(body)(*operands)[0]

    logarithm = logarithm_of(eqn)
    if logarithm is not None:
        run.__name__ = run.__qualname__ = f"{OPENED}{logarithm.name}"
    function = jax.custom_jvp(run)

    @function.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
        (out,) = bind(eqn, primals)
        total = jnp.zeros_like(out)
        for i, tangent in enumerate(tangents):
            if not jnp.issubdtype(primals[i].dtype, jnp.floating):
                continue
            slopes = [
                jax.jvp(
                    lambda a, run=run, i=i: run(*primals[:i], a, *primals[i + 1 :])[0],
                    (primals[i],),
                    (jnp.ones_like(primals[i]),),
                )[1]
                for run in (lambda *a: bind(eqn, a), opened)
            ]
            total += multiply(jnp.where(jnp.isfinite(slopes[0]), *slopes), tangent)
        return out, total

    return _traced(function, eqn)


# x log y and x log(1 + y) as JAX has them, and as they are called once they have rules at singular points.
X_LOG_Y = {"xlogy": lax.log_p, "xlog1py": lax.log1p_p}
OPENED = "x_times_"


def logarithm_of(eqn: Any) -> Any:
    """The logarithm in x log y or x log(1 + y), functions with derivative rules of their own; None for all others.

    They are products that are zero where x is, which `multiply` has the derivatives of. Taken apart so, the logarithm
    is that of the content of y alone.
    """
    if eqn.primitive.name != "custom_jvp_call":
        return None
    name, _, place = eqn.params["call_jaxpr"].jaxpr.debug_info.func_src_info.partition(" at ")
    if "jax/_src/scipy/special.py" in place.replace("\\", "/"):
        return X_LOG_Y.get(name)
    is_ours = name.startswith(OPENED) and __file__ in place
    return next((log for log in X_LOG_Y.values() if is_ours and name == f"{OPENED}{log.name}"), None)


def _matrices_with_rule(eqn: Any) -> Any:
    """A decomposition or solution of matrices: one whose cotangents are all zero hands back zeros."""
    num_batch = len(eqn.invars[0].aval.shape) - 2

    @jax.custom_vjp
    def function(*operands: Any) -> Any:
        return bind(eqn, operands)

    def backward(pull_back: Any, cotangents: Any) -> Any:
        # Of matrices or, as with eigenvalues, of one vector for each; integers have none.
        counts = [
            (c != 0).any(axis=tuple(range(num_batch, c.ndim))) for c in cotangents if c.dtype != jax.dtypes.float0
        ]
        matters = reduce(jnp.logical_or, counts)[..., None, None]
        return tuple(jnp.where(matters, c, 0.0) for c in pull_back(cotangents))

    function.defvjp(lambda *operands: jax.vjp(lambda *a: bind(eqn, a), *operands), backward)
    return _traced(function, eqn)


def _traced(function: Any, eqn: Any) -> Any:
    """An equation that calls a function in the place of another."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    (call,) = jax.make_jaxpr(function)(*shapes).jaxpr.eqns
    return call.replace(invars=eqn.invars, outvars=eqn.outvars)
