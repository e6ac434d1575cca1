"""What one run of a NumPyro model shows: its sites, their supports and dimensions, and what of them is data.

The run has an unknown key, so that whatever depends on a latent value is seen to do so; the rest is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer import init_to_uniform

from sumout.errors import ModelError
from sumout.jaxpr.equations import used_inputs
from sumout.jaxpr.numpy_evaluation import evaluate
from sumout.model.arguments import Arguments
from sumout.model.density import is_identity
from sumout.model.numpyro_handlers import ArrayData, DefaultKey, Keyed, is_delta, with_categories
from sumout.model.numpyro_plates import find_plates, refuse_latents_of_rows
from sumout.model.numpyro_sites import (
    fill_in,
    find_imputed,
    is_missing,
    is_normalised,
    log_placeholders,
    without_placeholders,
)
from sumout.model.prediction import Axes
from sumout.model.program import ContinuousSite, DiscreteSite
from sumout.model.row_program import Plate
from sumout.model.supports import Count, Support, whole_numbers
from sumout.model.validation import (
    UniqueNames,
    check_data,
    check_parameters,
    check_site,
    describe_law,
    is_inside,
    one_at_a_time,
    traced_parameters,
)

ENDS = ("lower_bound", "upper_bound")  # of an interval, as NumPyro calls them


class Probe:
    """A trace of the model with an unknown key, so that whatever depends on a latent value is seen to do so."""

    def __init__(self, call: Callable[[dict], Any], arguments: Arguments):
        self.seen: dict[str, dict] = {}
        self.notes: list[str] = []
        self.continuous: dict[str, ContinuousSite] = {}

        def arrays(key, data):
            seen, is_random = _trace(call, arguments.rebuild(data), key)
            self.seen, self.notes = seen, _notes(seen, is_random)
            self.continuous = {n: _continuous_site(n, s) for n, s in seen.items() if _is_continuous_latent(s)}
            bounds = {name: _bounds(site) for name, site in seen.items() if _is_discrete_latent(site)}
            observed = {n: jnp.asarray(s["value"]) for n, s in seen.items() if _is_data(s)}
            inside = {n: is_inside(s) for n, s in seen.items() if _is_data(s)}
            parameters = {n: traced_parameters(s) for n, s in seen.items() if s["type"] == "sample"}
            return bounds, observed, inside, {n: is_missing(seen[n]) for n in find_imputed(seen)}, parameters

        self.key = jax.eval_shape(lambda: jax.random.key(0))
        self.closed, self.shapes = jax.make_jaxpr(arrays, return_shape=True)(self.key, arguments.data)


@dataclass(frozen=True)
class Sites:
    """What one run of the model shows of its sites."""

    continuous: dict[str, ContinuousSite]
    discrete: dict[str, DiscreteSite]
    deterministic: tuple[str, ...]
    observed: dict[str, np.ndarray]
    laws: dict[str, str]  # of all sites that have a density
    dims: dict[str, tuple[str, ...]]
    counts: tuple[str, ...]  # unbounded counts with a normalised law
    is_scaled: bool  # whether the log density of some data is scaled
    missing: dict[str, np.ndarray]  # of imputed sites, which events are missing; the others are placeholders
    notes: tuple[str, ...]  # of what is held fixed
    by_value: tuple[str, ...]  # data from which supports follow, or what is missing
    plates: dict[str, Plate]

    def fill_in(self, x: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Named unconstrained arrays as NumPyro knows them."""
        return fill_in(x, {name: mask for name, mask in self.missing.items() if name in self.continuous})

    def log_placeholders(self, z: dict[str, Any]) -> jax.Array:
        """The law of counts that stand for data."""
        counts = {name: site.support for name, site in self.discrete.items() if isinstance(site.support, Count)}
        present = {name: ~mask for name, mask in self.missing.items() if name in counts}
        return log_placeholders(z, present, {name: counts[name].lower for name in present})

    @property
    def axes(self) -> dict[str, Axes]:
        """Shapes and dimensions of latent and observed sites."""
        latent = {name: site.shape for name, site in {**self.continuous, **self.discrete}.items()}
        shapes = {**latent, **{name: np.shape(value) for name, value in self.observed.items()}}
        return {name: Axes.of(name, shape, self.dims) for name, shape in shapes.items()}

    @staticmethod
    def found_by(probe: Probe, arguments: Arguments) -> "Sites":
        """What a probe shows; what does not depend on its key, and so on no latent value, is known."""
        seen, continuous = probe.seen, dict(probe.continuous)
        is_known = [not used[0] for used in used_inputs(probe.closed)]
        given = [probe.key, *jax.tree.leaves(arguments.data)]
        num = len(is_known) - len(jax.tree.leaves(probe.shapes[-1]))  # of results before the parameters
        known = evaluate(probe.closed, given, [*is_known[:num], *[False] * len(is_known[num:])])
        rounded = evaluate(probe.closed, given, [*[False] * num, *is_known[num:]], is_rounded=True)
        found = [*known[:num], *rounded[num:]]
        bounds, observed, inside, missing, parameters = jax.tree.unflatten(jax.tree.structure(probe.shapes), found)
        for name, values in parameters.items():
            check_parameters(name, seen[name]["fn"], {p: v for p, v in values.items() if v is not None})
        by_value = _inputs_of(probe.closed, probe.shapes, sorted(arguments.data))
        missing = {name: mask for name, mask in missing.items() if mask is not None}
        for name, mask in missing.items():
            if name in continuous:
                continuous[name] = without_placeholders(continuous[name], mask)
        discrete = {name: DiscreteSite(_support(name, seen[name], ends)) for name, ends in bounds.items()}
        discrete = {name: discrete[name] for name in seen if name in discrete}
        deterministic = tuple(name for name, site in seen.items() if site["type"] == "deterministic")
        if not discrete and not continuous:
            raise ModelError(
                "the model has no latent site, so there is nothing to draw: are all of its sites observed, or hidden "
                "by a handler?"
            )
        plates = find_plates(seen)
        refuse_latents_of_rows(plates, continuous)
        dims = all_dims(seen)
        observed = {name: value for name, value in observed.items() if value is not None}
        for name, value in observed.items():
            check_data(name, seen[name]["fn"], value, inside[name])
        is_scaled = any(site.get("scale") is not None for site in seen.values() if _is_data(site))
        laws = {name: describe_law(site["fn"]) for name, site in seen.items() if site["type"] == "sample"}
        counts = tuple(n for n, site in discrete.items() if isinstance(site.support, Count) and is_normalised(seen[n]))
        return Sites(
            continuous,
            discrete,
            deterministic,
            observed,
            laws,
            dims,
            counts,
            is_scaled,
            missing,
            tuple(probe.notes),
            by_value,
            plates,
        )


