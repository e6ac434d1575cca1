"""Hamiltonian Monte Carlo on x, z moved before each trajectory and held through it (Tolpin, Zhou and Yang 2020).

    1. draw z from p(z|x, y) by the target's move, which leaves alone what is summed out
    2. draw x from p(x|y, z) by HMC: one z for a whole trajectory

Where all of z is summed out this is HMC on the marginal p(x|y), the fourth scheme of the paper's section 4. Where z is
drawn it is the paper's Algorithm 2, there called MH+HMC: exact, but z and x take turns, so that modes separated in x
given z are crossed slowly.
"""

from dataclasses import dataclass
from numbers import Integral

import jax.numpy as jnp
from jaxtyping import Array

from sumout.errors import OptionError
from sumout.gradient import Target
from sumout.kernels.leapfrog import energy_change, leap
from sumout.kernels.tuned import DIVERGENCE, Info, State, Tuned
from sumout.program import Data
from sumout.randomness import normal, split, uniform


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
        key_z, key_momentum, key_jitter, key_accept = split(key, 4)
        z = self.target.move(key_z, state.x, state.z, data)
        jitter = 1 - self.jitter * uniform(key_jitter, (), state.x.dtype)
        momentum = normal(key_momentum, state.x.shape, state.x.dtype)
        step_size, scale = state.tuning.step_size, state.tuning.scale
        end = leap(self.target, state.x, momentum, z, data, jitter * step_size, scale, self.num_leapfrog)
        before, after, error = energy_change(self.target, (state.x, momentum), end, z, data)
        acceptance = jnp.exp(jnp.minimum(error, 0.0))
        accepted = uniform(key_accept, (), acceptance.dtype) < acceptance
        info = Info(jnp.where(accepted, after, before), acceptance, step_size, error < -DIVERGENCE)
        return State(jnp.where(accepted, end[0], state.x), z, state.tuning), info
