"""Sites on which nothing depends: left out of the density, drawn from their law for every draw of all else."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

import sumout
from sumout.errors import OptionError

COUNTS = np.array([3, 5, 2, 4, 6])


def rate_of(counts):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("counts", dist.Poisson(rate), obs=counts)
    return rate


def missing_counts(counts):
    """Conjugate: rate given the counts is a gamma, a missing count a negative binomial."""
    rate = rate_of(counts)
    with numpyro.plate("missing", 2):
        numpyro.sample("filled", dist.Poisson(rate))


def one_after_the_other(counts):
    first = numpyro.sample("first", dist.Poisson(rate_of(counts)))
    numpyro.sample("second", dist.Poisson(1.0 + first))


def used_by_data(counts):
    first = numpyro.sample("first", dist.Poisson(rate_of(counts)))
    numpyro.sample("second", dist.Poisson(1.0 + first))
    numpyro.sample("seen", dist.Normal(first, 1.0), obs=2.0)


def shown(counts):
    numpyro.deterministic("double", 2 * numpyro.sample("filled", dist.Poisson(rate_of(counts))))


def masked(counts):
    numpyro.sample("filled", dist.Poisson(rate_of(counts)).mask(jnp.array(False)))


def masked_by_a_handler(counts):
    rate = rate_of(counts)
    with handlers.mask(mask=False):
        numpyro.sample("filled", dist.Poisson(rate))


def scaled(counts):
    rate = rate_of(counts)
    with handlers.scale(scale=0.5):
        numpyro.sample("filled", dist.Poisson(rate))


@pytest.mark.parametrize(
    "model, forward",
    [
        (missing_counts, ("filled",)),
        (one_after_the_other, ("first", "second")),
        (used_by_data, ("second",)),
        (shown, ()),
        (masked, ()),
        (masked_by_a_handler, ()),
        (scaled, ()),
    ],
)
def test_which_sites_are_drawn_forward(model, forward):
    program = sumout.program(model, COUNTS)
    assert program.forward == forward


def test_the_density_is_that_with_the_site_summed_out():
    program = sumout.program(missing_counts, COUNTS)
    without = sumout.program(lambda counts: (rate_of(counts), numpyro.sample("z", dist.Bernoulli(0.5))), COUNTS)
    x = jnp.array([0.7])
    ours = program.log_density(x, {"filled": jnp.array([3, 700])}, program.data)
    expected = without.log_density(x, {"z": jnp.array(1)}, without.data) - np.log(0.5)
    assert float(ours) == pytest.approx(float(expected), rel=1e-6)


def test_the_draws_follow_their_law():
    """Posterior predictive: negative binomial with a + Σy successes and probability (b + n) / (b + n + 1)."""
    posterior = sumout.sample(sumout.program(missing_counts, COUNTS), progress=False, draws=2000).posterior
    drawn = posterior["filled"].values
    assert drawn.shape == (4, 2000, 2)
    assert posterior["filled"].dims[-1] == "missing"
    law = stats.nbinom(2 + COUNTS.sum(), (1 + len(COUNTS)) / (2 + len(COUNTS)))
    for one in drawn[..., 0].ravel(), drawn[..., 1].ravel():
        found = np.bincount(np.minimum(one, 12), minlength=13)
        expected = np.append(law.pmf(np.arange(12)), law.sf(11)) * len(one)
        # Draws of the rate are somewhat dependent; counts given the rate are not.
        assert ((found - expected) ** 2 / expected).sum() < 3 * stats.chi2.ppf(0.999, 12)
    pairs = np.corrcoef(drawn[..., 0].ravel(), drawn[..., 1].ravel())[0, 1]
    shared = law.var() - law.mean()  # given the rate they are independent with variance equal to it
    assert pairs == pytest.approx(shared / law.var(), abs=0.06)


def test_they_are_drawn_given_the_other_sites():
    program = sumout.program(one_after_the_other, COUNTS)
    plan = sumout.read(program).program
    keys = jax.random.split(jax.random.key(0), 4000)
    z = {"first": jnp.array(0), "second": jnp.array(0)}
    drawn = jax.vmap(lambda key: plan.draw_forward(key, jnp.array([0.0]), z, program.data))(keys)
    assert float(jnp.corrcoef(drawn["first"], drawn["second"])[0, 1]) == pytest.approx(1 / 3**0.5, abs=0.06)


def test_how_it_is_told():
    program = sumout.program(missing_counts, COUNTS)
    assert "drawn from their own law for each draw of all else (nothing else depends on it" in sumout.explain(program)
    assert sumout.check(program).findings == ()
    with pytest.raises(OptionError, match="as nothing else depends on it, and its law sums to one; possible: draw"):
        sumout.explain(program, plan={"filled": "metropolis"})


def test_modes_and_marginals_know_them_by_draws():
    program = sumout.program(used_by_data, COUNTS)
    found = sumout.maximize(program, starts=2, progress=False)
    assert found.z["second"] == pytest.approx(1 + found.z["first"], abs=0.4)
