"""Hamiltonian Monte Carlo on x, z moved before each trajectory and held through it (Tolpin, Zhou and Yang 2020).

    1. draw z from p(z|x, y) by the target's move, which leaves alone what is summed out
    2. draw x from p(x|y, z) by HMC: one z for a whole trajectory

Where all of z is summed out this is HMC on the marginal p(x|y), the fourth scheme of the paper's section 4. Where z is
drawn it is the paper's Algorithm 2, there called MH+HMC: exact, but z and x are updated alternately, so that modes
separated in x given z are crossed slowly.

Once x has unit scale, a trajectory has gone far enough after about a quarter of a period. So its length is known before
its step size is, and the number of steps follows from both: no tree is built, and all chains take as many steps. Until
the scale is learnt nobody knows how far is far enough, and trajectories are kept short.

After the warm-up a trajectory that diverges is tried again with smaller steps: delayed rejection (Modi, Barnett and
Carpenter 2023). One step size for all of x is too large where the density is steepest, as at the wall exp(u) that the
logarithm u of a gap or of a scale meets: leapfrog steps are unstable there. Let s → T(s) be the trajectory of large
steps and s → t(s) that of small ones, both with the momentum reversed at the end and so their own inverse. Where T
fails from s, t(s) is accepted with probability

    min(1, p(t(s)) / p(s))        if T fails from t(s), too, else 0.

That is exact as far as a T that fails is never accepted. Where T does not fail nothing is computed twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sumout.adaptation.window_adaptation import Tuning
from sumout.errors import OptionError
from sumout.kernels.kernel import GRADIENTS_PER_DRAW, over_chains
from sumout.kernels.leapfrog import Point, follow, gain
from sumout.kernels.metropolis_adjusted import DIVERGENCE, Info, State, TrajectoryKernel
from sumout.model.program import Data
from sumout.plan.target import Target
from sumout.randomness import as_normal, split, uniform

LENGTH = 2.5  # of a trajectory, in units of the scale; the jitter takes up to half of it away
MOST_LEAPS, MOST_LEAPS_UNLEARNT = 256, 16  # of a trajectory; the latter until a scale is learnt
FAILURE = 40.0  # nats of energy error; 1 − e^−40 is 1 even in double precision, so such an end is never accepted
SMALLER = 8  # what the steps of a trajectory that failed are divided by
LARGE_STEPS, SMALL_STEPS, WAY_BACK = range(3)  # stages: T from s, t from s, T from t(s)


@dataclass(frozen=True)
class HMC(TrajectoryKernel):
    """A move on z, then a trajectory of x given z.

    Attributes:
        step_size: ε in units of the scale; None to tune it, and a scale for each coordinate, during warm-up.
        num_leapfrog: leapfrog steps in a trajectory; None for as many as the tuned step size needs, or 10 where the
            step size is given, and the scale not known.
        jitter: each trajectory's step is drawn from (1 − jitter, 1) times ε, lest trajectories be periodic.
        target_acceptance: what the tuning of the step size aims at.
        dense: learn the correlations of x too, not only a scale for each coordinate.

    Example:
        >>> import sumout
        >>> sumout.HMC(num_leapfrog=5)
        HMC(step_size=None, num_leapfrog=5, jitter=0.5, target_acceptance=0.9, dense=False)
    """

    name = "hmc"
    num_leapfrog: int | None = None
    jitter: float = 0.5
    target_acceptance: float = 0.9
    dense: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.num_leapfrog is not None and (not isinstance(self.num_leapfrog, Integral) or self.num_leapfrog < 1):
            raise OptionError(
                f"HMC: num_leapfrog={self.num_leapfrog!r} must be a whole number of at least 1, or None to tune it."
            )
        if not 0 <= self.jitter < 1:
            raise OptionError(f"HMC: jitter={self.jitter!r} must be at least 0 and below 1.")

    @property
    def gradients_per_step(self) -> int:
        """One for each leapfrog step; a guess where their number is tuned."""
        return self.num_leapfrog or GRADIENTS_PER_DRAW

    def time_per_step(self, step_size: Any) -> Any:
        """All of it; but where z is drawn, x given z is no independent draw, and efficiency has to be measured."""
        del step_size
        assert isinstance(self.target, Target)
        return None if self.target.is_marginalised else 1.0

    def step(self, key: Array, state: State, data: Data, t: Array) -> tuple[State, Info]:
        """One move on z, one trajectory."""
        del t
        target = self.target
        assert isinstance(target, Target)
        key_z, key_x = (key, key) if target.is_marginalised else split(key)
        start, z = self.move(key_z, state, data)
        # All from one call: on small programs random numbers are most of what there is to compile.
        level, shortening, *rest = jnp.split(uniform(key_x, (state.x.size + 2,), state.x.dtype), (1, 2))
        momentum, jitter = as_normal(rest[0]), 1 - self.jitter * shortening[0]
        tuning = state.tuning
        leaps = self._leaps(tuning)

        def follow_from(start: Point, momentum: Array, smaller: Array) -> tuple[Point, Array, Array]:
            step_size = jitter * tuning.step_size / smaller
            return follow(target, start, momentum, z, data, step_size, tuning.scale, leaps * smaller)

        # Not in warm-up, which learns from rejections, and where at first most trajectories fail.
        is_retried = tuning.search.is_settled | (self.step_size is not None)
        found = delayed_rejection(follow_from, start, momentum, level[0], is_retried)
        is_diverging = found.gain < -DIVERGENCE
        energy = 0.5 * momentum @ momentum - start.log_density
        info = Info(found.point.log_density, found.acceptance, tuning.step_size, is_diverging, energy)
        return State(found.point, z, tuning), info

    def tuned(self, states: Any) -> dict[str, Any]:
        """Also the number of leapfrog steps, where it is tuned."""
        found = super().tuned(states)
        if self.num_leapfrog is None and self.step_size is None:
            log_steps = np.log(states.tuning.step_size)
            leaps = _leaps(log_steps.mean(), states.tuning.is_learnt.all(), np)
            found["num_leapfrog"] = np.full(log_steps.shape, leaps)
        return found

    def _leaps(self, tuning: Tuning) -> int | Array:
        """Leapfrog steps of the next trajectory, of all chains alike: else each would wait for the longest."""
        if self.num_leapfrog is not None or self.step_size is not None:
            return self.gradients_per_step
        log_step = over_chains(jax.lax.pmean, jnp.log(tuning.step_size))
        return _leaps(log_step, over_chains(jax.lax.pmin, tuning.is_learnt))


def _leaps(log_step: Any, is_learnt: Any, numpy: Any = jnp) -> Any:
    """How many steps of that size go a trajectory's length, as far as the scale that it is measured in is learnt."""
    most = numpy.where(is_learnt, MOST_LEAPS, MOST_LEAPS_UNLEARNT)
    return numpy.clip(numpy.round(LENGTH / numpy.exp(log_step)), 1, most).astype(int)


