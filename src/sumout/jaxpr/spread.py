"""Arrays as small as their content, and sums of products of small arrays with data.

    Combination = Σ_t number_t · weight_t

A log density of counts or categories is linear in a few numbers: y log p + (1 − y) log(1 − p), or log p[y], which is
Σ_e log p[e] · (y = e). The numbers follow from x and vary along few axes, the weights are data. Sums of it over data
are then products with sums of weights, or one product with a matrix of weights, neither of which depends on x.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sumout.jaxpr.singular_points import logarithm_of, multiply, with_rule
from sumout.jaxpr.walk import shape_of

SMALL_WEIGHTS = 16  # elements of an array that need not be told from the numbers it is multiplied by
FEWER = 4  # times that numbers must be than their products, to be told from their weights


@partial(jax.tree_util.register_dataclass, data_fields=["content"], meta_fields=["shape", "source"])
@dataclass(frozen=True, eq=False)
class Spread:
    """An array whose content does not vary along the axes where `content` has size 1.

    Attributes:
        content: the array, as small as may be.
        shape: what it stands for.
        source: what a single number comes from; two numbers of the same source are equal. None where it is not known.
    """

    content: Any
    shape: tuple[int, ...]
    source: Hashable = None

    @property
    def full(self) -> Any:
        """The array laid out."""
        return self.content if self.content.shape == self.shape else jnp.broadcast_to(self.content, self.shape)


@partial(jax.tree_util.register_dataclass, data_fields=["numbers", "weights"], meta_fields=["shape", "source"])
@dataclass(frozen=True, eq=False)
class Combination:
    """Σ numbers · weights.

    Attributes:
        numbers: arrays of as many axes as the result, of size 1 along those on which they do not vary.
        weights: for each another one. Where it is zero, the product is, whatever the number.
        shape: what it stands for.
    """

    numbers: tuple[Any, ...]
    weights: tuple[Any, ...]
    shape: tuple[int, ...]
    source: Hashable = None

    @cached_property
    def content(self) -> Any:
        """The array, as small as may be."""
        return reduce(jnp.add, [multiply(*pair) for pair in zip(self.numbers, self.weights, strict=True)])

    @property
    def full(self) -> Any:
        """The array laid out."""
        return jnp.broadcast_to(self.content, self.shape)

    def sum_by(self, add_up: Callable[[Any], Any], weights: Sequence[Any]) -> Any:
        """Σ number · (sums of its weights), of single numbers. Weights that cancel do not make up for one of −∞."""
        terms = []
        for number, each in zip(self.numbers, weights, strict=True):
            number = jnp.reshape(number, ())
            finite, infinite = add_up(each), add_up(jnp.abs(each))
            terms.append(multiply(number, jnp.where(jnp.isfinite(number), finite, infinite)))
        return reduce(jnp.add, terms)

    def times(self, factor: Any) -> "Combination":
        """All numbers times another."""
        factor = jnp.reshape(factor, (1,) * len(self.shape))
        return Combination(tuple(multiply(c, factor) for c in self.numbers), self.weights, self.shape)


@dataclass(frozen=True, eq=False)
class Product:
    """The product of two arrays that vary along different axes, which is not laid out to be summed.

    Attributes:
        factors: the arrays.
        shape: what it stands for.
    """

    factors: tuple[Spread, Spread]
    shape: tuple[int, ...]
    source: Hashable = None

    @cached_property
    def content(self) -> Any:
        """The array, as small as may be."""
        return self.factors[0].content * self.factors[1].content

    @property
    def full(self) -> Any:
        """The array laid out."""
        return jnp.broadcast_to(self.content, self.shape)

    def sum(self, axes: Sequence[int]) -> Any:
        """The content of its sum along some axes, along which both factors vary."""
        letters = "abcdefghijklmnopqrstuvwxyz"[: len(self.shape)]
        kept = [axis for axis in range(len(self.shape)) if axis not in axes]
        names, contents = [], []
        for factor in sorted(self.factors, key=lambda factor: factor.content.size):
            varied = [axis for axis, size in enumerate(factor.content.shape) if size > 1]
            names.append("".join(letters[axis] for axis in varied))
            contents.append(factor.content.reshape([factor.content.shape[axis] for axis in varied]))
        out = [axis for axis in kept if any(factor.content.shape[axis] > 1 for factor in self.factors)]
        found = jnp.einsum(f"{','.join(names)}->{''.join(letters[axis] for axis in out)}", *contents)
        return found.reshape([self.shape[axis] if axis in out else 1 for axis in kept])


def multiply_later(eqn: Any, operands: list[Any]) -> Product | None:
    """A product of arrays of which one is a row, or some rows, of what the other is a table of."""
    if eqn.primitive is not lax.mul_p or not all(isinstance(operand, Spread) for operand in operands):
        return None
    shapes = [operand.content.shape for operand in operands]
    if len(shapes[0]) != len(shapes[1]) or any(prod(shape) == 1 for shape in shapes) or shapes[0] == shapes[1]:
        return None
    out = eqn.outvars[0].aval
    return Product((operands[0], operands[1]), out.shape) if jnp.issubdtype(out.dtype, jnp.floating) else None


def sum_product(eqn: Any, operand: Any) -> list[Any] | None:
    """The content of a sum of a product along axes along which both factors vary; None for all else."""
    if not isinstance(operand, Product) or eqn.primitive.name != "reduce_sum":
        return None
    axes = eqn.params["axes"]
    is_met = all(factor.content.shape[axis] == operand.shape[axis] for factor in operand.factors for axis in axes)
    return [operand.sum(axes)] if is_met else None


def combine(eqn: Any, operands: list[Any]) -> Combination | None:
    """The result of an equation as a combination of weights; None where it is not one."""
    out, name = shape_of(eqn.outvars[0]), eqn.primitive.name
    logarithm = logarithm_of(eqn)
    if logarithm is not None:
        return _weighed_logarithm(logarithm, operands, out)
    if not any(isinstance(operand, Combination) for operand in operands):
        return None
    if name == "select_n":
        return _combine_cases(operands, out)
    if name in ("add", "sub", "neg"):
        terms = _all_terms(operands, out)
        if terms is None:
            return None
        if name != "add":
            terms[-1] = terms[-1].times(jnp.full((), -1, terms[-1].numbers[0].dtype))
        return _merge(terms, out)
    if name in ("mul", "product"):
        combination, factor = sorted(operands, key=lambda o: not isinstance(o, Combination))
        is_ordered = name == "mul" or combination is operands[0]
        return combination.times(factor.content) if factor.content.size == 1 and is_ordered else None
    return None


def _weighed_logarithm(logarithm: Any, operands: list[Any], out: tuple[int, ...]) -> Combination | None:
    """Of x log y, where y has fewer elements than x."""
    first, second = operands
    content = second.content
    is_small = content.size * FEWER <= max(first.content.size, content.size)
    if not is_small or first.content.size <= SMALL_WEIGHTS or not isinstance(first, Spread):
        return None
    number = with_rule(logarithm, False).bind(content, accuracy=None)
    number = number.reshape((1,) * len(out)) if number.size == 1 else number
    return Combination((number,), (first.content.astype(number.dtype),), out)


def look_ups(rows: Any, numbers: Any, fills: bool, shape: tuple[int, ...]) -> Combination:
    """Entries of short rows by their number: Σ entry · (number = its own). Past the end is NaN, or the nearest entry.

    Args:
        rows: with the entries last; of size 1 along other axes on which they do not vary.
        numbers: which entry, with a last axis of size 1.
        fills: whether past the end is NaN.
        shape: of the result.
    """
    length = rows.shape[-1]
    where = numbers if fills else jnp.clip(numbers, 0, length - 1)
    entries = [rows[..., entry : entry + 1] for entry in range(length)]
    weights = [(where == entry).astype(rows.dtype) for entry in range(length)]
    if fills:
        entries.append(jnp.full((1,) * rows.ndim, jnp.nan, rows.dtype))
        weights.append(((where < 0) | (where >= length)).astype(rows.dtype))
    return Combination(tuple(entries), tuple(weights), shape)


def _as_terms(operand: Any, out: tuple[int, ...]) -> Combination | None:
    """A combination, or a number as one; None for other arrays."""
    if isinstance(operand, Combination):
        return operand
    if operand.content.size > 1:
        return None
    number = operand.content.reshape((1,) * len(out))
    return Combination((number,), (jnp.ones_like(number),), out)


def _all_terms(operands: Sequence[Any], out: tuple[int, ...]) -> list[Combination] | None:
    """The same of several, if it can be done of all."""
    found = [_as_terms(operand, out) for operand in operands]
    terms = [each for each in found if each is not None]
    return terms if len(terms) == len(found) else None


def _merge(terms: Sequence[Combination], shape: tuple[int, ...]) -> Combination:
    """The sum of some combinations."""
    numbers = tuple(number for term in terms for number in term.numbers)
    return Combination(numbers, tuple(weight for term in terms for weight in term.weights), shape)


def _combine_cases(operands: list[Any], out: tuple[int, ...]) -> Combination | None:
    """A choice between combinations and numbers: where a case is not chosen, its weights are zero."""
    which, *cases = operands
    terms = _all_terms(cases, out)
    if terms is None:
        return None
    kept = []
    for number, term in enumerate(terms):
        mask = which.content == number
        kept.append(Combination(term.numbers, tuple(jnp.where(mask, each, 0) for each in term.weights), out))
    return _merge(kept, out)
