"""Estimators of ∇ log p(x|y) by Fisher's identity (paper, equation 5 and Algorithm 1).

    ∇ log p(x|y) = E_{z ~ p(z|x,y)} ∇_x log p(x, z|y)

z is drawn afresh for every gradient. n draws averaged have an n-th of the variance, and their spread says what that
variance is; a single draw cannot know its own noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.compile.one_piece import largest_array
from sumout.jaxpr.equations import traced_once
from sumout.jaxpr.primitives import LOOPS, names_of
from sumout.jaxpr.walk import names_in
from sumout.model.program import Data, Nuisance
from sumout.moves.move import NuisanceMove
from sumout.moves.sweep import STAY
from sumout.plan.plan import Plan
from sumout.randomness import fold_in


@dataclass(frozen=True, eq=False)
class Target:
    """What a kernel sees of a program.

    Attributes:
        log_density: log p(x, z, y) with part of z, or all of it, summed out; what is summed out is not looked at.
        move: leaves p(z|x,y) invariant in the part of z that is drawn; some can move coordinates of x along.
        partial_scan: likewise, but moves a part of z only, by the number of the step t: `(key, x, z, data, t)`; None
            where a whole move is cheap.
        recover: draws the part that was summed out from its exact conditional, given x and the rest.
    """

    log_density: Callable[[Array, Nuisance, Data], Array]
    move: NuisanceMove = STAY
    partial_scan: Callable[[Array, Array, Nuisance, Data, Array], Nuisance] | None = None
    recover: NuisanceMove = STAY

    @cached_property
    def value_and_gradient(self) -> Callable[[Array, Nuisance, Data], tuple[Array, Array]]:
        """The log density and its gradient in x; traced once, however often it is used."""
        return traced_once(jax.value_and_grad(traced_once(self.log_density)), is_final=True)

    @cached_property
    def move_jointly(self) -> Callable[[Array, Array, Nuisance, Data], tuple[Array, Nuisance]]:
        """A move on z that takes along what it can of x; traced once."""
        return traced_once(self.move.jointly, is_final=True)

    @cached_property
    def recovered(self) -> Callable[[Array, Array, Nuisance, Data], Nuisance]:
        """The part that was summed out, drawn; traced once."""
        return traced_once(self.recover, is_final=True)

    def subsample(self, key: Array, data: Data) -> Data:
        """The data that one gradient is computed from: all of them."""
        del key
        return data

    # The difference of the log densities at two x, where it is known better than either: `(before, after, z, data)`.
    log_ratio: ClassVar[Callable[..., Array] | None] = None

    @property
    def is_marginalised(self) -> bool:
        """Whether z is fully marginalised, or there is none: it never moves."""
        return self.move is STAY and self.partial_scan is None

    def is_loop_free(self, x: Array, z: Nuisance, data: Data) -> bool:
        """Whether neither gradients nor moves on z have a loop in them; of arguments only shapes matter."""
        names = names_in(jax.make_jaxpr(self.value_and_gradient)(x, z, data))
        if not self.is_marginalised:
            key = jax.ShapeDtypeStruct((2,), np.uint32)
            names |= names_in(jax.make_jaxpr(self.move_jointly)(key, x, z, data))
        return not names_of(*LOOPS) & names

    def largest(self, x: Array, z: Nuisance, data: Data) -> int:
        """Elements of the largest array that a gradient is computed from; of arguments only shapes matter."""
        return largest_array(jax.make_jaxpr(self.value_and_gradient)(x, z, data))

    def scan(self, key: Array, x: Array, z: Nuisance, data: Data, t: Array) -> Nuisance:
        """Move z, or the part of it for step t."""
        return self.move(key, x, z, data) if self.partial_scan is None else self.partial_scan(key, x, z, data, t)


def make_target(plan: Plan) -> Target:
    """The target of a plan."""
    return Target(plan.log_density, plan.sweep, plan.partial_scan, plan.recover)


@partial(jax.tree_util.register_dataclass, data_fields=["gradient", "z", "log_density", "noise"], meta_fields=[])
@dataclass(frozen=True)
class GradientEstimate:
    """An estimate of ∇ log p(x|y).

    Attributes:
        gradient: the estimate.
        z: the last z drawn for it.
        log_density: log p(x, z, y) at that z.
        noise: estimated variance of `gradient`, per coordinate; NaN from a single sample.
    """

    gradient: Float[Array, " num_x"]
    z: Nuisance
    log_density: Float[Array, ""]
    noise: Float[Array, " num_x"]


def estimate_gradient(
    target: Target, num_samples: int, key: Array, x: Array, z: Nuisance, data: Data
) -> GradientEstimate:
    """Average the gradient over `num_samples` fresh draws of z."""

    def one(z: Nuisance, i: Array | int) -> tuple[Nuisance, tuple[Array, Array]]:
        key_draw = fold_in(key, i)  # either z is drawn or rows are
        z = target.move(key_draw, x, z, data)
        return z, target.value_and_gradient(x, z, target.subsample(key_draw, data))

    if num_samples == 1:
        z, (log_density, gradient) = one(z, 0)
        return GradientEstimate(gradient, z, log_density, jnp.full_like(gradient, jnp.nan))
    z, (log_densities, gradients) = jax.lax.scan(one, z, jnp.arange(num_samples))
    noise = gradients.var(axis=0, ddof=1) / num_samples
    return GradientEstimate(gradients.mean(axis=0), z, log_densities[-1], noise)
