"""Sums over counts that are cut: equal to far longer ones, with a bound on what they leave out that holds."""

import json
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.plan.count_ends import MOST_NEGLECTED, ends_at
from sumout.plan.plan import plan_for
from sumout.plan.target import make_target

Y = np.array([[0, 1, 0], [3, 2, 4], [1, 0, 0], [7, 9, 8]])


def n_mixture(y, law=lambda rate: dist.Poisson(rate)):
    rate = numpyro.sample("rate", dist.LogNormal(1, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1))
    with numpyro.plate("sites", len(y), dim=-2):
        n = numpyro.sample("n", law(rate))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Binomial(n, p), obs=y)


def with_indicators(y):
    rate = numpyro.sample("rate", dist.LogNormal(1, 1))
    with numpyro.plate("sites", len(y), dim=-2):
        present = numpyro.sample("present", dist.Bernoulli(0.6))
        n = numpyro.sample("n", dist.Poisson(rate * (0.05 + present)))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Binomial(n, 0.4), obs=y)


def with_noise(y):
    rate = numpyro.sample("rate", dist.LogNormal(0, 1))
    scale = numpyro.sample("scale", dist.LogNormal(0, 0.5))
    with numpyro.plate("sites", len(y)):
        n = numpyro.sample("n", dist.Geometric(1 / (1 + rate)))
        numpyro.sample("y", dist.Normal(n, scale), obs=y)


def thinned(y):
    """A population at three times, of which some survive and others arrive."""
    rate = numpyro.sample("rate", dist.LogNormal(1, 0.5))
    before = numpyro.sample("n0", dist.Poisson(rate))
    numpyro.sample("y0", dist.Binomial(before, 0.5), obs=y[0])
    for t in (1, 2):
        survived = numpyro.sample(f"s{t}", dist.Binomial(before, 0.7))
        numpyro.sample(f"y{t}", dist.Binomial(survived, 0.5), obs=y[t])
        before = survived


MODELS = {
    "poisson": lambda: sumout.program(n_mixture, Y),
    "negative_binomial": lambda: sumout.program(n_mixture, Y, lambda rate: dist.NegativeBinomial2(rate, 0.7)),
    "zero_inflated": lambda: sumout.program(n_mixture, Y, lambda rate: dist.ZeroInflatedPoisson(0.3, rate)),
    "indicators": lambda: sumout.program(with_indicators, Y),
    "noise": lambda: sumout.program(with_noise, np.array([0.2, 3.1, 5.0, -0.4])),
    "thinned": lambda: sumout.program(thinned, np.array([4, 2, 2])),
}


@cache
def program_of(name):
    return MODELS[name]()


def some_z(program):
    return {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}


def evaluated(program, plan, points):
    """Log densities, gradients and neglected mass at some points."""
    z, target = some_z(program), make_target(plan)
    one = jax.jit(lambda x: (*target.value_and_gradient(x, z, program.data), plan.neglected(x, z, program.data)))
    return [np.array(part) for part in zip(*map(one, points), strict=True)]


def cut_at(program, length):
    names = plan_for(program).ends.cut.upper
    return plan_for(program, None, ends_at(program, {n: np.full(program.z[n].shape, length - 1) for n in names}))


SLOW = ("indicators", "thinned")  # to compile


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.calibration] * (name in SLOW)) for name in MODELS]
)
def test_sums_equal_far_longer_ones(name):
    program = program_of(name)
    plan = plan_for(program)
    assert plan.sums_all
    assert "is below 1e-08 of the total" in sumout.explain(program)
    points = 0.5 * np.random.default_rng(0).normal(size=(3, program.num_x))
    value, gradient, neglected = evaluated(program, plan, points)
    expected, expected_gradient, _ = evaluated(program, cut_at(program, 60 if name == "thinned" else 400), points)
    assert (neglected <= MOST_NEGLECTED).all()
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.calibration] * (name in SLOW))
        for name in ("poisson", "indicators", "noise", "thinned")
    ],
)
def test_what_is_left_out_is_bounded(name):
    """At 3 ends and 24 points of each of 4 models, from where nearly all is left out to where hardly anything is."""
    program, z = program_of(name), some_z(program_of(name))
    points = jnp.asarray(np.random.default_rng(1).normal(size=(24, program.num_x)))

    def at_points(fn):
        return np.asarray(jax.jit(lambda xs: jax.lax.map(lambda x: fn(x, z, program.data), xs))(points))

    whole = at_points(cut_at(program, 64 if name == "thinned" else 300).log_density)
    num_told = 0
    for length in (12, 16, 32):
        plan = cut_at(program, length)
        left_out, bound = -np.expm1(at_points(plan.log_density) - whole), at_points(plan.neglected)
        assert (left_out <= bound + 1e-12).all()
        num_told += int(((bound < 0.1) & (bound > 1e-12)).sum())
    assert num_told >= 5


