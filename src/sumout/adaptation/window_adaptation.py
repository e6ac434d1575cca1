"""Warm-up: the step size is tuned throughout, the scale at the end of growing windows.

The windows are those of Stan for a warm-up of 1,000 steps, in proportion, but for the last phase, in which the scale is
fixed and the step size settles: a tenth of the warm-up.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.adaptation.mass_matrix import RunningScale, RunningSteepness, Scale

# Step size by dual averaging (Hoffman and Gelman 2014, equation 6): steer the acceptance rate to a target.
#
# H_t = (1 − 1/(t + t0)) H_{t−1} + (target − acceptance) / (t + t0)
# log ε_t = μ − √t/γ · H_t        log ε̄_t = t^−κ log ε_t + (1 − t^−κ) log ε̄_{t−1}

# t0, γ, κ. With the paper's γ of 0.05 log ε swings so widely that its average accepts more often than was aimed at.
EARLY, SHRINKAGE, FORGETTING = 10.0, 0.2, 0.75


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DualAveraging:
    """State of the search for a step size; settled once the search has ended."""

    log_step: Array
    log_average: Array
    error: Array
    centre: Array
    count: Array
    is_settled: Array

    @staticmethod
    def start(step_size: Array) -> "DualAveraging":
        """Begin at a guess; the search is shrunk towards ten times it."""
        log_step = jnp.log(step_size)
        zero = jnp.zeros_like(log_step)
        return DualAveraging(log_step, log_step, zero, log_step + jnp.log(10.0), zero, jnp.array(False))

    def restart(self, longer: Array | float = 0.0) -> "DualAveraging":
        """Begin anew at the average so far, times e^longer, and shrink towards that: it is no mere guess."""
        log_step = self.log_average + longer
        zero = jnp.zeros_like(log_step)
        return DualAveraging(log_step, log_step, zero, log_step, zero, self.is_settled)

    def settle(self) -> "DualAveraging":
        """End the search, at the average."""
        return replace(self.restart(), is_settled=jnp.array(True))

    def update(self, acceptance: Array, target: float) -> "DualAveraging":
        """Take one acceptance probability into account."""
        count = self.count + 1
        weight = 1 / (count + EARLY)
        error = (1 - weight) * self.error + weight * (target - acceptance)
        log_step = self.centre - jnp.sqrt(count) / SHRINKAGE * error
        forget = count**-FORGETTING
        log_average = forget * log_step + (1 - forget) * self.log_average
        return DualAveraging(log_step, log_average, error, self.centre, count, self.is_settled)


# Windows end at these fractions of the warm-up; draws before the first end are transient and not used.
WINDOW_ENDS = (0.075, 0.1, 0.15, 0.25, 0.45, 0.9)
SETTLING = 0.15  # up to this fraction momentum is drawn anew at every step, to dissipate the energy of a start
LEAST_WINDOW = 10  # a window of fewer draws goes on until the next end


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tuning:
    """Scale and step size so far, whether the scale has been learnt, and the statistics of the current window."""

    scale: Scale
    is_learnt: Array
    search: DualAveraging
    window: RunningScale | RunningSteepness

    @staticmethod
    def start(window: RunningScale | RunningSteepness, step_size: float) -> "Tuning":
        """Unit scale and a first guess of the step size; `window` gathers the statistics for the scale."""
        squares = window.squares
        scale = jnp.ones_like(squares) if squares.ndim == 1 else jnp.eye(len(squares), dtype=squares.dtype)
        return Tuning(scale, jnp.array(False), DualAveraging.start(jnp.asarray(step_size, squares.dtype)), window)

    def update(self, seen: Array, acceptance: Array, target: float, t: Array, length: Array) -> "Tuning":
        """Take step `t` of a warm-up of `length` steps into account; `seen` is what the window gathers."""
        search = self.search.update(acceptance, target)
        window = self.window.update(seen)
        ends = jnp.floor(jnp.asarray(WINDOW_ENDS) * length).astype(t.dtype)
        first = t + 1 == ends[0]
        ended = jnp.any(t + 1 == ends[1:]) & (window.count >= LEAST_WINDOW)

        fresh = jax.tree.map(jnp.zeros_like, window)

        def close_window() -> Tuning:
            scale = window.scale()
            # From then on steps are in units of the scale. What limits them is the narrowest coordinate.
            narrowest = jnp.min(jnp.diag(scale) if scale.ndim == 2 else scale, initial=jnp.inf)
            longer = jnp.where(self.is_learnt | (scale.size == 0), 0.0, -jnp.log(narrowest))
            return Tuning(scale, jnp.array(True), search.restart(longer), fresh)

        def carry_on() -> Tuning:
            gathered = jax.tree.map(lambda a, b: jnp.where(first, a, b), fresh, window)
            return Tuning(self.scale, self.is_learnt, search, gathered)

        tuned = jax.lax.cond(ended, close_window, carry_on)
        search = jax.tree.map(lambda a, b: jnp.where(t + 1 == length, a, b), tuned.search.settle(), tuned.search)
        return replace(tuned, search=search)

    @property
    def step_size(self) -> Any:
        """The step size to use now; after the last step of the warm-up, the averaged one."""
        log_step = self.search.log_step
        return np.exp(log_step) if isinstance(log_step, np.ndarray) else jnp.exp(log_step)
