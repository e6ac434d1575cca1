"""The weights of the leaves of a sum, pulled back from its output, each kept as small as its content.

Differentiation would find the same weights, but lay each out in full. Here a weight that is the same for all elements
of a leaf, as that of a plain sum is, remains one number, and one that is known stays known (NumPy's, not JAX's). Only
what log densities are commonly made of is handled.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Var

from sumout.reading.evaluate import Spread
from sumout.reading.singular import multiply

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