def published(name):
    found = json.loads((Path(__file__).parent.parent / "data" / "ecology.json").read_text(encoding="utf-8"))
    return np.array(found[name]["counts"])


def by_hand(y, num_values=400):
    """The log density of an N-mixture with n summed to far beyond all data."""
    n, y = np.arange(num_values), jnp.asarray(y)

    def log_density(x, program):
        named = program.constrain(x, some_z(program), program.data)
        rate, p = named["rate"], named["p"]
        inside = jnp.asarray(n)[None, :, None] >= y[:, None, :]
        counts = jnp.where(inside, n[None, :, None], y[:, None, :])
        terms = jnp.where(inside, dist.Binomial(counts, p).log_prob(y[:, None, :]), -jnp.inf).sum(axis=2)
        total = jax.nn.logsumexp(terms + dist.Poisson(rate).log_prob(n), axis=1).sum()
        jacobian = jnp.log(rate) + jnp.log(p) + jnp.log1p(-p)
        return total + dist.LogNormal(1, 1).log_prob(rate) + jacobian

    return log_density


@pytest.mark.parametrize("name", ["point_counts", "fritillaries"])
def test_published_counts(name):
    """The same density as by hand, and so the same posterior."""
    y = published(name)
    program = sumout.program(n_mixture, y)
    hand = jax.jit(jax.value_and_grad(lambda x: by_hand(y)(x, program)))
    points = 0.5 * np.random.default_rng(0).normal(size=(2, 2)) + np.array([1.0, -0.5])
    value, gradient, _ = evaluated(program, plan_for(program), points)
    expected, expected_gradient = zip(*map(hand, points), strict=True)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-8, atol=1e-7)


@pytest.mark.calibration
@pytest.mark.parametrize("name", ["point_counts", "fritillaries"])
def test_posteriors_of_published_counts(name):
    """Means and deviations of x on a grid; 2,000 draws and more, so that .05 deviations are two errors."""
    y = published(name)
    program = sumout.program(n_mixture, y)
    result = sumout.sample(program, draws=2000, progress=False, log_likelihood=False)
    hand = jax.jit(jax.vmap(lambda x: by_hand(y)(x, program)))
    drawn = np.stack([result["unconstrained_posterior"][v].values.ravel() for v in ("rate", "p")], axis=1)
    centre, spread = drawn.mean(axis=0), drawn.std(axis=0)
    axes = [np.linspace(c - 7 * s, c + 7 * s, 121) for c, s in zip(centre, spread, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    heights = np.concatenate([np.asarray(hand(row)) for row in grid])
    weights = np.exp(heights - heights.max()).reshape(grid.shape[:2])
    weights /= weights.sum()
    for i in range(2):
        mean = (weights * grid[..., i]).sum()
        sd = np.sqrt((weights * (grid[..., i] - mean) ** 2).sum())
        assert abs(centre[i] - mean) < 0.05 * sd * 2
        assert abs(spread[i] / sd - 1) < 0.1


def shared_count(y):
    """A count that all data share, and that trades off with their mean."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    n = numpyro.sample("n", dist.Geometric(0.2))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mu + n, sigma), obs=y)


def test_a_count_that_would_leave_modes_is_drawn_with_its_partner():
    """Given n the mean is known to a fifth of the distance between two counts; 2,000 draws, nearly independent."""
    y = 5 + np.random.default_rng(0).normal(size=30)
    program = sumout.program(shared_count, y)
    plan = plan_for(program)
    assert (plan.instead, plan.sums_all) == (("n",), False)
    assert "would else be left with a mode for every value, cut at 0 …" in sumout.explain(program)
    result = sumout.sample(program, draws=500, tune=500, progress=False, log_likelihood=False)
    assert (result["sample_stats"]["neglected"].values <= MOST_NEGLECTED).all()
    n = np.arange(200)
    weights = 0.8**n * np.exp(-0.5 * (y.mean() - n) ** 2 / (25 + y.var() / 30))
    weights /= weights.sum()
    mean, sd = (weights * n).sum(), np.sqrt((weights * n**2).sum() - (weights * n).sum() ** 2)
    drawn = result["posterior"]["n"].values
    assert abs(drawn.mean() - mean) < 5 * sd / np.sqrt(1000)
    assert np.abs(drawn.mean(axis=1) - mean).max() < 5 * sd / np.sqrt(250)


def test_a_count_whose_modes_overlap_is_summed_out():
    assert plan_for(sumout.program(shared_count, np.array([5.0, 7.0, 4.5]))).sums_all
