"""Stochastic gradient Nosé–Hoover thermostat (Ding et al. 2014) by symmetric splitting (Leimkuhler and Shang 2016).

The noise of the gradient need not be known: a thermostat for each coordinate raises the friction ζ where the momentum
is hotter than it should be and lowers it where it is colder. One step, in units of the scale:

    x ← x + ½ ε v
    draw z at x, take ĝ there
    ζ ← ζ + ½ ε (v² − 1)/μ;   v ← v + ½ ε ĝ
    v ← exp(−ζ ε) v + √(γ (1 − exp(−2 ζ ε)) / ζ) ξ
    v ← v + ½ ε ĝ;   ζ ← ζ + ½ ε (v² − 1)/μ
    x ← x + ½ ε v

With an exact gradient ζ settles around γ, with a noisy one around γ + ½ ε V.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sumout.adaptation.bias_meter import BiasControl
from sumout.adaptation.window_adaptation import Tuning
from sumout.errors import OptionError
from sumout.kernels.kernel import DECORRELATION_TIME
from sumout.kernels.leapfrog import Point
from sumout.kernels.stochastic_gradient import Info, Noise, StochasticGradientKernel
from sumout.model.program import Data, Nuisance
from sumout.randomness import normal, split


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Position, nuisance, momentum in units of the scale, what was tuned and measured, the friction ζ."""

    x: Float[Array, " num_x"]
    z: Nuisance
    momentum: Float[Array, " num_x"]
    tuning: Tuning
    noise: Noise
    bias_control: BiasControl
    thermostat: Float[Array, " num_x"]


@dataclass(frozen=True)
class SGNHT(StochasticGradientKernel):
    """Stochastic gradient HMC with thermostats.

    Attributes:
        step_size: ε in units of the scale; None to tune it, and a scale for each coordinate, during warm-up.
        friction: γ, which sets how much noise is injected.
        inertia: μ, how slowly the thermostats act.
        num_samples: draws of z averaged in one gradient.

    Example:
        >>> import sumout
        >>> sumout.SGNHT(friction=2.0)
        SGNHT(step_size=None, friction=2.0, inertia=1.0, num_samples=1)
    """

    name = "sgnht"
    standard_step = 0.25
    noise = None
    friction: float = 1.0
    inertia: float = 1.0
    num_samples: int = 1

    def __post_init__(self):
        super().__post_init__()
        for name in ("friction", "inertia"):
            if not getattr(self, name) > 0:
                raise OptionError(f"SGNHT: {name}={getattr(self, name)!r} must be positive.")

    def share(self, step_size: Array, variance: Array) -> Array:
        """½ ε V̂ / γ; of the friction that the noise calls for, and measured to keep it small."""
        return 0.5 * step_size * variance / self.friction

    def time_per_step(self, step_size: Any) -> Any:
        """That of a drift if the momentum lasts; less where it is soon forgotten."""
        return step_size / (DECORRELATION_TIME * max(1.0, self.friction))

    def init(self, key: Array, start: Point, z: Nuisance) -> State:
        """At rest; untuned."""
        return State(**vars(super().init(key, start, z)), thermostat=jnp.full_like(start.x, self.friction))

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One fresh gradient, one step."""
        del t
        key_z, key_noise = split(key)
        scale, step_size = state.tuning.scale, state.tuning.step_size
        middle, estimate, half_kick = self.half_step(key_z, state, data)
        thermostat = self._heat(state.thermostat, state.momentum, step_size)
        kept = jnp.exp(-thermostat * step_size)
        # (1 − exp(−2ζε))/ζ, whatever the sign of ζ
        room = jnp.where(
            jnp.abs(thermostat) < 1e-6, 2 * step_size, -jnp.expm1(-2 * thermostat * step_size) / thermostat
        )
        injected = jnp.sqrt(self.friction * room) * normal(key_noise, state.x.shape, state.x.dtype)
        momentum = kept * (state.momentum + half_kick) + injected + half_kick
        thermostat = self._heat(thermostat, momentum, step_size)
        x = middle + 0.5 * step_size * scale * momentum
        moved = replace(state, x=x, z=estimate.z, momentum=momentum, thermostat=thermostat)
        return self.conclude(state, moved, estimate)

    def adapt(self, key: Array, state: State, info: Info, data: Data, t: Array, length: Array) -> State:
        """As all stochastic gradient kernels; thermostats act from half-way on, when the step size is about right."""
        adapted = super().adapt(key, state, info, data, t, length)
        # A step far too large heats a thermostat so much that it would freeze x for the rest of the run.
        thermostat = jnp.where(t < length // 2, self.friction, adapted.thermostat)
        return replace(adapted, thermostat=jnp.broadcast_to(thermostat, state.x.shape))

    def _heat(self, thermostat: Array, momentum: Array, step_size: Array) -> Array:
        return thermostat + 0.5 * step_size * (momentum**2 - 1) / self.inertia
