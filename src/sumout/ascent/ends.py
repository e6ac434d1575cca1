"""Where ascents end, and whether they ended at a top.

A top is where the gradient is zero. How small is small: g_i max(1, |x_i|) is what the log density would gain, in nats,
if coordinate i moved on by 1 or by its own size, whichever is more. That is large also where the density rises ever
more slowly but for ever, as log x does.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from sumout.program import Nuisance


@dataclass(frozen=True)
class Ends:
    """The ends of several ascents, one row for each.

    Attributes:
        x: where they ended.
        z: the last z there.
        log_density: of the ends; only differences mean anything where z is drawn.
        gradient: at the ends; averaged over draws of z where it is drawn.
        is_unsettled: for each coordinate whether the density still rises, or x still moves, along it.
        log_density_error: standard error of `log_density`.
    """

    x: Float[np.ndarray, "starts num_x"]
    z: Nuisance
    log_density: Float[np.ndarray, " starts"]
    gradient: Float[np.ndarray, "starts num_x"]
    is_unsettled: Bool[np.ndarray, "starts num_x"]
    log_density_error: Float[np.ndarray, " starts"]

    @property
    def is_top(self) -> Bool[np.ndarray, " starts"]:
        """Which of the ascents converged."""
        return ~self.is_unsettled.any(axis=1) & np.isfinite(self.log_density)

    @property
    def gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """By how much each end is below the best, and the standard error of that."""
        error = np.hypot(self.log_density_error, self.log_density_error[self.best])
        error[self.best] = 0.0
        return self.log_density[self.best] - self.log_density, error

    @property
    def best(self) -> int:
        """The highest top; where there is none, the highest end."""
        candidates = self.is_top if self.is_top.any() else np.isfinite(self.log_density)
        return int(np.argmax(np.where(candidates, self.log_density, -np.inf)))


def lengths(x: np.ndarray) -> np.ndarray:
    """What counts as one step along each coordinate: 1, or its own size."""
    return np.maximum(1.0, np.abs(x))
