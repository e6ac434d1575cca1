"""Exact posteriors of the three case studies, by sums and quadrature: `python benchmarks/exact_posteriors.py`.

The discrete variables are summed out, the unconstrained parameters of `sumout_studies.models` integrated by the
trapezoidal rule, whose error falls exponentially with the spacing for smooth densities that die away on both sides:

* survey: one dimension, logit θ;
* mixture: four dimensions, a tensor grid. The likelihood is a product over the data of two terms, one for either
  component. Labels may be swapped, so that half of the space, μ₀ < μ₁, tells all. Where one component closes in on a
  single datum the density has no bound and the grid does not reach, but the share of all that is 1e-33;
* Markov model: the paths are summed by how often each transition occurs in them. Given these counts the rows of logits
  are independent, each with the density N(row; 0, 10) ∏ softmax(row)ᵢ^countᵢ. The mean of a row does not change its
  softmax, so it keeps its prior, and two dimensions are left.

Mean, sd and marginal density of each coordinate go to `exact.json` beside the studies' data. A table tells how far the
moments move with a finer and with a wider grid, and how far they are from Stan's. Takes a minute.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit, log_expit, log_softmax
from scipy.stats import norm

from sumout_studies.models import NOISE, STATES, STUDIES

DATA = Path(__file__).parent.parent / "src" / "sumout_studies" / "data"
PRIOR = 10.0  # the sd of every normal prior
NUM_POINTS = 121  # of a marginal density
FLOOR = 1e-4  # where it ends, relative to its peak
CHUNK = 2**18  # numbers in an array that is kept small for speed

# Roughly the means and sds of the mixture's μ₀, μ₁, log σ₀, log σ₁. They place the grid and do not change the result.
CENTRE = np.array([-1.1, 0.95, -0.7, -0.65])
UNIT = np.array([0.09, 0.1, 0.13, 0.15])


@dataclass(frozen=True)
class Posterior:
    """What is known of a posterior.

    Attributes:
        mean: of each coordinate.
        sd: likewise.
        density: the marginal density of the coordinate with a given number at given values.
    """

    mean: np.ndarray
    sd: np.ndarray
    density: Callable[[int, np.ndarray], np.ndarray]


def symmetric(width, spacing):
    """Equally spaced points around 0."""
    num = round(width / spacing)
    return np.arange(-num, num + 1) * spacing


def moments(values, weights):
    """Mean and sd under weights that sum to 1."""
    mean = weights @ values
    return mean, np.sqrt(weights @ (values - mean) ** 2)


def survey(y, width, spacing):
    """The posterior of logit θ."""

    def weigh(x):
        yes, no = y.sum(), len(y) - y.sum()
        likelihood = yes * np.log(expit(x) + 0.5) + no * np.log(expit(-x) + 0.5)
        return np.exp(likelihood + log_expit(x) + log_expit(-x))

    x = symmetric(width, spacing)
    total = weigh(x).sum()
    mean, sd = moments(x, weigh(x) / total)

    def density(k, values):
        del k
        return weigh(values) / (total * spacing)

    return Posterior(np.array([mean]), np.array([sd]), density)


def component(mu, log_sigma, y):
    """For every pair of μ and log σ: μ, the prior, and half the density of each datum."""
    mu, log_sigma = (part.ravel() for part in np.meshgrid(mu, log_sigma, indexing="ij"))
    prior = norm.pdf(mu, 0, PRIOR) * norm.pdf(log_sigma, 0, PRIOR)
    return mu, prior, 0.5 * norm.pdf(y[:, None], mu, np.exp(log_sigma)).T


def gmm_marginals(axes, y):
    """Sums of the density over all axes but one, for each axis; up to a constant."""
    _, _, low = component(CENTRE[0], CENTRE[2], y)
    _, _, high = component(CENTRE[1], CENTRE[3], y)
    scale = np.exp(-np.log(low + high).mean())  # keeps the product over the data within range
    mu_low, prior_low, low = component(axes[0], axes[2], y)
    mu_high, prior_high, high = component(axes[1], axes[3], y)
    low, high = scale * low, np.ascontiguousarray(scale * high.T)
    sums_low, sums_high = np.empty(len(low)), np.zeros(high.shape[1])
    num = max(1, CHUNK // high.shape[1])
    for start in range(0, len(low), num):
        rows = slice(start, start + num)
        product = prior_low[rows, None] * prior_high * (mu_low[rows, None] < mu_high)
        term = np.empty_like(product)
        for at_low, at_high in zip(low[rows].T, high, strict=True):
            np.add.outer(at_low, at_high, out=term)
            product *= term
        sums_low[rows] = product.sum(axis=1)
        sums_high += product.sum(axis=0)
    sums_low = sums_low.reshape(len(axes[0]), len(axes[2]))
    sums_high = sums_high.reshape(len(axes[1]), len(axes[3]))
    return sums_low.sum(axis=1), sums_high.sum(axis=1), sums_low.sum(axis=0), sums_high.sum(axis=0)


def gmm(y, width, spacing):
    """The posterior of the mixture; width and spacing are in units of about an sd."""
    axes = [centre + unit * symmetric(width, spacing) for centre, unit in zip(CENTRE, UNIT, strict=True)]
    marginals = gmm_marginals(axes, y)
    total = marginals[0].sum()
    mean, sd = np.transpose([moments(axis, one / total) for axis, one in zip(axes, marginals, strict=True)])

    def density(k, values):
        return gmm_marginals([*axes[:k], values, *axes[k + 1 :]], y)[k] / (total * UNIT[k] * spacing)

    return Posterior(mean, sd, density)


def count_transitions(y):
    """The numbers of transitions in a path, and the sum of the emission densities of all paths with these numbers.

    A matrix of numbers is written as one integer with four bits for each entry, the first entry lowest.
    """
    if len(y) > 16:
        raise ValueError(f"{len(y)} observations: four bits hold up to 15 transitions")
    emission = norm.pdf(y[:, None], np.arange(STATES), NOISE)
    paths = [(np.zeros(1, int), emission[0, [state]]) for state in range(STATES)]  # by their last state
    for now in emission[1:]:
        ways = [
            merge([(numbers + (1 << 4 * (STATES * old + new)), sums) for old, (numbers, sums) in enumerate(paths)])
            for new in range(STATES)
        ]
        paths = [(numbers, sums * now[new]) for new, (numbers, sums) in enumerate(ways)]
    return merge(paths)


def merge(tables):
    """One table of several, with each key once and its weights added up."""
    keys, weights = (np.concatenate(column) for column in zip(*tables, strict=True))
    keys, where = np.unique(keys, return_inverse=True)
    return keys, np.bincount(where, weights)


def hmm(y, width, spacing):
    """The posterior of the Markov model."""
    # A grid in the plane of rows whose mean is 0: such a row, its softmax and its prior at each point.
    basis = np.array([[1, -1, 0] / np.sqrt(2), [1, 1, -2] / np.sqrt(6)])
    axis = symmetric(width, spacing)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    centred = plane @ basis
    log_probs = log_softmax(centred, axis=1)
    prior = norm.pdf(plane, 0, PRIOR).prod(axis=1) * spacing**2

    matrices, sums = count_transitions(y)
    # The rows of each matrix, as numbers in a list of all rows that occur.
    rows = np.array([matrices >> 12 * row & 0xFFF for row in range(STATES)])
    codes, where = np.unique(rows, return_inverse=True)
    where = where.reshape(rows.shape)
    counts = np.array([codes >> 4 * column & 0xF for column in range(STATES)]).T

    chunks = np.array_split(np.arange(len(plane)), len(plane) * len(codes) // CHUNK + 1)
    integrals = sum(np.exp(counts @ log_probs[chunk].T) @ prior[chunk] for chunk in chunks)
    weights = sums * integrals[where].prod(axis=0)
    weights /= weights.sum()
    # Of each row of logits, given the data: the probabilities of its counts, then its density in the plane.
    by_counts = np.array([np.bincount(row, weights, len(codes)) for row in where]) / integrals
    densities = [by_counts @ np.exp(counts @ log_probs[chunk].T) * prior[chunk] for chunk in chunks]
    densities = np.concatenate(densities, axis=1)

    mean, sd = np.transpose([moments(column, row) for row in densities for column in centred.T])
    sd_of_mean = PRIOR / np.sqrt(STATES)

    def density(k, values):
        row, column = divmod(k, STATES)
        return np.array([densities[row] @ norm.pdf(value, centred[:, column], sd_of_mean) for value in values])

    return Posterior(mean, np.hypot(sd, sd_of_mean), density)


GRIDS = {"survey": (survey, 60.0, 0.1), "gmm": (gmm, 14.0, 0.4), "hmm": (hmm, 80.0, 0.4)}  # width and spacing
COORDINATES = {
    "survey": ["logit theta"],
    "gmm": ["mu[0]", "mu[1]", "log sigma[0]", "log sigma[1]"],
    "hmm": [f"logits[{row}, {column}]" for row in range(STATES) for column in range(STATES)],
}


def curve(posterior, k):
    """Equally spaced values of a coordinate, as far as its density is worth drawing, and the density there."""
    wide = posterior.mean[k] + posterior.sd[k] * np.arange(-8, 24, 0.5)
    heights = posterior.density(k, wide)
    inside = np.flatnonzero(heights > FLOOR * heights.max())
    values = np.linspace(wide[inside[0] - 1], wide[inside[-1] + 1], NUM_POINTS)
    return values, posterior.density(k, values)


def rounded(numbers, digits):
    """Plain numbers with so many significant digits."""
    return [float(f"{number:.{digits}g}") for number in numbers]


def record(name, posterior):
    """What is stored of a posterior."""
    grids, densities = zip(*(curve(posterior, k) for k in range(len(posterior.mean))), strict=True)
    return {
        "coordinates": COORDINATES[name],
        "mean": rounded(posterior.mean, 10),
        "sd": rounded(posterior.sd, 10),
        "grid": [rounded(grid, 6) for grid in grids],
        "density": [rounded(density, 6) for density in densities],
    }


def distance(mean, sd, posterior):
    """The largest difference of means and of sds, in sds."""
    return max(np.abs((mean - posterior.mean) / posterior.sd).max(), np.abs(sd / posterior.sd - 1).max())


def main():
    stan = json.loads((DATA / "stan.json").read_text())
    stored = {}
    columns = ("study", "seconds", "two thirds of the spacing", "half as wide again", "Stan")
    table = Table(*columns, title="How far the moments are from those stored, in sds")
    for name, (solve, width, spacing) in GRIDS.items():
        start, y = time.perf_counter(), STUDIES[name].data()
        posterior = solve(y, width, spacing)
        others = solve(y, width, spacing * 2 / 3), solve(y, width * 1.5, spacing)
        distances = [distance(other.mean, other.sd, posterior) for other in others]
        from_stan = distance(np.array(stan[name]["mean"]), np.array(stan[name]["sd"]), posterior)
        stored[name] = record(name, posterior)
        seconds = time.perf_counter() - start
        table.add_row(name, f"{seconds:.0f}", *(f"{one:.1e}" for one in distances), f"{from_stan:.4f}")
    Console().print(table)
    studies = (f"{json.dumps(name)}:{json.dumps(one, separators=(',', ':'))}" for name, one in stored.items())
    (DATA / "exact.json").write_text("{" + ",\n".join(studies) + "}\n")


if __name__ == "__main__":
    main()
