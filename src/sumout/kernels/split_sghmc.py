"""Stochastic gradient HMC by symmetric splitting, the noise of the gradient subtracted from what is injected.

Leimkuhler and Matthews 2013 for the splitting (their ABOBA). One step, in units of the scale:

    x ← x + ½ ε v
    draw z at x, take ĝ there
    v ← v + ½ ε ĝ;   v ← c v + √((1 − c²) − ¼ ε² (1 + c)² V̂) ξ;   v ← v + ½ ε ĝ        c = exp(−γ ε)
    x ← x + ½ ε v

The noise of the two half kicks reaches v with the variance ¼ ε² (1 + c)² V̂, which is what is left out of the injected
noise: what remains is the scheme with the exact gradient. That one has no error at all in x on a Gaussian, and one of
second order elsewhere.
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
class SplitSGHMC(StochasticGradientKernel):
    """Stochastic gradient HMC of second order.

    Attributes:
        step_size: ε in units of the scale; None to tune it, and a scale for each coordinate, during warm-up.
        friction: γ, in units of the scale: momentum is forgotten after a time of about 1/γ.
        noise: V̂, the variance of the gradient noise; None measures it, at every step if num_samples is 2 or more.
        num_samples: draws of z averaged in one gradient.

    Example:
        >>> import sumout
        >>> sumout.SplitSGHMC(friction=2.0)
        SplitSGHMC(step_size=None, friction=2.0, noise=None, num_samples=2)
    """

    name = "split_sghmc"
    standard_step = 0.25
    friction: float = 1.0
    noise: float | None = None
    num_samples: int = 2

    def __post_init__(self):
        super().__post_init__()
        if not self.friction > 0:
            raise OptionError(f"SplitSGHMC: friction={self.friction!r} must be positive.")

    def share(self, step_size: Array, variance: Array) -> Array:
        """¼ ε² (1 + c)² V̂ / (1 − c²)."""
        return 0.25 * step_size**2 * variance / jnp.tanh(0.5 * self.friction * step_size)

    def time_per_step(self, step_size: Any) -> Any:
        """That of a drift if the momentum lasts; less where it is soon forgotten."""
        return step_size / (DECORRELATION_TIME * max(1.0, self.friction))

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One fresh gradient, one step."""
        del t
        key_z, key_noise = split(key)
        scale, step_size = state.tuning.scale, state.tuning.step_size
        middle, estimate, half_kick = self.half_step(key_z, state, data)
        kept = jnp.exp(-self.friction * step_size)
        room, noise = self.room(state, estimate)
        spread = jnp.sqrt((1 - kept**2) * room)
        injected = spread * normal(key_noise, state.x.shape, state.x.dtype)
        momentum = kept * (state.momentum + half_kick) + injected + half_kick
        moved = replace(
            state, x=middle + 0.5 * step_size * scale * momentum, z=estimate.z, momentum=momentum, noise=noise
        )
        return self.conclude(state, moved, estimate)
