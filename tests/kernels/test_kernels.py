"""Every kernel runs on every kind of program, and says what was tuned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sumout
from sumout.kernels.registry import KERNELS
from sumout.plan.plan import make_plan
from sumout_studies.two_normals import make_program as two_normals

from programs import ENUMERABLE, abundance, without_x

# The others are in other tests.
QUICK = ("hmc", "sgnht", "psgld")  # the others are elsewhere, too
NAMES = [kernel.name for kernel in KERNELS if kernel.name not in ("nuts", "split_sghmc")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.calibration) for name in NAMES]
)
def test_every_kernel_by_name(name):
    result = sumout.sample(
        two_normals(), name, plan={"right": "draw"}, draws=12, tune=30, chains=2, log_likelihood=False
    )
    assert np.isfinite(result.posterior["x"]).all()
    assert result["unconstrained_gradient"]["x"].shape == (2, 12)
    tuned = result["tuned"]
    assert (tuned["step_size"].values > 0).all()
    assert tuned["scale"].dims[:2] == ("chain", "coordinate")
    assert tuned["coordinate"].values.tolist() == ["x"]
    assert result.posterior.attrs["steps"] >= 1


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (without_x, "ghmc"),
        pytest.param(without_x, "split_sghmc", marks=pytest.mark.calibration),
        (abundance, "ghmc"),
        (ENUMERABLE["spike_and_slab"], "ghmc"),  # more colours than are unrolled
    ],
)
def test_kinds_of_programs(make, kernel):
    program = make()
    plan = {name: "gibbs" for name, site in program.z.items() if hasattr(site.support, "values")}
    result = sumout.sample(program, kernel, plan=plan, draws=5, tune=5, chains=2, log_likelihood=False)
    for name in result.posterior.data_vars:
        assert np.isfinite(result.posterior[name].values.astype(float)).all()


@pytest.mark.parametrize(
    "kernel", [sumout.GHMC(step_size=0.3), sumout.SplitSGHMC(step_size=0.1, friction=2.0)], ids=repr
)
def test_the_users_values_are_respected(kernel):
    result = sumout.sample(
        two_normals(), kernel, plan={"right": "draw"}, draws=5, tune=20, chains=2, steps=3, log_likelihood=False
    )
    np.testing.assert_allclose(result.sample_stats["step_size"], kernel.step_size, rtol=1e-6)
    np.testing.assert_array_equal(result["tuned"]["scale"], 1.0)
    assert result.posterior.attrs["steps"] == 3


def test_more_steps_where_chains_mix_slowly():
    kernel = sumout.GHMC()
    states = type("States", (), {"tuning": type("Tuning", (), {"step_size": np.array([0.5, 0.5])})})
    assert kernel.steps_when_tuned(states, efficiency=lambda: 1.0) == 6  # a time of 3 in steps of 0.5
    assert kernel.steps_when_tuned(states, efficiency=lambda: 0.1) == 50
    assert kernel.steps_when_tuned(states, efficiency=lambda: 1e-6) == 400


def test_one_colour_a_step_where_a_sweep_costs_more_than_a_gradient():
    """All sites have had their turn after as many steps as there are colours, and not before."""
    program = ENUMERABLE["spike_and_slab"]()
    structure = sumout.read(program)
    plan = make_plan(structure, {"gamma": "gibbs"})
    assert plan.sweep.evaluations == 2 + program.num_z  # for each value, and for the row of each site
    x, scan = jnp.zeros(program.num_x), jax.jit(plan.partial_scan)
    ever = np.zeros(program.num_z, bool)
    for t in range(program.num_z):
        changed = np.zeros(program.num_z, bool)
        for seed in range(20):  # by chance a site draws the value it has
            z = {"gamma": jnp.zeros(program.num_z, int)}
            changed |= np.asarray(scan(jax.random.key(seed), x, z, program.data, t)["gamma"]) != 0
        assert changed.sum() == 1
        ever |= changed
    assert ever.all()


def test_a_cheap_sweep_is_made_whole():
    plan = make_plan(sumout.read(ENUMERABLE["survey"]()), {"coin": "gibbs"})
    assert plan.partial_scan is None
    assert plan.sweep.evaluations == 2


BAD_OPTIONS = [
    (lambda: sumout.GHMC(friction=0), "GHMC: friction=0 must be positive"),
    (lambda: sumout.GHMC(num_leapfrog=0), "GHMC: num_leapfrog=0"),
    (lambda: sumout.GHMC(step_size=-1), "GHMC: step_size=-1 must be positive, or None"),
    (lambda: sumout.SplitSGHMC(friction=-1), "SplitSGHMC: friction=-1"),
    (lambda: sumout.SplitSGHMC(num_samples=0), "SplitSGHMC: num_samples=0"),
    (lambda: sumout.SGLD(noise=-1), "SGLD: noise=-1 is a variance"),
    (lambda: sumout.PSGLD(damping=0), "PSGLD: damping=0"),
    (lambda: sumout.SGNHT(inertia=0), "SGNHT: inertia=0"),
]


@pytest.mark.parametrize(("make", "message"), BAD_OPTIONS, ids=[message for _, message in BAD_OPTIONS])
def test_options_that_make_no_sense(make, message):
    with pytest.raises(sumout.errors.OptionError, match=message):
        make()
