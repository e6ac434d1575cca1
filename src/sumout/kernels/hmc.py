"""Hamiltonian Monte Carlo on x, z moved before each trajectory and held through it (Tolpin, Zhou and Yang 2020).

    1. draw z from p(z|x, y) by the target's move, which leaves alone what is summed out
    2. draw x from p(x|y, z) by HMC: one z for a whole trajectory

Where all of z is summed out this is HMC on the marginal p(x|y), the fourth scheme of the paper's section 4. Where z is
drawn it is the paper's Algorithm 2, there called MH+HMC: exact, but z and x take turns, so that modes separated in x
given z are crossed slowly.
"""

from dataclasses import dataclass
from functools import partial
from numbers import Integral

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sumout.adapt.scale import Scale, stretch, stretch_back
from sumout.errors import OptionError
from sumout.gradient import Target
from sumout.kernels.tuned import State, Tuned
from sumout.program import Data, Nuisance

DIVERGENCE = 1000.0  # energy error in nats


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["log_density", "acceptance_rate", "step_size", "diverging"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Info:
    """The target's log density, acceptance probability, step size used, and whether the energy error was enormous."""

    log_density: Float[Array, ""]
    acceptance_rate: Float[Array, ""]
    step_size: Float[Array, ""]
    diverging: Bool[Array, ""]


@dataclass(frozen=True)
class HMC(Tuned):
    """A move on z, then a trajectory of x given z.

    Attributes:
        step_size: ε in units of the scale; None to tune it, and a scale for each coordinate, during warm-up.
        num_leapfrog: leapfrog steps in a trajectory.
        jitter: each trajectory's step is drawn from (1 − jitter, 1) times ε, lest it keep returning to its start.
        target_acceptance: what the tuning of the step size aims at. With a fixed number of steps, larger steps make
            longer trajectories, which soon overshoot.
        dense: learn the correlations of x too, not only a scale for each coordinate.

    Example:
        >>> import sumout
        >>> sumout.HMC(num_leapfrog=5)
        HMC(step_size=None, num_leapfrog=5, jitter=0.5, target_acceptance=0.9, dense=False)
    """

    name = "hmc"
    step_size: float | None = None
    num_leapfrog: int = 10
    jitter: float = 0.5
    target_acceptance: float = 0.9
    dense: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.num_leapfrog, Integral) or self.num_leapfrog < 1:
            raise OptionError(f"HMC: num_leapfrog={self.num_leapfrog!r} must be a whole number of at least 1.")
        if not 0 <= self.jitter < 1:
            raise OptionError(f"HMC: jitter={self.jitter!r} must be at least 0 and below 1.")

    @property
    def gradients_per_step(self) -> int:
        """One for each leapfrog step."""
        return self.num_leapfrog

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One move on z, one trajectory."""
        del t
        assert isinstance(self.target, Target)
        key_z, key_momentum, key_jitter, key_accept = jax.random.split(key, 4)
        z = self.target.move(key_z, state.x, state.z, data)
        step = state.tuning.step_size
        step = step * (1 - self.jitter * jax.random.uniform(key_jitter, (), step.dtype))
        momentum = jax.random.normal(key_momentum, state.x.shape, state.x.dtype)
        start, end = self._trajectory(state.x, z, momentum, step, state.tuning.scale, data)
        error = (end.log_density - 0.5 * end.momentum @ end.momentum) - (start.log_density - 0.5 * momentum @ momentum)
        error = jnp.where(jnp.isfinite(error), error, -jnp.inf)
        acceptance = jnp.exp(jnp.minimum(error, 0.0))
        accepted = jax.random.uniform(key_accept, (), acceptance.dtype) < acceptance
        x = jnp.where(accepted, end.x, state.x)
        log_density = jnp.where(accepted, end.log_density, start.log_density)
        info = Info(log_density, acceptance, state.tuning.step_size, error < -DIVERGENCE)
        return State(x, z, state.tuning), info

    def _trajectory(
        self, x: Array, z: Nuisance, momentum: Array, step: Array, scale: Scale, data: Data
    ) -> "tuple[_Point, _Point]":
        """Leapfrog at fixed z, in coordinates scaled to unit mass."""
        assert isinstance(self.target, Target)
        value_and_grad = jax.value_and_grad(self.target.log_density)

        def leap(_: int, point: _Point) -> _Point:
            half = point.momentum + 0.5 * step * stretch_back(scale, point.gradient)
            x = point.x + step * stretch(scale, half)
            log_density, gradient = value_and_grad(x, z, data)
            return _Point(x, half + 0.5 * step * stretch_back(scale, gradient), log_density, gradient)

        start = _Point(x, momentum, *value_and_grad(x, z, data))
        return start, jax.lax.fori_loop(0, self.num_leapfrog, leap, start)


@partial(jax.tree_util.register_dataclass, data_fields=["x", "momentum", "log_density", "gradient"], meta_fields=[])
@dataclass(frozen=True)
class _Point:
    x: Array
    momentum: Array
    log_density: Array
    gradient: Array
