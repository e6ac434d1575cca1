"""Effective draws and r_hat, with bounds on r_hat that chance seldom passes.

With S effective draws by the autocorrelation within chains, and W the variance within, the means of the m half chains
of n draws each vary by m W / S if all chains have the same law. So

    r_hat² = 1 − 1/n + (variance of the means) / W ≈ 1 − 1/n + m/S · F        F ~ F(m − 1, S / chains)

of which a high quantile is what chance explains. With 4 chains of 1,000 draws and 20 columns it is 1.05 with 400
effective draws and 1.01 with 1,500; with more of them 1.01 is taken, as less does no harm. Draws are first replaced
by normal scores of their ranks, and so are their distances from the median (Vehtari, Gelman, Simpson, Carpenter and
Bürkner 2021).

A discrete value is no number, so the question is whether a site has a value: one column of zeros and ones for each
value that was drawn. Of a count, or where the values are many, the value itself is looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from sumout.compile.policy import COLUMN_ELEMENTS

MOST_VALUES = 8  # columns for one site
MOST_JUDGED = 50  # columns, of many: those in which chains and their halves differ most
LEAST_RHAT = 1.01  # below, chains agree well enough whatever chance explains
FALSE_ALARMS = 1e-3  # how often chance may pass the bound, over all columns of a run
DRIFT = 0.25  # variance between halves of a chain over that between chains, above which chains drift
FEWEST_CHANGES = 10  # draws of each chain, on average, in which a discrete column has its rarer value; else no verdict


@dataclass(frozen=True)
class Verdict:
    """Of a column: r_hat, what chance explains of it, and whether halves of a chain differ as its chains do."""

    r_hat: float
    bound: float
    is_drifting: bool

    @property
    def disagrees(self) -> bool:
        """Whether chains differ more than chance explains."""
        return self.r_hat > self.bound


def judge_agreement(column: np.ndarray, num_columns: int) -> Verdict:
    """Whether the chains of a column, `(chain, draw)`, agree; the worse of its place and its spread.

    Args:
        column: at least two chains, of four draws.
        num_columns: of the run, over all of which chance has its chances.
    """
    column = np.asarray(column, float)
    spread = np.abs(column - np.median(column))
    verdicts = [_judge(_normal_scores(form), FALSE_ALARMS / (2 * num_columns)) for form in (column, spread)]
    return max(verdicts, key=lambda verdict: verdict.r_hat / verdict.bound)


def _judge(column: np.ndarray, false_alarms: float) -> Verdict:
    from scipy.special import fdtri  # `scipy.stats` takes more than half a second to import

    half = column.shape[1] // 2
    halves = np.stack([column[:, :half], column[:, -half:]])  # (half, chain, draw)
    means, within = halves.mean(axis=-1), float(halves.var(axis=-1, ddof=1).mean())
    if np.ptp(means) == 0:
        return Verdict(1.0, LEAST_RHAT, False)
    if (np.ptp(halves, axis=-1) == 0).all():
        return Verdict(np.inf, LEAST_RHAT, _is_drifting(means))
    chains, effective = len(column), effective_within(column)
    r_hat = np.sqrt(1 - 1 / half + means.var(ddof=1) / within)
    chance = means.size / effective * fdtri(means.size - 1, max(effective / chains, 1), 1 - false_alarms)
    return Verdict(float(r_hat), max(float(np.sqrt(1 - 1 / half + chance)), LEAST_RHAT), _is_drifting(means))


def _is_drifting(means: np.ndarray) -> bool:
    """Whether the halves of chains, `(half, chain)`, differ as chains do; in modes of their own they do not."""
    return bool((np.diff(means, axis=0) ** 2).mean() / 2 > DRIFT * means.mean(axis=0).var(ddof=1))


def effective_within(column: np.ndarray) -> float:
    """Effective draws of all chains by the autocorrelation within them (Geyer's initial monotone sequence)."""
    chains, draws = column.shape
    centred = column - column.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * draws, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :draws].mean(axis=0)
    if covariance[0] <= 0:
        return float(chains)
    pairs = (covariance / covariance[0])[: draws // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: ends[0] if len(ends) else None])
    return chains * draws / max(2 * pairs.sum() - 1, 1 / np.log10(chains * draws))


def _normal_scores(column: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places.ravel()]  # of equal values the mean of their ranks
    return ndtri((ranks.reshape(column.shape) - 0.375) / (column.size + 0.25))


def site_columns(z: np.ndarray) -> np.ndarray:
    """Columns of a discrete variable with axes (chain, draw, …): `(chain, draw, column)`."""
    flat = z.reshape(*z.shape[:2], -1)
    values = np.unique(flat)
    if len(values) == 2 or len(values) > MOST_VALUES:
        return flat.astype(float)
    return np.concatenate([(flat == value).astype(float) for value in values], axis=-1)


@dataclass(frozen=True)
class SiteMixing:
    """How well a discrete variable mixes.

    Attributes:
        effective: the fewest effective draws of a site; NaN where none ever changes.
        r_hat: the largest.
        bound: what chance explains of it.
        num_sites: elements of the variable.
        num_apart: sites about which chains disagree, at least.
        num_frozen: sites, of those, that never change within a chain.
        num_slow: sites with too few effective draws, at least.
    """

    effective: float
    r_hat: float
    bound: float
    num_sites: int
    num_apart: int
    num_frozen: int
    num_slow: int


def judge_sites(
    z: np.ndarray, fewest: float, count: Callable[[np.ndarray], float] | None = None, most: int = MOST_JUDGED
) -> SiteMixing:
    """Judge the sites of a discrete variable, axes (chain, draw, …), in which chains and their halves differ most.

    Args:
        z: the draws.
        fewest: effective draws that are enough.
        count: of the effective draws of a column; ArviZ's in the bulk by default.
        most: columns that are judged.
    """
    count = count or effective_draws
    num_sites = int(np.prod(z.shape[2:]))
    judged, num_columns = _most_different(z)
    judged = judged[:most]
    effective, r_hat, apart, frozen, slow = [np.nan], [(np.nan, np.nan)], set(), set(), set()
    for site, column in judged:
        effective.append(count(column))
        # Of what hardly ever happens neither the number of effective draws nor the law of r_hat is known.
        is_known = min(np.sum(column != value) for value in (column.min(), column.max())) >= FEWEST_CHANGES * len(z)
        verdict = judge_agreement(column, num_columns) if len(z) > 1 else Verdict(np.nan, np.inf, False)
        r_hat.append((verdict.r_hat, verdict.bound))
        if is_known and verdict.disagrees:
            apart.add(site)
            if (np.ptp(column, axis=1) == 0).all():
                frozen.add(site)
        elif is_known and effective[-1] < fewest:
            slow.add(site)
    worst = max(r_hat, key=lambda pair: -np.inf if np.isnan(pair[0]) else pair[0])
    least = np.nan if np.isnan(effective).all() else float(np.nanmin(effective))
    return SiteMixing(least, *worst, num_sites, len(apart), len(frozen), len(slow))


def worst_columns(columns: np.ndarray, most: int = 3) -> list[np.ndarray]:
    """Of columns, `(chain, draw, column)`, those in which chains and their halves differ most."""
    columns = columns[..., columns.std(axis=(0, 1)) > 0]
    return [columns[..., i] for i in np.argsort(-_difference(columns))[:most]]


def slowest(columns: np.ndarray) -> tuple[float, float]:
    """The fewest effective draws and the largest r_hat over columns, `(chain, draw, column)`; NaN if none changes."""
    columns = columns[..., columns.std(axis=(0, 1)) > 0]
    judged = columns[..., np.argsort(-_difference(columns))[:MOST_JUDGED]]
    each = [judged[..., i] for i in range(judged.shape[-1])]
    with np.errstate(divide="ignore", invalid="ignore"):  # what never changes within a chain has an infinite r_hat
        ess = [_bounded(column) for column in each]
        r_hat = [float(split_gelman_rubin(column)) for column in each]
    return min(ess, default=np.nan), max(r_hat, default=np.nan)


def effective_draws(column: np.ndarray) -> float:
    """ArviZ's effective draws in the bulk of a column, `(chain, draw)`; disagreement of chains counts."""
    from arviz_stats.base import array_stats  # takes half a second to import

    return float(array_stats.ess(column, chain_axis=0, draw_axis=1, method="bulk"))  # pyright: ignore


def fewest_effective(column: np.ndarray) -> float:
    """The fewest effective draws of a column in bulk and tails, as ArviZ has them but without the time to import it."""
    half = column.shape[1] // 2
    halves = np.concatenate([column[:, :half], column[:, -half:]])
    tails = [(halves <= quantile).astype(float) for quantile in np.quantile(halves, [0.05, 0.95])]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [_bounded(form) for form in (_normal_scores(halves), *tails) if np.ptp(form) > 0]
    return float(np.nanmin(found)) if found and not np.isnan(found).all() else np.nan


def _bounded(column: np.ndarray) -> float:
    """NumPyro's effective draws with ArviZ's bound: where each draw undoes the one before, they pass all bounds.

    The estimate is n / τ, and for such draws τ comes out near zero or below it.
    """
    found, most = float(effective_sample_size(column)), column.size * np.log10(column.size)
    return float(most) if found <= 0 or found > most else found


def _most_different(z: np.ndarray) -> tuple[list[tuple[int, np.ndarray]], int]:
    """Sites and their columns, those in which chains differ most; and the number of columns that ever change."""
    found: list[tuple[float, int, np.ndarray]] = []
    total = 0
    for first, columns in _pieces(z):
        sites = first[1] + np.arange(columns.shape[-1]) % first[0]
        changing = np.flatnonzero(np.ptp(columns, axis=(0, 1)) > 0)
        differences = _difference(columns[..., changing])
        total += len(changing)
        for i in np.argsort(-differences)[:MOST_JUDGED]:
            found.append((float(differences[i]), int(sites[changing[i]]), columns[..., changing[i]]))
    found.sort(key=lambda entry: -entry[0])
    return [(site, column) for _, site, column in found[:MOST_JUDGED]], max(total, 1)


def _pieces(z: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Columns of some sites at a time, with the number of these sites and of the first."""
    flat = z.reshape(*z.shape[:2], -1)
    most = max(COLUMN_ELEMENTS // (z.shape[0] * z.shape[1] * MOST_VALUES), 1)
    for first in range(0, flat.shape[-1], most):
        piece = flat[..., first : first + most]
        yield (piece.shape[-1], first), site_columns(piece)


def _difference(columns: np.ndarray) -> np.ndarray:
    """Variance between the means of half chains, as a part of the whole."""
    half = columns.shape[1] // 2
    means = np.concatenate([columns[:, :half].mean(axis=1), columns[:, half:].mean(axis=1)])
    return means.var(axis=0) / columns.var(axis=(0, 1))
