"""Take a scalar log density apart into the unsummed terms that depend on z.

From the output we walk back through everything that is linear in what depends on z: sums, differences, reshapes,
products with something free of z, slices, contractions. The walk stops, at a leaf, where linearity ends or where every
element depends on one site only, so that nothing is left to separate. Then

    log_density(x, z, data) = rest(x, data) + Σ_leaves Σ_e c_e · leaf_e

with coefficients c = ∂ log_density / ∂ leaf, free of z, found by differentiating the linear part. Along the way each
element is marked as live or not: one that a slice or a known mask leaves out has c = 0 whatever x is.
"""

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.jaxpr import numpy_forms as forms
from sumout.jaxpr.equations import bind, is_exact
from sumout.jaxpr.lazy_broadcast import evaluate
from sumout.jaxpr.numpy_evaluation import as_array, compute
from sumout.jaxpr.primitives import PLACEWISE, Kind, Linear, row_of
from sumout.jaxpr.singular_points import multiply
from sumout.jaxpr.spread import Combination, Spread
from sumout.jaxpr.walk import read, shape_of, variables, walk, walk_back
from sumout.structure.interpret import Env
from sumout.structure.roles import Roles, evaluate_versions

# The weights of the leaves of a sum, pulled back from its output, each kept as small as its content.
#
# Differentiation would find the same weights, but lay each out in full. Here a weight that is the same for all
# elements of a leaf, as that of a plain sum is, remains one number, and one that is known stays known (NumPy's, not
# JAX's). Only what log densities are commonly made of is handled.


class _NotHandledError(Exception):
    """An equation whose weights are left to differentiation."""


def pull_back(
    linear: Sequence[Any],
    env: dict[Var, Spread],
    output: Any,
    is_reached: Callable[[Any], bool],
    passing: Container[Any] = (),
) -> dict[Var, Spread] | None:
    """The derivative of the output by every variable on the way to it; None if some equation is not handled.

    Args:
        linear: the equations between the leaves and the output.
        env: the variables that are not on the way.
        output: the last variable.
        is_reached: whether a variable is on the way.
        passing: first results of equations that hand one weight for all on to each operand, where only live elements
            are asked for.
    """
    weights = {v: Spread(np.ones((), v.aval.dtype), ()) for v in variables([output])}

    def step(eqn: Any, found: list[Spread | None]) -> list[Spread | None]:
        reached = [is_reached(v) for v in eqn.invars]
        weight = found[0] if len(found) == 1 else None
        if weight is not None and weight.content.size == 1 and eqn.outvars[0] in passing:
            pulled = [_one_for_all(weight.content, shape_of(v)) for v in eqn.invars]
        else:
            pulled = None if weight is None else _pull(eqn, weight, env, reached)
        if pulled is None:
            raise _NotHandledError
        return [one if is_on else None for one, is_on in zip(pulled, reached, strict=True)]

    try:
        return walk_back(linear, weights, step, lambda a, b: Spread(a.content + b.content, a.shape))
    except _NotHandledError:
        return None


def _pull(eqn: Any, weight: Spread, env: dict[Var, Spread], reached: list[bool]) -> list[Spread] | None:
    """The weights of the operands of one equation (of those that are not reached: anything)."""
    row, content = row_of(eqn), weight.content
    shapes = [shape_of(v) for v in eqn.invars]
    if row.is_elementwise and any(is_on and s != weight.shape for is_on, s in zip(reached, shapes, strict=True)):
        return None  # a number added to every element
    if row.signs:
        return [weight if sign == 1 else Spread(-content, weight.shape) for sign in row.signs]
    if row.name in ("mul", "div"):
        other = eqn.invars[1 if reached[0] else 0]
        factor: Any = as_array(other) if isinstance(other, Literal) else env[other].content
        factor = factor.astype(content.dtype)
        # Where the product does not count (a masked element), an infinite factor does no harm.
        return [Spread(multiply(1 / factor if row.name == "div" else factor, content), weight.shape)] * 2
    if row.name == "reduce_sum":
        # The weight of a sum is that of each of its terms: with size 1 along the axes that were summed over.
        numpy = np if isinstance(content, np.ndarray) else jnp
        return [Spread(numpy.expand_dims(content, eqn.params["axes"]), shapes[0])]
    if row.keeps_order and content.size == 1:
        # One weight for all fits any shape, unless elements were repeated or left out: then some count more often.
        is_one_to_one = [n for n in weight.shape if n != 1] == [n for n in shapes[0] if n != 1]
        return [_one_for_all(content, shapes[0])] if is_one_to_one else None
    return None


