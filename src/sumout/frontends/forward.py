"""Sites of a NumPyro model on which only their own law depends.

Such a law sums to one over its site, whatever the rest: without both, the density is that with the site summed out. For
counts without end there is no other way to sum them. Their law must be one of NumPyro's, neither masked nor scaled.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import MaskedDistribution
from numpyro.primitives import Messenger

from sumout.dependence import used_inputs
from sumout.program import ContinuousSite, DiscreteSite


class Silenced(Messenger):
    """A model in which some sites count for nothing in the density."""

    def __init__(self, fn: Callable[..., Any], names: Sequence[str]):
        super().__init__(fn)
        self.names = names

    def process_message(self, msg: Any) -> None:
        """Mask their laws."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            msg["fn"] = msg["fn"].mask(False)


def is_whole(site: dict) -> bool:
    """Whether the probabilities of a site's values add up to one."""
    fn = site["fn"]
    while hasattr(fn, "base_dist") and not isinstance(fn, MaskedDistribution):
        fn = fn.base_dist
    is_masked = isinstance(fn, MaskedDistribution) or site.get("mask") is not None
    return type(fn).__module__.startswith("numpyro.") and not is_masked and site.get("scale") is None


def find_forward(
    names: Sequence[str],
    shown: Callable[[Sequence[str]], Callable[..., Any]],
    continuous: Mapping[str, ContinuousSite],
    discrete: Mapping[str, DiscreteSite],
    data: Any,
) -> tuple[str, ...]:
    """Of these sites the largest set of which none is needed when all of it is silenced.

    Args:
        names: whose laws are whole.
        shown: from the names to silence to a function of named x, z and data: the density and all that the user sees.
        continuous: the sites of x.
        discrete: those of z.
        data: the data.
    """
    real = jnp.result_type(float)
    x = {name: jax.ShapeDtypeStruct(site.unconstrained_shape, real) for name, site in continuous.items()}
    z = {name: jax.ShapeDtypeStruct(site.shape, site.dtype) for name, site in discrete.items()}
    while names:
        used = used_inputs(jax.make_jaxpr(shown(names))(x, z, data))
        needed = {name for i, name in enumerate(sorted(z)) if any(output[len(x) + i] for output in used)}
        if needed.isdisjoint(names):
            break
        names = [name for name in names if name not in needed]
    return tuple(names)
