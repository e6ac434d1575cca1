"""Stochastic gradient Langevin dynamics (Welling and Teh 2011) with the noise of the gradient subtracted.

    x ← x + ½ η ĝ + N(0, η − ¼ η² V̂)        η = ε², in units of the scale

V̂ is the variance of the gradient noise, per coordinate. With the exact gradient of a standard Gaussian the variance of
x is 1/(1 − ¼ η): an error of first order in η.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from sumout.kernels.kernel import DECORRELATION_TIME
from sumout.kernels.stochastic_gradient import Info, State, StochasticGradientKernel
from sumout.model.program import Data
from sumout.randomness import normal, split


@dataclass(frozen=True)
class SGLD(StochasticGradientKernel):
    """Stochastic gradient Langevin dynamics.

    Attributes:
        step_size: ε in units of the scale, with η = ε²; None to tune it, and a scale for each coordinate, during
            warm-up.
        noise: V̂, the variance of the gradient noise; None measures it during warm-up.
        num_samples: draws of z averaged in one gradient.

    Example:
        >>> import sumout
        >>> sumout.SGLD(num_samples=4)
        SGLD(step_size=None, noise=None, num_samples=4)
    """

    name = "sgld"
    standard_step = 0.15
    noise: float | None = None
    num_samples: int = 1

    def share(self, step_size: Array, variance: Array) -> Array:
        """¼ η V̂."""
        return 0.25 * step_size**2 * variance

    def time_per_step(self, step_size: Any) -> Any:
        """That of a step of diffusion."""
        return step_size**2 / DECORRELATION_TIME

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One fresh gradient, one step."""
        del t
        key_z, key_noise = split(key)
        estimate = self.estimate(key_z, state.x, state.z, data)
        scale, step_size = state.tuning.scale, state.tuning.step_size
        room, noise = self.room(state, estimate)
        spread = step_size * jnp.sqrt(room)
        injected = spread * normal(key_noise, state.x.shape, state.x.dtype)
        x = state.x + scale * (0.5 * step_size**2 * scale * estimate.gradient + injected)
        return self.conclude(state, replace(state, x=x, z=estimate.z, noise=noise), estimate)