def _one_for_all(number: Any, shape: tuple[int, ...]) -> Spread:
    return Spread(number.reshape((1,) * len(shape)), shape)


@dataclass(frozen=True, eq=False)
class Factorisation:
    """The leaves of a log density, and how to compute them."""

    closed: ClosedJaxpr
    leaves: tuple[Var, ...]
    live: tuple[np.ndarray, ...]
    linear: tuple[Any, ...]  # the equations between the leaves and the output
    passing: frozenset[Var] = frozenset()  # first results of those that only move elements, or choose by a known mask

    def evaluate(
        self, *args: Any, given: Mapping[Var, Any] | None = None, only_live: bool = False
    ) -> tuple[tuple[Spread, ...], Any]:
        """The factor arrays and the rest; their sum is the log density.

        Args:
            args: of the log density.
            given: the values of some variables.
            only_live: whether elements that do not count may have any value.
        """
        env = evaluate(self.closed.jaxpr, self.closed.consts, args, given)
        rest, coefficients = self._coefficients(env, only_live)
        return tuple(_weighed(c, env[leaf]) for c, leaf in zip(coefficients, self.leaves, strict=True)), rest

    def values(self, variables: Sequence[Var], *args: Any) -> list[Any]:
        """The values of some variables."""
        env = evaluate(self.closed.jaxpr, self.closed.consts, args)
        return [env[variable].full for variable in variables]

    def evaluate_versions(
        self, versions: Sequence[Sequence[Any]], roles: Roles, sources: Sequence[Hashable]
    ) -> tuple[Spread | None, ...]:
        """The factor arrays with each site at one of several values, by its role; None where that cannot be done.

        Elements that do not count have any value.
        """
        env = evaluate_versions(self.closed, versions, roles, sources)
        first = {variable: spreads[0] for variable, spreads in env.items()}
        _, coefficients = self._coefficients(first, only_live=True)
        met = [env[leaf][0] if self.has_met(leaf, roles) else None for leaf in self.leaves]
        return tuple(None if v is None else _weighed(c, v) for c, v in zip(coefficients, met, strict=True))

    @property
    def live_leaves(self) -> Iterator[tuple[Var, np.ndarray]]:
        """The leaves, and which of their elements count."""
        return zip(self.leaves, self.live, strict=True)

    @staticmethod
    def has_met(leaf: Var, roles: Roles) -> bool:
        """Whether a leaf can be evaluated by roles."""
        return roles.size == 1 or (leaf in roles.joint and leaf not in roles.failed)

    def _coefficients(self, env: dict[Var, Spread], only_live: bool = False) -> tuple[Any, list[Spread]]:
        """The rest, and the weight of every element of every leaf, or of those that count."""
        (output,) = self.closed.jaxpr.outvars
        zeros = [jnp.zeros(live.shape, output.aval.dtype) for live in self.live]
        found = pull_back(self.linear, env, output, self.is_reached, self.passing if only_live else ())
        if found is not None:
            return self._linear_part(env, zeros), [found[leaf] for leaf in self.leaves]
        rest, transposed = jax.vjp(lambda leaves: self._linear_part(env, leaves), zeros)
        (coefficients,) = transposed(jnp.ones_like(rest))
        return rest, [Spread(c, c.shape) for c in coefficients]

    def is_reached(self, variable: Var | Literal) -> bool:
        """Whether a variable lies on the way from a leaf to the output."""
        return not isinstance(variable, Literal) and variable in self._on_the_way

    @cached_property
    def _on_the_way(self) -> frozenset[Var]:
        return frozenset([*self.leaves, *(v for eqn in self.linear for v in eqn.outvars)])

    def _linear_part(self, env: dict[Var, Spread], leaves: list[Any]) -> Any:
        """The output as a function of the leaves, in floating point throughout, so that counts can be weighed too."""
        (output,) = self.closed.jaxpr.outvars
        read_there = dict.fromkeys([*(v for eqn in self.linear for v in variables(eqn.invars)), *variables([output])])
        local = {v: env[v].full for v in read_there if v not in self._on_the_way}
        local.update(zip(self.leaves, leaves, strict=True))

        def step(eqn: Any, operands: list[Any]) -> list[Any]:
            row, moved = row_of(eqn), _weighed_operands(eqn)
            operands[moved] = [jnp.asarray(value).astype(output.aval.dtype) for value in operands[moved]]
            if row.kind is Kind.CONVERSION:
                return operands
            if row.name in ("mul", "div"):
                return [_weigh(eqn, operands, first=self.is_reached(eqn.invars[0]))]
            return bind(eqn, operands)

        walk(self.linear, local, step)
        return jnp.asarray(*read(local, [output]))


