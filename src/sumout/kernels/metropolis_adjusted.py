"""What Metropolis-adjusted kernels share: step size and scale of x, tuned to a target acceptance rate in warm-up."""

from dataclasses import dataclass, replace
from typing import Any

import jax
from jaxtyping import Array, Bool, Float

from sumout.adaptation.mass_matrix import RunningScale
from sumout.adaptation.window_adaptation import Tuning
from sumout.errors import OptionError
from sumout.kernels.kernel import Kernel
from sumout.kernels.leapfrog import Point
from sumout.model.program import Data, Nuisance
from sumout.plan.target import Target

FIRST_STEP_SIZE = 0.1  # where tuning begins, in units of the scale
DIVERGENCE = 1000.0  # energy error in nats, as in Stan


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Position with log density and gradient given z, z itself, and what was tuned."""

    point: Point
    z: Nuisance
    tuning: Tuning

    @property
    def x(self) -> Float[Array, " num_x"]:
        """The position."""
        return self.point.x


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Info:
    """What a trajectory has to report.

    Attributes:
        log_density: the target's log density at the new x.
        acceptance_rate: acceptance probability.
        step_size: ε used.
        diverging: the energy error was enormous.
        energy: −log density + kinetic energy at the start of the trajectory, with its new momentum, which the
            trajectory conserves but for its error.
    """

    log_density: Float[Array, ""]
    acceptance_rate: Float[Array, ""]
    step_size: Float[Array, ""]
    diverging: Bool[Array, ""]
    energy: Float[Array, ""]


class MetropolisAdjusted(Kernel):
    """A kernel with an accept/reject step; the step size (None to tune it) is in units of a scale per coordinate."""

    is_exact = True
    target_acceptance: float
    dense: bool

    def __post_init__(self):
        """Check the options that all such kernels have."""
        super().__post_init__()
        if not 0 < self.target_acceptance < 1:
            name = type(self).__name__
            raise OptionError(f"{name}: target_acceptance={self.target_acceptance!r} must be between 0 and 1.")

    def untuned(self, x: Array) -> Tuning:
        """The tuning of a chain that starts at x."""
        return Tuning.start(RunningScale.start(x, self.dense), self.step_size or FIRST_STEP_SIZE)

    def adapt(self, key: Array, state: Any, info: Any, data: Data, t: Array, length: Array) -> Any:
        """Tune the step size to the target acceptance rate, and the scale, unless the user gave a step size."""
        del key, data
        if self.step_size is not None:
            return state
        tuning = state.tuning.update(state.x, info.acceptance_rate, self.target_acceptance, t, length)
        return replace(state, tuning=tuning)


class TrajectoryKernel(MetropolisAdjusted):
    """A kernel that updates z and then follows a trajectory of x at that z."""

    moves_jointly = True

    def init(self, key: Array, start: Point, z: Nuisance) -> Any:
        """A chain at its start, untuned."""
        del key
        return State(start, z, self.untuned(start.x))

    def move(self, key: Array, state: State, data: Data) -> tuple[Point, Nuisance]:
        """Update z, and the coordinates of x drawn jointly with it: the new point and the new z."""
        assert isinstance(self.target, Target)
        if self.target.is_marginalised:
            return state.point, state.z
        x, z = self.target.move_jointly(key, state.x, state.z, data)
        return Point.at(self.target, x, z, data), z

    def gradient(self, state: State, z: Nuisance, data: Data) -> Array:
        """The gradient at x, which the state holds."""
        del z, data
        return state.point.gradient
