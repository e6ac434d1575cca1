"""A NumPyro model as functions of named unconstrained x, of z and of data: its log density, its terms, its draws."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.util import _unconstrain_reparam, constrain_fn, log_density, potential_energy

from sumout.model.arguments import Arguments
from sumout.model.count_laws import log_density_of, log_supremum, log_tail, parameters_of_tail
from sumout.model.log_probs import log_prob_of
from sumout.model.numpyro_handlers import ArrayData, DefaultKey, Keyed, resolve_delta, with_categories
from sumout.model.numpyro_probe import Sites
from sumout.model.numpyro_sites import (
    WithoutLaws,
    is_normalised,
)
from sumout.model.program import CountTerms
from sumout.model.validation import (
    failing_in_words,
    one_at_a_time,
)
from sumout.randomness import as_jax_key


@dataclass(frozen=True, eq=False)
class NumPyroModel:
    """A NumPyro model as functions of named unconstrained x, of z and of data.

    Attributes:
        call: runs the model with its arguments, a dict.
        arguments: what of them is data.
        sites: what one run of the model shows.
        forward: sites that are left out of the density and drawn from their own law.
    """

    call: Callable[[dict[str, Any]], Any]
    arguments: Arguments
    sites: Sites
    forward: tuple[str, ...] = ()

    @cached_property
    def _resolved(self) -> Callable[..., Any]:
        """The model with data as arrays and with the values of latents that can take only one."""
        return handlers.substitute(ArrayData(with_categories(DefaultKey(self.call))), substitute_fn=resolve_delta)

    def _given(self, z: dict[str, Any], left_out: Sequence[str] = ()) -> Callable[..., Any]:
        """The model with z substituted, and without the laws of some sites."""
        substituted = handlers.substitute(self._resolved, data=z)
        return WithoutLaws(substituted, left_out) if left_out else substituted

    def _latent(self, x: dict, z: dict, values: dict, **options: Any) -> dict[str, Any]:
        """Values of the continuous sites."""
        return constrain_fn(self._given(z), (values,), {}, self.sites.fill_in(x), **options)

    @one_at_a_time
    @failing_in_words
    def log_joint_without(self, left_out: Sequence[str], x, z, data):
        """The log density, Jacobian included, without the laws of some sites."""
        with validation_enabled():  # outside its support a value has density zero, whatever the user's setting
            given = (self.arguments.rebuild(data),)
            energy = potential_energy(self._given(z, left_out), given, {}, self.sites.fill_in(x))
            return self.sites.log_placeholders(z) - energy

    @one_at_a_time
    def log_joint_without_jacobian(self, left_out: Sequence[str], x, z, data):
        """The log density of x in the user's own coordinates, without the laws of some sites."""
        values = self.arguments.rebuild(data)
        with validation_enabled():
            latent = self._latent(x, z, values)
            log_joint = log_density(self._given(z, left_out), (values,), {}, latent)[0]
            return self.sites.log_placeholders(z) + log_joint

    @one_at_a_time
    def constrain(self, x, z, data):
        """Values of the continuous sites and the deterministics, by name."""
        values = self._latent(x, z, self.arguments.rebuild(data), return_deterministic=True)
        return {name: values[name] for name in [*self.sites.continuous, *self.sites.deterministic]}

    @one_at_a_time
    def log_terms(self, names: Iterable[str], x, z, data):
        """The log densities of some sites."""
        values = self.arguments.rebuild(data)
        with validation_enabled():
            latent = self._latent(x, z, values)
            trace = handlers.trace(handlers.substitute(self._given(z), data=latent)).get_trace(values)
            return {name: trace[name]["fn"].log_prob(trace[name]["value"]) for name in names}

    @one_at_a_time
    def count_terms(self, x, z, data, upper):
        """What is known of all terms, for sums over counts that are cut; nothing where some are weighed."""
        values, counts = self.arguments.rebuild(data), set(self.sites.counts) - set(self.forward)
        with validation_enabled():
            latent = self._latent(x, z, values)
            trace = handlers.trace(handlers.substitute(self._given(z), data=latent)).get_trace(values)
            laws = {name: site for name, site in trace.items() if site["type"] == "sample"}
            laws = {name: site for name, site in laws.items() if name not in self.forward}
            is_weighed = any(site["scale"] is not None for site in laws.values())
            terms = {name: log_density_of(site["fn"], site["value"]) for name, site in laws.items()}
            # The values of a discrete latent are summed over, so that its law must be a normalised one.
            bounded = {n: s for n, s in laws.items() if is_normalised(s) or n not in self.sites.discrete}
            suprema = {name: log_supremum(site["fn"], site["value"]) for name, site in bounded.items()}
            tails = {name: log_tail(laws[name]["fn"], upper[name]) for name in sorted(counts) if not is_weighed}
            parameters = {name: parameters_of_tail(laws[name]["fn"]) for name in tails}
            continuous = {name: trace[name]["value"] for name in self.sites.continuous}
            known = lambda found: {name: array for name, array in found.items() if array is not None}  # noqa: E731
            return CountTerms(terms, known(suprema), known(tails), continuous, known(parameters))

    @one_at_a_time
    @failing_in_words
    def all_parts(self, x, z, data):
        """All that is asked of the model, by one run of it.

        A run of a long model takes seconds, most of them for the densities of its sites; those of equal distributions
        are traced once.
        """
        sites, forward = self.sites, set(self.forward)
        filled = sites.fill_in(x)
        given = handlers.substitute(self._given(z), substitute_fn=partial(_unconstrain_reparam, filled))
        with validation_enabled(False):  # of parameters, which the probe has checked as far as they are known
            trace = handlers.trace(given).get_trace(self.arguments.rebuild(data))
        with validation_enabled():
            terms, weighed = {}, {}
            for name, site in trace.items():
                if site["type"] == "sample":
                    terms[name] = log_prob_of(site)
                    scale = site["scale"]
                    term = terms[name] if scale is None else scale * terms[name]
                    weighed[name] = term if jnp.ndim(term) == 0 else jnp.sum(term)
        without_data = [term for name, term in weighed.items() if name not in forward | sites.observed.keys()]
        observed = [term for name, term in weighed.items() if name in sites.observed.keys() - forward]
        start = sites.log_placeholders(z)
        values = {name: trace[name]["value"] for name in [*sites.continuous, *sites.deterministic]}
        return {
            "log_joint": sum([*without_data, *observed], start=start),
            "log_joint_without_data": sum(without_data, start=start),
            "log_likelihood_named": {name: terms[name] for name in sites.observed},
            "log_terms_named": {name: terms[name] for name in sites.laws},
            "constrain_named": values,
        }

    @one_at_a_time
    def draw_forward(self, key, x, z, data):
        """Draws of the forward sites from their law given x and the others."""
        values = self.arguments.rebuild(data)
        known = {name: value for name, value in z.items() if name not in self.forward}
        given = {**self._latent(x, z, values), **known}
        drawn = Keyed(handlers.substitute(self._resolved, data=given), as_jax_key(key))
        trace = handlers.trace(drawn).get_trace(values)
        return {name: trace[name]["value"].astype(z[name].dtype) for name in self.forward}

    @one_at_a_time
    def outputs_without(self, left_out: Sequence[str], x, z, data):
        """All that a user sees, were the laws of some sites left out: the density and the named values."""
        with validation_enabled():
            return self.log_joint_without(left_out, x, z, data), self.constrain(x, z, data)
