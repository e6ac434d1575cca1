"""Stochastic gradient Hamiltonian Monte Carlo with z drawn afresh for every gradient.

Chen, Fox and Guestrin 2014, equation 15; the gradient is that of Tolpin, Zhou and Yang 2020, Algorithm 1.

    v ← (1 − α) v + η ĝ + N(0, 2 (α − β̂) η)        x ← x + v        η = ε²,  β̂ = ½ η V̂

V̂ is the variance of the gradient noise, per coordinate. There is no accept/reject step: the posterior is right only as
ε → 0, and only if V̂ is right. Where β̂ exceeds α the gradient is noisier than the friction can absorb; no noise is
added there and the step says so. `SplitSGHMC` has the smaller error at the same cost.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from sumout.errors import OptionError
from sumout.kernels.kernel import DECORRELATION_TIME
from sumout.kernels.stochastic_gradient import Info, State, StochasticGradientKernel
from sumout.model.program import Data
from sumout.randomness import normal, split


@dataclass(frozen=True)
class SGHMC(StochasticGradientKernel):
    """Stochastic gradient HMC as in the paper.

    Attributes:
        step_size: ε; the learning rate of the equation is η = ε². None to tune it, in units of a scale that is tuned
            too.
        friction: α, between 0 and 1.
        noise: V̂, the variance of the gradient noise; None measures it during warm-up, 0 ignores it as the paper does.
        num_samples: draws of z averaged in one gradient.

    Example:
        >>> import sumout
        >>> sumout.SGHMC(step_size=0.1, num_samples=10)
        SGHMC(step_size=0.1, friction=0.1, noise=None, num_samples=10)
    """

    name = "sghmc"
    standard_step = 0.1
    friction: float = 0.1
    noise: float | None = None
    num_samples: int = 1

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.friction <= 1:
            raise OptionError(f"SGHMC: friction={self.friction!r} must be above 0 and at most 1.")

    def share(self, step_size: Array, variance: Array) -> Array:
        """β̂/α."""
        return 0.5 * step_size**2 * variance / self.friction

    def time_per_step(self, step_size: Any) -> Any:
        """That of a drift if the momentum lasts; less where it is soon forgotten, and x diffuses."""
        return jnp.minimum(step_size / DECORRELATION_TIME, step_size**2 / self.friction)

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One fresh gradient, one step."""
        del t
        key_z, key_noise = split(key)
        estimate = self.estimate(key_z, state.x, state.z, data)
        scale, step_size = state.tuning.scale, state.tuning.step_size
        room, noise = self.room(state, estimate)
        spread = jnp.sqrt(2 * self.friction * room)
        injected = spread * normal(key_noise, state.x.shape, state.x.dtype)
        momentum = (1 - self.friction) * state.momentum + step_size * scale * estimate.gradient + injected
        moved = replace(state, x=state.x + step_size * scale * momentum, z=estimate.z, momentum=momentum, noise=noise)
        return self.conclude(state, moved, estimate)
