"""NumPy's arrays handed to JAX.

`jnp.asarray` compiles a copy for every new shape, at some ten milliseconds each. The device's own transfer compiles
nothing, but may share the memory of what it is given, so that whoever writes there later changes both: hence the copy.
"""

from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")


def as_jax(tree: T) -> T:
    """The same with every array as JAX's own, in the precision in force; nothing is compiled for that."""
    return jax.tree.map(_as_jax, tree)


def _as_jax(array: Any) -> jax.Array:
    return array if isinstance(array, jax.Array) else jax.device_put(np.array(array))
