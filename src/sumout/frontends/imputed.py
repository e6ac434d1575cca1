"""Data of which some are missing: `numpyro.sample("y", …, obs=y, obs_mask=seen)`.

NumPyro makes two sites of the shape of y, "y_observed" and "y_unobserved", each with the law of y masked where the
other counts. A latent that is masked has no law at all, and none is needed, as y takes nothing from there: such an
element is a placeholder. It must not be a coordinate of x, along which the density would be flat, nor a count that
wanders off.

- Of a continuous site only what is missing is part of x; placeholders stay at zero on the real line. NumPyro masks
  their Jacobian with their law.
- Placeholders of counts without end get a law of their own, which depends on nothing.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import ExpandedDistribution, MaskedDistribution

from sumout.program import ContinuousSite


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
