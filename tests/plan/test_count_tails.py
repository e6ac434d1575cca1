"""Tails of counts in chains: bounds under the prior, against products of the chain's own matrices."""

from functools import cache
from itertools import pairwise

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import sumout
from sumout.model.arguments import as_jax
from sumout.plan.count_bounds import count_bounds
from sumout.plan.count_tails import LADDER, CountTails
from sumout.plan.plan import plan_for

STEPS = 4


def growing(y):
    """Survivors and recruits of two populations, as one Poisson number."""
    rate = numpyro.sample("rate", dist.LogNormal(2, 1))
    survival = numpyro.sample("survival", dist.Beta(2, 2))
    with numpyro.plate("populations", 2):
        n = numpyro.sample("n_0", dist.Poisson(rate))
        for t in range(1, STEPS):
            n = numpyro.sample(f"n_{t}", dist.Poisson(survival * n + 0.5 * rate))
        numpyro.sample("y", dist.Binomial(n, 0.5), obs=y)


def dwindling(y):
    """Survivors only."""
    rate = numpyro.sample("rate", dist.LogNormal(2, 1))
    survival = numpyro.sample("survival", dist.Beta(2, 2))
    with numpyro.plate("populations", 2):
        n = numpyro.sample("n_0", dist.Poisson(rate))
        for t in range(1, STEPS):
            n = numpyro.sample(f"n_{t}", dist.Binomial(n, survival))
        numpyro.sample("y", dist.Binomial(n, 0.5), obs=y)


def joined(y):
    """Survivors and recruits apart, so that laws have two parents."""
    rate = numpyro.sample("rate", dist.LogNormal(2, 1))
    survival = numpyro.sample("survival", dist.Beta(2, 2))
    with numpyro.plate("populations", 2):
        n = numpyro.sample("n_0", dist.Poisson(rate))
        for t in range(1, STEPS):
            survived = numpyro.sample(f"s_{t}", dist.Binomial(n, survival))
            n = survived + numpyro.sample(f"g_{t}", dist.Poisson(0.5 * rate))
        numpyro.sample("y", dist.Binomial(n, 0.5), obs=y)


LAST = {growing: f"n_{STEPS - 1}", dwindling: f"n_{STEPS - 1}", joined: f"s_{STEPS - 1}"}
FAR = {
    growing: 1.5,
    dwindling: 1.5,
    joined: 2.0 ** (STEPS - 1),
}  # times as far out as must be; two parents may double it at every step


@cache
def bounds_of(model):
    return count_bounds(sumout.program(model, np.array([4, 2])))


def exact_tails(model, rate, survival, num=600):
    """P(n > k) of the last count of a chain, for all k below a number."""
    k = np.arange(num)
    law = stats.poisson.pmf(k, rate)
    if model is growing:
        step = stats.poisson.pmf(k, survival * k[:, None] + 0.5 * rate)
        for _ in range(STEPS - 1):
            law = law @ step
        return law[::-1].cumsum()[::-1] - law
    step, recruits = stats.binom.pmf(k, k[:, None], survival), stats.poisson.pmf(k, 0.5 * rate)
    for t in range(1, STEPS):
        law = law @ step
        if model is joined and t < STEPS - 1:
            law = np.convolve(law, recruits)[:num]
    return law[::-1].cumsum()[::-1] - law


@pytest.mark.parametrize("model", [growing, dwindling, joined])
def test_tails_of_chains_are_bounded_and_not_by_far(model):
    """At 30 ends of 12 points each."""
    bounds, rng = bounds_of(model), np.random.default_rng(0)
    assert bounds.at_corners
    data = as_jax(bounds.program.data)
    tails = CountTails(bounds, tuple(bounds.names))
    z = {name: np.zeros(site.shape, site.dtype) for name, site in bounds.program.z.items()}
    last = np.concatenate([np.full(2, name == LAST[model]) for name in bounds.names])
    for rate, survival in zip(rng.uniform(0.5, 30, 12), rng.uniform(0.05, 0.95, 12), strict=True):
        named = {"rate": np.log(rate), "survival": np.log(survival) - np.log1p(-survival)}
        x = np.array([named[name] for name in bounds.program.x])
        exact = exact_tails(model, rate, survival)

        def at(ends):
            return tails.compiled(x, z, data, ends, False)[0], 0.0  # noqa: B023

        end, _, is_enough = tails.needed(at, np.log(1e-12))
        assert is_enough.all()
        assert (end[last] <= FAR[model] * np.argmax(exact < 1e-12) + 2).all()
        ends = np.asarray(tails.grid(end))
        found = np.exp(np.asarray(at(ends)[0]))[:, last]
        assert (exact[ends[:, last]] <= found * (1 + 1e-9) + 1e-13).all()


def test_tables_of_thinned_counts_do_not_grow_along_the_chain():
    plan = plan_for(bounds_of(dwindling).program)
    assert plan.sums_all
    ends = [int(plan.ends.cut.upper[f"n_{t}"].max()) for t in range(STEPS)]
    assert all(later <= earlier for earlier, later in pairwise(ends))
    assert ends[0] < LADDER[20]
