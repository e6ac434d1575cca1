"""Known posteriors: the exact kernel must find them, the stochastic one at a small step size must come close.

Means of x within 0.05 posterior sd (HMC with z summed out), 0.1 (HMC in turns with moves on z) or 0.15 (SGHMC),
probabilities of z within 0.03. Seeds are fixed.
"""

import json
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints

import sumout
from sumout_studies.models import STUDIES

from enumeration import joint_states, quadrature
from programs import ENUMERABLE, REAL, abundance, abundance_in_fog

STAN = json.loads(files("sumout_studies").joinpath("data", "stan.json").read_text())


def unconstrained(program_x, posterior):
    """All draws of x on the real line, `(draws, num_x)`."""
    parts = []
    for name, (constraint, _) in program_x.items():
        values = posterior[name].values.reshape(-1, *posterior[name].shape[2:])
        parts.append(np.asarray(biject_to(constraint).inv(jnp.asarray(values))).reshape(len(values), -1))
    return np.concatenate(parts, axis=1)


def errors(draws, mean, sd):
    """Worst error of the mean in posterior sds, and the ratios of sds."""
    return np.abs(draws.mean(axis=0) - mean) / sd, draws.std(axis=0) / sd


def ordered(draws, study):
    """Components of the mixture sorted by their mean, as in the stored truth."""
    if study.name != "gmm":
        return draws
    swapped = draws[:, 0] > draws[:, 1]
    draws[swapped] = draws[swapped][:, [1, 0, 3, 2]]
    return draws


RUNS = {
    "survey": (sumout.SGHMC(step_size=0.1), {"draws": 4000}),
    "gmm": (sumout.SGHMC(step_size=0.01), {"draws": 4000, "steps": 20}),
    "hmm": (sumout.SGHMC(step_size=0.3), {"draws": 3000, "steps": 40}),
}


def draw_all(program):
    """A plan with nothing summed out."""
    return dict.fromkeys(program.z, "draw")


@pytest.mark.parametrize(
    "name", ["survey", *(pytest.param(name, marks=pytest.mark.calibration) for name in ("gmm", "hmm"))]
)
def test_defaults_agree_with_stan(name):
    """All z summed out, HMC: within 0.05 sd of Stan's long runs, and the coins and states as likely as they are."""
    study, stan = STUDIES[name], STAN[name]
    result = sumout.sample(study.program(), draws=4000, log_likelihood=False)
    assert result.posterior.attrs["kernel"].startswith("HMC")
    draws = ordered(unconstrained(study.x, result.posterior), study)
    for mean, sd in ((stan["mean"], stan["sd"]), (study.mean, study.sd)):
        mean_error, ratio = errors(draws, np.asarray(mean), np.asarray(sd))
        assert mean_error.max() < 0.05
        assert np.abs(ratio - 1).max() < 0.05


@pytest.mark.calibration
@pytest.mark.parametrize("name", ["survey", "hmm"])
def test_hmc_in_turns_with_exact_draws_of_z(name):
    study = STUDIES[name]
    program = study.program()
    options = {"draws": 5000, "steps": 10 if name != "hmm" else 60, "log_likelihood": False}
    result = sumout.sample(program, sumout.HMC(), plan=draw_all(program), **options)
    mean_error, ratio = errors(ordered(unconstrained(study.x, result.posterior), study), study.mean, study.sd)
    assert mean_error.max() < 0.1
    assert np.abs(ratio - 1).max() < 0.1


@pytest.mark.calibration
@pytest.mark.parametrize("name", STUDIES)
def test_sghmc_on_the_papers_models(name):
    study = STUDIES[name]
    program = study.program()
    kernel, options = RUNS[name]
    result = sumout.sample(program, kernel, plan=draw_all(program), log_likelihood=False, **options)
    mean_error, _ = errors(ordered(unconstrained(study.x, result.posterior), study), study.mean, study.sd)
    assert mean_error.max() < 0.15


