"""PyMC models beside the same models in NumPyro: one structure, one density; and posteriors that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.results.summary import examine

from enumeration import joint_states, log_marginal
from pymc_models import MODELS, TWO_GROUPS


def survey():
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    with numpyro.plate("people", 5):
        coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Bernoulli(jnp.where(coin, theta, 0.5)), obs=jnp.array([1, 0, 1, 1, 0]))


def occupancy():
    psi, p = numpyro.sample("psi", dist.Beta(1, 1)), numpyro.sample("p", dist.Beta(2, 2))
    seen = jnp.array([[0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]])
    with numpyro.plate("site", 4):
        z = numpyro.sample("z", dist.Bernoulli(psi))
    numpyro.sample("y", dist.Bernoulli(z[:, None] * p).expand([4, 3]).to_event(2), obs=seen)


def nested_mixture():
    mu = numpyro.sample("mu", dist.Normal(jnp.arange(4.0).reshape(2, 2), 1).to_event(2))
    share = numpyro.sample("share", dist.Beta(2, 2).expand([2]).to_event(1))
    kind = numpyro.sample("kind", dist.Bernoulli(0.5).expand([2]).to_event(1))
    part = numpyro.sample("part", dist.Bernoulli(share[kind][:, None]).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Normal(mu[kind[:, None], part], 1).to_event(2), obs=TWO_GROUPS.reshape(2, 3))


def hidden_markov():
    transitions = numpyro.sample("transitions", dist.Dirichlet(jnp.array([[4.0, 1], [1, 4]])).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1]), 1).to_event(1))
    first = numpyro.sample("first", dist.Categorical(jnp.array([0.5, 0.5])))
    states = [first]
    for t in range(1, 6):
        states.append(numpyro.sample(f"state_{t}", dist.Categorical(transitions[states[-1]])))
    numpyro.sample("y", dist.Normal(mu[jnp.stack(states)], 0.7).to_event(1), obs=TWO_GROUPS)


def log_weights(structure):
    """How often each number of sites shares a factor; the same whatever sites are called."""
    degree = np.bincount(np.ravel([list(edge) for edge in structure.edges]).astype(int), minlength=structure.num_sites)
    return sorted(degree.tolist())


@pytest.mark.parametrize(
    "twin",
    [survey, occupancy, nested_mixture, pytest.param(hidden_markov, marks=pytest.mark.calibration)],
    ids=lambda twin: twin.__name__,
)
def test_one_structure_and_one_marginal_in_both(twin):
    ours, theirs = sumout.program(MODELS[twin.__name__]()), sumout.program(twin)
    one, other = sumout.read(ours), sumout.read(theirs)
    assert (one.num_sites, len(one.edges), log_weights(one)) == (other.num_sites, len(other.edges), log_weights(other))
    assert len(one.components) == len(other.components)
    # Where both move x to the real line alike, the marginals are one function of it.
    if all(site.size == theirs.x[name].size and not name.startswith("transitions") for name, site in ours.x.items()):
        named = {name: np.full(site.unconstrained_shape, 0.3) for name, site in ours.x.items()}
        totals = [
            log_marginal(p, joint_states(p))(np.concatenate([np.ravel(named[name]) for name in p.x]))
            for p in (ours, theirs)
        ]
        np.testing.assert_allclose(*totals, rtol=1e-8)


def by_quadrature(program, names):
    """Means and deviations of scalars on the real line, z enumerated."""
    grid = np.linspace(-9, 9, 181)
    points = np.stack(np.meshgrid(*[grid] * program.num_x, indexing="ij"), axis=-1).reshape(-1, program.num_x)
    states = joint_states(program, num_counts=30)
    total = log_marginal(program, states)
    log_p = np.asarray(jax.lax.map(total, jnp.asarray(points), batch_size=500))
    log_p = np.where(np.isnan(log_p), -np.inf, log_p)  # far out, where a truncated law has no mass left
    weights = np.exp(log_p - log_p.max())
    one = jax.tree.map(lambda a: a[0], states)
    values = jax.vmap(lambda x: program.constrain(x, one, program.data))(points)
    found = {}
    for name in names:
        mean = np.average(values[name], weights=weights)
        found[name] = mean, np.sqrt(np.average((values[name] - mean) ** 2, weights=weights))
    return found


@pytest.mark.calibration
@pytest.mark.parametrize(
    "name, parameters",
    [
        ("survey", ["theta"]),
        ("occupancy", ["psi", "p"]),
        ("coal", ["early", "late"]),
        ("binomial_inside", ["p"]),
        ("beta_binomial", ["a"]),
        ("geometric", ["p"]),
        ("discrete_weibull", ["q"]),
        ("hurdles", ["psi"]),
        ("truncated", ["mu"]),
        ("censored", ["mu"]),
        ("custom", ["p"]),
        ("scanned", ["decay", "jump"]),
        ("dirac", ["mu"]),
        ("uniform_bounds", ["mu"]),
    ],
)
def test_posteriors_are_those_of_brute_force(name, parameters):
    model = MODELS[name]()
    program = sumout.program(model)
    result = sumout.sample(program, draws=5000)
    for parameter, (mean, deviation) in by_quadrature(program, parameters).items():
        drawn = result.posterior[parameter]
        assert abs(float(drawn.mean()) - mean) < 0.1 * deviation
        assert abs(float(drawn.std()) - deviation) < 0.1 * deviation
    assert not [warning for warning in examine(result).warnings if "r_hat" in warning]
