"""What is known of NumPyro's laws in the large: tails of counts, and the highest value of a density.

A sum over a count n is cut at U. What it leaves out is at most

    Σ_{n > U} p(n | θ) Π_f f(n)  ≤  P(n > U | θ) · Π_f sup f

Tails: where no ratio p(k + 1) / p(k) from k = U + 1 on is above r < 1, P(n > U) ≤ p(U + 1) / (1 − r), as in a geometric
series. The ratios of Poisson, binomial and geometric laws fall with k, those of negative binomials go to their limit
from one side. Zero inflation and hurdles leave the ratios of all but zero as they are. The tail of a mixture is the
mean of those of its components. Of other laws with a highest value h it is known that P(n > U) = 0 where U ≥ h.

Suprema: a probability is at most 1. A density of location and scale is highest at its location; that of a rate at the
rate that suits its value best. Of all other laws nothing is said.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions import (
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    MixtureGeneral,
    MixtureSameFamily,
)
from numpyro.distributions.discrete import HurdleProbs, ZeroInflatedProbs

# Laws that are highest at their location, put at zero: the bound must not seem to depend on where they are.
AT_LOCATION: dict[type, Callable[[Any], Any]] = {
    dist.Normal: lambda fn: dist.Normal(0.0, fn.scale),
    dist.StudentT: lambda fn: dist.StudentT(fn.df, 0.0, fn.scale),
    dist.Cauchy: lambda fn: dist.Cauchy(0.0, fn.scale),
    dist.Laplace: lambda fn: dist.Laplace(0.0, fn.scale),
    dist.Logistic: lambda fn: dist.Logistic(0.0, fn.scale),
    dist.Gumbel: lambda fn: dist.Gumbel(0.0, fn.scale),
    dist.VonMises: lambda fn: dist.VonMises(0.0, fn.concentration),
    dist.MultivariateNormal: lambda fn: dist.MultivariateNormal(jnp.zeros(fn.event_shape), scale_tril=fn.scale_tril),
}

PARAMETERS: dict[type, tuple[str, ...]] = {
    dist.Poisson: ("rate",),
    dist.GammaPoisson: ("concentration", "rate"),
    dist.GeometricProbs: ("probs",),
    dist.GeometricLogits: ("logits",),
    dist.BinomialProbs: ("total_count", "probs"),
    dist.BinomialLogits: ("total_count", "logits"),
    dist.BetaBinomial: ("total_count",),  # of which only the highest value is used
    dist.DiscreteUniform: ("low", "high"),
}


def without_shape(fn: Any) -> Any:
    """A law without what only gives it a shape, so that it says something of every element."""
    while isinstance(fn, Independent | ExpandedDistribution):
        fn = fn.base_dist
    return fn


def _is(fn: Any, *laws: type) -> bool:
    """Whether a law is one of these, without a type checker's view of NumPyro's attributes."""
    return isinstance(fn, laws)


def log_tail(fn: Any, upper: Array) -> Array | None:
    """An upper bound on log P(n > upper), element by element; None where the law is not known."""
    fn = without_shape(fn)
    if _is(fn, dist.DiscreteUniform):
        beyond = jnp.clip((fn.high - upper) / (fn.high - fn.low + 1), 0.0, 1.0)
        return jnp.where(beyond > 0, jnp.log(jnp.where(beyond > 0, beyond, 1.0)), -jnp.inf)
    if _is(fn, MixtureSameFamily, MixtureGeneral):
        return _log_tail_of_mixture(fn, upper)
    found = largest_ratio(fn)
    if found is None:
        return _log_tail_of_bounded(fn, upper)
    if _is(fn, dist.BinomialProbs, dist.BinomialLogits):
        first = jnp.where(upper < fn.total_count, fn.log_prob(jnp.minimum(upper + 1, fn.total_count)), -jnp.inf)
    else:
        first = fn.log_prob(upper + 1)
    return log_geometric_tail(first, found(upper + 1.0))


def _log_tail_of_mixture(fn: Any, upper: Array) -> Array | None:
    """Of a single component, which has one law for each weight along its last axis, or of several."""
    if _is(fn, MixtureSameFamily):
        tails = log_tail(fn.component_distribution, jnp.asarray(upper)[..., None])
    else:
        each = [log_tail(component, upper) for component in fn.component_distributions]
        known = [tail for tail in each if tail is not None]
        tails = jnp.stack(known, axis=-1) if len(known) == len(each) else None
    return None if tails is None else jax.nn.logsumexp(jnp.log(fn.mixing_distribution.probs) + tails, axis=-1)


def _log_tail_of_bounded(fn: Any, upper: Array) -> Array | None:
    """Where only the highest value is known: nothing lies beyond it."""
    highest = getattr(fn.support, "upper_bound", None)
    return None if highest is None else jnp.where(highest <= upper, -jnp.inf, jnp.zeros(jnp.shape(upper)))


def log_geometric_tail(first: Array, ratio: Array) -> Array:
    """An upper bound on the log of a sum that begins with `exp(first)` and falls by a ratio or more with every term."""
    is_falling = ratio < 1
    return jnp.where(is_falling, jnp.minimum(first - jnp.log1p(-jnp.where(is_falling, ratio, 0.0)), 0.0), 0.0)


def largest_ratio(fn: Any) -> Callable[[Array], Any] | None:
    """The largest of p(j + 1) / p(j) over all j ≥ k, as a function of k ≥ 1."""
    fn = without_shape(fn)
    if _is(fn, ZeroInflatedProbs, HurdleProbs):
        return largest_ratio(fn.base_dist)
    if _is(fn, dist.Poisson):
        return lambda k: fn.rate / (k + 1)
    if _is(fn, dist.GammaPoisson):
        return lambda k: jnp.maximum((k + fn.concentration) / (k + 1), 1) / (1 + fn.rate)
    if _is(fn, dist.GeometricProbs):
        return lambda k: 1 - fn.probs + 0 * k
    if _is(fn, dist.GeometricLogits):
        return lambda k: jax.nn.sigmoid(-fn.logits) + 0 * k
    if _is(fn, dist.BinomialProbs):
        return lambda k: jnp.maximum(fn.total_count - k, 0) / (k + 1) * fn.probs / (1 - fn.probs)
    if _is(fn, dist.BinomialLogits):
        return lambda k: jnp.maximum(fn.total_count - k, 0) / (k + 1) * jnp.exp(fn.logits)
    return None


def parameters_of_tail(fn: Any) -> tuple[Array, ...] | None:
    """What `log_tail` follows from, if the tail is monotone in each of these while the others stay; else None.

    These laws are ordered by their likelihood ratios in every parameter, zero inflated or with a hurdle, too.
    """
    fn = without_shape(fn)
    if _is(fn, ZeroInflatedProbs, HurdleProbs):
        inner = parameters_of_tail(fn.base_dist)
        return None if inner is None else (fn.gate, *inner)
    for law, names in PARAMETERS.items():
        if _is(fn, law):
            return tuple(jnp.asarray(getattr(fn, name)) for name in names)
    return None


def log_supremum(fn: Any, value: Array) -> Array | None:
    """An upper bound on the log density of each element of a value, whatever the parameters that it does not name.

    None where none is known.
    """
    fn = without_shape(fn)
    if _is(fn, MaskedDistribution):
        inner = log_supremum(fn.base_dist, value)
        return None if inner is None else jnp.where(fn._mask, inner, 0.0)
    if not type(fn).__module__.startswith("numpyro."):
        return None
    shape = jnp.broadcast_shapes(fn.batch_shape, jnp.shape(value)[: jnp.ndim(value) - fn.event_dim])
    if fn.support.is_discrete:
        return jnp.zeros(shape)
    if type(fn) in AT_LOCATION:
        return jnp.broadcast_to(AT_LOCATION[type(fn)](fn).log_prob(jnp.zeros(fn.event_shape)), shape)
    if _is(fn, dist.LogNormal):
        return jnp.broadcast_to(-jnp.log(fn.scale) - 0.5 * jnp.log(2 * jnp.pi) - jnp.log(value), shape)
    if _is(fn, dist.HalfNormal):
        return jnp.broadcast_to(0.5 * jnp.log(2 / jnp.pi) - 0.5 - jnp.log(value), shape)
    if _is(fn, dist.Exponential):
        return jnp.broadcast_to(-1.0 - jnp.log(value), shape)
    if _is(fn, dist.Weibull):
        return jnp.broadcast_to(jnp.log(fn.concentration) - 1.0 - jnp.log(value), shape)
    if _is(fn, dist.Gamma, dist.InverseGamma):  # highest at the rates concentration / value and concentration · value
        peak = fn.concentration * (jnp.log(fn.concentration) - 1) - jax.scipy.special.gammaln(fn.concentration)
        return jnp.broadcast_to(peak - jnp.log(value), shape)
    return None


def log_density_of(fn: Any, value: Array) -> Array:
    """The log density of each element of a value."""
    return without_shape(fn).log_prob(value)
