"""Two kinds of sites of a NumPyro model that do not enter the density as others do: forward and imputed ones.

Forward sites are those on which only their own law depends. It sums to one over the site, whatever the rest: without
both, the density is that with the site summed out. For unbounded counts there is no other way to sum them. Their law
must be one of NumPyro's, neither masked nor scaled.

Imputed sites come from data of which some are missing, `numpyro.sample("y", …, obs=y, obs_mask=seen)`. NumPyro makes
two sites of the shape of y, "y_observed" and "y_unobserved", each with the law of y masked where the other counts. A
latent that is masked has no law at all, and none is needed, as y takes nothing from there: such an element is a
placeholder. It must not be a coordinate of x, along which the density would be flat, nor a count with an improper
posterior.

- Of a continuous site only what is missing is part of x; placeholders stay at zero on the real line. NumPyro masks
  their Jacobian with their law.
- Placeholders of unbounded counts get a law of their own, which depends on nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import ExpandedDistribution, MaskedDistribution
from numpyro.primitives import Messenger

from sumout.jaxpr.equations import used_inputs
from sumout.model.program import ContinuousSite, DiscreteSite


class WithoutLaws(Messenger):
    """A model without the laws of some sites in its density."""

    def __init__(self, fn: Callable[..., Any], names: Sequence[str]):
        super().__init__(fn)
        self.names = names

    def process_message(self, msg: Any) -> None:
        """Mask them."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            msg["fn"] = msg["fn"].mask(False)


def is_normalised(site: dict) -> bool:
    """Whether the probabilities of a site's values are known to add up to one."""
    fn = site["fn"]
    while hasattr(fn, "base_dist") and not isinstance(fn, MaskedDistribution):
        fn = fn.base_dist
    is_masked = isinstance(fn, MaskedDistribution) or site.get("mask") is not None
    return type(fn).__module__.startswith("numpyro.") and not is_masked and site.get("scale") is None


def find_forward(
    names: Sequence[str],
    outputs_without: Callable[..., Any],
    continuous: Mapping[str, ContinuousSite],
    discrete: Mapping[str, DiscreteSite],
    data: Any,
) -> tuple[str, ...]:
    """Of these sites the largest set such that nothing depends on any of them once their laws are left out.

    Args:
        names: of sites with normalised laws.
        outputs_without: `(left_out, x, z, data)` to the density without some laws, and all that the user sees.
        continuous: the sites of x.
        discrete: those of z.
        data: the data.
    """
    real = jnp.result_type(float)
    x = {name: jax.ShapeDtypeStruct(site.unconstrained_shape, real) for name, site in continuous.items()}
    z = {name: jax.ShapeDtypeStruct(site.shape, site.dtype) for name, site in discrete.items()}
    while names:
        used = used_inputs(jax.make_jaxpr(partial(outputs_without, names))(x, z, data))
        needed = {name for i, name in enumerate(sorted(z)) if any(output[len(x) + i] for output in used)}
        if needed.isdisjoint(names):
            break
        names = [name for name in names if name not in needed]
    return tuple(names)


def find_imputed(seen: Mapping[str, dict]) -> list[str]:
    """The latent sites that `obs_mask` has made."""
    found = []
    for name, site in seen.items():
        base = name.removesuffix("_unobserved")
        is_latent = base != name and site["type"] == "sample" and not site["is_observed"]
        if is_latent and f"{base}_observed" in seen and seen.get(base, {}).get("type") == "deterministic":
            found.append(name)
    return found


def is_missing(site: dict) -> Array:
    """Of which of its events the law of a site counts."""
    fn, missing = site["fn"], jnp.ones(site["fn"].batch_shape, bool)
    while isinstance(fn, MaskedDistribution | ExpandedDistribution):
        if isinstance(fn, MaskedDistribution):
            missing = missing & jnp.asarray(fn._mask, bool)
        fn = fn.base_dist
    return missing


def without_placeholders(site: ContinuousSite, missing: np.ndarray) -> ContinuousSite:
    """A continuous site of which only the missing events are part of x."""
    event = site.unconstrained_shape[missing.ndim :]
    return ContinuousSite(site.shape, (int(missing.sum()), *event), site.is_real)


def fill_in(x: dict[str, Array], missing: Mapping[str, np.ndarray]) -> dict[str, Array]:
    """Named unconstrained arrays as NumPyro knows them, zeros standing where nothing is missing."""
    filled = dict(x)
    for name, mask in missing.items():
        zeros = jnp.zeros((*mask.shape, *x[name].shape[1:]), x[name].dtype)
        filled[name] = zeros.at[np.nonzero(mask)].set(x[name])
    return filled


def log_placeholders(z: Mapping[str, Array], present: Mapping[str, np.ndarray], lower: Mapping[str, int]) -> Any:
    """The log probability of counts that stand where nothing is missing: ½, ¼, ⅛, … from the lowest on."""
    total = jnp.zeros(())
    for name, mask in present.items():
        total += jnp.where(mask, (lower[name] - 1 - z[name]) * np.log(2.0), 0.0).sum()
    return total
