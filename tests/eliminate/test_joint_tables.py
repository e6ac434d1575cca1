"""Tables over all joint values of small components, against the list of these values."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.eliminate.components import find_components
from sumout.eliminate.joint_tables import JointRound, add_terms
from sumout.eliminate.summation import build_summation

from enumeration import joint_states, log_joint, log_marginal, random_x


def test_terms_of_sites_and_pairs_add_up_at_every_joint_value():
    rng = np.random.default_rng(0)
    size, num_values, columns = 5, 3, 2
    single = rng.normal(size=(size, num_values, columns))
    pairs = np.zeros((size, size, num_values, num_values, columns))
    single[1, 2, 0] = -np.inf
    for i, j in zip(*np.triu_indices(size, 1), strict=True):
        pairs[i, j] = rng.normal(size=(num_values, num_values, columns))
    pairs[0, 3, 1, 1] = -np.inf
    expected = np.zeros((*(num_values,) * size, columns))
    for values in np.ndindex(*(num_values,) * size):
        expected[values] = sum(single[i, values[i]] for i in range(size))
        expected[values] += sum(pairs[i, j, values[i], values[j]] for i in range(size) for j in range(i + 1, size))
    np.testing.assert_allclose(
        add_terms(jnp.asarray(single), jnp.asarray(pairs)), expected.reshape(-1, columns), atol=1e-12
    )


def block_model(edges, mask):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    link = numpyro.sample("link", dist.Beta(1, 1).expand([3, 3]).to_event(2))
    with numpyro.plate("nodes", len(edges)):
        z = numpyro.sample("z", dist.Categorical(share))
    numpyro.sample("edges", dist.Bernoulli(link[z[:, None], z]).mask(mask), obs=edges)


def noisy_or(y):
    causes = numpyro.sample("causes", dist.Beta(1, 3).expand([5]).to_event(1))
    strength = numpyro.sample("strength", dist.Beta(2, 2).expand([3, 5]).to_event(2))
    with numpyro.plate("each", 5):
        z = numpyro.sample("z", dist.Bernoulli(causes))
    # Without a leak: with all causes absent a symptom is impossible.
    numpyro.sample("y", dist.Bernoulli(1 - jnp.prod(1 - strength * z, axis=-1)), obs=y)


def side_by_side(y):
    """Four cliques of three sites with unequal values, and one site on its own."""
    base = numpyro.sample("base", dist.Normal(0, 1))
    slope = numpyro.sample("slope", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("groups", len(y)):
        a = numpyro.sample("a", dist.Bernoulli(0.3))
        b = numpyro.sample("b", dist.Categorical(jnp.array([0.2, 0.3, 0.5])))
        c = numpyro.sample("c", dist.Bernoulli(jnp.where(a == 1, 0.9, 0.2)))
        numpyro.sample("y", dist.Normal(base + slope[0] * a * b + slope[1] * b * c + slope[2] * a * c, 1), obs=y)
    d = numpyro.sample("d", dist.Bernoulli(0.5))
    numpyro.factor("own", base * d)


RNG = np.random.default_rng(1)
MODELS = {
    "pairs": (block_model, (RNG.integers(0, 2, (5, 5)), ~np.eye(5, dtype=bool))),
    "impossible": (noisy_or, (np.array([1, 0, 1]),)),
    "many": (side_by_side, (RNG.normal(size=3),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_sums_draws_and_marginals_are_those_of_all_joint_values(name):
    model, data = MODELS[name]
    program = sumout.program(model, *data)
    structure = sumout.read(program)
    summation = build_summation(structure, find_components(structure, np.ones(structure.num_sites, bool)))
    assert any(trees.buckets.shape[0] == 1 for trees in summation.trees)
    assert any(isinstance(one, JointRound) for one in summation.rounds) == (name != "pairs")
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    states = joint_states(program)
    x = random_x(program, 0)
    ours = jax.jit(jax.value_and_grad(lambda x: summation.log_density(x, z, program.data)))(x)
    brute = jax.jit(jax.value_and_grad(log_marginal(program, states)))(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), ours, brute)
    best = jax.jit(summation.most_probable)(x, z, program.data)
    log_weights = log_joint(program, states)(x)
    np.testing.assert_allclose(program.log_density(x, best, program.data), log_weights.max(), rtol=1e-8)
    weights = np.exp(log_weights - log_weights.max())
    marginals = np.exp(jax.jit(summation.log_marginals)(x, z, program.data))
    for site, numbers in structure.site_numbers.items():
        values = np.asarray(states[site]).reshape(len(weights), -1)
        for column, number in enumerate(numbers):
            expected = [weights[values[:, column] == k].sum() / weights.sum() for k in range(marginals.shape[1])]
            np.testing.assert_allclose(marginals[number], expected, atol=1e-8)
