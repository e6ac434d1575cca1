"""A trajectory that diverges is tried again with smaller steps: delayed rejection (Modi, Barnett and Carpenter 2023).

One step size for all of x is too large where the density is steepest, as at the wall exp(u) that the logarithm u of a
gap or of a scale meets: leapfrog steps are unstable there. Let s → T(s) be the trajectory of large steps and s → t(s)
that of small ones, both with the momentum reversed at the end and so their own inverse. Where T fails from s, t(s) is
accepted with probability

    min(1, p(t(s)) / p(s))        if T fails from t(s), too, else 0.

That is exact as far as a T that fails is never accepted. Where T does not fail nothing is computed twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sumout.kernels.kernel import over_chains
from sumout.kernels.leapfrog import Point, gain

FAILURE = 40.0  # nats of energy error; 1 − e^−40 is 1 even in double precision
SMALLER = 8  # what the steps of a trajectory that failed are divided by
LARGE_STEPS, SMALL_STEPS, WAY_BACK = range(3)  # the trajectories, as far as they are needed

Follow = Callable[[Point, Array, Array], tuple[Point, Array]]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["point", "acceptance", "gain", "other", "momentum", "is_open"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Attempt:
    """What has come of the trajectories so far.

    Attributes:
        point: where the chain goes.
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


def follow_patiently(follow: Follow, start: Point, momentum: Array, level: Array, is_patient: Array) -> Attempt:
    """Follow a trajectory, and where it fails one of smaller steps.

    Args:
        follow: end of a trajectory from a point with a momentum, with steps so many times smaller than usual.
        start: where it begins.
        momentum: likewise.
        level: uniform; what is accepted with a higher probability is accepted.
        is_patient: whether to try again at all.
    """

    def attempt(carry: tuple[Array, Array, Attempt]) -> tuple[Array, Array, Attempt]:
        stage, _, now = carry
        begin, momentum_begin = jax.tree.map(
            partial(jnp.where, stage == WAY_BACK), (now.other, now.momentum), (start, momentum)
        )
        end, final = follow(begin, momentum_begin, jnp.where(stage == SMALL_STEPS, SMALLER, 1))
        change = gain((begin.log_density, momentum_begin), (end.log_density, final))
        probability = jnp.exp(jnp.minimum(change, 0.0))
        is_accepted, has_failed = level < probability, change < -FAILURE
        is_first, is_last = stage == LARGE_STEPS, stage == WAY_BACK
        is_taken = now.is_open & jnp.where(is_first, is_accepted, is_last & has_failed)
        goes_on = jnp.where(is_first, has_failed & is_patient, ~is_last & is_accepted)
        reached = jax.tree.map(partial(jnp.where, is_last), now.other, end)
        made = Attempt(
            jax.tree.map(partial(jnp.where, is_taken), reached, now.point),
            jnp.where(is_first, probability, now.acceptance),
            jnp.where(now.is_open & ~is_last, change, now.gain),
            reached,
            -final,
            now.is_open & goes_on,
        )
        # Of chains side by side all take part if one must, lest every leapfrog step ask whose turn it is.
        return stage + 1, over_chains(jax.lax.pmax, made.is_open), made

    zero = jnp.zeros_like(start.log_density)
    nothing = Attempt(start, zero, zero, start, momentum, jnp.array(True))
    # A loop, so that the gradient is compiled once.
    return jax.lax.while_loop(lambda carry: carry[1], attempt, (jnp.array(0), jnp.array(True), nothing))[2]
