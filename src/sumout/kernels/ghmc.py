"""Generalised Hamiltonian Monte Carlo with z drawn afresh for every gradient: exact.

Horowitz 1991 for the persistent momentum; Neal 2020 ("Non-reversibly updating a uniform [0,1] value for Metropolis
accept/reject decisions") for the slice. One step, each line of which leaves p(x, z|y) N(v) U(u) invariant:

    1. move z at x
    2. v ← c v + √(1 − c²) ξ,  c = exp(−γ ε)
    3. propose (x', −v') from (x, v) by leapfrog at that z: half drift, kick, half drift
    4. u ← u + δ, wrapped into (−1, 1); accept if |u| < r = p(x', z) N(v') / p(x, z) N(v), and then u ← u / r
    5. reverse the momentum, so that it goes on after acceptance and turns round after rejection

The gradient of line 3 is taken at the z of line 1, as the paper wants, and no bias remains. Because u moves on slowly,
rejections come in clusters with long stretches without any between them, and momentum persists longer.
"""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sumout.adaptation.window_adaptation import SETTLING, Tuning
from sumout.errors import OptionError
from sumout.kernels.kernel import DECORRELATION_TIME
from sumout.kernels.leapfrog import Point, energy_change, leap
from sumout.kernels.metropolis_adjusted import DIVERGENCE, Info, MetropolisAdjusted
from sumout.model.program import Data, Nuisance
from sumout.plan.target import Target
from sumout.randomness import normal, split, uniform

SLICE_STEP = 0.03  # δ
SLICE_NOISE = 0.2  # δ is uniform in (1 ± this) times it: a fixed step could beat in time with the trajectory


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Position, nuisance, momentum in units of the scale, the slice u, and what was tuned."""

    x: Float[Array, " num_x"]
    z: Nuisance
    momentum: Float[Array, " num_x"]
    slice: Float[Array, ""]
    tuning: Tuning


@dataclass(frozen=True)
class GHMC(MetropolisAdjusted):
    """A move on z, then a short leap of x given z with a momentum that persists.

    Attributes:
        step_size: ε in units of the scale; None to tune it, and the scale, during warm-up.
        friction: γ, in units of the scale: momentum is forgotten after a time of about 1/γ.
        num_leapfrog: leapfrog steps at one z.
        target_acceptance: what the tuning of the step size aims at.
        dense: learn the correlations of x too, not only a scale for each coordinate.

    Example:
        >>> import sumout
        >>> sumout.GHMC(step_size=0.2)
        GHMC(step_size=0.2, friction=0.5, num_leapfrog=1, target_acceptance=0.95, dense=False)
    """

    name = "ghmc"
    friction: float = 0.5
    num_leapfrog: int = 1
    target_acceptance: float = 0.95
    dense: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not self.friction > 0:
            raise OptionError(f"GHMC: friction={self.friction!r} must be positive.")
        if not isinstance(self.num_leapfrog, Integral) or self.num_leapfrog < 1:
            raise OptionError(f"GHMC: num_leapfrog={self.num_leapfrog!r} must be a whole number of at least 1.")

    @property
    def gradients_per_step(self) -> int:
        """One for each leapfrog step."""
        return self.num_leapfrog

    def time_per_step(self, step_size: Any) -> Any:
        """That of its leapfrog steps."""
        return step_size * self.num_leapfrog / DECORRELATION_TIME

    def init(self, key: Array, start: Point, z: Nuisance) -> State:
        """Random momentum, random slice; untuned."""
        x = start.x
        key_momentum, key_slice = split(key)
        momentum = normal(key_momentum, x.shape, x.dtype)
        height = 2 * uniform(key_slice, (), x.dtype) - 1
        return State(x, z, momentum, height, self.untuned(x))

    def adapt(self, key: Array, state: State, info: Info, data: Data, t: Array, length: Array) -> State:
        """As all Metropolis-adjusted kernels; at first with a new momentum at every step."""
        key_tuned, key_momentum = split(key)
        adapted = super().adapt(key_tuned, state, info, data, t, length)
        fresh = normal(key_momentum, state.x.shape, state.x.dtype)
        return replace(adapted, momentum=jnp.where(t < SETTLING * length, fresh, state.momentum))

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One move on z, one leap."""
        assert isinstance(self.target, Target)
        key_z, key_momentum, key_slice = split(key, 3)
        z = self.target.scan(key_z, state.x, state.z, data, t)
        step_size = state.tuning.step_size
        kept = jnp.exp(-self.friction * step_size * self.num_leapfrog)
        noise = normal(key_momentum, state.x.shape, state.x.dtype)
        momentum = kept * state.momentum + jnp.sqrt(1 - kept**2) * noise
        end = leap(self.target, state.x, momentum, z, data, step_size, state.tuning.scale, self.num_leapfrog)
        before, after, error = energy_change(self.target, (state.x, momentum), end, z, data)
        shift = SLICE_STEP * (1 + SLICE_NOISE * (2 * uniform(key_slice, (), error.dtype) - 1))
        height = (state.slice + shift + 1) % 2 - 1
        accepted = jnp.log(jnp.abs(height)) < error
        moved = State(
            jnp.where(accepted, end[0], state.x),
            z,
            jnp.where(accepted, end[1], -momentum),
            jnp.where(accepted, height * jnp.exp(-error), height),
            state.tuning,
        )
        info = Info(
            jnp.where(accepted, after, before),
            jnp.exp(jnp.minimum(error, 0.0)),
            step_size,
            error < -DIVERGENCE,
            0.5 * momentum @ momentum - before,
        )
        return moved, info
