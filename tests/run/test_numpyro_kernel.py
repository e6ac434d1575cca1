"""sumout's kernels in NumPyro's own MCMC: chains in sequence, side by side and over devices; restarts; other data."""

import os
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, Predictive

import sumout
from sumout.errors import ModelWarning, OptionError, StartError

Y = np.array([1.0, 2.0, 1.5])


def coins(y):
    """Exact: a is N(Σy / 4, 1/4), whatever the coin; the coin is heads with probability 0.3."""
    a = numpyro.sample("a", dist.Normal(0, 1))
    numpyro.sample("coin", dist.Bernoulli(0.3))
    numpyro.deterministic("twice", 2 * a)
    numpyro.sample("y", dist.Normal(a, 1), obs=y)


def switching(sizes, y):
    """Exact: the two values of z add up; `sizes` says how many sites there are, by value."""
    p = numpyro.sample("p", dist.Beta(2, 2))
    n = numpyro.sample("n", dist.Binomial(sizes, 0.5))
    numpyro.sample("y", dist.Normal(p * n, 1.0), obs=y)


def make(model=coins, num_samples=1000, **options):
    options = {"num_chains": 2, "chain_method": "vectorized", "num_warmup": 200, **options}
    return MCMC(sumout.numpyro_kernel(model), num_samples=num_samples, progress_bar=False, **options)


