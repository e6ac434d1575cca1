"""Tails of counts and suprema of densities, against sums and against the densities themselves."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from sumout.model.count_laws import log_supremum, log_tail

LAWS = {
    "poisson": lambda a, b: dist.Poisson(20 * a),
    "negative_binomial": lambda a, b: dist.NegativeBinomial2(20 * a, 3 * b),
    "negative_binomial_below_one": lambda a, b: dist.NegativeBinomial2(20 * a, 0.3 * b),
    "negative_binomial_probs": lambda a, b: dist.NegativeBinomialProbs(10 * a, 0.9 * b),
    "geometric": lambda a, b: dist.Geometric(0.05 + 0.9 * a),
    "geometric_logits": lambda a, b: dist.GeometricLogits(2 * a - 1),
    "zero_inflated": lambda a, b: dist.ZeroInflatedPoisson(b, 20 * a),
    "zero_inflated_negative_binomial": lambda a, b: dist.ZeroInflatedNegativeBinomial2(10 * a, 2.0, gate=b),
    "binomial": lambda a, b: dist.Binomial(60, a),
    "binomial_logits": lambda a, b: dist.Binomial(60, logits=4 * a - 2),
    "uniform": lambda a, b: dist.DiscreteUniform(0, jnp.floor(80 * a)),
    "hurdle": lambda a, b: dist.HurdlePoisson(b, 20 * a),
    "mixture_of_one_kind": lambda a, b: dist.MixtureSameFamily(
        dist.Categorical(jnp.array([b, 1 - b])), dist.Poisson(jnp.array([20 * a, 4 * a]))
    ),
    "mixture": lambda a, b: dist.MixtureGeneral(
        dist.Categorical(jnp.array([b, 1 - b])),
        [dist.Poisson(20 * a), dist.Geometric(0.05 + 0.9 * a)],
        support=dist.constraints.nonnegative_integer,
    ),
    "expanded": lambda a, b: dist.Poisson(20 * a).expand([1]).to_event(1),
}


@pytest.mark.parametrize("name", LAWS)
def test_tails_are_bounded_from_above_and_closely(name):
    rng, values = np.random.default_rng(0), np.arange(3000)
    for a, b in rng.uniform(0.02, 0.98, (8, 2)):
        law = LAWS[name](a, b)
        plain = law.base_dist if name == "expanded" else law
        plain = plain.base_dist if name == "expanded" else plain
        last = {"binomial": 60, "binomial_logits": 60}.get(name, getattr(plain, "high", len(values)))
        inside = values <= last
        probabilities = np.exp(np.asarray(plain.log_prob(jnp.asarray(np.where(inside, values, 0))), float)) * inside
        for upper in (0, 3, 17, 40, 79):
            tail, bound = (
                probabilities[upper + 1 :].sum(),
                float(np.exp(np.ravel(log_tail(law, jnp.asarray(upper)))[0])),
            )
            assert tail <= bound * (1 + 1e-9) + 1e-14
            # Where the law falls fast, the bound is close.
            assert bound <= 30 * tail + 1e-14 or tail > 1e-4


def test_laws_without_a_known_tail():
    assert log_tail(dist.LogNormal(1.0, 2.0), jnp.asarray(3)) is None


def test_nothing_lies_beyond_the_highest_value():
    tails = log_tail(dist.BetaBinomial(1.0, 2.0, 10), jnp.array([3, 9, 10, 11]))
    assert tails.tolist() == [0.0, 0.0, -np.inf, -np.inf]


@pytest.mark.parametrize(
    "make",
    [
        lambda t: dist.Normal(9 * t, 0.7),
        lambda t: dist.StudentT(3.0, 9 * t, 0.7),
        lambda t: dist.Laplace(9 * t, 0.7),
        lambda t: dist.Cauchy(9 * t, 0.7),
        lambda t: dist.LogNormal(3 * t, 0.7),
        lambda t: dist.Exponential(jnp.exp(3 * t)),
        lambda t: dist.Gamma(2.5, jnp.exp(3 * t)),
        lambda t: dist.InverseGamma(2.5, jnp.exp(3 * t)),
        lambda t: dist.Weibull(jnp.exp(3 * t), 1.7),
        lambda t: dist.VonMises(3 * t, 2.0),
        lambda t: dist.HalfNormal(jnp.exp(2 * t)),
        lambda t: dist.Poisson(jnp.exp(2 * t)),
        lambda t: dist.Normal(9 * t, 0.7).mask(False),
    ],
)
def test_suprema_hold_whatever_the_parameter(make):
    t, value = jnp.linspace(-1, 1, 4001)[:, None], jnp.array([1.0, 2.0, 3.0])
    highest = np.asarray(make(t).log_prob(value)).max(axis=0)
    bound = np.broadcast_to(np.asarray(log_supremum(make(t), value)), (4001, 3))[0]
    assert (highest <= bound + 1e-12).all()
    assert (highest >= bound - 0.02).all() or make(t).support.is_discrete


def test_densities_without_a_known_supremum():
    assert log_supremum(dist.Beta(2.0, 3.0), jnp.array(0.3)) is None
