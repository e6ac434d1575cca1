"""Stochastic gradient Hamiltonian Monte Carlo with z drawn afresh for every gradient.

Chen, Fox and Guestrin 2014, equation 15; the gradient is that of Tolpin, Zhou and Yang 2020, Algorithm 1.

    v ← (1 − α) v + η ĝ + N(0, 2 (α − β̂) η)        x ← x + v        η = ε²,  β̂ = ½ η V̂

V̂ is the variance of the gradient noise, per coordinate. There is no accept/reject step: the posterior is right only as
ε → 0, and only if V̂ is right. Where β̂ exceeds α the gradient is noisier than the friction can absorb; no noise is
added there and the step says so.
"""

from dataclasses import dataclass
from functools import partial
from numbers import Integral

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sumout.errors import OptionError
from sumout.gradient import Target, estimate_gradient
from sumout.kernels.kernel import Kernel
from sumout.program import Data, Nuisance


@partial(jax.tree_util.register_dataclass, data_fields=["x", "z", "momentum", "noise", "num_noise"], meta_fields=[])
@dataclass(frozen=True)
class State:
    """Position, nuisance, momentum, and the noise estimate V̂ with the number of measurements behind it."""

    x: Float[Array, " num_x"]
    z: Nuisance
    momentum: Float[Array, " num_x"]
    noise: Float[Array, " num_x"]
    num_noise: Float[Array, ""]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["log_density", "noise_share", "is_noise_too_large", "diverging"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Info:
    """What a step has to report.

    Attributes:
        log_density: log p(x, z, y) where the gradient was taken.
        noise_share: the largest β̂/α over coordinates: how much of the injected noise the gradient itself supplies.
        is_noise_too_large: β̂ > α somewhere, so that the draws are over-dispersed there.
        diverging: the gradient was not finite; the chain stayed where it was.
    """

    log_density: Float[Array, ""]
    noise_share: Float[Array, ""]
    is_noise_too_large: Bool[Array, ""]
    diverging: Bool[Array, ""]


@dataclass(frozen=True)
class SGHMC(Kernel):
    """Stochastic gradient HMC as in the paper.

    Attributes:
        step_size: ε; the learning rate of the equation is η = ε².
        friction: α, between 0 and 1.
        noise: V̂, the variance of the gradient noise; None measures it during warm-up, 0 ignores it as the paper does.
        num_samples: draws of z averaged in one gradient.

    Example:
        >>> import sumout
        >>> sumout.SGHMC(step_size=0.1, num_samples=10)
        SGHMC(step_size=0.1, friction=0.1, noise=None, num_samples=10)
    """

    name = "sghmc"
    step_size: float = 0.03
    friction: float = 0.1
    noise: float | None = None
    num_samples: int = 1

    def __post_init__(self):
        if not self.step_size > 0:
            raise OptionError(f"SGHMC: step_size={self.step_size!r} must be positive.")
        if not 0 < self.friction <= 1:
            raise OptionError(f"SGHMC: friction={self.friction!r} must be above 0 and at most 1.")
        if self.noise is not None and not self.noise >= 0:
            raise OptionError(f"SGHMC: noise={self.noise!r} is a variance and cannot be negative; None measures it.")
        if not isinstance(self.num_samples, Integral) or self.num_samples < 1:
            raise OptionError(f"SGHMC: num_samples={self.num_samples!r} must be a whole number of at least 1.")

    def init(self, x: Array, z: Nuisance) -> State:
        """At rest."""
        noise = jnp.full_like(x, 0.0 if self.noise is None else self.noise)
        return State(x, z, jnp.zeros_like(x), noise, jnp.zeros((), x.dtype))

    def step(self, key: Array, state: State, data: Data) -> tuple[State, Info]:
        """One fresh gradient, one step."""
        assert isinstance(self.target, Target)
        key_z, key_noise = jax.random.split(key)
        estimate = estimate_gradient(self.target, self.num_samples, key_z, state.x, state.z, data)
        rate = self.step_size**2
        supplied = 0.5 * rate * state.noise
        spread = jnp.sqrt(2 * jnp.maximum(self.friction - supplied, 0) * rate)
        injected = spread * jax.random.normal(key_noise, state.x.shape, state.x.dtype)
        momentum = (1 - self.friction) * state.momentum + rate * estimate.gradient + injected
        sound = jnp.all(jnp.isfinite(momentum))
        momentum = jnp.where(sound, momentum, 0.0)
        share = jnp.max(supplied, initial=0) / self.friction
        moved = State(state.x + momentum, estimate.z, momentum, state.noise, state.num_noise)
        return moved, Info(estimate.log_density, share, share > 1, ~sound)

    def adapt(self, key: Array, state: State, info: Info, data: Data, t: Array, length: Array) -> State:
        """Measure the gradient noise where the chain is; the average over the second half of the warm-up counts."""
        del info
        if self.noise is not None:
            return state
        assert isinstance(self.target, Target)
        num_samples = max(self.num_samples, 2)
        estimate = estimate_gradient(self.target, num_samples, key, state.x, state.z, data)
        measured = estimate.noise * (num_samples / self.num_samples)
        count = jnp.where(t == length // 2, 0, state.num_noise) + 1
        noise = state.noise + (measured - state.noise) / count
        sound = jnp.all(jnp.isfinite(measured))
        return State(
            state.x,
            estimate.z,
            state.momentum,
            jnp.where(sound, noise, state.noise),
            jnp.where(sound, count, state.num_noise),
        )