def _weighed(coefficient: Spread, leaf: Spread | Combination) -> Any:
    """Coefficient times leaf. A leaf may be −∞ where its coefficient is zero (a masked element): it must not count."""
    if isinstance(leaf, Combination) and coefficient.content.size == 1:
        is_one = isinstance(coefficient.content, np.ndarray) and (coefficient.content == 1).all()
        return leaf if is_one else leaf.times(coefficient.content)
    weight, value = coefficient.content, leaf.content.astype(coefficient.content.dtype)
    return Spread(multiply(value, weight), leaf.shape)


def _weigh(eqn: Any, operands: list[Any], first: bool) -> Any:
    """A product or quotient of what depends on z and a weight that does not."""
    shape = eqn.outvars[0].aval.shape
    a, b = (jnp.broadcast_to(operand, shape) for operand in operands)
    value, weight = (a, b) if first else (b, a)
    # Where the product does not count (a masked element), an infinite weight does no harm.
    return multiply(1 / weight if eqn.primitive.name == "div" else weight, value)


def _weighed_operands(eqn: Any) -> slice:
    """Which operands of a linear equation are weighed; the others are conditions and indices."""
    row = row_of(eqn)
    if row.linear is Linear.CASES:
        return slice(1, None)
    return slice(0, 1) if row.linear is Linear.FIRST and not row.is_elementwise else slice(None)


def factorise(closed: ClosedJaxpr, env: Env, num_sites: int) -> Factorisation:
    """Walk back from the output of a flat jaxpr whose variables have been read into `env`."""
    (output,) = closed.jaxpr.outvars
    leaves, linear = [], []

    def step(eqn: Any, found: list[np.ndarray | None]) -> list[np.ndarray | None]:
        reached = [v for v, mask in zip(eqn.outvars, found, strict=True) if mask is not None]
        if not _is_linear(eqn, env) or all(_is_separate(env[v].scopes, live[v], num_sites) for v in reached):
            leaves.extend(reached)
            is_zero = _known_zeros(eqn, env)
            live.update({v: live[v] & ~is_zero for v in reached} if is_zero is not None else {})
            return [None] * len(eqn.invars)
        linear.append(eqn)
        return _pass_back(eqn, env, [live.get(v, np.zeros(shape_of(v), bool)) for v in eqn.outvars])

    live = {v: np.ones((), bool) for v in variables([output]) if _depends(env, v)}
    walk_back(closed.jaxpr.eqns, live, step, np.logical_or)
    leaves += [v for v in closed.jaxpr.invars if v in live]
    passing = frozenset(eqn.outvars[0] for eqn in linear if _passes_on(eqn, env))
    return Factorisation(closed, tuple(leaves), tuple(live[v] for v in leaves), tuple(linear[::-1]), passing)


