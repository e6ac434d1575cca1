"""The bias meter: are the draws as wide as the posterior whose gradient they know?

    −E (x_i − c) ∂_i log p(x, z, y) = 1        for every coordinate of x on the real line and any constant c

when (x, z) comes from p(x, z|y), by integration by parts. The average over the draws, with c their mean, is 1 but for
its Monte-Carlo error if the draws are right, and about the factor by which their variance is too large if they are not
(on a Gaussian, exactly that). It sees neither modes that no chain has visited nor a wrong model.

After a run the meter is read off its draws (`Meter`). During the warm-up of stochastic gradient kernels a running one,
with the stochastic gradient ĝ in place of the gradient, limits the step size (`BiasControl`).
"""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.diagnostics import effective_sample_size

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


TOLERANCE = 0.05  # relative error of a variance that is not called bias
FEWEST_OF_HALF = 2  # draws of half a chain
FALSE_ALARMS = 0.01  # how often a run that is right may be called biased, over all coordinates together


@dataclass(frozen=True)
class Meter:
    """The meter of every coordinate of a variable on the real line, and its standard error."""

    value: np.ndarray
    error: np.ndarray

    @property
    def excess(self) -> np.ndarray:
        """By how many standard errors the meter is outside the tolerated interval around 1."""
        return (np.abs(self.value - 1) - TOLERANCE) / self.error


def read_meters(idata: "xr.DataTree") -> dict[str, Meter]:
    """The meters of a run, by variable; none where the gradients were not kept."""
    if "unconstrained_gradient" not in idata.children:
        return {}
    positions, gradients = (idata[f"unconstrained_{name}"].to_dataset() for name in ("posterior", "gradient"))
    return {str(name): read_meter(positions[name].values, gradients[name].values) for name in positions.data_vars}


def worst_excess(meters: dict[str, Meter]) -> float:
    """The most standard errors by which some coordinate may exceed the interval by chance."""
    num = max(sum(meter.value.size for meter in meters.values()), 1)
    return NormalDist().inv_cdf(1 - FALSE_ALARMS / (2 * num))


def read_meter(x: np.ndarray, gradient: np.ndarray) -> Meter:
    """The meter of draws on the real line and the gradients there, both with axes (chain, draw) in front."""
    x, gradient = (np.asarray(a, np.float64) for a in (x, gradient))
    terms = -(x - x.mean(axis=(0, 1))) * gradient
    columns = terms.reshape(*terms.shape[:2], -1)
    errors = [_standard_error(columns[..., i]) for i in range(columns.shape[-1])]
    return Meter(terms.mean(axis=(0, 1)), np.reshape(errors, terms.shape[2:]))


def _standard_error(column: np.ndarray) -> float:
    """Of a mean over chains, as ArviZ has it: by the effective draws of half chains, of which a few draws have none."""
    half = column.shape[1] // 2
    if half < FEWEST_OF_HALF or np.ptp(column) == 0:
        return np.nan
    halves = np.concatenate([column[:, :half], column[:, -half:]])
    effective = min(float(effective_sample_size(halves)), column.size * np.log10(column.size))
    return float(column.std(ddof=1) / np.sqrt(effective)) if effective > 0 else np.nan


WARMUP_TOLERANCE = 0.03  # relative error of a variance that is tolerated in a window
ERRORS = 3.0  # standard errors that the meter may be off
STEP = 0.7  # limits are multiplied by it when the meter is off, and divided by it when not: early windows may mislead


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BiasControl:
    """Lowers the limits of the tuning where the meter shows draws that are too wide.

    Attributes:
        factor: what the limits are multiplied by.
        x, gradient, product: running means of x, of the gradient and of their centred product.
        count: of gradients in this window.
    """

    factor: Float[Array, ""]
    x: Float[Array, " num_x"]
    gradient: Float[Array, " num_x"]
    product: Float[Array, " num_x"]
    count: Float[Array, ""]

    @staticmethod
    def start(x: Array) -> "BiasControl":
        """No limit lowered, nothing seen."""
        zeros = jnp.zeros_like(x)
        return BiasControl(jnp.ones((), x.dtype), zeros, zeros, zeros, jnp.zeros((), x.dtype))

    def update(self, x: Array, gradient: Array) -> "BiasControl":
        """Take one more gradient at x into account, unless it is not finite."""
        is_sound = jnp.all(jnp.isfinite(gradient))
        weight = jnp.where(is_sound, 1 / (self.count + 1), 0.0)
        gradient = jnp.where(is_sound, gradient, 0.0)
        before = x - self.x
        centred = before * (gradient - self.gradient)
        return BiasControl(
            self.factor,
            self.x + weight * before,
            self.gradient + weight * (gradient - self.gradient),
            self.product + weight * ((1 - weight) * centred - self.product),
            self.count + is_sound,
        )

    def read(self, rate: Array) -> "BiasControl":
        """Close a window in which every step counted for `rate` effective draws, and begin a new one."""
        error = jnp.sqrt(2 / jnp.maximum(rate * self.count, 1))  # of n effective draws √(2/n), as on a Gaussian
        is_wide = jnp.max(-self.product, initial=0) > 1 + WARMUP_TOLERANCE + ERRORS * error
        fresh = jax.tree.map(jnp.zeros_like, self)
        factor = jnp.where(is_wide, STEP * self.factor, jnp.minimum(self.factor / STEP, 1.0))
        return replace(fresh, factor=factor)
