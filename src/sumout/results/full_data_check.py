"""Draws from minibatches held against all rows: are they as wide as the posterior, and where it is?

At some draws the exact gradient g of log p(x | y) is computed, by one pass over the data. With m and C the mean and the
covariance of all draws,

    r = g + C⁻¹ (x − m)

is what a Gaussian with the draws' moments does not explain. For draws from the posterior E g = 0 and E (x − m) gᵀ = −I
(integration by parts), so E r = 0 and E (x − m) rᵀ = 0, whatever its shape; and for a posterior that is nearly Gaussian
r is nearly zero at every draw, so that few of them tell much. 1 − E (x_i − m_i) r_i is the bias meter of coordinate i,
with exact gradients; −C E r is by how much the mean is off.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from sumout.results.effective_draws import slowest

MOST_WIDE = 0.10  # relative error of a variance that is tolerated: 5 % of a deviation
MOST_SHIFT = 0.10  # posterior deviations by which a mean may be off
UNCLEAR = 0.5  # of either, with its error, that nobody would call right
FALSE_ALARMS = 0.01  # of runs that are right
FEWEST, MOST = 16, 500  # draws that are looked at: of a skewed posterior some dozens would leave it open
WORK = 64_000_000  # rows times draws, about a minute at most
FEWEST_ACCEPTED = 0.1  # of draws that all rows judge: with fewer, what surrogate and density differ by is large
FEWEST_DRAWS = 4  # of a chain, of which effective draws can be told
DENSE_DRAWS = 10  # effective draws for each coordinate, for a whole covariance


@dataclass(frozen=True)
class FullDataCheck:
    """What a pass over all rows says.

    Attributes:
        holds: whether the draws can stand for the posterior.
        words: in a sentence or two.
        is_refuted: whether they cannot; where neither is so, it could not be told.
    """

    holds: bool
    words: str
    is_refuted: bool = False


def check_against_all(
    x: np.ndarray, gradient_at: Callable[[np.ndarray], np.ndarray], num_rows: int, names: list[str]
) -> FullDataCheck:
    """Compare draws with the exact gradient at some of them.

    Args:
        x: draws on the real line, (chain, draw, coordinate).
        gradient_at: the exact gradient at several points.
        num_rows: of the data.
        names: of the coordinates.
    """
    x = np.asarray(x, np.float64)
    chains, draws, num_x = x.shape
    flat = x.reshape(-1, num_x)
    num = min(int(np.clip(WORK // num_rows, FEWEST, MOST)), len(flat))
    chosen = np.linspace(0, draws - 1, -(-num // chains)).astype(int)
    points = x[:, chosen].reshape(-1, num_x)
    gradients = gradient_at(points)
    looked = f"{len(points)} draws were held against all {num_rows:,} rows"
    if not np.isfinite(gradients).all() or not np.isfinite(flat).all():
        return FullDataCheck(False, f"{looked}: the gradient is not finite at some of them.", True)
    mean, scale = flat.mean(axis=0), np.maximum(flat.std(axis=0, ddof=1), 1e-300)
    effective = slowest(x)[0] if draws >= FEWEST_DRAWS else np.nan
    effective = max(effective, chains) if np.isfinite(effective) else float(chains)
    # In units of the draws' deviations.
    u, g = (points - mean) / scale, gradients * scale
    correlation = np.eye(num_x)
    if effective >= DENSE_DRAWS * num_x:
        correlation = np.atleast_2d(np.corrcoef(flat, rowvar=False))
    left = g + np.linalg.solve(correlation + 1e-10 * np.eye(num_x), u.T).T
    products = u * left
    wide, wide_error = -products.mean(axis=0), products.std(axis=0, ddof=1) / math.sqrt(len(u))
    shifted = left @ correlation
    shift, shift_error = shifted.mean(axis=0), shifted.std(axis=0, ddof=1) / math.sqrt(len(u))
    # Of means and variances of the draws themselves.
    wide_error, shift_error = np.hypot(wide_error, math.sqrt(2 / effective)), np.hypot(shift_error, effective**-0.5)
    limit = NormalDist().inv_cdf(1 - FALSE_ALARMS / (4 * num_x))
    too_wide = (np.abs(wide) - MOST_WIDE) / wide_error
    too_far = (np.abs(shift) - MOST_SHIFT) / shift_error
    i, j = int(np.argmax(too_wide)), int(np.argmax(too_far))
    found = []
    if too_wide[i] > limit:
        word = "wider" if wide[i] > 0 else "narrower"
        meter = f"bias meter {1 + wide[i]:.2f} ± {wide_error[i]:.2f}"
        found.append(f"the draws of {names[i]} are {word} than the posterior ({meter})")
    if too_far[j] > limit:
        found.append(f"the mean of {names[j]} is off by {abs(shift[j]):.2f} ± {shift_error[j]:.2f} deviations")
    if found:
        advice = "Give more rows (minibatch), a smaller step_size, or sample without minibatch."
        return FullDataCheck(
            False, f"{looked}, and the approximation does not hold: {'; '.join(found)}. {advice}", True
        )
    i, j = int(np.argmax(np.abs(wide))), int(np.argmax(np.abs(shift)))
    numbers = (
        f"variances are within {abs(wide[i]):.0%} ± {wide_error[i]:.0%}, means within {abs(shift[j]):.2f} ± "
        f"{shift_error[j]:.2f} deviations."
    )
    if (np.abs(wide) + wide_error).max() > UNCLEAR or (np.abs(shift) + shift_error).max() > UNCLEAR:
        return FullDataCheck(
            False, f"{looked}, which is not enough to tell whether the approximation holds: {numbers} Make more draws."
        )
    return FullDataCheck(True, f"{looked}, and nothing speaks against the approximation: {numbers}")


def judge_exact(check: FullDataCheck, rate: float, num_rows: int) -> FullDataCheck:
    """What to say where draws were accepted by all rows at this rate: they are right unless chains hardly move."""
    words = f"every draw was accepted or rejected by all {num_rows:,} rows; {rate:.0%} were accepted"
    if rate < FEWEST_ACCEPTED:
        return FullDataCheck(False, f"{words}, so that chains hardly move: give more rows (minibatch).", True)
    if check.is_refuted:
        return FullDataCheck(False, f"{words}, and yet chains have not converged: {check.words}", True)
    return FullDataCheck(True, f"{words}.")
