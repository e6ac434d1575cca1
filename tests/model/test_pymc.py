"""PyMC models read as programs: the same density, the same structure, what comes back."""

import subprocess
import sys
import warnings

import arviz as az
import jax
import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from pymc_extras.model.marginal.marginal_model import marginalize

import sumout
from sumout.errors import ModelError, OptionError
from sumout.model.initial_values import guess_x, guess_z
from sumout.model.supports import Count
from sumout.plan.plan import plan_for
from sumout.results.summary import examine

from enumeration import joint_states, log_marginal
from pymc_models import MODELS, TWO_GROUPS

PLAINLY = pytensor.compile.mode.Mode(linker="py", optimizer="fast_compile")  # nothing is compiled


@pytest.fixture(scope="module")
def made():
    """Models and their programs, each made once."""
    kept = {}

    def make(name):
        if name not in kept:
            model = MODELS[name]()
            kept[name] = model, sumout.program(model)
        return kept[name]

    return make


def by_pymc(model, program, count, seed=0):
    """The log density by PyMC at random points, and these: x, z."""
    for rv in model.free_RVs:  # PyMC would move counts that it holds as floats to the real line
        if rv.name in program.z:
            model.rvs_to_transforms[rv] = None
    log_density = model.compile_logp(mode=PLAINLY)
    rng = np.random.default_rng(seed)
    x, z = guess_x(rng, program, count), guess_z(rng, program, count)
    z |= {
        name: site.support.lower + 4 + z[name] % 9
        for name, site in program.z.items()
        if isinstance(site.support, Count)
    }
    found = []
    for i in range(count):
        values = {name: np.asarray(value) for name, value in program.unravel(x[i]).items()}
        values |= {name: value[i] for name, value in z.items()}
        for name in [name for name in values if name.endswith("_index")]:
            values[name.removesuffix("_index")] = np.eye(program.z[name].support.num_values, dtype=int)[values[name]]
        own = {rv.name: model.rvs_to_values[rv] for rv in model.free_RVs}
        point = {v.name: np.asarray(values.get(name, 2)).astype(v.dtype) for name, v in own.items()}
        found.append(float(log_density(point)))
    return np.array(found), x, z


SLOW = {"dawid_skene", "hidden_markov_by_hand", "unaligned", "correlated", "nested_models", "spike_and_slab"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.calibration] * (name in SLOW)) for name in MODELS]
)
def test_the_density_is_that_of_pymc(made, name):
    model, program = made(name)
    expected, x, z = by_pymc(model, program, 4)

    @jax.jit
    def log_density(x, z, data):
        left_out = program.log_terms_named(program.unravel(x), z, data) if program.forward else {}
        return program.log_density(x, z, data) + sum(left_out[name].sum() for name in program.forward)

    found = np.array([log_density(x[i], {name: value[i] for name, value in z.items()}, program.data) for i in range(4)])
    assert np.isfinite(expected).any()
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize(
    "name, edges, summed",
    [
        ("occupancy", 0, 4),
        ("dawid_skene", 0, 4),
        ("hidden_markov", 5, 6),
        ("hidden_markov_by_hand", 4, 5),
        ("nested_mixture", 6, 8),
        ("abundance", 0, 3),
        ("imputed", 0, 2),
        ("zero_inflated", 5, 2),
    ],
)
def test_checks_of_parameters_join_no_sites(made, name, edges, summed):
    _, program = made(name)
    structure = sumout.read(program)
    assert (len(structure.edges), structure.opaque) == (edges, ())
    text = sumout.explain(program)
    assert ("summed out" in text) == (summed > 0)


