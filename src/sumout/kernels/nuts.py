"""The no-U-turn sampler on x (Hoffman and Gelman 2014; multinomial, as in Betancourt 2017), by BlackJAX.

    1. draw z from p(z|x, y) by the target's move, which leaves alone what is summed out
    2. draw x from p(x|y, z): a trajectory at that z, doubled until it turns back on itself

Where all of z is summed out this is NUTS on the marginal p(x|y).
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int

from sumout.adaptation.mass_matrix import covariance
from sumout.errors import OptionError
from sumout.kernels.leapfrog import Point
from sumout.kernels.metropolis_adjusted import State, TrajectoryKernel
from sumout.model.program import Data
from sumout.plan.target import Target
from sumout.randomness import split, words_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Info:
    """What a trajectory has to report.

    Attributes:
        log_density: the target's log density at the new x.
        acceptance_rate: mean acceptance probability along the trajectory.
        step_size: ε used.
        diverging: the energy error was enormous somewhere.
        n_steps: leapfrog steps taken, each with one gradient.
        tree_depth: doublings.
        energy: −log density + kinetic energy at the new x.
    """

    log_density: Float[Array, ""]
    acceptance_rate: Float[Array, ""]
    step_size: Float[Array, ""]
    diverging: Bool[Array, ""]
    n_steps: Int[Array, ""]
    tree_depth: Int[Array, ""]
    energy: Float[Array, ""]


@dataclass(frozen=True)
class NUTS(TrajectoryKernel):
    """A move on z, then a no-U-turn trajectory of x given z.

    Attributes:
        step_size: ε in units of the scale; None to tune it, and a scale for each coordinate, during warm-up.
        target_acceptance: what the tuning of the step size aims at.
        max_depth: a trajectory is doubled at most so many times.
        dense: learn the correlations of x too, not only a scale for each coordinate.

    Example:
        >>> import sumout
        >>> sumout.NUTS(target_acceptance=0.9)
        NUTS(step_size=None, target_acceptance=0.9, max_depth=10, dense=False)
    """

    name = "nuts"
    target_acceptance: float = 0.8
    max_depth: int = 10
    dense: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.max_depth, Integral) or self.max_depth < 1:
            raise OptionError(f"NUTS: max_depth={self.max_depth!r} must be a whole number of at least 1.")

    @property
    def steps_untuned(self) -> int:
        """One: a trajectory is as long as it needs to be."""
        return 1

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One move on z, one trajectory."""
        del t
        from blackjax.mcmc import hmc, nuts  # takes a second to import

        target = self.target
        assert isinstance(target, Target)
        key_z, key_x = split(key)
        point, z = self.move(key_z, state, data)

        def log_density(x: Array) -> Array:
            return target.log_density(x, z, data)

        start = hmc.HMCState(point.x, point.log_density, point.gradient)  # pyright: ignore[reportArgumentType]
        step_size, variance = state.tuning.step_size, covariance(state.tuning.scale)
        # As words: BlackJAX's conditions look to JAX's watch (jax_debug_key_reuse) as if they used a key twice.
        raw_key = words_of(key_x)
        kernel: Any = nuts.build_kernel()
        end, details = kernel(raw_key, start, log_density, step_size, variance, self.max_depth)
        info = Info(
            end.logdensity,
            details.acceptance_rate,
            step_size,
            details.is_divergent,
            details.num_integration_steps,
            details.num_trajectory_expansions,
            details.energy,
        )
        return State(Point(end.position, end.logdensity, end.logdensity_grad), z, state.tuning), info
