"""A density that stands for that of all rows, from some rows that are the same throughout a run.

With S a set of M rows, x̂ the mode of all N and c = Σ_all ∇ℓ_i(x̂) − N/M Σ_S ∇ℓ_i(x̂),

    log π*(x) = G(x) + N/M Σ_S ℓ_i(x) + c · (x − x̂) − ½ (x − x̂)ᵀ Q (x − x̂)

has at x̂ the gradient of all rows, and is a density like any other: a kernel can leave it invariant, and its draws can
be accepted or rejected by the density of all rows (`kernels/delayed_acceptance.py`). Q is what S lacks of the precision
of the Gaussian at the mode: few rows, none of which has seen a rare event, say little of where x can be. Where S has
more than that nothing is taken away, as far out π* might grow without end.

Both densities are relative to what they are at x̂. Their sums over rows are added up with compensation, so that single
precision tells differences among ten million rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sumout.model.program import Data, Nuisance
from sumout.plan.minibatch_target import MinibatchTarget, RowData
from sumout.plan.row_sums import RowSums, SumsOfPlates, add_compensated, curvature_of, draw_rows
from sumout.randomness import fold_in
from sumout.threads import attentive_jit


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SurrogateData(RowData):
    """What both densities are computed from.

    Attributes:
        chosen: for each plate numbers of the rows of S, batch by batch.
        slope: c.
        lacking: Q, in u.
        shared_at_mode: G(x̂).
        chosen_at_mode: for each plate Σ_S ℓ_i(x̂), as two numbers that are to be added.
        all_at_mode: Σ_all ℓ_i(x̂), likewise.
    """

    chosen: tuple[Int[Array, "batches batch"], ...]
    slope: Float[Array, " num_x"]
    lacking: Float[Array, "num_x num_x"]
    shared_at_mode: Float[Array, ""]
    chosen_at_mode: tuple[tuple[Array, Array], ...]
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
        def choose(i: int, sums: RowSums) -> Array:
            held, batch = sums.rows.num_held(data.arrays), sums.rows.batch
            return draw_rows(fold_in(key, i), held, self.batches * batch).reshape(self.batches, batch)

        each = self._sums.each
        chosen = tuple(choose(i, sums) for i, sums in enumerate(each))
        totals = [_over_chosen(sums, data.mode, data.arrays, own) for sums, own in zip(each, chosen, strict=True)]
        (high, pull), (low, pull_low) = self._sums.totals(data.mode, data.arrays)
        for sums, own, ((_, gradient), (_, gradient_low)) in zip(each, chosen, totals, strict=True):
            pull = pull - sums.rows.size / own.size * (gradient + gradient_low)
        return {
            "chosen": chosen,
            "slope": pull + pull_low,
            "lacking": self._lacking(data, chosen),
            "shared_at_mode": each[0].shared_at(data.mode, data.arrays, chosen[0][0])[0],
            "chosen_at_mode": tuple((value, value_low) for (value, _), (value_low, _) in totals),
            "all_at_mode": (high, low),
        }

    @cached_property
    def value_and_gradient(self) -> Callable[[Array, Nuisance, SurrogateData], tuple[Array, Array]]:
        """Of the surrogate, relative to the mode, in u."""

        def compute(u: Array, z: Nuisance, data: SurrogateData) -> tuple[Array, Array]:
            del z
            x = data.mode + data.spread @ u
            value, gradient = self._shared(x, data)
            value, gradient = value + data.slope @ (x - data.mode), gradient + data.slope
            for sums, own, before in zip(self._sums.each, data.chosen, data.chosen_at_mode, strict=True):
                (high, slope), (low, slope_low) = _over_chosen(sums, x, data.arrays, own)
                weight = sums.rows.size / own.size
                value = value + weight * _difference((high, low), before)
                gradient = gradient + weight * (slope + slope_low)
            lacking = data.lacking @ u
            return value - 0.5 * u @ lacking, gradient @ data.spread - lacking

        return jax.jit(compute)

    def _lacking(self, data: RowData, chosen: tuple[Array, ...]) -> Array:
        """Q in u: the positive part of I − Sᵀ P S, with P the precision of π* without it at the mode."""
        precision = jnp.zeros_like(data.spread)
        for i, (sums, own) in enumerate(zip(self._sums.each, chosen, strict=True)):
            shared, inside = curvature_of(sums, data.mode, data.arrays, own)
            precision = precision - sums.rows.size / own.size * inside.sum(axis=0) - (shared[0] if i == 0 else 0.0)
        values, vectors = jnp.linalg.eigh(jnp.eye(len(data.mode)) - data.spread.T @ precision @ data.spread)
        return (vectors * jnp.maximum(values, 0.0)) @ vectors.T

    def of_all(self, u: Array, data: SurrogateData) -> Array:
        """The log density of all rows, relative to the mode: one pass over them."""
        x = data.mode + data.spread @ u
        (high, _), (low, _) = self._sums.totals(x, data.arrays)
        return self._shared(x, data)[0] + _difference((high, low), data.all_at_mode)

    def estimate(self, u: Array, data: SurrogateData) -> Array:
        """An unbiased gradient of the log density of all rows, from the batch in the data."""
        return self._gradient(u, data)

    def _shared(self, x: Array, data: SurrogateData) -> tuple[Array, Array]:
        """G relative to the mode, and its gradient."""
        value, gradient = self._sums.each[0].shared_at(x, data.arrays, data.chosen[0][0])
        return value - data.shared_at_mode, gradient


def _over_chosen(sums: RowSums, x: Array, arrays: Data, chosen: Array) -> Any:
    """Value and gradient of the sum over the rows of S, each as two numbers that are to be added."""

    def add(total: Any, index: Array) -> tuple[Any, None]:
        return add_compensated(total, sums.parts(x, sums.rows.take(arrays, index))[1]), None

    nothing = jnp.zeros((), x.dtype), jnp.zeros_like(x)
    return jax.lax.scan(add, (nothing, nothing), chosen)[0]


def _difference(one: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """Of two numbers that are sums of two."""
    return (one[0] - other[0]) + (one[1] - other[1])


def make_surrogate_target(sums: RowSums | SumsOfPlates, batches: int) -> SurrogateTarget:
    """The surrogate of some rows."""

    def log_density(u: Array, z: Nuisance, data: SurrogateData) -> Array:
        return target.value_and_gradient(u, z, data)[0]

    target = SurrogateTarget(log_density, sums=sums, batches=batches)
    return target