SUPPORTS = {
    "coal": {"switch": "{1851, 1852, 1853, …, 1857}", "disasters_unobserved": "{0, 1, 2, …}"},
    "urn": {"size": "{4, 5, 6, 7, 8, 9}", "taken": "{0, …, 5}, up to 5 of them each"},
    "uniform_bounds": {
        "top": "{2, 3, 4, 5}",
        "below": "{0, 1, 2, 3, 4, 5}",
        "each": "{-2, …, 3}, up to 4 of them each",
    },
    "geometric": {"tries": "{1, 2, 3, …}"},
    "zero_inflated": {"a": "{0, 1, 2, …}", "b": "{0, 1, 2, 3, 4}", "c": "{0, 1, 2, …}"},
    "hurdles": {"a": "{0, 1, 2, …}", "b": "{0, 1, 2, …}"},
    "truncated": {"a": "{1, 2, 3, 4}", "b": "{1, 2, 3}"},
    "censored": {"read": "{0, 1, 2, 3, 4}"},
    "mixture_law": {"a": "{0, 1, 2, 3, 4, 5}", "b": "{0, 1, 2, 3, 4}"},
    "ordered": {"a": "{0, 1, 2}", "b": "{0, 1, 2}"},
    "one_of_many": {"a_index": "{0, 1, 2}", "b_index": "{0, 1}"},
    "dirac": {"z": "{0, 1, 2}"},
    "custom": {"n": "{2, 3, 4, 5}"},
    "discrete_weibull": {"n": "{0, 1, 2, …}"},
    "beta_binomial": {"n": "{0, 1, 2, 3, 4}"},
    "negative_binomial": {"n": "{0, 1, 2, …}"},
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_supports(made, name):
    _, program = made(name)
    assert {site: str(program.z[site].support) for site in program.z} == SUPPORTS[name]


@pytest.mark.parametrize(
    "name, marginalised",
    [
        ("survey", ["coin"]),
        ("censored_data", ["kind"]),
        ("nested_models", ["inner::z"]),
        pytest.param("hidden_markov", ["states"], marks=pytest.mark.calibration),
    ],
)
def test_the_marginal_is_that_of_pymc_extras(made, name, marginalised):
    model, program = made(name)
    expected = marginalize(model, marginalised)
    log_density = expected.compile_logp(mode=PLAINLY)
    x = guess_x(np.random.default_rng(3), program, 2)
    total = log_marginal(program, joint_states(program))
    summation = plan_for(program, None).summation
    for each in x:
        point = {model.rvs_to_values[model[k]].name: np.asarray(v) for k, v in program.unravel(each).items()}
        by_extras = float(log_density(point))
        one = {k: v[0] for k, v in guess_z(np.random.default_rng(0), program, 1).items()}
        np.testing.assert_allclose(summation.log_density(each, one, program.data), by_extras, atol=1e-8)
        np.testing.assert_allclose(total(each), by_extras, atol=1e-8)


def test_data_are_arguments(made):
    for name, data, fixed in (("mixture", ["y_data"], ()), ("unaligned", ["y", "x", "group_index"], ())):
        program = made(name)[1]
        assert (sorted(program.data), program.fixed) == (sorted(data), fixed)
    program = made("shared")[1]
    assert program.fixed == ("kept",) and len(program.data) == 2


def test_changed_data_make_a_new_program():
    model = MODELS["mixture"]()
    first = sumout.program(model)
    assert sumout.program(model) is first
    with model:
        pm.set_data({"y_data": TWO_GROUPS + 1})
    second = sumout.program(model)
    assert second is not first
    np.testing.assert_allclose(second.data["y_data"], TWO_GROUPS + 1)
    np.testing.assert_allclose(first.data["y_data"], TWO_GROUPS)


def test_a_result_is_labelled_as_pymc_labels_it(tmp_path):
    with MODELS["unaligned"]() as model:
        pm.Deterministic("label", model["z"] + 1, dims="group")
        stored = sumout.sample(draws=20, tune=20, chains=2, store=tmp_path / "run")
        result = sumout.sample(draws=20, tune=20, chains=2)
    posterior = result.posterior
    assert list(posterior.data_vars) == ["slope", "z", "noise", "label"]
    assert posterior.z.dims == ("chain", "draw", "group") and posterior.z.dtype.kind == "i"
    assert posterior.group.values.tolist() == ["a", "b", "c"]
    assert list(result.observed_data.data_vars) == ["y"]
    assert sorted(result.constant_data.data_vars) == ["group_index", "x"]
    assert result.log_likelihood.y.dims == ("chain", "draw", "row")
    xr.testing.assert_equal(posterior.label, (posterior.z + 1).rename("label"))
    for group in ("posterior", "constant_data", "observed_data", "log_likelihood"):
        xr.testing.assert_equal(result[group].to_dataset(), stored[group].to_dataset())
    known = {"inference_library": "sumout", "tuning_steps": 20}
    assert known.items() <= posterior.attrs.items() and posterior.attrs["sampling_time"] > 0


def test_pymc_and_arviz_go_on_from_a_result():
    model = MODELS["mixture"]()
    result = sumout.sample(model, draws=100, tune=100, chains=2)
    idata = sumout.to_inference_data(result)
    plainly = {"mode": PLAINLY}
    predicted = pm.sample_posterior_predictive(
        idata, model=model, random_seed=1, progressbar=False, compile_kwargs=dict(plainly)
    )
    assert predicted.posterior_predictive.y.dims == ("chain", "draw", "point")
    computed = pm.compute_deterministics(idata.posterior, model=model, progressbar=False, compile_kwargs=plainly)
    np.testing.assert_allclose(computed.centre, idata.posterior.centre)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few draws some weigh much
        assert np.isfinite(az.loo(idata, var_name="y").elpd_loo)
    assert sumout.program(model) is sumout.program(model)  # which PyMC's own functions have left their traces in
    assert sumout.marginals(model, result).z.dims == ("point", "z_value")


def test_vectors_with_one_trial_come_back_as_such(made):
    model, _ = made("one_of_many")
    posterior = sumout.sample(model, draws=20, tune=20, chains=2).posterior
    assert posterior.a.dims == ("chain", "draw", "what", "who")
    np.testing.assert_array_equal(posterior.a.sum("who"), 1)
    np.testing.assert_array_equal(posterior.a.argmax("who"), posterior.a_index)


def test_missing_counts_are_drawn_and_shown(made):
    model, program = made("coal")
    assert program.forward == ("disasters_unobserved",)
    result = sumout.sample(model, draws=300, tune=200, chains=2)
    assert examine(result).table.loc["disasters[0]", "sd"] == 0  # which is known
    posterior = result.posterior
    np.testing.assert_array_equal(posterior.disasters[..., 3], posterior.disasters_unobserved[..., 0])
    rate = posterior.early.where(posterior.switch >= 1854, posterior.late)
    error = (posterior.disasters_unobserved[..., 0] - rate) / np.sqrt(rate)
    assert abs(error.mean()) < 5 / np.sqrt(600)  # 600 independent draws given the rate; fails once in two million


def test_initial_values_are_where_ascents_begin():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2, initval=[3.0, -3.0])
        sigma = pm.HalfNormal("sigma", 1, initval=2.0)
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=3, initval=[2, 1, 0])
        w = pm.Bernoulli("w", 0.5)
        pm.Normal("y", mu[w] + z, sigma, observed=[1.0, 2.0, 0.5])
    program = sumout.program(model)
    rng = np.random.default_rng(0)
    x, drawn = guess_x(rng, program, 8), guess_z(rng, program, 8)
    np.testing.assert_allclose(x[0], [3, -3, np.log(2)])
    assert (np.abs(x - x[0]) <= 1).all() and np.ptp(x, axis=0).min() > 0.1
    np.testing.assert_array_equal(drawn["z"], [[2, 1, 0]] * 8)
    assert set(drawn["w"]) == {0, 1}


