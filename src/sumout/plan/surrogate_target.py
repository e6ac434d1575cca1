"""A density that stands for that of all rows, from some rows that are the same throughout a run.

With S a set of M rows, x̂ the mode of all N and c = Σ_all ∇ℓ_i(x̂) − N/M Σ_S ∇ℓ_i(x̂),

    log π*(x) = G(x) + N/M Σ_S ℓ_i(x) + c · (x − x̂)

has the gradient that minibatches estimate (`plan/minibatch_target.py`), but is a density like any other: a kernel can
leave it invariant, and its draws can be accepted or rejected by the density of all rows
(`kernels/delayed_acceptance.py`). Both densities are relative to what they are at x̂. Their sums over rows are added up
with compensation, so that single precision tells differences among ten million rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sumout.model.program import Nuisance
from sumout.plan.minibatch_target import MinibatchTarget, RowData, RowSums, add_compensated, draw_rows
from sumout.threads import attentive_jit


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SurrogateData(RowData):
    """What both densities are computed from.

    Attributes:
        chosen: numbers of the rows of S, batch by batch.
        slope: c.
        shared_at_mode: G(x̂).
        chosen_at_mode: Σ_S ℓ_i(x̂), as two numbers that are to be added.
        all_at_mode: Σ_all ℓ_i(x̂), likewise.
    """

    chosen: Int[Array, "batches batch"]
    slope: Float[Array, " num_x"]
    shared_at_mode: Float[Array, ""]
    chosen_at_mode: tuple[Array, Array]
    all_at_mode: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class SurrogateTarget(MinibatchTarget):
    """The surrogate as a target in u, with the density of all rows beside it.

    Attributes:
        batches: that the rows of S are taken in.
    """

    batches: int = 1

    def prepared(self, key: Any, data: RowData) -> SurrogateData:
        """The data with S chosen, and all that is computed at the mode."""
        return SurrogateData(**vars(data), **attentive_jit(self._at_mode)(key, data))

    def _at_mode(self, key: Any, data: RowData) -> dict[str, Any]:
        sums, rows = self._sums, self._rows
        size = self.batches * rows.batch
        chosen = draw_rows(key, rows.num_held(data.arrays), size).reshape(self.batches, rows.batch)
        (value, gradient), (value_low, gradient_low) = self._over_chosen(data.mode, data, chosen)
        (high, pull), (low, pull_low) = sums.totals(data.mode, data.arrays)
        return {
            "chosen": chosen,
            "slope": pull + pull_low - rows.size / size * (gradient + gradient_low),
            "shared_at_mode": sums.shared(data.mode, rows.take(data.arrays, chosen[0]))[0],
            "chosen_at_mode": (value, value_low),
            "all_at_mode": (high, low),
        }

    @cached_property
    def value_and_gradient(self) -> Callable[[Array, Nuisance, SurrogateData], tuple[Array, Array]]:
        """Of the surrogate, relative to the mode, in u."""

        def compute(u: Array, z: Nuisance, data: SurrogateData) -> tuple[Array, Array]:
            del z
            x, rows = data.mode + data.spread @ u, self._rows
            weight = rows.size / data.chosen.size
            (high, gradient), (low, gradient_low) = self._over_chosen(x, data, data.chosen)
            shared, shared_gradient = self._sums.shared(x, rows.take(data.arrays, data.chosen[0]))
            rise = _difference((high, low), data.chosen_at_mode)
            value = shared - data.shared_at_mode + weight * rise + data.slope @ (x - data.mode)
            return value, (shared_gradient + weight * (gradient + gradient_low) + data.slope) @ data.spread

        return jax.jit(compute)

    def of_all(self, u: Array, data: SurrogateData) -> Array:
        """The log density of all rows, relative to the mode: one pass over them."""
        x = data.mode + data.spread @ u
        shared, _ = self._sums.shared(x, self._rows.take(data.arrays, data.chosen[0]))
        (high, _), (low, _) = self._sums.totals(x, data.arrays)
        return shared - data.shared_at_mode + _difference((high, low), data.all_at_mode)

    def estimate(self, u: Array, data: SurrogateData) -> Array:
        """An unbiased gradient of the log density of all rows, from the batch in the data."""
        return self._gradient(u, data)

    def _over_chosen(self, x: Array, data: RowData, chosen: Array) -> Any:
        """Value and gradient of the sum over S, each as two numbers that are to be added."""

        def add(total: Any, index: Array) -> tuple[Any, None]:
            return add_compensated(total, self._sums.parts(x, self._rows.take(data.arrays, index))[1]), None

        nothing = jnp.zeros((), x.dtype), jnp.zeros_like(x)
        return jax.lax.scan(add, (nothing, nothing), chosen)[0]

    @property
    def _sums(self) -> RowSums:
        assert self.sums is not None
        return self.sums


def _difference(one: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """Of two numbers that are sums of two."""
    return (one[0] - other[0]) + (one[1] - other[1])


def make_surrogate_target(sums: RowSums, batches: int) -> SurrogateTarget:
    """The surrogate of some rows."""

    def log_density(u: Array, z: Nuisance, data: SurrogateData) -> Array:
        return target.value_and_gradient(u, z, data)[0]

    target = SurrogateTarget(log_density, sums=sums, batches=batches)
    return target
