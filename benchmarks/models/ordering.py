"""Means in ascending order: the first is free, each other lies exp(base) above the one before.

So does NumPyro's `OrderedTransform`, which the NumPyro forms use; the priors are those of the free numbers, `mu_base`.
"""

from typing import Any

import numpy as np


def ordered_in_pymc(base: Any) -> Any:
    """The means from the free numbers."""
    import pytensor.tensor as pt

    return pt.concatenate([base[:1], base[:1] + pt.cumsum(pt.exp(base[1:]))])


def base_of(mu: np.ndarray) -> np.ndarray:
    """The free numbers from the means."""
    return np.concatenate([mu[..., :1], np.log(np.diff(mu, axis=-1))], axis=-1)
