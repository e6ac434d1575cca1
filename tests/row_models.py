"""Models of many independent rows with discrete variables of their own, and data for them."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def mixture_data(rng, n):
    return (np.where(rng.random(n) < 0.3, 3.0, 0.0) + rng.normal(size=n),)


def outliers(covariate, y):
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    share = numpyro.sample("share", dist.Beta(1, 4))
    with numpyro.plate("n", len(y)):
        is_outlier = numpyro.sample("is_outlier", dist.Bernoulli(share))
        numpyro.sample("y", dist.Normal(slope * covariate, jnp.where(is_outlier, 10.0, sigma)), obs=y)


def outlier_data(rng, n):
    covariate = rng.normal(size=n)
    return covariate, covariate + np.where(rng.random(n) < 0.1, 10.0, 0.5) * rng.normal(size=n)


def sequences(y):
    stay = numpyro.sample("stay", dist.Beta(4, 1))
    mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))

    def step(z, y_t):
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(jnp.where(z == 1, stay, 1 - stay)))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y_t)
        return z, None

    scan(step, jnp.zeros(len(y), int), y.T)


def sequence_data(rng, n):
    return (rng.normal(size=(n, 4)) + 2 * (rng.random((n, 1)) < 0.5),)


def occupancy(y):
    psi = numpyro.sample("psi", dist.Beta(1, 1))
    p = numpyro.sample("p", dist.Beta(1, 1))
    with numpyro.plate("n", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(psi))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Bernoulli(z * p), obs=y)


def occupancy_data(rng, n):
    return (((rng.random((n, 1)) < 0.6) & (rng.random((n, 3)) < 0.4)).astype(int),)


def zero_inflated(counts, seen):
    gate = numpyro.sample("gate", dist.Beta(1, 1))
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    with numpyro.plate("n", len(counts)), numpyro.handlers.mask(mask=seen):
        z = numpyro.sample("z", dist.Bernoulli(gate))
        numpyro.sample("counts", dist.Poisson(jnp.where(z == 1, 1e-6, rate)), obs=counts)


def zero_inflated_data(rng, n):
    return np.where(rng.random(n) < 0.4, 0, rng.poisson(3.0, n)), rng.random(n) < 0.9


def documents(words):
    topics = numpyro.sample("topics", dist.Dirichlet(jnp.ones(5)).expand([2]).to_event(1))
    with numpyro.plate("n", words.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        with numpyro.plate("tokens", words.shape[1], dim=-1):
            numpyro.sample("words", dist.Categorical(topics[z]), obs=words)


def document_data(rng, n):
    return (rng.integers(0, 5, (n, 6)),)


def with_a_switch(extra, y):
    """A discrete variable outside the plate, on which no row depends."""
    mu = numpyro.sample("mu", dist.Normal(0, 5).expand([2]))
    switch = numpyro.sample("switch", dist.Bernoulli(0.4))
    numpyro.sample("extra", dist.Normal(mu[switch], 0.5), obs=extra)
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def switch_data(rng, n):
    return np.array(0.7), *mixture_data(rng, n)


ROW_MODELS = {
    mixture: mixture_data,
    outliers: outlier_data,
    sequences: sequence_data,
    occupancy: occupancy_data,
    zero_inflated: zero_inflated_data,
    documents: document_data,
    with_a_switch: switch_data,
}