def _inputs_of(closed: Any, shapes: Any, names: list[str]) -> tuple[str, ...]:
    """Which data the bounds and the masks of a probe follow from; its first input is a key."""
    used = iter(used_inputs(closed))
    of_part = [list(islice(used, len(jax.tree.leaves(part)))) for part in shapes]
    chosen = [*of_part[0], *of_part[3]]
    return tuple(name for i, name in enumerate(names, start=1) if any(output[i] for output in chosen))


@one_at_a_time
def _trace(call: Callable[[dict], Any], arguments: dict[str, Any], key: jax.Array) -> tuple[dict[str, dict], bool]:
    """One random run of the model, as NumPyro's trace of its sites, and whether it draws anything beside them."""
    model = DefaultKey(call)
    with validation_enabled():
        # Continuous sites are not drawn from their priors: an improper one has nothing to draw from.
        given = Keyed(UniqueNames(ArrayData(with_categories(model))), key)
        started = handlers.substitute(given, substitute_fn=init_to_uniform)
        trace = handlers.trace(started).get_trace(arguments)
    for name, site in trace.items():
        check_site(name, site)
    return dict(trace), model.is_used


def _notes(seen: dict[str, dict], is_random: bool) -> list[str]:
    """What is held fixed, as in NumPyro's MCMC."""
    params = [f"'{name}'" for name, site in seen.items() if site["type"] == "param"]
    notes = [f"Held at the initial value, as numpyro.param has no prior: {', '.join(params)}."] if params else []
    if is_random:
        notes.append(
            "Drawn once and then held fixed: what the model draws outside its visible sites (hidden by handlers.block, "
            "by numpyro.prng_key, or for an initial value)."
        )
    return notes