@pytest.fixture(autouse=True)
def _without_advice():
    """The coin of the model has no influence, and sumout says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        yield


@pytest.fixture(scope="module")
def finished():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        mcmc = make(jit_model_args=True)
        mcmc.run(jax.random.key(0), Y, extra_fields=("potential_energy", "accept_prob", "adapt_state.step_size", "z.a"))
        return mcmc


def test_draws_have_the_exact_law(finished):
    """Of 2,000 draws of HMC the error of a mean is about 0.02 sd: five times that is allowed."""
    draws = finished.get_samples()
    assert {name: a.shape for name, a in draws.items()} == dict.fromkeys(["a", "coin", "twice"], (2000,))
    assert float(draws["a"].mean()) == pytest.approx(Y.sum() / 4, abs=0.05)
    assert float(draws["a"].std()) == pytest.approx(0.5, rel=0.1)
    assert float(draws["coin"].mean()) == pytest.approx(0.3, abs=0.06)
    assert jnp.issubdtype(draws["coin"].dtype, jnp.integer)
    np.testing.assert_allclose(draws["twice"], 2 * draws["a"])
    assert finished.get_samples(group_by_chain=True)["a"].shape == (2, 1000)


def test_warm_up_has_tuned(finished):
    tuned = finished.last_state.adapt_state
    np.testing.assert_allclose(tuned.scale[:, 0], 0.5, rtol=0.4)
    assert (tuned.search.is_settled).all()
    assert 0.7 < float(finished.get_extra_fields()["accept_prob"].mean()) < 0.999
    sizes = finished.get_extra_fields(group_by_chain=True)["adapt_state.step_size"]
    assert (sizes == sizes[:, :1]).all()  # not tuned any further


def test_fields_summary_and_predictions(finished, capsys):
    fields, draws = finished.get_extra_fields(), finished.get_samples()
    assert set(fields) == {"diverging", "potential_energy", "accept_prob", "adapt_state.step_size", "z.a"}
    np.testing.assert_allclose(fields["z.a"], draws["a"])
    a = draws["a"]
    energy = -dist.Normal(0, 1).log_prob(a) - dist.Normal(a[:, None], 1).log_prob(Y).sum(1)
    np.testing.assert_allclose(fields["potential_energy"], energy, rtol=1e-6)
    finished.print_summary()
    shown = capsys.readouterr().out
    assert "coin" in shown
    assert "twice" not in shown
    predicted = Predictive(coins, draws, return_sites=["y", "coin"])(jax.random.key(1), None)
    np.testing.assert_array_equal(predicted["coin"], draws["coin"])


@pytest.mark.calibration
def test_chains_in_sequence_and_alone():
    for options in ({"chain_method": "sequential"}, {"num_chains": 1, "thinning": 2}):
        mcmc = make(num_samples=200, **options)
        mcmc.run(jax.random.PRNGKey(3), Y)  # an old key
        draws = mcmc.get_samples()["a"]
        assert draws.shape == ((400,) if "chain_method" in options else (100,))
        assert float(draws.mean()) == pytest.approx(Y.sum() / 4, abs=0.25)  # 5 errors of 100 draws


def test_warm_restart_goes_on_with_the_data_it_is_given(finished):
    """The state holds a density of other data: it is computed anew. Twice the sd of a mean is far from 2 away."""
    finished.post_warmup_state = finished.last_state
    finished.run(jax.random.key(5), Y + 4.0)
    assert float(finished.get_samples()["a"].mean()) == pytest.approx((Y + 4).sum() / 4, abs=0.1)
    kernel = finished.sampler
    other = kernel.sample(finished.last_state, (Y,), {})
    assert (other.checksum != finished.last_state.checksum).all()
    finished.post_warmup_state = None


def test_other_data_of_the_same_shape_compile_nothing():
    kernel = sumout.numpyro_kernel(coins)
    traced = []

    @jax.jit
    def sample(state, y):
        traced.append(1)
        return kernel.sample(state, (y,), {})

    first = kernel.init(jax.random.key(0), 10, None, (Y,), {})
    second = kernel.init(jax.random.key(0), 10, None, (Y + 7.0,), {})
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert float(sample(first, Y).z["a"]) != float(sample(second, Y + 7.0).z["a"])
    assert len(traced) == 1
    longer = kernel.init(jax.random.key(0), 10, None, (np.ones(5),), {})
    assert jax.tree.structure(first) != jax.tree.structure(longer)


def test_what_is_built_in_cannot_change_unseen():
    kernel = sumout.numpyro_kernel(switching)
    small, large, y = np.array(2), np.array(9), np.array(1.0)
    state = kernel.init(jax.random.key(0), 10, None, (small, y), {})
    other = kernel.init(jax.random.key(0), 10, None, (large, y), {})
    assert jax.tree.structure(state) != jax.tree.structure(other)
    with pytest.raises(OptionError, match="argument 'sizes'"):
        kernel.sample(state, (large, y), {})
    sample = jax.jit(lambda state, *args: kernel.sample(state, args, {}))
    assert np.isfinite(sample(state, small, y).z["p"])
    assert np.isnan(sample(state, large, y).z["p"])


def test_initial_values_are_used():
    kernel = sumout.numpyro_kernel(coins)
    state = kernel.init(jax.random.key(0), 10, {"a": jnp.array(0.25)}, (Y,), {})
    assert float(state.z["a"]) == 0.25
    with pytest.raises(OptionError, match="a is missing"):
        kernel.init(jax.random.key(0), 10, {"b": jnp.array(0.25)}, (Y,), {})


def test_an_impossible_model_is_told():
    def impossible():
        a = numpyro.sample("a", dist.Normal(0, 1))
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.factor("never", jnp.where(a + z < jnp.inf, -jnp.inf, 0.0))

    with pytest.raises((StartError, sumout.errors.ModelError)):
        sumout.numpyro_kernel(impossible).init(jax.random.key(0), 10, None, (), {})


def test_options_are_checked():
    with pytest.raises(OptionError, match="NumPyro model or a Program"):
        sumout.numpyro_kernel(3)
    with pytest.raises(OptionError, match="num_steps=0"):
        sumout.numpyro_kernel(coins, num_steps=0)
    program = sumout.program(coins, Y)
    with pytest.raises(OptionError, match="has its data already"):
        sumout.numpyro_kernel(program).init(jax.random.key(0), 10, None, (Y,), {})


PARALLEL = """
import jax, numpy as np, numpyro, numpyro.distributions as dist, sumout
from numpyro.infer import MCMC
jax.config.update("jax_disable_most_optimizations", True)
def coins(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.sample("y", dist.Normal(a + 0.1 * z, 1), obs=y)
mcmc = MCMC(sumout.numpyro_kernel(coins), num_warmup=100, num_samples=300, num_chains=2, progress_bar=False)
assert mcmc.chain_method == "parallel"
mcmc.run(jax.random.key(0), np.array([1.0, 2.0, 1.5]))
draws = mcmc.get_samples(group_by_chain=True)
assert draws["z"].shape == (2, 300)
assert len(draws["a"].devices()) == 2, draws["a"].devices()
assert not np.array_equal(draws["a"][0], draws["a"][1])
assert abs(float(draws["a"].mean()) - 1.1) < 0.2, draws["a"].mean()
"""


@pytest.mark.calibration
def test_chains_over_devices():
    cached = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    cached |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    environment = {**os.environ, **cached, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", PARALLEL], check=True, env=environment)
