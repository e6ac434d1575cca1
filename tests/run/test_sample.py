"""One loop: the same draws however the run is cut, results in ArviZ's schema."""

import warnings

import jax
import numpy as np
import pytest
import xarray as xr

import sumout

from programs import ENUMERABLE, without_x

KERNELS = [sumout.HMC(), sumout.GHMC()]


def same(one, other):
    for group in ("posterior", "sample_stats"):
        for name in one[group].data_vars:
            np.testing.assert_array_equal(one[group][name].values, other[group][name].values)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_draws_do_not_depend_on_the_chunks_or_the_progress_bar(kernel, capsys):
    program = ENUMERABLE["survey"]()
    plan = {"coin": "sum" if isinstance(kernel, sumout.HMC) else "draw"}
    options = {"draws": 130, "tune": 11, "chains": 2, "seed": 4, "plan": plan}
    reference = sumout.sample(program, kernel, **options)
    same(reference, sumout.sample(program, kernel, chunk=7, progress=True, **options))
    for chunk in (1, 1000):
        same(reference, sumout.sample(program, kernel, chunk=chunk, **options))
    assert "sampling, 2 chains" in capsys.readouterr().err


def test_first_chains_do_not_depend_on_their_number():
    program = ENUMERABLE["survey"]()
    two = sumout.sample(program, "hmc", draws=5, tune=5, chains=2)
    three = sumout.sample(program, "hmc", draws=5, tune=5, chains=3)
    np.testing.assert_array_equal(two.posterior["coin"], three.posterior["coin"][:2])
    assert not np.array_equal(two.posterior["theta"][0], two.posterior["theta"][1])


def test_results_hold_every_site_in_its_support():
    program = ENUMERABLE["mixture"]()
    result = sumout.sample(program, "hmc", draws=20, tune=20, chains=2)
    assert isinstance(result, xr.DataTree)
    for site, spec in program.z.items():
        drawn = result.posterior[site]
        assert drawn.shape == (2, 20, *spec.shape)
        assert set(np.unique(drawn)) <= set(np.unique(spec.support.values))
    for site, spec in program.x.items():
        assert result.posterior[site].shape == (2, 20, *spec.shape)
        assert np.isfinite(result.posterior[site]).all()
    assert {"lp", "diverging"} <= set(result.sample_stats.data_vars)
    assert result.posterior.attrs["discrete"] == list(program.z)


def test_float32_is_enough():
    with jax.enable_x64(False):
        result = sumout.sample(ENUMERABLE["grid"](), "ghmc", draws=50, tune=50, chains=2)
        assert result.posterior["coupling"].dtype == np.float32
        assert np.isfinite(result.posterior["coupling"]).all()


def test_a_program_without_continuous_sites_is_sampled():
    result = sumout.sample(without_x(), draws=200, tune=10, chains=2)
    equal = (result.posterior["s"][..., 1:].values == result.posterior["s"][..., :-1].values).mean()
    assert abs(equal - np.exp(2) / (1 + np.exp(2))) < 0.05


def test_sghmc_says_when_the_noise_is_too_large():
    program = ENUMERABLE["survey"](60)
    result = sumout.sample(
        program, sumout.SGHMC(step_size=0.8, friction=0.05), draws=50, tune=100, chains=2, plan={"coin": "draw"}
    )
    assert bool(result.sample_stats["is_noise_too_large"].any())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sumout.summary(result)
    assert any("over-dispersed" in str(w.message) for w in caught)


def test_a_second_run_compiles_nothing_and_draws_the_same():
    program = ENUMERABLE["survey"](11)  # a size of its own, or what was compiled for another of this model would serve
    compiled = []

    def listen(event, seconds, **details):
        if event.endswith("backend_compile_duration"):
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    first = sumout.sample(program, draws=5, tune=5, chains=2)
    assert compiled
    compiled.clear()
    second = sumout.sample(program, draws=5, tune=5, chains=2)
    jax.monitoring.unregister_event_duration_listener(listen)
    assert not compiled
    same(first, second)