def implicit():
    """A nuisance of which only a sampler is known: the sum of two dice shifts what is observed."""

    def shifted(x, z, y):
        return dist.Normal(x["mu"] + z["dice"], 1.0).log_prob(y).sum() + dist.Normal(0, 3).log_prob(x["mu"])

    def roll(key):
        return jax.random.randint(key, (2,), 1, 4).sum()

    return sumout.density(
        shifted, x={"mu": REAL}, z={"dice": sumout.implicit(roll, shape=2)}, data=np.array([2.0, 6.0])
    )


def implicit_truth():
    """The same with the law of the sampler written out."""
    law = np.log(np.array([1, 2, 3, 2, 1]) / 9)

    def explicit(x, z, y):
        prior = dist.Normal(0, 3).log_prob(x["mu"])
        return prior + dist.Normal(x["mu"] + z["dice"], 1.0).log_prob(y).sum() + jnp.asarray(law)[z["dice"] - 2].sum()

    return sumout.density(
        explicit, x={"mu": REAL}, z={"dice": sumout.finite([2, 3, 4, 5, 6], 2)}, data=np.array([2.0, 6.0])
    )


def shifted():
    """A support that does not start at 0."""

    def change(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1))
        when = numpyro.sample("when", dist.DiscreteUniform(3, 7))
        numpyro.sample("y", dist.Poisson(rate * jnp.where(jnp.arange(10) < when, 1.0, 3.0)), obs=y)

    return sumout.program(change, np.array([1, 0, 2, 1, 1, 3, 3, 6, 4, 5]))


CASES = {
    "grid": (lambda: ENUMERABLE["grid"](2, 3), None, {"coupling": REAL}),
    "scan": (ENUMERABLE["scan_hmm"], None, {"stay": (constraints.unit_interval, ())}),
    "count": (abundance, None, {"p": (constraints.unit_interval, ())}),
    "mixed": (abundance_in_fog, None, {"p": (constraints.unit_interval, ())}),
    "implicit": (implicit, implicit_truth, {"mu": REAL}),
    "shifted": (shifted, None, {"rate": (constraints.positive, ())}),
}
STEP_SIZES = {"grid": 0.1, "count": 0.1, "implicit": 0.05}


BY_KERNEL = {
    "hmc": ["grid", "count", "implicit"],
    "sghmc": ["grid", "count"],
    "default": ["scan", "mixed", "shifted", "implicit"],
}
QUICK = {("default", "shifted")}
EXAMINED = [
    pytest.param(kernel, name, marks=() if (kernel, name) in QUICK else pytest.mark.calibration)
    for kernel, names in BY_KERNEL.items()
    for name in names
]


@pytest.mark.parametrize("kernel, name", EXAMINED)
def test_enumerated_posteriors(kernel, name):
    make, make_truth, spec = CASES[name]
    truth = (make_truth or make)()
    states = joint_states(truth, num_counts=60)
    mean, sd, weights = quadrature(truth, states, num=2001)
    program = make()
    kernels = {"hmc": sumout.HMC(num_leapfrog=5), "sghmc": sumout.SGHMC(STEP_SIZES.get(name, 0.1)), "default": None}
    # Drawn site by site where that can be done; the default sums out what it can.
    plan = {site: "gibbs" for site, spec in program.z.items() if hasattr(spec.support, "values")}
    result = sumout.sample(
        program, kernels[kernel], draws=5000, steps=20, log_likelihood=False, plan=None if kernel == "default" else plan
    )
    mean_error, _ = errors(unconstrained(spec, result.posterior), mean, sd)
    assert mean_error.max() < (0.15 if kernel == "sghmc" else 0.1)
    for site, values in states.items():
        drawn = result.posterior[site].values.reshape(-1, *values.shape[1:])
        for value in np.unique(values):
            exact = np.tensordot(weights, np.asarray(values == value, float), axes=1)
            assert np.abs((drawn == value).mean(axis=0) - exact).max() < (0.05 if kernel == "sghmc" else 0.03)
