"""`Maximum`: what `sumout.maximize` returns, and how it is told."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SAME = 0.1  # nats: ends that differ by less are as high as each other
MOST_SHOWN = 8  # variables


@dataclass(frozen=True)
class Ascent:
    """Where one start ended.

    Attributes:
        x: named values as the user knows them.
        gap: by how many nats its log density is below that of the maximum; negative if it is higher.
        gap_error: standard error of the gap, where z is drawn; 0 where it is summed out.
        converged: whether it ended at a top.
    """

    x: Mapping[str, np.ndarray]
    gap: float
    gap_error: float
    converged: bool


@dataclass(frozen=True)
class Maximum:
    """A mode of p(x|y), and what z is there.

    Attributes:
        x: named values as the user knows them, and the deterministics. A deterministic that depends on z is computed
            with `z_mode`, and left out where there is none.
        unconstrained: x on the real line.
        log_density: log p(x, y), z summed out, with or without the Jacobian as asked for; None where some z is drawn,
            as it is not known then.
        z: for each discrete site with finitely many values the probabilities of its values given x, along a last axis;
            exact where z is summed out, averaged over 1,000 moves of z at x where it is drawn. For counts and for sites
            known by their sampler the mean over these moves.
        z_mode: the most probable joint z given x; None where some z is drawn.
        converged: whether x is a top.
        message: why it is taken for one, or why not, and what else was seen.
        starts: where the ascents ended.
    """

    x: Mapping[str, np.ndarray]
    unconstrained: Mapping[str, np.ndarray]
    log_density: float | None
    z: Mapping[str, np.ndarray]
    z_mode: Mapping[str, np.ndarray] | None
    converged: bool
    message: str
    starts: tuple[Ascent, ...]

    def __str__(self) -> str:
        lines = [f"{name} = {_shorten(value)}" for name, value in list(self.x.items())[:MOST_SHOWN]]
        if len(self.x) > MOST_SHOWN:
            lines.append(f"… and {len(self.x) - MOST_SHOWN} more")
        known = "not known, as z is drawn" if self.log_density is None else f"{self.log_density:.6g}"
        return "\n".join([*lines, f"log density: {known}", self.message, self._tell_starts()])

    def _tell_starts(self) -> str:
        """How many starts ended as high, and how far below the others did."""
        tops = [start for start in self.starts if start.converged]
        lower = [f"{start.gap:.3g}" for start in tops if start.gap > SAME + 3 * start.gap_error]
        lost = sum(not start.converged for start in self.starts)
        words = f"{len(self.starts)} starts: {len(tops) - len(lower)} ended as high"
        words += f", {len(lower)} in lower modes ({', '.join(lower[:5])} nats below)" if lower else ""
        return words + (f", {lost} did not converge." if lost else ".")


def _shorten(value: np.ndarray) -> str:
    return np.array2string(np.asarray(value), precision=4, threshold=10, edgeitems=3, separator=", ")
