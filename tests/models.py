"""Models as users write them, which several tests share: NumPyro models of their data, and log densities.

What is made of them stands elsewhere: programs that can be enumerated in `programs.py`, bad models in
`faulty_models.py`. Models whose posterior is known are in `known_moments.py`, those of ecology in `ecology_models.py`.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

# NumPyro models.


def survey(y):
    """Everyone tosses a coin and answers truthfully, or at random, by how it fell."""
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    with numpyro.plate("employees", len(y)):
        coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Bernoulli(jnp.where(coin, theta, 0.5)), obs=y)


def mixture(y):
    """Two normals with known shares and one scale."""
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)


def weighted_mixture(y):
    """Three normals whose shares are unknown, too."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([3]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)


def groups(y):
    """A mixture with heavy tails."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    level = numpyro.sample("level", dist.StudentT(3, 0, 2).expand([3]))
    with numpyro.plate("rows", len(y)):
        kind = numpyro.sample("kind", dist.Categorical(weights))
        numpyro.sample("y", dist.Laplace(level[kind], 1.0), obs=y)


def failures(y):
    """Waiting times of machines that are worn or not."""
    rate = numpyro.sample("rate", dist.LogNormal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("machines", len(y)):
        worn = numpyro.sample("worn", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Exponential(rate[worn]), obs=y)


def scan_hmm(y):
    """A hidden Markov model of two states, by NumPyro's scan."""
    stay = numpyro.sample("stay", dist.Beta(2, 2))
    rows = jnp.array([[stay, 1 - stay], [1 - stay, stay]])

    def step(previous, y):
        z = numpyro.sample("z", dist.Categorical(rows[previous]))
        numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)
        return z, None

    scan(step, 0, y)


def switch_point(y):
    """Counts whose rate changes once."""
    early = numpyro.sample("early", dist.Gamma(2, 1))
    late = numpyro.sample("late", dist.Gamma(2, 1))
    when = numpyro.sample("when", dist.DiscreteUniform(1, len(y) - 1))
    numpyro.sample("y", dist.Poisson(jnp.where(jnp.arange(len(y)) < when, early, late)), obs=y)


def spike_and_slab(design, y):
    """Which covariates matter, in a regression with known noise."""
    size = design.shape[1]
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([size]))
    gamma = numpyro.sample("gamma", dist.Bernoulli(0.3).expand([size]))
    numpyro.sample("y", dist.Normal(design @ (gamma * beta), 1.0), obs=y)


def abundance(y):
    """An unbounded count: how many animals are there, if so many were seen on every visit?"""
    p = numpyro.sample("p", dist.Beta(2, 2))
    n = numpyro.sample("n", dist.Poisson(6.0))
    with numpyro.plate("visits", len(y)):
        numpyro.sample("y", dist.Binomial(n, p), obs=y)


def lda(topics, num_documents, num_words):
    """Latent Dirichlet allocation for texts of such a size."""

    def lda(words, documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(topics)).expand([num_documents]).to_event(1))
        phi = numpyro.sample("phi", dist.Dirichlet(jnp.ones(num_words)).expand([topics]).to_event(1))
        with numpyro.plate("tokens", len(words)):
            z = numpyro.sample("z", dist.Categorical(theta[documents]))
            numpyro.sample("w", dist.Categorical(phi[z]), obs=words)

    return lda


# Log densities.


def coins(x, z, y):
    """The survey, as the paper's Figure 1 writes it."""
    honest = dist.Bernoulli(x["theta"]).log_prob(y)
    return jnp.where(z["coin"], honest, jnp.log(0.5)).sum()


def lattice(x, z, y):
    """A noisy picture; the coupling multiplies a sum of integers."""
    s = z["s"]
    equal = (s[1:] == s[:-1]).sum() + (s[:, 1:] == s[:, :-1]).sum()
    prior = dist.Normal(0.3, 0.5).log_prob(x["coupling"])
    return x["coupling"] * equal + dist.Normal(s, 1.0).log_prob(y).sum() + prior


def path(x, z, y):
    """A hidden Markov model, all steps at once."""
    rows = jax.nn.log_softmax(x["logits"])
    moves = rows[z["state"][:-1], z["state"][1:]].sum()
    return moves + dist.Normal(z["state"], 0.5).log_prob(y).sum() + dist.Normal(0, 2).log_prob(x["logits"]).sum()


def levels(x, z, y):
    """Data around one of three levels, which are no integers."""
    prior = dist.Normal(0, 2).log_prob(x["mu"]) + dist.Gamma(2, 2).log_prob(x["sigma"])
    return prior + dist.Normal(x["mu"] + z["level"], x["sigma"]).log_prob(y).sum()