Follow = Callable[[Point, Array, Array], tuple[Point, Array, Array]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Attempt:
    """The outcome of the trajectories so far.

    Attributes:
        point: the next state of the chain.
        acceptance: the probability to accept the first trajectory, by which its step size is tuned.
        gain: of log density minus kinetic energy along the last trajectory that could be accepted.
        other: the end of that trajectory.
        momentum: at that end, reversed.
        is_open: whether another trajectory is needed.
    """

    point: Point
    acceptance: Float[Array, ""]
    gain: Float[Array, ""]
    other: Point
    momentum: Float[Array, " num_x"]
    is_open: Bool[Array, ""]


def delayed_rejection(follow: Follow, start: Point, momentum: Array, level: Array, is_retried: Array) -> Attempt:
    """Follow a trajectory and, where it fails, one of smaller steps; accept or reject.

    Args:
        follow: end of a trajectory from a point with a momentum, with steps so many times smaller than usual; the
            momentum there, and the change of the log density.
        start: where it begins.
        momentum: likewise.
        level: uniform on (0, 1); an end is accepted if its acceptance probability is higher.
        is_retried: whether a trajectory that fails is tried again at all.
    """

    def attempt(carry: tuple[Array, Array, Attempt]) -> tuple[Array, Array, Attempt]:
        stage, _, now = carry
        begin, momentum_begin = jax.tree.map(
            partial(jnp.where, stage == WAY_BACK), (now.other, now.momentum), (start, momentum)
        )
        end, final, rise = follow(begin, momentum_begin, jnp.where(stage == SMALL_STEPS, SMALLER, 1))
        change = gain((jnp.zeros_like(rise), momentum_begin), (rise, final))
        probability = jnp.exp(jnp.minimum(change, 0.0))
        is_accepted, has_failed = level < probability, change < -FAILURE
        is_first, is_last = stage == LARGE_STEPS, stage == WAY_BACK
        is_taken = now.is_open & jnp.where(is_first, is_accepted, is_last & has_failed)
        goes_on = jnp.where(is_first, has_failed & is_retried, ~is_last & is_accepted)
        reached = jax.tree.map(partial(jnp.where, is_last), now.other, end)
        made = Attempt(
            jax.tree.map(partial(jnp.where, is_taken), reached, now.point),
            jnp.where(is_first, probability, now.acceptance),
            jnp.where(now.is_open & ~is_last, change, now.gain),
            reached,
            -final,
            now.is_open & goes_on,
        )
        # Of chains side by side all take part if one must: masking single leapfrog steps would cost more.
        return stage + 1, over_chains(jax.lax.pmax, made.is_open), made

    zero = jnp.zeros_like(start.log_density)
    nothing = Attempt(start, zero, zero, start, momentum, jnp.array(True))
    # A loop, so that the gradient is compiled once.
    return jax.lax.while_loop(lambda carry: carry[1], attempt, (jnp.array(0), jnp.array(True), nothing))[2]
