"""Models of ecology with z left in and defaults only, against NUTS on their marginals by hand.

Means agree within 0.05 sd and sds within 5 %, up to four Monte-Carlo errors of the difference: where these are at most
0.02 sd that leaves chance 6.5 of them, in all models and coordinates together less than once in a million runs.
"""

import warnings

import jax
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import sumout

from ecology_models import DRAWN, ECOLOGY

ERRORS = 4.0
CHOSEN = [
    "occupancy_product",
    "occupancy_density_switch",
    "beetles_masked_by_method",
    "dynamic",
    "cjs_scan",
    "cjs_scan_clamped",
    "cjs_loop",
    "cjs_array_law",
    "cjs_array_switch",
    "m0",
    "mb",
    "mh",
    "mtbh",
    "species_nested",
    "species_product",
    "js_loop",
    "js_scan",
    "js_array",
    "inflated_poisson_product",
    "inflated_binomial_product",
    "abundance_uniform",
    "abundance_category",
    "abundance_binomial",
    "abundance_counts",
]


def by_nuts(case):
    """Long chains of NumPyro's NUTS, `(chains, draws, …)` by name."""
    mcmc = MCMC(
        NUTS(case.by_hand, target_accept_prob=0.95), num_warmup=1500, num_samples=10_000, num_chains=4,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(1))
    return {name: np.asarray(draws) for name, draws in mcmc.get_samples(group_by_chain=True).items()}


def moments(draws):
    """Mean and sd of every coordinate with their Monte-Carlo errors."""
    draws = draws.reshape(*draws.shape[:2], -1)
    mean, sd = draws.mean((0, 1)), draws.std((0, 1))
    squares = (draws - mean) ** 2
    mean_error = sd / np.sqrt(effective_sample_size(draws))
    sd_error = squares.std((0, 1)) / np.sqrt(effective_sample_size(squares)) / (2 * sd)
    return mean, sd, mean_error, sd_error


@pytest.mark.calibration
@pytest.mark.parametrize("name", CHOSEN)
def test_posterior(name):
    case = (ECOLOGY | DRAWN)[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There are not enough devices")
        truth = by_nuts(case)
    result = sumout.sample(case.make(), draws=10_000, seed=2)
    for site, draws in truth.items():
        mean, sd, mean_error, sd_error = moments(draws)
        found, found_sd, found_error, found_sd_error = moments(result.posterior[site].values)
        assert (np.abs(found - mean) < 0.05 * sd + ERRORS * np.hypot(mean_error, found_error)).all(), site
        assert (np.abs(found_sd - sd) < 0.05 * sd + ERRORS * np.hypot(sd_error, found_sd_error)).all(), site
        assert (np.hypot(mean_error, found_error) < 0.02 * sd).all(), site