MOVES_ONCE = frozenset(("concatenate", "rev", "slice", "transpose"))


def _passes_on(eqn: Any, env: Env) -> bool:
    """Whether each live element of an operand is one live element of the result."""
    is_choice = row_of(eqn).kind is Kind.SELECT and _known(env, eqn.invars[0])
    return is_choice or eqn.primitive.name in MOVES_ONCE


def _known_zeros(eqn: Any, env: Env) -> np.ndarray | None:
    """Which elements of a result are zero whatever x and z are: a known mask chooses that case, or is a factor."""
    row, shape = row_of(eqn), shape_of(eqn.outvars[0])
    known = [
        np.broadcast_to(~np.asarray(_possibly_nonzero(env, v)), shape) if _is_known_whole(v, env, shape) else None
        for v in eqn.invars
    ]
    if row.kind is Kind.SELECT and known[0] is not None:
        which = np.broadcast_to(_value(env, eqn.invars[0]), shape)
        cases = [(which == i) & zero for i, zero in enumerate(known[1:]) if zero is not None]
        return np.logical_or.reduce(cases) if cases else None
    if row.name == "mul":
        return next((zero for zero in known if zero is not None), None)
    return None


def _is_known_whole(variable: Var | Literal, env: Env, shape: tuple[int, ...]) -> bool:
    return _known(env, variable) and shape_of(variable) in ((), shape)


def _is_separate(scopes: np.ndarray, live: np.ndarray, num_sites: int) -> bool:
    """Whether every live element depends on at most one site."""
    return not (live & (scopes > num_sites)).any()


def _depends(env: Env, variable: Var | Literal) -> bool:
    return not isinstance(variable, Literal) and env[variable].ids is not None


def _known(env: Env, variable: Var | Literal) -> bool:
    return isinstance(variable, Literal) or env[variable].known is not None


# Kinds through which live elements are passed back.
PASSED = PLACEWISE | {
    Kind.MOVEMENT,
    Kind.REDUCTION,
    Kind.CUMULATIVE,
    Kind.CONTRACTION,
    Kind.GATHER,
    Kind.SLICE,
}


def _is_linear(eqn: Any, env: Env) -> bool:
    """Whether the results are linear in the operands that depend on z, taken together."""
    row, out = row_of(eqn), eqn.outvars[0].aval
    if row.kind not in PASSED or not row.is_linear_in([_depends(env, v) for v in eqn.invars]):
        return False
    if row.kind is Kind.GATHER or row.kind is Kind.SLICE:
        return all(_known(env, v) for v in eqn.invars[1:])
    if row.kind is Kind.CONVERSION:
        return _keeps_numbers(eqn.invars[0].aval.dtype, out.dtype)
    if row.linear is Linear.FIRST or row.kind is Kind.CONTRACTION:
        return jnp.issubdtype(out.dtype, jnp.floating)  # a quotient of integers is cut
    if row.is_movement or row.kind is Kind.SELECT:
        return True
    return is_exact(out) and all(v.aval.dtype == out.dtype for v in eqn.invars)


def _keeps_numbers(old: Any, new: Any) -> bool:
    """Whether a conversion leaves the numbers as they are: True to 1, 3 to 3.0, but not 3.7 to 3 or 300 to a byte."""
    if jnp.issubdtype(new, jnp.floating):
        return True
    widens = new.itemsize > old.itemsize or (new.itemsize == old.itemsize and jnp.issubdtype(old, jnp.signedinteger))
    return jnp.issubdtype(new, jnp.signedinteger) and not jnp.issubdtype(old, jnp.floating) and widens


def _pass_back(eqn: Any, env: Env, outs: list[np.ndarray]) -> list[np.ndarray | None]:
    """From the live elements of the results of a linear equation those of its operands; None for what is free of z."""
    shapes, depends = [shape_of(v) for v in eqn.invars], [_depends(env, v) for v in eqn.invars]
    masks = _masks(eqn, env, shapes, outs)
    return [
        _unbroadcast(mask, shape) if on_z else None for mask, shape, on_z in zip(masks, shapes, depends, strict=True)
    ]


