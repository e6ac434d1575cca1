"""The posterior moments of `known_moments.py`, recomputed without sumout or JAX: `python tests/moments_by_hand.py`.

z is summed out by hand, in NumPy. Two posteriors are conjugate given z, the others are integrated by the trapezoidal
rule on a tensor grid, in coordinates scaled by mean and covariance: for smooth densities that die away on both sides
its error falls exponentially with the number of points. How far the numbers can be trusted is seen by halving the
spacing and by widening the grid: they move by less than TOLERANCE posterior sds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, log_expit, logsumexp, polygamma

import known_moments as data
from known_moments import KNOWN_MOMENTS

TOLERANCE = 1e-4
CHUNK = 20_000


def log_gamma(rate, a, b):
    return stats.gamma.logpdf(rate, a, scale=1 / b)


def log_beta_of_logit(logit, a, b):
    """The density of the logit of a Beta variable, up to a constant."""
    return a * log_expit(logit) + b * log_expit(-logit)


def log_normal(value, mean, sd):
    return -0.5 * ((value - mean) / sd) ** 2 - np.log(sd)


def binary_states(num):
    return np.array(list(product([0, 1], repeat=num)))


def picture(x):
    coupling, log_noise = x.T[:, :, None]
    noise = np.exp(log_noise)
    states = binary_states(data.PIXELS.size).reshape(-1, *data.PIXELS.shape)
    equal = data.equal_neighbours(states)
    squares = ((data.PIXELS - states) ** 2).sum((1, 2))
    prior = log_normal(coupling, 0.5, 0.5) + log_gamma(noise, 4, 6) + log_noise
    likelihood = logsumexp(coupling * equal - squares / (2 * noise**2), axis=1) - data.PIXELS.size * log_noise[:, 0]
    possible, counts = np.unique(equal, return_counts=True)
    return prior[:, 0] + likelihood - logsumexp(coupling * possible + np.log(counts), axis=1)


def selection(x):
    beta, log_sigma = x[:, :4], x[:, 4]
    sigma = np.exp(log_sigma)
    prior = log_normal(beta, 0, 1).sum(1) + log_gamma(sigma, 3, 3) + log_sigma
    terms = []
    for gamma in binary_states(4):
        mean = (gamma * beta) @ data.DESIGN.T
        inside = gamma.sum() * np.log(0.3) + (4 - gamma.sum()) * np.log(0.7)
        terms.append(inside + log_normal(data.RESPONSE, mean, sigma[:, None]).sum(1))
    return prior + logsumexp(terms, axis=0)


def selection_moments(num=301):
    """A normal for every set of covariates and every σ, and a fine grid on log σ."""
    log_sigmas = np.linspace(-3, 3, num)
    logs, means, squares = [], [], []
    for gamma in binary_states(4):
        chosen = data.DESIGN * gamma
        for log_sigma in log_sigmas:
            sigma = np.exp(log_sigma)
            covariance = np.linalg.inv(np.eye(4) + chosen.T @ chosen / sigma**2)
            mean = covariance @ chosen.T @ data.RESPONSE / sigma**2
            spread = np.eye(12) * sigma**2 + chosen @ chosen.T
            evidence = -0.5 * (data.RESPONSE @ np.linalg.solve(spread, data.RESPONSE) + np.linalg.slogdet(spread)[1])
            inside = gamma.sum() * np.log(0.3) + (4 - gamma.sum()) * np.log(0.7)
            logs.append(evidence + inside + log_gamma(sigma, 3, 3) + log_sigma)
            means.append([*mean, log_sigma])
            squares.append([*(mean**2 + np.diag(covariance)), log_sigma**2])
    weights = np.exp(np.array(logs) - logsumexp(logs))
    mean = weights @ np.array(means)
    return mean, np.sqrt(weights @ np.array(squares) - mean**2)


def two_chains(x):
    logit, log_noise = x.T
    noise = np.exp(log_noise)
    prior = log_beta_of_logit(logit, 3, 2) + log_gamma(noise, 4, 6) + log_noise
    states = binary_states(2)
    emission = log_normal(data.SIGNAL[:, None, None], states @ [1, 2], noise[:, None])  # time, point, state
    num_equal = (states[:, None] == states).sum(-1)
    moves = num_equal * log_expit(logit)[:, None, None] + (2 - num_equal) * log_expit(-logit)[:, None, None]
    forward = emission[0]
    for now in emission[1:]:
        forward = logsumexp(forward[:, :, None] + moves, axis=1) + now
    return prior + logsumexp(forward, axis=1)


def blocks(x):
    within, between = x.T[:, :, None]
    first, second = np.triu_indices(data.NODES, 1)
    states = binary_states(data.NODES)
    same = states[:, first] == states[:, second]
    few = states.sum(1)
    joint = few * np.log(0.3) + (data.NODES - few) * np.log(0.7)
    for logit, pairs in ((within, same), (between, ~same)):
        joint = joint + (pairs @ data.EDGES) * log_expit(logit) + (pairs @ (1 - data.EDGES)) * log_expit(-logit)
    prior = log_beta_of_logit(within, 4, 2) + log_beta_of_logit(between, 2, 4)
    return prior[:, 0] + logsumexp(joint, axis=1)


def abundance(x, most=300):
    log_rate, logit = x.T[:, :, None]
    rate = np.exp(log_rate)
    total = (log_gamma(rate, 5, 0.5) + log_rate + log_beta_of_logit(logit, 4, 4))[:, 0]
    for seen in data.VISITS:
        n = np.arange(seen.max(), most)
        choose = (gammaln(n + 1)[:, None] - gammaln(seen + 1) - gammaln(n[:, None] - seen + 1)).sum(1)
        observed = choose + seen.sum() * log_expit(logit) + (len(seen) * n - seen.sum()) * log_expit(-logit)
        total = total + logsumexp(n * log_rate - rate - gammaln(n + 1) + observed, axis=1)
    return total


def missing(x):
    base, shift, log_sigma = x[:, :1], x[:, 1:3], x[:, 3:]
    level = np.concatenate([base, base + shift], axis=1)
    sigma = np.exp(log_sigma)
    prior = log_normal(x[:, :3], 0, 2).sum(1) + log_normal(log_sigma, 0, 0.7)[:, 0]
    known = log_normal(data.YIELDS, level[:, data.KNOWN], sigma).sum(1)
    each = log_normal(data.YIELDS_OF_UNKNOWN[:, None], level[:, None], sigma[:, None])
    return prior + known + logsumexp(each + np.log(data.SHARES), axis=2).sum(1)


def switch_point(x):
    log_early, log_late = x.T[:, :, None]
    prior = sum(log_gamma(np.exp(rate), 2, 1) + rate for rate in (log_early, log_late))[:, 0]
    y = data.ACCIDENTS
    terms = [
        (y[:w].sum() * log_early - w * np.exp(log_early) + y[w:].sum() * log_late - (20 - w) * np.exp(log_late))[:, 0]
        for w in range(1, 20)
    ]
    return prior + logsumexp(terms, axis=0)


def switch_point_moments():
    """Two gammas for every switch point; the logarithm of a gamma has known moments."""
    y, when = data.ACCIDENTS, np.arange(1, 20)
    early = np.array([y[:w].sum() for w in when])
    shape = 2.0 + np.stack([early, y.sum() - early], axis=1)
    rate = 1.0 + np.stack([when, 20 - when], axis=1)
    evidence = (gammaln(shape) - shape * np.log(rate)).sum(1)
    weights = np.exp(evidence - logsumexp(evidence))
    each = digamma(shape) - np.log(rate)
    mean = weights @ each
    return mean, np.sqrt(weights @ (polygamma(1, shape) + (each - mean) ** 2))


def mixture(x):
    low, log_gap, log_sigma = x.T
    gap, sigma = np.exp(log_gap), np.exp(log_sigma)
    means = np.stack([low, low + gap], axis=1)
    prior = log_normal(low, 0, 1) + log_gamma(gap, 6, 2) + log_gap + log_gamma(sigma, 4, 4) + log_sigma
    each = log_normal(data.POINTS[:, None], means[:, None], sigma[:, None, None])
    return prior + logsumexp(each + np.log([0.7, 0.3]), axis=2).sum(1)


def zero_inflated(x):
    logit, log_rate = x.T
    rate = np.exp(log_rate)
    y = data.CATCHES
    prior = log_beta_of_logit(logit, 2, 2) + log_gamma(rate, 2, 1) + log_rate
    nothing = np.logaddexp(log_expit(logit), log_expit(-logit) - rate)
    caught = (y > 0).sum() * (log_expit(-logit) - rate) + y.sum() * log_rate
    return prior + (y == 0).sum() * nothing + caught


def grades(x):
    level, slope = x.T[:, :, None]
    each = log_normal(data.WEIGHTS[:, None], (level + slope * data.ALTITUDE)[:, :, None] + [0, 10, 20], 4.0)
    prior = log_normal(level, 0, 20) + log_normal(slope, 0, 0.2)
    return prior[:, 0] + logsumexp(each + np.log(data.GRADES), axis=2).sum(1)


def occupancy(x):
    intercept, slope, detection = x.T[:, :, None]
    prior = log_normal(intercept, 0, 1.5) + log_normal(slope, 0, 1.5) + log_beta_of_logit(detection, 2, 2)
    logits = intercept + slope * data.COVER
    seen = data.SEEN * log_expit(detection) + (3 - data.SEEN) * log_expit(-detection)
    overlooked = np.where(data.SEEN == 0, log_expit(-logits), -np.inf)
    return prior[:, 0] + np.logaddexp(log_expit(logits) + seen, overlooked).sum(1)


@dataclass(frozen=True)
class Grid:
    """A tensor grid in scaled coordinates: from −width to width posterior sds in steps of `spacing`."""

    centre: np.ndarray
    scale: np.ndarray  # a Cholesky factor of the covariance
    width: float
    spacing: float

    def moments(self, log_marginal):
        """Mean and covariance by the trapezoidal rule."""
        axis = np.arange(-round(self.width / self.spacing), round(self.width / self.spacing) + 1) * self.spacing
        num = len(axis) ** len(self.centre)
        highest, total, first, second = -np.inf, 0.0, 0.0, 0.0
        for start in range(0, num, CHUNK):
            numbers = np.unravel_index(np.arange(start, min(start + CHUNK, num)), (len(axis),) * len(self.centre))
            u = axis[np.stack(numbers, axis=1)]
            logs = log_marginal(self.centre + u @ self.scale.T)
            new = max(highest, logs.max())
            weights, old = np.exp(logs - new), np.exp(highest - new)
            total = total * old + weights.sum()
            first = first * old + weights @ u
            second = second * old + (u * weights[:, None]).T @ u
            highest = new
        mean = first / total
        covariance = second / total - np.outer(mean, mean)
        return self.centre + self.scale @ mean, self.scale @ covariance @ self.scale.T


def settle(log_marginal, num_x, width, spacing):
    """A grid around the mode, then twice one around the mean."""
    mode = minimize(lambda x: -log_marginal(x[None])[0], np.zeros(num_x), method="BFGS")
    mean, covariance = mode.x, mode.hess_inv
    for _ in range(2):
        mean, covariance = Grid(mean, np.linalg.cholesky(covariance), width, spacing).moments(log_marginal)
    return Grid(mean, np.linalg.cholesky(covariance), width, spacing)


@dataclass(frozen=True)
class Truth:
    """How the moments of a case are found: in closed form, or on a grid of a certain width and spacing."""

    log_marginal: Callable[[np.ndarray], np.ndarray]
    closed_form: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None
    width: float = 9.0
    spacing: float = 0.5

    def grid(self) -> Grid:
        """The grid, in place."""
        return settle(self.log_marginal, len(KNOWN_MOMENTS[self.log_marginal.__name__].mean), self.width, self.spacing)

    def moments(self):
        """Mean and sd of every coordinate."""
        if self.closed_form is not None:
            return self.closed_form()
        mean, covariance = self.grid().moments(self.log_marginal)
        return mean, np.sqrt(np.diag(covariance))

    def error(self):
        """By how many sds mean and sd move at half the spacing, or on a grid half as wide again."""
        if self.closed_form is not None:
            return 0.0
        grid = self.grid()
        mean, sd = self.moments()
        moved = 0.0
        for other in (replace(grid, spacing=grid.spacing / 2), replace(grid, width=grid.width * 1.5)):
            there, covariance = other.moments(self.log_marginal)
            moved = max(moved, compare(mean, sd, there, np.sqrt(np.diag(covariance))))
        return moved


def compare(mean, sd, other_mean, other_sd):
    """The largest difference, in sds."""
    return float(max(np.abs((mean - other_mean) / sd).max(), np.abs(np.asarray(other_sd) / sd - 1).max()))


TRUTHS = {
    truth.log_marginal.__name__: truth
    for truth in (
        Truth(picture, width=7.0, spacing=0.7),
        Truth(selection, selection_moments),
        Truth(two_chains, width=14.0),
        Truth(blocks, width=16.0),
        Truth(abundance),
        Truth(missing, width=8.0, spacing=0.6),
        Truth(switch_point, switch_point_moments),
        Truth(mixture, width=20.0),
        Truth(zero_inflated, width=14.0),
        Truth(grades),
        Truth(occupancy),
    )
}


def main():
    """Recompute everything, and say how it compares."""
    for name, truth in TRUTHS.items():
        mean, sd = truth.moments()
        off = compare(mean, sd, KNOWN_MOMENTS[name].mean, KNOWN_MOMENTS[name].sd)
        print(f"{name}: error {truth.error():.1e} sd; stored moments differ by {off:.1e} sd")
        print("   ", tuple(round(float(m), 7) for m in mean), tuple(round(float(s), 7) for s in sd))


if __name__ == "__main__":
    main()
