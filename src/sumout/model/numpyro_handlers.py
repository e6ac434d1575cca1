"""Handlers around a user's NumPyro model: where its random numbers come from, one-hot vectors, data as arrays.

Random numbers. NumPyro's MCMC gives a model that draws outside its visible sites (a site hidden by `handlers.block`,
`numpyro.prng_key`, the initial value of a `numpyro.param` or a `numpyro.module`) always the same key, so that what is
drawn there is a constant. `DefaultKey` does likewise. Visible sites are another matter: what they would draw must be
unknown while a model is looked at, or follow from the key at hand when they are drawn, even inside `handlers.seed`,
whose own key is the same in every run. `Keyed` sees to that.

One-hot vectors. A latent Multinomial of one trial is a categorical variable, written as a vector of zeros and a one.
`OneTrial` makes it one: the site becomes a deterministic of a site of its own, with the category as its value.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.core import Tracer
from numpyro.distributions import (
    Categorical,
    Delta,
    ExpandedDistribution,
    Independent,
    MultinomialLogits,
    MultinomialProbs,
)
from numpyro.handlers import reparam
from numpyro.infer.reparam import Reparam
from numpyro.primitives import Messenger

CATEGORY = "_category"  # what the name of a one-hot site is extended by for its category


class DefaultKey(Messenger):
    """One key for all that is drawn outside visible sites.

    Attributes:
        is_used: whether anything was.
    """

    def __init__(self, fn: Callable[..., Any] | None = None):
        super().__init__(fn)
        self.is_used = False

    def process_message(self, msg: Any) -> None:
        """Answer whoever asks for a key."""
        if msg["type"] == "prng_key" and msg["value"] is None and msg["kwargs"]["rng_key"] is None:
            msg["value"] = jax.random.key(0)
            self.is_used = True


class Keyed(Messenger):
    """Visible sites draw from one key, whatever `handlers.seed` inside has given them."""

    def __init__(self, fn: Callable[..., Any], key: jax.Array):
        super().__init__(fn)
        self.key = key

    def process_message(self, msg: Any) -> None:
        """Give a latent site, a plate or a loop a key of its own."""
        if msg["type"] in ("sample", "plate", "control_flow") and msg["value"] is None:
            self.key, msg["kwargs"]["rng_key"] = jax.random.split(self.key)


class OneTrial(Reparam):
    """A Multinomial of one trial as the one-hot vector of a category."""

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, jax.Array]:
        """The vector; its category is a sample site."""
        assert obs is None
        base, shape, event_dim = self._unwrap(fn)
        given = {name: getattr(base, name) for name in ("probs", "logits") if name in base.arg_constraints}
        category = self._wrap(Categorical(**given), shape, event_dim - base.event_dim)
        chosen = numpyro.sample(f"{name}{CATEGORY}", category)
        return None, jax.nn.one_hot(chosen, base.event_shape[-1], dtype=jnp.result_type(int))


def with_categories(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model, with its one-hot sites as functions of categories."""
    return reparam(model, config=lambda site: OneTrial() if _is_one_trial(site) else None)


def _is_one_trial(site: Any) -> bool:
    fn = site["fn"]
    while isinstance(fn, ExpandedDistribution | Independent):
        fn = fn.base_dist
    if site["is_observed"] or not isinstance(fn, MultinomialProbs | MultinomialLogits):
        return False
    return not isinstance(fn.total_count, Tracer) and bool(np.all(np.asarray(fn.total_count) == 1))


class ArrayData(Messenger):
    """Observed values as JAX arrays, whatever they were given as."""

    def process_message(self, msg: Any) -> None:
        """Convert an observed value."""
        if msg["type"] == "sample" and msg["is_observed"] and not isinstance(msg["value"], jax.Array):
            msg["value"] = jnp.asarray(msg["value"])


def resolve_delta(site: dict) -> Any:
    """The value of a latent that can take only one."""
    if site["type"] == "sample" and not site["is_observed"] and is_delta(site["fn"]):
        return site["fn"].sample(None, site["kwargs"]["sample_shape"])
    return None


def is_delta(fn: Any) -> bool:
    """Whether a distribution has one value only."""
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return isinstance(fn, Delta)
