"""The log likelihood of data in which several summed sites meet, against sums over all joint states."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan

import sumout
from sumout.plan.plan import make_plan
from sumout.results import likelihood as likelihood_module
from sumout.results.likelihood import build_likelihood
from sumout.results.likelihood_by_beliefs import LikelihoodByBeliefs
from sumout.results.likelihood_by_sums import LikelihoodBySums
from sumout.results.likelihood_given_others import LikelihoodGivenOthers

from enumeration import joint_states, random_x


def factorial(y, keep):
    """Two chains that are silent in state 0; a count shows that one of them is not."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    moves = jnp.array([[0.8, 0.2], [0.3, 0.7]])

    def step(states, seen):
        y, keep = seen
        a = numpyro.sample("a", dist.Categorical(moves[states[0]]))
        b = numpyro.sample("b", dist.Categorical(moves[states[1]]))
        with numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Poisson(rate * (a + 2 * b)), obs=y)
        return (a, b), None

    scan(step, (0, 0), (y, keep))


def differences(y, keep):
    """Every datum is about a pair of members; the first about none."""
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([3]).to_event(1))
    z = numpyro.sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])).expand([4]).to_event(1))
    first, second = jnp.array([0, 0, 1, 2, 3]), jnp.array([0, 1, 2, 3, 0])
    means = jnp.where(jnp.arange(5) == 0, mu[0], mu[z[first]] - mu[z[second]])
    with numpyro.handlers.mask(mask=keep):
        numpyro.sample("y", dist.Normal(means, 0.5), obs=y)


def both_kinds(y, keep):
    """An array of data with one site each stands beside one in which pairs meet."""
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
    z = numpyro.sample("z", dist.Categorical(jnp.array([0.6, 0.4])).expand([4]).to_event(1))
    numpyro.sample("single", dist.Normal(mu[z], 1), obs=jnp.array([0.5, -1.0, 2.0, 0.1]))
    with numpyro.handlers.mask(mask=keep):
        numpyro.sample("y", dist.Normal(mu[z[1:]] * z[:-1], 1), obs=y)


def remembered(y, keep):
    """Once a state of 1 has come, all data are of another law: each depends on all states before it."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    z = numpyro.sample("z", dist.Bernoulli(0.15).expand(y.shape).to_event(1))

    def step(has_come, seen):
        z, y, keep = seen
        has_come = jnp.maximum(has_come, z)
        with numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Poisson(rate * (1 + 3 * has_come)), obs=y)
        return has_come, None

    scan(step, 0, (z, y, keep))


MODELS = {
    "remembered": (remembered, jnp.array([1, 0, 2, 1, 0, 5, 4, 7, 3, 6])),
    "factorial": (factorial, jnp.array([0, 2, 1, 3, 0])),
    "differences": (differences, jnp.array([0.4, -0.3, 1.0, 0.2, -0.9])),
    "both_kinds": (both_kinds, jnp.array([0.3, -0.2, 1.5])),
}


def left_out(program, x, size):
    """log p(y_i | x, y_{−i}) as a ratio of sums over all joint states, the datum masked in the second."""
    states = joint_states(program)

    def total(keep):
        return logsumexp(jax.vmap(lambda z: program.log_density(x, z, program.data | {"keep": keep}))(states))

    masks = jnp.concatenate([jnp.ones((1, size), bool), ~jnp.eye(size, dtype=bool)])
    whole, *without = np.asarray(jax.jit(jax.vmap(total))(masks))
    return whole - np.array(without)


@pytest.mark.parametrize("name", MODELS)
def test_data_in_which_sites_meet(name):
    model, y = MODELS[name]
    program = sumout.program(model, y, jnp.ones(y.shape, bool))
    x = random_x(program).astype(float)
    likelihood = build_likelihood(make_plan(sumout.read(program), dict.fromkeys(program.z, "sum")))
    kinds = [LikelihoodByBeliefs, LikelihoodBySums] if name == "both_kinds" else [LikelihoodBySums]
    assert [type(part) for part in likelihood.parts] == kinds and not likelihood.notes
    some_z = jax.tree.map(lambda a: a[0], joint_states(program))
    found = jax.jit(likelihood)(x, some_z, program.data)
    np.testing.assert_allclose(found["y"], left_out(program, x, y.size), rtol=1e-8)
    if name == "both_kinds":  # the others count with all their terms
        states = joint_states(program)
        terms = jax.vmap(lambda z: program.log_likelihood(x, z, program.data)["single"])(states)
        density = jax.vmap(lambda z: program.log_density(x, z, program.data))(states)
        expected = logsumexp(density) - logsumexp(density[:, None] - terms, axis=0)
        np.testing.assert_allclose(found["single"], expected, rtol=1e-8)


def test_many_data_are_given_the_others(monkeypatch):
    monkeypatch.setattr(likelihood_module, "LIKELIHOOD_ENTRIES", 10)
    model, y = MODELS["differences"]
    program = sumout.program(model, y, jnp.ones(y.shape, bool))
    likelihood = build_likelihood(make_plan(sumout.read(program)))
    assert [type(part) for part in likelihood.parts] == [LikelihoodGivenOthers]
    assert "but a datum's own" in likelihood.words


def test_runs_end_to_end():
    model, y = MODELS["factorial"]
    result = sumout.sample(sumout.program(model, y, jnp.ones(y.shape, bool)), draws=50, tune=100, chains=2)
    assert "log_likelihood" not in result.posterior.attrs
    assert result.log_likelihood.y.shape == (2, 50, 5) and np.isfinite(result.log_likelihood.y).all()
