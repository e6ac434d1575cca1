"""Take a scalar log density apart into the unsummed terms that depend on z.

From the output we walk back through everything that is linear in what depends on z: sums, differences, reshapes,
products with something free of z, slices, contractions. The walk stops, at a leaf, where linearity ends or where every
element depends on one site only, so that nothing is left to separate. Then

    log_density(x, z, data) = rest(x, data) + Σ_leaves Σ_e c_e · leaf_e

with coefficients c = ∂ log_density / ∂ leaf, free of z, found by differentiating the linear part. Along the way each
element is marked as live or not: one that a slice or a known mask leaves out has c = 0 whatever x is.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.jaxpr.equations import bind, is_exact
from sumout.jaxpr.lazy_broadcast import Spread, evaluate
from sumout.jaxpr.numpy_evaluation import MOVEMENTS, dynamic_slice, trace_back
from sumout.jaxpr.singular_points import multiply
from sumout.structure.interpret import Env
from sumout.structure.roles import Roles, evaluate_versions
from sumout.structure.scope_rules import run_gather

# The weights of the leaves of a sum, pulled back from its output, each kept as small as its content.
#
# Differentiation would find the same weights, but lay each out in full. Here a weight that is the same for all
# elements of a leaf, as that of a plain sum is, remains one number, and one that is known stays known (NumPy's, not
# JAX's). Only what log densities are commonly made of is handled.

SAME = ("copy", "copy_p")


def pull_back(
    linear: Sequence[Any], env: dict[Var, Spread], output: Any, is_reached: Callable[[Any], bool]
) -> dict[Var, Spread] | None:
    """The derivative of the output by every variable on the way to it; None if some equation is not handled.

    Args:
        linear: the equations between the leaves and the output.
        env: the variables that are not on the way.
        output: the last variable.
        is_reached: whether a variable is on the way.
    """
    weights: dict[Any, Spread] = {output: Spread(np.ones((), output.aval.dtype), ())}
    for eqn in reversed(linear):
        if len(eqn.outvars) != 1:
            return None
        if eqn.outvars[0] not in weights:
            continue
        pulled = _pull(eqn, weights[eqn.outvars[0]], env, [is_reached(v) for v in eqn.invars])
        if pulled is None:
            return None
        for variable, weight in zip(eqn.invars, pulled, strict=True):
            if is_reached(variable):
                weights[variable] = _add(weights[variable], weight) if variable in weights else weight
    return weights


def _add(a: Spread, b: Spread) -> Spread:
    return Spread(a.content + b.content, a.shape)


def _pull(eqn: Any, weight: Spread, env: dict[Var, Spread], reached: list[bool]) -> list[Spread] | None:
    """The weights of the operands of one equation (of those that are not reached: anything)."""
    name, params = eqn.primitive.name, eqn.params
    shapes = [v.aval.shape for v in eqn.invars]
    content = weight.content
    if name in ("add", "add_any", "sub", "mul", "div") and any(
        is_on and shape != weight.shape for is_on, shape in zip(reached, shapes, strict=True)
    ):
        return None  # a number added to every element
    if name in ("add", "add_any"):
        return [weight, weight]
    if name == "sub":
        return [weight, Spread(-content, weight.shape)]
    if name == "neg":
        return [Spread(-content, weight.shape)]
    if name == "convert_element_type" or name in SAME:
        return [weight]
    if name in ("mul", "div"):
        other = eqn.invars[1 if reached[0] else 0]
        factor: Any = np.asarray(other.val) if isinstance(other, Literal) else env[other].content
        factor = factor.astype(content.dtype)
        # Where the product does not count (a masked element), an infinite factor does no harm.
        return [Spread(multiply(1 / factor if name == "div" else factor, content), weight.shape)] * 2
    if name == "reduce_sum":
        numpy = np if isinstance(content, np.ndarray) else jnp
        return [Spread(numpy.expand_dims(content, params["axes"]), shapes[0])]
    if name in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim") and content.size == 1:
        stretched = [n for n in weight.shape if n != 1] != [n for n in shapes[0] if n != 1]
        return None if stretched else [Spread(content.reshape((1,) * len(shapes[0])), shapes[0])]
    return None


@dataclass(frozen=True, eq=False)
class Factorisation:
    """The leaves of a log density, and how to compute them."""

    closed: ClosedJaxpr
    leaves: tuple[Var, ...]
    live: tuple[np.ndarray, ...]
    linear: tuple[Any, ...]  # the equations between the leaves and the output

    def evaluate(self, *args: Any, given: Mapping[Var, Any] | None = None) -> tuple[tuple[Spread, ...], Any]:
        """The factor arrays and the rest; their sum is the log density. Some variables may be given."""
        env = evaluate(self.closed.jaxpr, self.closed.consts, args, given)
        rest, coefficients = self._coefficients(env)
        return tuple(_weighed(c, env[leaf]) for c, leaf in zip(coefficients, self.leaves, strict=True)), rest

    def values(self, variables: Sequence[Var], *args: Any) -> list[Any]:
        """The values of some variables."""
        env = evaluate(self.closed.jaxpr, self.closed.consts, args)
        return [env[variable].full for variable in variables]

    def evaluate_versions(
        self, versions: Sequence[Sequence[Any]], roles: Roles, sources: Sequence[Hashable]
    ) -> tuple[Spread | None, ...]:
        """The factor arrays with each site at one of several values, by its role; None where that cannot be done."""
        env = evaluate_versions(self.closed, versions, roles, sources)
        _, coefficients = self._coefficients({variable: spreads[0] for variable, spreads in env.items()})
        met = [env[leaf][0] if self.has_met(leaf, roles) else None for leaf in self.leaves]
        return tuple(None if v is None else _weighed(c, v) for c, v in zip(coefficients, met, strict=True))

    @staticmethod
    def has_met(leaf: Var, roles: Roles) -> bool:
        """Whether a leaf can be evaluated by roles."""
        return leaf in roles.joint and leaf not in roles.failed

    def _coefficients(self, env: dict[Var, Spread]) -> tuple[Any, list[Spread]]:
        """The rest, and the weight of every element of every leaf."""
        (output,) = self.closed.jaxpr.outvars
        zeros = [jnp.zeros(live.shape, output.aval.dtype) for live in self.live]
        found = pull_back(self.linear, env, output, self.is_reached)
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
        local = dict(zip(self.leaves, leaves, strict=True))

        def read(variable: Var | Literal) -> Any:
            if isinstance(variable, Literal):
                return variable.val
            return local[variable] if variable in local else env[variable].full

        for eqn in self.linear:
            operands = [read(v) for v in eqn.invars]
            moved = _WEIGHED.get(eqn.primitive.name, slice(None))
            operands[moved] = [jnp.asarray(value).astype(output.aval.dtype) for value in operands[moved]]
            if eqn.primitive.name == "convert_element_type":
                results = operands
            elif eqn.primitive.name in ("mul", "div"):
                results = [_weigh(eqn, operands, first=self.is_reached(eqn.invars[0]))]
            else:
                results = bind(eqn, operands)
            local.update(zip(eqn.outvars, results, strict=True))
        return jnp.asarray(read(output))


def _weighed(coefficient: Spread, leaf: Spread) -> Spread:
    """Coefficient times leaf. A leaf may be −∞ where its coefficient is zero (a masked element): it must not count."""
    weight, value = coefficient.content, leaf.content.astype(coefficient.content.dtype)
    return Spread(multiply(value, weight), leaf.shape)


def _weigh(eqn: Any, operands: list[Any], first: bool) -> Any:
    """A product or quotient of what depends on z and a weight that does not."""
    shape = eqn.outvars[0].aval.shape
    a, b = (jnp.broadcast_to(operand, shape) for operand in operands)
    value, weight = (a, b) if first else (b, a)
    # Where the product does not count (a masked element), an infinite weight does no harm.
    return multiply(1 / weight if eqn.primitive.name == "div" else weight, value)


# Which operands of a linear primitive are weighed; the others are conditions and indices. Without an entry: all.
_WEIGHED = {"select_n": slice(1, None), "gather": slice(0, 1), "dynamic_slice": slice(0, 1)}


def factorise(closed: ClosedJaxpr, env: Env, num_sites: int) -> Factorisation:
    """Walk back from the output of a flat jaxpr whose variables have been read into `env`."""
    (output,) = closed.jaxpr.outvars
    live: dict[Var, np.ndarray] = {}
    if not isinstance(output, Literal) and env[output].ids is not None:
        live[output] = np.ones((), bool)
    leaves, linear = [], []
    for eqn in reversed(closed.jaxpr.eqns):
        reached = [v for v in eqn.outvars if v in live]
        if not reached:
            continue
        if _is_linear(eqn, env) and not all(_is_separate(env[v].scopes, live[v], num_sites) for v in reached):
            linear.append(eqn)
            _pass_back(eqn, env, live)
        else:
            leaves += reached
    leaves += [v for v in closed.jaxpr.invars if v in live]
    return Factorisation(closed, tuple(leaves), tuple(live[v] for v in leaves), tuple(linear[::-1]))


def _is_separate(scopes: np.ndarray, live: np.ndarray, num_sites: int) -> bool:
    """Whether every live element depends on at most one site."""
    return not (live & (scopes > num_sites)).any()


def _depends(env: Env, variable: Var | Literal) -> bool:
    return not isinstance(variable, Literal) and env[variable].ids is not None


def _known(env: Env, variable: Var | Literal) -> bool:
    return isinstance(variable, Literal) or env[variable].known is not None


def _is_linear(eqn: Any, env: Env) -> bool:
    """Whether the results are linear in the operands that depend on z, taken together."""
    depends = [_depends(env, v) for v in eqn.invars]
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    is_floating = jnp.issubdtype(out.dtype, jnp.floating)
    if name in MOVEMENTS:
        return True
    if name in ("add", "add_any", "sub", "neg", "reduce_sum"):
        return is_exact(out)
    if name == "mul":
        return sum(depends) == 1 and is_exact(out)
    if name == "dot_general":
        return sum(depends) == 1 and is_floating
    if name == "div":
        return not depends[1] and is_floating
    if name == "select_n":
        return not depends[0]
    if name == "convert_element_type":
        return _keeps_numbers(eqn.invars[0].aval.dtype, out.dtype)
    if name in ("gather", "dynamic_slice"):
        return all(_known(env, v) for v in eqn.invars[1:])
    return False


def _keeps_numbers(old: Any, new: Any) -> bool:
    """Whether a conversion leaves the numbers as they are: True to 1, 3 to 3.0, but not 3.7 to 3 or 300 to a byte."""
    if jnp.issubdtype(new, jnp.floating):
        return True
    widens = new.itemsize > old.itemsize or (new.itemsize == old.itemsize and jnp.issubdtype(old, jnp.signedinteger))
    return jnp.issubdtype(new, jnp.signedinteger) and not jnp.issubdtype(old, jnp.floating) and widens


def _pass_back(eqn: Any, env: Env, live: dict[Var, np.ndarray]) -> None:
    """Mark the live elements of the operands of a linear equation."""
    name = eqn.primitive.name
    shapes = [np.shape(v.val) if isinstance(v, Literal) else v.aval.shape for v in eqn.invars]
    outs = [live.get(v, np.zeros(v.aval.shape, bool)) for v in eqn.outvars]
    out = outs[0]

    def mark(i: int, mask: Any) -> None:
        variable = eqn.invars[i]
        if _depends(env, variable):
            mask = _unbroadcast(mask, shapes[i])
            live[variable] = live[variable] | mask if variable in live else mask

    if name == "mul":
        for i, other in ((0, 1), (1, 0)):
            mark(i, out & _possibly_nonzero(env, eqn.invars[other]))
    elif name == "select_n":
        condition = eqn.invars[0]
        for i in range(1, len(eqn.invars)):
            chosen = _value(env, condition) == i - 1 if _known(env, condition) else True
            mark(i, out & chosen)
    elif name == "reduce_sum":
        mark(0, np.broadcast_to(np.expand_dims(out, eqn.params["axes"]), shapes[0]))
    elif name == "dot_general":
        for i, other in ((0, 1), (1, 0)):
            if _depends(env, eqn.invars[i]):
                mark(i, _pass_back_dot(eqn, i, _possibly_nonzero(env, eqn.invars[other]), shapes))
    elif name in MOVEMENTS or name in ("gather", "dynamic_slice"):
        move, number = _movement(eqn, env)
        for i, mask in enumerate(trace_back(move, shapes[:number], outs)):
            mark(i, mask)
    else:
        for i in range(len(eqn.invars)):
            mark(i, out)


def _movement(eqn: Any, env: Env) -> tuple[Callable[..., Any], int]:
    """A movement as a function of its operands that are moved, and how many these are; the others are known indices."""
    name = eqn.primitive.name
    if name == "gather":
        return lambda a: run_gather(a, _value(env, eqn.invars[1]), eqn.params), 1
    if name == "dynamic_slice":
        return lambda a: dynamic_slice(a, *(_value(env, v) for v in eqn.invars[1:]), **eqn.params), 1
    return lambda *operands: MOVEMENTS[name](*operands, **eqn.params), len(eqn.invars)


def _pass_back_dot(eqn: Any, i: int, nonzero: Any, shapes: list[tuple[int, ...]]) -> np.ndarray:
    """Elements of operand `i` of a product that meet a non-zero of the other somewhere."""
    contract, batch = eqn.params["dimension_numbers"]
    mine, others = (*batch[i], *contract[i]), (*batch[1 - i], *contract[1 - i])
    nonzero = np.broadcast_to(nonzero, shapes[1 - i])
    met: Any = nonzero.any(axis=tuple(axis for axis in range(nonzero.ndim) if axis not in others))
    met = met.transpose([sorted(others).index(axis) for axis in others])  # in the order of the dimension numbers
    placed = [shapes[i][axis] if axis in mine else 1 for axis in range(len(shapes[i]))]
    return np.broadcast_to(met.transpose(np.argsort(mine)).reshape(placed), shapes[i])


def _value(env: Env, variable: Var | Literal) -> np.ndarray:
    return np.asarray(variable.val) if isinstance(variable, Literal) else env[variable].value


def _possibly_nonzero(env: Env, variable: Var | Literal) -> Any:
    return _value(env, variable) != 0 if _known(env, variable) else True


def _unbroadcast(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The mask of an operand that was stretched to the shape of the result."""
    mask = np.asarray(mask)
    if mask.shape == shape:
        return mask
    mask = np.asarray(mask.any(axis=tuple(range(mask.ndim - len(shape)))))
    stretched = tuple(axis for axis, n in enumerate(shape) if n == 1 and mask.shape[axis] != 1)
    return np.asarray(mask.any(axis=stretched, keepdims=True))
