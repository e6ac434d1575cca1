"""Step size by dual averaging (Hoffman and Gelman 2014, equation 6): steer the acceptance rate to a target.

H_t = (1 − 1/(t + t0)) H_{t−1} + (target − acceptance) / (t + t0)
log ε_t = μ − √t/γ · H_t        log ε̄_t = t^−κ log ε_t + (1 − t^−κ) log ε̄_{t−1}
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

# t0, γ, κ. With the paper's γ of 0.05 log ε swings so widely that its average accepts more often than was aimed at.
EARLY, SHRINKAGE, FORGETTING = 10.0, 0.2, 0.75


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["log_step", "log_average", "error", "centre", "count", "is_settled"],
    meta_fields=[],
)
@dataclass(frozen=True)
class DualAveraging:
    """Where the search for a step size stands; once it has ended, it is settled."""

    log_step: Array
    log_average: Array
    error: Array
    centre: Array
    count: Array
    is_settled: Array

    @staticmethod
    def start(step_size: Array) -> "DualAveraging":
        """Begin at a guess; the search leans towards ten times it."""
        log_step = jnp.log(step_size)
        zero = jnp.zeros_like(log_step)
        return DualAveraging(log_step, log_step, zero, log_step + jnp.log(10.0), zero, jnp.array(False))

    def restart(self, longer: Array | float = 0.0) -> "DualAveraging":
        """Begin anew at the average so far, made longer by so many nats; no mere guess, so the search leans nowhere."""
        log_step = self.log_average + longer
        zero = jnp.zeros_like(log_step)
        return DualAveraging(log_step, log_step, zero, log_step, zero, self.is_settled)

    def settle(self) -> "DualAveraging":
        """End it, at the average."""
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
