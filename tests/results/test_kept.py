"""`keep`: what a result has, and that what is kept is the same as in a run that keeps all."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.errors import OptionError, SamplingWarning
from sumout.model.program import DiscreteSite
from sumout.model.supports import Count, Finite
from sumout.results import data_tree, kept
from sumout.results.kept import small_type

Y = np.random.default_rng(0).normal(size=30) + np.where(np.arange(30) < 10, 3.0, 0.0)
QUICK = {"draws": 30, "tune": 30, "chains": 2}


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
    numpyro.deterministic("gap", mu[1] - mu[0])
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
        numpyro.sample("unused", dist.Poisson(3.0 + z))
    numpyro.deterministic("share", jnp.mean(1.0 * z))


@pytest.fixture(scope="module")
def program():
    return sumout.program(mixture, Y)


@pytest.fixture(scope="module")
def whole(program):
    return sumout.sample(program, **QUICK)


@pytest.mark.parametrize(
    ("keep", "names"),
    [
        (("mu",), {"mu"}),
        ({"z": False, "unused": False}, {"mu", "gap", "share"}),  # which depends on z
        (["unused"], {"unused"}),
    ],
)
def test_what_is_kept_is_what_it_would_be(program, whole, keep, names):
    run = sumout.sample(program, **QUICK, keep=keep)
    assert set(run.posterior.data_vars) == names
    for name in names:
        np.testing.assert_array_equal(run.posterior[name].values, whole.posterior[name].values)
    for group in ("log_likelihood", "unconstrained_posterior"):
        assert set(run[group].data_vars) == set(whole[group].data_vars)
    assert set(np.atleast_1d(run.posterior.attrs["discrete"])) == names & {"z", "unused"}
    with pytest.warns(SamplingWarning):  # of so few draws
        sumout.summary(run)


def test_what_is_drawn_need_not_be_kept(program, tmp_path):
    """z drawn by Gibbs, recorded for the likelihood only; the same in a folder, which knows what it keeps."""
    options = {**QUICK, "plan": {"z": "gibbs"}, "keep": ("mu",)}
    run = sumout.sample(program, **options)
    stored = sumout.sample(program, **options, store=tmp_path)
    assert set(stored.posterior.data_vars) == {"mu"}
    np.testing.assert_array_equal(run.posterior.mu.values, stored.posterior.mu.values)
    with pytest.raises(sumout.errors.StoreError, match="keep"):
        sumout.sample(program, **{**options, "keep": ("mu", "gap")}, store=tmp_path)


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("mu", "expected names"),
        (3, "expected names"),
        (("nu",), "no variable 'nu'; there are gap, mu, share, z, unused"),
        ({"z": 2}, "'z': 2 is not True or False"),
        ((), "leaves no variable"),
    ],
)
def test_wrong_options_are_refused(program, keep, words):
    with pytest.raises(OptionError, match=words):
        sumout.sample(program, **QUICK, keep=keep)


def test_large_sites_are_recorded_in_small_types(program, whole, monkeypatch):
    monkeypatch.setattr(kept, "LARGE_SITE", 30)
    same = lambda y: mixture(y)  # noqa: E731 - another model, lest it use what was compiled for large types
    run = sumout.sample(sumout.program(same, Y), **QUICK)
    assert run.posterior.z.dtype == np.int8
    for name in ("z", "share", "unused"):
        np.testing.assert_array_equal(run.posterior[name].values, whole.posterior[name].values)
    np.testing.assert_array_equal(run.log_likelihood["y"].values, whole.log_likelihood["y"].values)
    assert sumout.to_numpyro(run)["z"].dtype == np.int32


def test_small_types_hold_all_values(monkeypatch):
    monkeypatch.setattr(kept, "LARGE_SITE", 1)
    finite = lambda *values: small_type(DiscreteSite(Finite(np.array(values), (5,))))  # noqa: E731
    assert [finite(0, 127), finite(0, 128), finite(-128, 0), finite(-129, 3), finite(0, 40_000)] == [
        np.int8, np.int16, np.int8, np.int16, np.int32,
    ]  # fmt: skip
    own = [DiscreteSite(Finite(np.array([0.5, 1.0]), (5,))), DiscreteSite(Count((5,)))]
    assert [small_type(site) for site in own] == [site.dtype for site in own]


@pytest.mark.parametrize("size", [1, 7])
def test_values_do_not_depend_on_blocks(whole, monkeypatch, size):
    monkeypatch.setattr(data_tree, "block_for", lambda program: size)
    run = sumout.sample(sumout.program(mixture, Y), **QUICK)
    for group in ("posterior", "log_likelihood"):
        for name, value in run[group].data_vars.items():
            np.testing.assert_array_equal(value.values, whole[group][name].values)


def test_blocks_hold_fewer_draws_of_large_programs():
    large = sumout.program(mixture, np.zeros(1_000_000, np.float32))
    assert data_tree.block_for(sumout.program(mixture, Y)) == 256
    assert 1 <= data_tree.block_for(large) <= 4


@pytest.fixture(scope="module")
def one_site():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu[z], 0.1), obs=y)

    return model


def test_marginals_and_predictions_do_without_z(one_site):
    """Of the same rows, and of some of them: z from its exact conditional."""
    program = sumout.program(one_site, Y)
    whole = sumout.sample(program, **QUICK)
    without = sumout.sample(program, **QUICK, keep=("mu",))
    exact = sumout.marginals(program, whole)
    for rows in (slice(None), slice(5, 15)):
        some = sumout.program(one_site, Y[rows])
        found = sumout.marginals(some, without)
        np.testing.assert_allclose(found.z.values, exact.z.values[rows], atol=1e-12)
        predicted = sumout.predict(some, without).posterior_predictive.y.values
        # Each draw of y is near the component that its z says, and z is as likely as its exact marginal.
        mu = without.posterior.mu.values[:, :, None, :]
        is_one = np.abs(predicted[..., None] - mu).argmin(axis=-1) == 1
        error = np.sqrt(exact.z.values[rows, 1] * exact.z.values[rows, 0] / 60)
        assert (np.abs(is_one.mean((0, 1)) - exact.z.values[rows, 1]) < 6 * error + 1e-6).all()


def test_what_must_be_drawn_must_be_kept(one_site):
    program = sumout.program(mixture, Y)  # "unused" is drawn forward
    run = sumout.sample(program, **QUICK, keep=("mu",))
    for use in (sumout.marginals, sumout.predict):
        with pytest.raises(OptionError, match="keep it"):
            use(program, run)


def test_models_see_their_own_types(monkeypatch):
    """300 z is 300 and no byte."""
    monkeypatch.setattr(kept, "LARGE_SITE", 30)

    def model(y):
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Normal(jnp.asarray(z, z.dtype) * 300, 1.0), obs=y)

    program = sumout.program(model, np.full(30, 300.0))
    run = sumout.sample(program, draws=5, tune=5, chains=1)
    assert run.posterior.z.dtype == np.int8
    assert np.abs(sumout.predict(program, run).posterior_predictive.y.values - 300).max() < 10
