"""Tails and suprema of PyMC's laws, against sums and the densities themselves; sums over counts that are cut."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import sumout
from sumout.plan.plan import plan_for
from sumout.plan.target import make_target

Y = np.array([[0, 1, 0], [3, 2, 4], [1, 0, 0]])
SHAPE = 3

LAWS = {
    "poisson": lambda rate, p, make: make(pm.Poisson, rate),
    "negative_binomial": lambda rate, p, make: make(pm.NegativeBinomial, mu=rate, alpha=0.7),
    "geometric": lambda rate, p, make: make(pm.Geometric, 0.05 + 0.9 * p),
    "zero_inflated": lambda rate, p, make: make(pm.ZeroInflatedPoisson, p, rate),
    "hurdle": lambda rate, p, make: make(pm.HurdlePoisson, p, rate),
    "truncated_geometric": lambda rate, p, make: make(pm.Truncated, pm.Geometric.dist(0.05 + 0.9 * p), lower=3),
    "mixture_of_one_kind": lambda rate, p, make: make(
        pm.Mixture, w=[0.3, 0.7], comp_dists=pm.Poisson.dist(rate * np.array([1.0, 0.2]))
    ),
    "mixture": lambda rate, p, make: make(
        pm.Mixture, w=[0.3, 0.7], comp_dists=[pm.Poisson.dist(rate), pm.Geometric.dist(0.05 + 0.9 * p)]
    ),
    "custom": lambda rate, p, make: make(pm.CustomDist, rate, dist=lambda rate, size: pm.Poisson.dist(rate, size=size)),
}


@cache
def laws_program():
    """One model with a count of every law, a Binomial and a uniform with a latent end, and a BetaBinomial."""
    with pm.Model() as model:
        rate, p = pm.LogNormal("rate", 1, 1), pm.Uniform("p", 0, 1)
        total = 0
        for name, law in LAWS.items():
            total += law(rate, p, lambda kind, *args, name=name, **options: kind(name, *args, **options, shape=SHAPE))
        before = pm.Poisson("before", rate, shape=SHAPE)
        total += pm.Binomial("binomial", before, p) + pm.BetaBinomial("beta_binomial", 2.0, 1.0, before)
        total += pm.DiscreteUniform("uniform", 0, before)
        pm.Normal("y", total + before, 1.0, observed=np.zeros(SHAPE))
    return sumout.program(model)


def known_at(rate, p, upper):
    program = laws_program()
    z = {name: np.full(site.shape, 60, site.dtype) for name, site in program.z.items()}
    uppers = {name: np.asarray(upper) for name in program.z}
    x = np.array([np.log(rate), np.log(p) - np.log1p(-p)])
    return compiled()(x, z, uppers)


@cache
def compiled():
    program = laws_program()
    return jax.jit(lambda x, z, upper: program.count_terms_named(program.unravel(x), z, program.data, upper))


@cache
def log_probabilities_by_pymc():
    """Of the values 0 to 999 by every law, as a function of its parameters."""
    rate, p = pt.dscalar("rate"), pt.dscalar("p")
    made = {
        name: law(rate, p, lambda kind, *args, **options: kind.dist(*args, **options)) for name, law in LAWS.items()
    }
    made["binomial"] = pm.Binomial.dist(60, p)
    made["beta_binomial"] = pm.BetaBinomial.dist(2.0, 1.0, 60)
    made["uniform"] = pm.DiscreteUniform.dist(0, 60)
    found = pytensor.function([rate, p], [pm.logp(law, np.arange(1000)) for law in made.values()], mode="FAST_COMPILE")
    return lambda *given: dict(zip(made, found(*given), strict=True))


@pytest.mark.parametrize(("rate", "p"), [(0.5, 0.3), (6.0, 0.8), (25.0, 0.05)])
def test_tails_are_bounded_from_above_and_closely(rate, p):
    uppers = np.array([3, 17, 79])
    tails = known_at(rate, p, uppers).tails
    for name, log_probabilities in log_probabilities_by_pymc()(rate, p).items():
        probabilities = np.exp(np.asarray(log_probabilities, float))
        for i, upper in enumerate(uppers):
            tail, bound = probabilities[upper + 1 :].sum(), float(np.exp(tails[name][i]))
            assert tail <= bound * (1 + 1e-5) + 1e-14, (name, upper)  # PyMC may say it in single precision
            if name != "beta_binomial":  # of which only the highest value is used
                assert bound <= 30 * tail + 1e-14 or tail > 1e-4, (name, upper)


def test_suprema_hold_and_are_those_of_numpyros_laws():
    known = known_at(6.0, 0.5, np.full(SHAPE, 10))
    terms, suprema = known.terms, known.suprema
    assert set(suprema) == set(terms) - {"p"}  # the law of p is uniform, its density at no other place known
    assert all((np.asarray(terms[name]) <= np.asarray(suprema[name]) + 1e-12).all() for name in suprema)
    np.testing.assert_allclose(suprema["y"], -0.5 * np.log(2 * np.pi))


def test_densities_that_may_be_above_one_are_not_taken_for_probabilities():
    with pm.Model() as model:
        n = pm.Poisson("n", 3.0)
        pm.CustomDist("y", n, logp=lambda value, n: 5.0 * value - 0.1 * n, observed=np.array(1), dtype="int64")
    assert "no bound is known on the density of 'y'" in sumout.explain(sumout.program(model))


def n_mixture(y):
    rate = numpyro.sample("rate", dist.LogNormal(1, 1))
    p = numpyro.sample("p", dist.Uniform(0, 1))
    with numpyro.plate("sites", len(y), dim=-2):
        n = numpyro.sample("n", dist.ZeroInflatedPoisson(0.3, rate))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Binomial(n, p), obs=y)


def test_sums_equal_those_of_the_same_model_in_numpyro():
    with pm.Model() as model:
        rate, p = pm.LogNormal("rate", 1, 1), pm.Uniform("p", 0, 1)
        n = pm.ZeroInflatedPoisson("n", 0.7, rate, shape=(len(Y), 1))
        pm.Binomial("y", n, p, observed=Y)
    programs = {"pymc": sumout.program(model), "numpyro": sumout.program(n_mixture, Y)}
    found = {}
    for name, program in programs.items():
        plan = plan_for(program)
        assert plan.sums_all
        order = ["rate", "p"]
        z = {"n": jnp.zeros(program.z["n"].shape, program.z["n"].dtype)}
        x = np.concatenate([np.full(1, {"rate": 0.7, "p": -0.4}[site]) for site in program.x])
        value, gradient = jax.jit(make_target(plan).value_and_gradient)(x, z, program.data)
        found[name] = value, *(gradient[list(program.x).index(site)] for site in order)
    np.testing.assert_allclose(found["pymc"], found["numpyro"], rtol=1e-9)
