"""Gradients from some rows of the data, with control variates at the mode.

With G(x) the log density of all that rows share, ℓ_i(x) = log Σ_z p(y_i, z | x) that of row i, z summed out, and x̂ the
mode (Baker, Fearnhead, Fox and Nemeth 2019, equation 6):

    ∇ log p(x, y) ≈ ∇G(x) + Σ_all ∇ℓ_i(x̂) + N/B Σ_batch (∇ℓ_i(x) − ∇ℓ_i(x̂))

The weight N/B stands outside the sum over z. The estimate is unbiased at every x, and its noise, in units of the
posterior's deviation, does not grow with N near the mode. Chains move in u, with x = x̂ + S u and S Sᵀ the covariance of
the Gaussian at the mode: a posterior of a million rows is a thousand times narrower than its prior.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.model.program import Nuisance
from sumout.plan.row_sums import RowSums, SumsOfPlates
from sumout.plan.target import Target

GAUSS = ((0.5 - np.sqrt(0.15), 5 / 18), (0.5, 8 / 18), (0.5 + np.sqrt(0.15), 5 / 18))  # nodes and weights on (0, 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowData:
    """What a gradient from some rows is computed from.

    Attributes:
        arrays: the data of all rows; of some, where the others are on the disk.
        index: numbers of the rows of the batch; of several plates one array for each.
        mode: x̂.
        spread: S, of the Gaussian at the mode.
        pull: Σ ∇ℓ_i(x̂) over all rows; zero, with `weight`, without control variates.
        weight: 1 with control variates, 0 without.
    """

    arrays: Any
    index: Any
    mode: Float[Array, " num_x"]
    spread: Float[Array, "num_x num_x"]
    pull: Float[Array, " num_x"]
    weight: Float[Array, ""]


@dataclass(frozen=True, eq=False)
class MinibatchTarget(Target):
    """A target in u whose gradients are estimated from batches of rows; no z is left in it.

    Attributes:
        sums: of rows.
    """

    sums: RowSums | SumsOfPlates | None = None

    def subsample(self, key: Array, data: RowData) -> RowData:
        """The data with a fresh batch."""
        return replace(data, index=self._sums.draw(key, data.arrays))

    def prepared(self, key: Any, data: RowData) -> RowData:
        """The data with what is worked out once for a run: nothing."""
        del key
        return data

    @cached_property
    def value_and_gradient(self) -> Callable[[Array, Nuisance, RowData], tuple[Array, Array]]:
        """The log density relative to the mode's, and its gradient in u, from the batch in the data.

        The log density by the trapezoidal rule from the mode, where the gradient is zero: in single precision a sum
        over all rows would be known to some nats only.
        """

        def compute(u: Array, z: Nuisance, data: RowData) -> tuple[Array, Array]:
            del z
            gradient = self._gradient(u, data)
            return 0.5 * gradient @ u, gradient

        return jax.jit(compute)

    def log_ratio(self, before: Array, after: Array, z: Nuisance, data: RowData) -> Array:
        """The difference of two log densities from the same batch: the integral of its gradient (Gauss's rule)."""
        del z
        step = after - before
        slopes = [weight * (self._gradient(before + t * step, data) @ step) for t, weight in GAUSS]
        return jnp.sum(jnp.stack(slopes))

    def _gradient(self, u: Array, data: RowData) -> Array:
        sums, x = self._sums, data.mode + data.spread @ u
        _, shared = sums.shared_at(x, data.arrays, data.index)
        _, here = sums.estimate(x, data.arrays, data.index)
        _, there = sums.estimate(data.mode, data.arrays, data.index)
        return (shared + data.pull + here - data.weight * there) @ data.spread

    @property
    def _sums(self) -> RowSums | SumsOfPlates:
        assert self.sums is not None
        return self.sums


def make_minibatch_target(sums: RowSums | SumsOfPlates) -> MinibatchTarget:
    """The target of some rows."""

    def log_density(u: Array, z: Nuisance, data: RowData) -> Array:
        return target.value_and_gradient(u, z, data)[0]

    target = MinibatchTarget(log_density, sums=sums)
    return target
