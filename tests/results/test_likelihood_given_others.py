"""The log likelihood of data whose sites are drawn, or are too many to be summed out, against sums over all states."""

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp

import sumout
from sumout.plan.plan import make_plan
from sumout.results import likelihood as likelihood_module
from sumout.results.likelihood import build_likelihood
from sumout.results.likelihood_given_others import LikelihoodGivenOthers
from sumout.structure.structure import element_scopes

from enumeration import joint_states, log_joint, random_x, state_numbers
from models import mixture


def ruled_out(y):
    """A datum of zero-inflated counts rules its site's zero out; neighbours attract each other."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    z = numpyro.sample("z", dist.Bernoulli(0.3).expand([len(y)]).to_event(1))
    numpyro.factor("joined", 0.8 * (z[1:] == z[:-1]).sum())
    numpyro.sample("y", dist.Poisson(z * rate), obs=y)


def pairs(y):
    """Every datum depends on two members, as in a block model."""
    log_odds = numpyro.sample("log_odds", dist.Normal(jnp.array([1.5, -1.5]), 1).to_event(1))
    group = numpyro.sample("group", dist.Categorical(jnp.array([0.3, 0.3, 0.4])).expand([4]).to_event(1))
    first, second = np.triu_indices(4, 1)
    numpyro.sample("y", dist.Bernoulli(logits=log_odds[(group[first] != group[second]) * 1]), obs=y)


def indicators(y):
    """All data depend on all of a few indicators: one unit."""
    design = jnp.asarray(np.random.default_rng(0).normal(size=(len(y), 3)))
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([3]).to_event(1))
    chosen = numpyro.sample("chosen", dist.Bernoulli(0.4).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(design @ (beta * chosen), 1), obs=y)


def two_kinds(y):
    """Data of one array are local, those of the other join a site with a global one of other values."""
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("points", 4):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        numpyro.sample("a", dist.Normal(mu * z, 1), obs=y)
    tail = numpyro.sample("tail", dist.Bernoulli(0.5))
    numpyro.sample("b", dist.Normal(mu + tail, 1.0 + z), obs=jnp.flip(y))


def with_constant(y):
    """A datum that no site concerns stands beside others."""
    p = numpyro.sample("p", dist.Beta(2, 2))
    z = numpyro.sample("z", dist.Bernoulli(0.3).expand([2]).to_event(1))
    means = jnp.append(p, jnp.array([z[0], z[1], 2 * z[0]]))
    numpyro.sample("y", dist.Normal(means, 1), obs=y)


MODELS = {
    "ruled_out": (ruled_out, [0, 2, 0, 1, 0]),
    "pairs": (pairs, [1, 0, 0, 1, 0, 1]),
    "indicators": (indicators, [0.3, -1.2, 2.0, 0.4]),
    "two_kinds": (two_kinds, [0.1, -0.4, 2.1, 0.7]),
    "with_constant": (with_constant, [0.1, -0.4, 2.1, 0.7]),
}


def terms_of(program, x, states):
    """The terms of all data in all joint states, `(states, data)`, −∞ where impossible; and which sites each meets."""
    names = list(program.observed)
    found = jax.jit(jax.vmap(lambda z: program.log_likelihood(x, z, program.data)))(states)
    terms = np.concatenate([np.asarray(found[name]).reshape(len(found[name]), -1) for name in names], axis=1)
    closed = likelihood_module._flat(program, names)
    scopes = np.concatenate([scope.toarray() for scope in element_scopes(program, closed)]).astype(bool)
    return np.where(np.isnan(terms), -np.inf, terms), scopes


def brute_force(program, x, states):
    """log p(y_i | x, z_{−S}, y_{−i}) for every datum and every state that z may be in, and log p(y_i | x, y_{−i})."""
    terms, scopes = terms_of(program, x, states)
    bare = jax.jit(jax.vmap(lambda z: program.log_joint_without_data(program.unravel(x), z, program.data)))(states)
    flat, _ = state_numbers(states)
    given, summed = np.zeros(terms.shape), np.zeros(terms.shape[1])
    for i in range(terms.shape[1]):
        without = np.asarray(bare) + np.delete(terms, i, axis=1).sum(axis=1)
        summed[i] = logsumexp(without + terms[:, i]) - logsumexp(without)
        others = flat[:, ~scopes[i]]
        for row in np.unique(others, axis=0):
            same = (others == row).all(axis=1)
            given[same, i] = logsumexp(without[same] + terms[same, i]) - logsumexp(without[same])
    return given, summed


def at_all_states(program, plan, x, states):
    likelihood = build_likelihood(plan)
    (part,) = likelihood.parts
    assert isinstance(part, LikelihoodGivenOthers)
    found = jax.jit(jax.vmap(lambda z: likelihood(x, z, program.data)))(states)
    flat = [np.asarray(found[name]).reshape(len(state_numbers(states)[0]), -1) for name in program.observed]
    return likelihood, np.concatenate(flat, axis=1)


@pytest.mark.parametrize("name", MODELS)
def test_given_all_sites_but_those_of_the_datum(name):
    model, y = MODELS[name]
    program = sumout.program(model, jnp.asarray(y))
    states, x = joint_states(program), random_x(program).astype(float)
    plan = make_plan(sumout.read(program), dict.fromkeys(program.z, "draw"))
    likelihood, found = at_all_states(program, plan, x, states)
    given, summed = brute_force(program, x, states)
    law = np.asarray(jax.nn.softmax(log_joint(program, states)(x)))
    possible = law > 0
    np.testing.assert_allclose(found[possible], given[possible], rtol=1e-9, atol=1e-9)
    assert "given the draws of all" in likelihood.words
    # What leave-one-out rests on: over the posterior 1/p(y_i | x, z_{−S}, y_{−i}) has the mean 1/p(y_i | x, y_{−i}).
    np.testing.assert_allclose(-np.log(law[possible] @ np.exp(-found[possible])), summed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["ruled_out", "pairs", "two_kinds"])
def test_where_tables_cost_too_much_the_own_sites_are_held(name, monkeypatch):
    monkeypatch.setattr("sumout.results.likelihood_given_others.LIKELIHOOD_ENTRIES", 1)
    model, y = MODELS[name]
    program = sumout.program(model, jnp.asarray(y))
    states, x = joint_states(program), random_x(program).astype(float)
    plan = make_plan(sumout.read(program), dict.fromkeys(program.z, "draw"))
    likelihood, found = at_all_states(program, plan, x, states)
    terms, _ = terms_of(program, x, states)
    np.testing.assert_allclose(found, terms, rtol=1e-9)
    law = np.asarray(jax.nn.softmax(log_joint(program, states)(x)))
    assert "given the draws of all discrete variables" in likelihood.words
    if name != "ruled_out":  # where no datum rules a value out, it is still right for leave-one-out
        np.testing.assert_allclose(-np.log(law @ np.exp(-found)), brute_force(program, x, states)[1], rtol=1e-9)


def test_leave_one_out_is_the_same_whether_z_is_summed_or_drawn():
    y = np.random.default_rng(0).normal(size=30) + 4 * (np.arange(30) % 2)
    program = sumout.program(mixture, y)
    options = {"draws": 1500, "tune": 500, "chains": 2, "progress": False}
    summed, drawn = (sumout.sample(program, plan=plan, **options) for plan in (None, {"z": "draw"}))
    assert "log_likelihood" not in summed.posterior.attrs
    assert "estimate over z" in drawn.posterior.attrs["log_likelihood"]
    assert drawn.log_likelihood.attrs["note"] == drawn.posterior.attrs["log_likelihood"]
    elpd = [arviz_stats.loo(result).elpd for result in (summed, drawn)]
    assert abs(elpd[0] - elpd[1]) < 0.2
    assert "estimate over z" in str(sumout.summary(drawn))
