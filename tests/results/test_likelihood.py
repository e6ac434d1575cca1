"""The log likelihood of data that rule out values of their site, against sums over all joint states."""

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
from sumout.results.likelihood import build_likelihood

from enumeration import joint_states, random_x


def zero_inflated(y, keep):
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        with numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Poisson(z * rate), obs=y)


def several_data_on_one_site(y, keep):
    """Two visits and a count for each site; a detection in any of them rules z = 0 out."""
    p = numpyro.sample("p", dist.Beta(2, 2))
    with numpyro.plate("sites", y.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        with numpyro.plate("visits", y.shape[0]), numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Bernoulli(z * p), obs=y)


def abundance(y, keep):
    q = numpyro.sample("q", dist.Beta(2, 2))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(6)))
    with numpyro.plate("sites", y.shape[1]):
        n = numpyro.sample("n", dist.Categorical(weights))
        with numpyro.plate("visits", y.shape[0]), numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Binomial(n, q), obs=y)


def uniform_of_unknown_width(y, keep):
    scale = numpyro.sample("scale", dist.LogNormal(0, 0.1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
        with numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Uniform(0, scale * (1 + z)), obs=y)


def switch_point(y, keep, most=4):
    """Beyond the switch point nothing happens: every count above zero comes before it."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    c = numpyro.sample("c", dist.DiscreteUniform(0, most))
    with numpyro.plate("times", len(y)), numpyro.handlers.mask(mask=keep):
        numpyro.sample("y", dist.Poisson(jnp.where(jnp.arange(len(y)) < c, rate, 0.0)), obs=y)


def long_switch_point(y, keep):
    switch_point(y, keep, most=24)


def impossible_on_both_sides(y, keep):
    """Counts come early and zeros late but for the two rates: values on both sides are ruled out by one datum each."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    c = numpyro.sample("c", dist.DiscreteUniform(0, 24))
    with numpyro.plate("times", len(y)), numpyro.handlers.mask(mask=keep):
        low, high = jnp.where(jnp.arange(len(y)) < c, 0.0, 1.0), jnp.where(jnp.arange(len(y)) < c, 2.0, 3.0 + rate)
        numpyro.sample("y", dist.Uniform(low, high), obs=y)


def chain(y, keep):
    """State 0 is silent, state 1 never is, and it takes two steps from the last state back to the first."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    moves = jnp.array([[0.6, 0.4, 0.0], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]])

    def step(z, seen):
        y, keep = seen
        z = numpyro.sample("z", dist.Categorical(moves[z]))
        with numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Poisson(jnp.array([0.0, 1.0, 4.0])[z] * rate), obs=y)
        return z, None

    scan(step, 0, (y, keep))


def capture_recapture(y, keep):
    """Dead animals are not seen, and stay dead."""
    phi, p = numpyro.sample("phi", dist.Beta(2, 2)), numpyro.sample("p", dist.Beta(2, 2))

    def step(alive, seen):
        y, keep = seen
        with numpyro.plate("animals", y.shape[0]):
            alive = numpyro.sample("alive", dist.Bernoulli(alive * phi))
            with numpyro.handlers.mask(mask=keep):
                numpyro.sample("y", dist.Bernoulli(alive * p), obs=y)
        return alive, None

    scan(step, jnp.ones(y.shape[1], int), (y, keep))


def ladder(y, keep):
    """Two chains side by side, summed in slices: each emission rules out values of one of them."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    coupling = numpyro.sample("coupling", dist.Normal(0, 1))
    a = numpyro.sample("a", dist.Bernoulli(0.4).expand([y.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Bernoulli(0.6).expand([y.shape[1]]).to_event(1))
    both = coupling * ((a == b).sum() + (a[1:] == a[:-1]).sum() - 0.5 * (b[1:] == b[:-1]).sum())
    numpyro.factor("coupled", both)
    with numpyro.handlers.mask(mask=keep):
        numpyro.sample("y", dist.Poisson(rate * jnp.stack([a, b])), obs=y)


MODELS = {
    "zero_inflated": (zero_inflated, [0, 2, 0, 1]),
    "several_data_on_one_site": (several_data_on_one_site, [[0, 1, 1], [0, 0, 1], [0, 0, 1]]),
    "abundance": (abundance, [[2, 0], [3, 0], [1, 4]]),
    "uniform_of_unknown_width": (uniform_of_unknown_width, [0.4, 1.5, 2.3, 0.9]),
    "switch_point": (switch_point, [3, 0, 1, 0]),
    "long_switch_point": (long_switch_point, [2, 1, 0, 3, 0, 0, 1, 0, *[0] * 12]),
    "impossible_on_both_sides": (impossible_on_both_sides, [0.5, 1.2, 0.3, *[1.5] * 16, 2.2, 1.7, 2.5]),
    "chain": (chain, [0, 2, 0, 0, 5, 1]),
    "capture_recapture": (capture_recapture, [[1, 0, 1], [0, 0, 0], [1, 0, 0]]),
    "ladder": (ladder, [[0, 2, 0, 1], [1, 0, 0, 2]]),
}


def left_out(program, x, shape):
    """log p(y_i | x, y_{−i}) as a ratio of sums over all joint states, the datum masked in the second."""
    states, size = joint_states(program), int(np.prod(shape))

    def total(keep):
        data = program.data | {"keep": keep.reshape(shape)}
        return logsumexp(jax.vmap(lambda z: program.log_density(x, z, data))(states))

    masks = jnp.concatenate([jnp.ones((1, size), bool), ~jnp.eye(size, dtype=bool)])
    whole, *without = np.asarray(jax.jit(jax.vmap(total))(masks))
    return whole - np.array(without)


@pytest.mark.parametrize(
    "name, is_double",
    [*((name, True) for name in MODELS), *((name, False) for name in ("abundance", "long_switch_point", "chain"))],
)
def test_data_that_rule_out_values_of_their_site(name, is_double):
    model, y = MODELS[name]
    with jax.enable_x64(is_double):
        y = jnp.asarray(y)
        program = sumout.program(model, y, jnp.ones(y.shape, bool))
        x = random_x(program).astype(float)
        likelihood = build_likelihood(make_plan(sumout.read(program)))
        assert (likelihood.parts[0].changes is not None) == (y.size > 16)
        assert any(trees.buckets.size > 1 for trees in likelihood.parts[0].summation.trees) == (name == "ladder")
        found = jax.jit(likelihood)(x, jax.tree.map(lambda a: a[0], joint_states(program)), program.data)["y"]
        expected = left_out(program, x, y.shape)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(np.ravel(found), expected, **({"rtol": 1e-8} if is_double else {"atol": 2e-4}))


def test_data_that_depend_on_no_discrete_site():
    """As in a state space model that switches: z steers a latent level, and only the level is observed."""

    def steered(y):
        jump = numpyro.sample("jump", dist.Bernoulli(0.2).expand([len(y)]).to_event(1))
        level = numpyro.sample("level", dist.Normal(0, 1.0 + jump).to_event(1))
        numpyro.sample("y", dist.Normal(level, 0.5), obs=y)

    y = jnp.array([0.3, -1.0, 2.0])
    program = sumout.program(steered, y)
    x, z = random_x(program), {"jump": jnp.zeros(3, int)}
    found = build_likelihood(make_plan(sumout.read(program)))(x, z, program.data)["y"]
    np.testing.assert_allclose(found, dist.Normal(x, 0.5).log_prob(y), rtol=1e-8)