def refused():
    with pm.Model() as simulator:
        mu = pm.Normal("mu", 0, 1)
        pm.Bernoulli("z", 0.5)
        pm.Simulator("y", lambda rng, mu, size: rng.normal(mu, size=size), mu, observed=[0.1])
    with pm.Model() as minibatch:
        y = pm.Minibatch(TWO_GROUPS, batch_size=2)
        z = pm.Bernoulli("z", 0.5)
        pm.Normal("y", z, 1, observed=y, total_size=6)
    with pm.Model() as multinomial:
        pm.Multinomial("counts", n=3, p=[0.2, 0.8])
    with pm.Model() as walk:
        pm.RandomWalk("walk", init_dist=pm.Poisson.dist(1.0), innovation_dist=pm.Poisson.dist(1.0), steps=3)
    with pm.Model() as custom:
        pm.CustomDist("n", 3.0, logp=lambda value, mu: -value * mu, dtype="int64")
    with pm.Model() as mixed:
        pm.Bernoulli("z", 0.5)
        pm.Censored("latent", pm.Normal.dist(0, 1), lower=0.0)
    with pm.Model() as continuous:
        pm.Normal("mu", 0, 1)
    with pm.Model() as named:
        pm.Bernoulli("draw", 0.5)
    return {
        "Simulator": simulator, "minibatches": minibatch, "more than one trial": multinomial,
        "RandomWalk": walk, "CustomDist_n": custom, "'latent' .Censored. is continuous": mixed,
        "no discrete latent": continuous, "'draw'": named,
    }  # fmt: skip


@pytest.mark.parametrize("message", refused())
def test_refused_by_name(message):
    with pytest.raises(ModelError, match=message):
        sumout.program(refused()[message])


def test_arguments_and_missing_models_are_refused():
    with pytest.raises(OptionError, match="takes no arguments"):
        sumout.program(MODELS["survey"](), TWO_GROUPS)
    with pytest.raises(OptionError, match="no model was given"):
        sumout.sample()


def test_single_and_double_precision():
    with pytensor.config.change_flags(floatX="float32"):
        program = sumout.program(MODELS["hidden_markov"]())
    double = sumout.program(MODELS["hidden_markov"]())
    x, z = guess_x(np.random.default_rng(0), double, 1)[0], {"states": np.array([0, 1, 0, 1, 1, 1])}
    exact = double.log_density(x, z, double.data)
    np.testing.assert_allclose(program.log_density(x, z, program.data), exact, rtol=1e-5)
    with jax.enable_x64(False):
        rounded = sumout.program(MODELS["hidden_markov"]())
        found = rounded.log_density(x.astype(np.float32), z, rounded.data)
        assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-5)


SETTINGS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import jax, sumout
assert "pymc" not in sys.modules
import pymc as pm
before = dict(os.environ)
with pm.Model() as model:
    p = pm.Beta("p", 1, 1)
    z = pm.Bernoulli("z", p, shape=3)
    pm.Normal("y", z, 1.0, observed=[0.1, 0.9, 1.2])
warnings.simplefilter("error")
result = sumout.sample(model, draws=10, tune=10, chains=1)
assert not jax.config.jax_enable_x64 and jax.device_count() == 1 and dict(os.environ) == before
assert "pymc.sampling.jax" not in sys.modules
assert result.posterior.p.dtype == "float32" and result.posterior.z.dtype == "int32"
"""


def test_settings_of_jax_stay():
    subprocess.run([sys.executable, "-c", SETTINGS], check=True, timeout=120)