def _is_latent(site: dict) -> bool:
    return site["type"] == "sample" and not site["is_observed"] and not is_delta(site["fn"])


def _is_continuous_latent(site: dict) -> bool:
    return _is_latent(site) and not site["fn"].support.is_discrete


def _is_discrete_latent(site: dict) -> bool:
    return _is_latent(site) and site["fn"].support.is_discrete


def _is_data(site: dict) -> bool:
    # `factor` is an observed site without values.
    return site["type"] == "sample" and site["is_observed"] and jnp.size(site["value"]) > 0


def _base_constraint(site: dict) -> Any:
    constraint = site["fn"].support
    while isinstance(constraint, type(constraints.independent(constraints.real, 1))):
        constraint = constraint.base_constraint
    return constraint


def _bounds(site: dict) -> dict[str, jax.Array]:
    """The ends of a discrete support as arrays, broadcast to the site."""
    constraint, shape = _base_constraint(site), jnp.shape(site["value"])
    ends = {end: getattr(constraint, end, None) for end in ENDS}
    if constraint is constraints.boolean:
        ends = {"lower_bound": 0, "upper_bound": 1}
    return {end: jnp.broadcast_to(jnp.asarray(value), shape) for end, value in ends.items() if value is not None}


def _support(name: str, site: dict, bounds: dict[str, np.ndarray | None]) -> Support:
    shape = jnp.shape(site["value"])
    lower, upper = (_as_int64(bounds.get(end)) for end in ENDS)
    if "lower_bound" not in bounds:
        raise ModelError(
            f"discrete site '{name}' ({type(site['fn']).__name__}) has the support {site['fn'].support}, which sumout "
            "does not support. Supports that work: booleans, integer intervals, integers from a lower bound up, and "
            "vectors from a Multinomial of one trial outside of loops."
        )
    return whole_numbers(name, shape, lower, upper)


def _as_int64(end: np.ndarray | None) -> np.ndarray | None:
    """Short integers could not hold the number of values between two ends."""
    return end.astype(np.int64) if end is not None and end.dtype.kind in "biu" else end


def _continuous_site(name: str, site: dict) -> ContinuousSite:
    shape = jnp.shape(site["value"])
    try:
        bijection = biject_to(site["fn"].support)
        unconstrained = bijection.inverse_shape(shape)
    except NotImplementedError as error:
        raise ModelError(f"site '{name}': {site['fn'].support} has no map to the real line.") from error
    return ContinuousSite(shape, tuple(unconstrained), is_identity(bijection))


def all_dims(seen: dict[str, dict]) -> dict[str, tuple[str, ...]]:
    """Dimensions of all sites; a plate's name serves only if it always has one size and is not taken."""
    sizes: dict[str, set[int]] = {"chain": set(), "draw": set()}
    for site in seen.values():
        for frame in site.get("cond_indep_stack", ()):
            sizes.setdefault(frame.name, set()).add(frame.size)
    usable = {name for name, found in sizes.items() if len(found) == 1 and name not in ("chain", "draw")}
    return {name: _dims(name, site, usable) for name, site in seen.items() if site["type"] == "sample"}


def _dims(name: str, site: dict, plates: set[str]) -> tuple[str, ...]:
    """Names of a site's dimensions: the plate's where there is one."""
    ndim = jnp.ndim(site["value"])
    dims = [f"{name}_dim_{i}" for i in range(ndim)]
    for frame in site["cond_indep_stack"]:
        position = ndim - site["fn"].event_dim + frame.dim
        if frame.name in plates and 0 <= position < ndim and jnp.shape(site["value"])[position] == frame.size:
            dims[position] = frame.name
    return tuple(dims)