def _masks(eqn: Any, env: Env, shapes: list[tuple[int, ...]], outs: list[np.ndarray]) -> list[Any]:
    """The live elements of operands, or of what they are broadcast to; anything for conditions and indices."""
    row, params, out = row_of(eqn), eqn.params, outs[0]
    if row.linear is Linear.EACH:
        nonzero = [_possibly_nonzero(env, v) for v in eqn.invars][::-1]  # of the other factor
        if row.kind is Kind.ELEMENTWISE:
            return [out & other for other in nonzero]
        return [
            _pass_back_dot(eqn, i, other, shapes) if _depends(env, eqn.invars[i]) else None
            for i, other in enumerate(nonzero)
        ]
    if row.kind is Kind.SELECT:
        which = eqn.invars[0]
        chosen = _value(env, which) if _known(env, which) else None
        return [None, *(out if chosen is None else out & (chosen == i) for i in range(len(shapes) - 1))]
    if row.kind is Kind.REDUCTION:
        return [np.broadcast_to(np.expand_dims(out, params["axes"]), shapes[0])]
    if row.kind is Kind.CUMULATIVE:
        # An element goes into all results from its own on: into a live one if there is one from there on.
        axis, is_reverse = params["axis"], params["reverse"]
        ahead = np.logical_or.accumulate(out if is_reverse else np.flip(out, axis), axis)
        return [ahead if is_reverse else np.flip(ahead, axis)]
    if row.is_movement:
        return forms.trace_back(lambda *arrays: tuple(compute(eqn, arrays)), shapes, outs)
    if row.kind is Kind.GATHER or row.kind is Kind.SLICE:
        indices = [_value(env, v) for v in eqn.invars[1:]]
        look_up = forms.gather if row.kind is Kind.GATHER else forms.dynamic_slice
        return [*forms.trace_back(lambda a: look_up(a, *indices, **params), shapes[:1], outs), *(None for _ in indices)]
    return [out for _ in shapes]


def _pass_back_dot(eqn: Any, i: int, nonzero: Any, shapes: list[tuple[int, ...]]) -> np.ndarray:
    """Elements of operand `i` of a contraction that meet a non-zero of the other somewhere."""
    contract, batch = eqn.params["dimension_numbers"]
    mine, others = (*batch[i], *contract[i]), (*batch[1 - i], *contract[1 - i])
    nonzero = np.broadcast_to(nonzero, shapes[1 - i])
    met: Any = nonzero.any(axis=tuple(axis for axis in range(nonzero.ndim) if axis not in others))
    met = met.transpose([sorted(others).index(axis) for axis in others])  # in the order of the dimension numbers
    # Axis k of `met` belongs to axis mine[k] of operand `i`; that operand's own axes are left out.
    placed = [shapes[i][axis] if axis in mine else 1 for axis in range(len(shapes[i]))]
    return np.broadcast_to(met.transpose(np.argsort(mine)).reshape(placed), shapes[i])


def _value(env: Env, variable: Var | Literal) -> np.ndarray:
    return as_array(variable) if isinstance(variable, Literal) else env[variable].value


def _possibly_nonzero(env: Env, variable: Var | Literal) -> Any:
    if not _known(env, variable):
        return True
    return as_array(variable) != 0 if isinstance(variable, Literal) else env[variable].differs(0)


def _unbroadcast(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The mask of an operand that was stretched to the shape of the result."""
    mask = np.asarray(mask)
    if mask.shape == shape:
        return mask
    mask = np.asarray(mask.any(axis=tuple(range(mask.ndim - len(shape)))))
    stretched = tuple(axis for axis, n in enumerate(shape) if n == 1 and mask.shape[axis] != 1)
    return np.asarray(mask.any(axis=stretched, keepdims=True))
