"""`obs_mask`: what is missing is a latent like any other, and what is not stands in nobody's way."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

import sumout
from sumout.plan.plan import make_plan
from sumout.results.likelihood import build_likelihood

SEEN = np.array([True, False, True, True, False])
LAWS = {
    "real": (lambda a, z: dist.Normal(a + 2 * z, 1), [0.5, np.nan, 2.5, 1.0, np.nan]),
    "positive": (lambda a, z: dist.Gamma(2.0, jnp.exp(a) + z), [0.5, 0.1, 2.5, 1.0, 1.0]),
    "event": (lambda a, z: dist.Dirichlet(jnp.exp(a) + z[:, None] * jnp.arange(1, 4)), [[0.2, 0.3, 0.5]] * 5),
    "finite": (lambda a, z: dist.Bernoulli(logits=a + z), [1, 0, 0, 1, 0]),
    "count": (lambda a, z: dist.Poisson(jnp.exp(a) + 3 * z), [1, 0, 0, 4, 0]),
    "moving": (lambda a, z: dist.Uniform(0, jnp.exp(a) + 3 + z), [1.0, 0.5, 2.0, 1.5, 2.0]),
}


def masked(law, y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", law(a, z), obs=y, obs_mask=SEEN)


def by_hand(law, y):
    """The same with two statements, one for what was seen and one for what was not."""
    a = numpyro.sample("a", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Bernoulli(0.5).expand([5]))
    numpyro.sample("y_observed", law(a, z[SEEN]), obs=y[SEEN])
    numpyro.sample("y_unobserved", law(a, z[~SEEN]))


def programs(kind):
    law, y = LAWS[kind]
    return [sumout.program(lambda y, model=model: model(law, y), jnp.asarray(y)) for model in (masked, by_hand)]


@pytest.mark.parametrize("kind", ["real", "positive", "event", "moving"])
def test_of_a_continuous_site_only_what_is_missing_is_sampled(kind):
    program, expected = programs(kind)
    assert program.num_x == expected.num_x
    x = jax.random.normal(jax.random.key(0), (2, program.num_x))
    z = {"z": jnp.array([0, 1, 1, 0, 0])}
    one, other = (jax.jit(jax.vmap(lambda x, p=p: p.log_density(x, z, p.data)))(x) for p in (program, expected))
    np.testing.assert_allclose(one[1] - one[0], other[1] - other[0], rtol=1e-9)
    named, filled = expected.constrain(x[0], z, expected.data), program.constrain(x[0], z, program.data)
    np.testing.assert_allclose(filled["y"][~SEEN], named["y_unobserved"])
    np.testing.assert_allclose(filled["y"][SEEN], jnp.asarray(LAWS[kind][1])[SEEN])


@pytest.mark.parametrize("kind", ["real", "finite", "count"])
def test_log_likelihood_of_what_was_seen(kind):
    found = []
    for program in programs(kind):
        likelihood = build_likelihood(make_plan(sumout.read(program)))
        z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
        found.append(jax.jit(likelihood)(0.1 * jnp.arange(program.num_x), z, program.data)["y_observed"])
    np.testing.assert_allclose(found[0][SEEN], found[1], rtol=1e-9)


def test_counts_that_stand_for_data_have_a_law_of_their_own():
    program, expected = programs("count")
    x, z, missing = jnp.array([0.3]), jnp.array([0, 1, 1, 0, 0]), jnp.array([2, 0, 5, 1, 3])
    one = program.log_density(x, {"z": z, "y_unobserved": missing}, program.data)
    alone = {"z": z, "y_unobserved": missing[~SEEN]}
    other = expected.log_density(x, alone, expected.data)  # without the law of y_unobserved, which is drawn forward
    other += expected.log_terms_named(expected.unravel(x), alone, expected.data)["y_unobserved"].sum()
    np.testing.assert_allclose(one - other, -np.log(2) * (missing[SEEN] + 1).sum(), rtol=1e-9)


def test_missing_values_in_a_scan():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0, 1))

        def step(z, seen):
            y, is_seen = seen
            z = numpyro.sample("z", dist.Bernoulli(0.3 + 0.4 * z))
            y = numpyro.sample("y", dist.Normal(a + z, 1), obs=y, obs_mask=is_seen)
            return z, y

        scan(step, 0, (y, jnp.asarray(SEEN)))

    program = sumout.program(model, jnp.array([0.5, np.nan, 2.5, 1.0, np.nan]))
    assert program.num_x == 3
    x, z = jnp.array([0.2, 0.7, -0.4]), {"z": jnp.array([0, 1, 1, 0, 0])}
    y, chances = jnp.array([0.5, 0.7, 2.5, 1.0, -0.4]), jnp.array([0.3, 0.3, 0.7, 0.7, 0.3])
    expected = dist.Normal(0.2 + z["z"], 1).log_prob(y).sum() + dist.Bernoulli(chances).log_prob(z["z"]).sum()
    expected += dist.Normal(0, 1).log_prob(0.2)
    np.testing.assert_allclose(program.log_density(x, z, program.data), expected, rtol=1e-9)
    np.testing.assert_allclose(program.constrain(x, z, program.data)["y"], y)


@pytest.mark.parametrize("kind", ["real", "count"])
def test_nothing_is_wrong_with_imputed_values(kind):
    program = programs(kind)[0]
    assert sumout.check(program), str(sumout.check(program))
