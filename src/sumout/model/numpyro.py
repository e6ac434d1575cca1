"""An unmodified NumPyro model → Program.

The model is run once with a traced key to see its sites; after that NumPyro's own `potential_energy` and
`constrain_fn` do the work, with z substituted, so that plates, scans, masks, scales and bijections mean exactly what
they mean in NumPyro.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import Delta, biject_to, constraints
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer import init_to_uniform
from numpyro.infer.util import _unconstrain_reparam, constrain_fn, log_density, potential_energy
from numpyro.primitives import Messenger

from sumout.errors import ModelError, OptionError, SumoutError
from sumout.jaxpr.equations import used_inputs, without_collection
from sumout.jaxpr.numpy_evaluation import evaluate
from sumout.model.arguments import BY_VALUE, Arguments, never_read, split_arguments, watch_outside
from sumout.model.containers import first_that_works
from sumout.model.count_laws import log_density_of, log_supremum, log_tail, parameters_of_tail
from sumout.model.density import is_identity
from sumout.model.kin import Kin, kin_of
from sumout.model.log_probs import log_prob_of
from sumout.model.numpyro_handlers import DefaultKey, Keyed, with_categories
from sumout.model.numpyro_plates import AllRows, SomeRows, find_plates, refuse_latents_of_rows
from sumout.model.numpyro_predict import NumPyroPredictor
from sumout.model.numpyro_sites import (
    WithoutLaws,
    fill_in,
    find_forward,
    find_imputed,
    is_missing,
    is_normalised,
    log_placeholders,
    without_placeholders,
)
from sumout.model.on_disk import Rows, is_on_disk
from sumout.model.prediction import Axes
from sumout.model.program import ContinuousSite, CountTerms, DiscreteSite, Part, Program
from sumout.model.row_program import Attempt, Plate
from sumout.model.supports import Count, Support, whole_numbers
from sumout.model.validation import (
    UniqueNames,
    check_data,
    check_site,
    describe_failure,
    describe_law,
    is_inside,
    one_at_a_time,
    where_raised,
)
from sumout.randomness import as_jax_key

ENDS = ("lower_bound", "upper_bound")  # of an interval, as NumPyro calls them
ROWS = "numbers of rows"  # an argument of ours beside the model's


def program(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """Make a program from an unmodified NumPyro model and its arguments.

    Args:
        model: a NumPyro model. Its discrete latent sites stay in it; with none, x is sampled all the same.
        *args: arguments of the model; arrays among them become data.
        **kwargs: keyword arguments of the model, likewise.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
        >>> program = sumout.program(mixture, jnp.array([-1.0, 0.9, 1.1]))
        >>> list(program.x), list(program.z)
        (['mu'], ['z'])
    """
    if not callable(model):
        raise OptionError(f"program: expected a NumPyro model (a function), got {type(model).__name__}.")
    signature = inspect.signature(model)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise OptionError(f"program: the arguments do not fit the model {_name(model)}{signature}: {error}.") from error

    if is_on_disk(bound.arguments):
        return _on_disk(model, signature, Rows.among(dict(bound.arguments)))
    return _make(model, signature, dict(bound.arguments), kin_of(model))


def _make(
    model: Callable[..., Any],
    signature: inspect.Signature,
    bound: dict[str, Any],
    kin: Kin,
    plate: str | int | None = None,
) -> Program:
    """A program from a model and its arguments by name.

    Args:
        model: the model.
        signature: its own.
        bound: arguments by name, and under `ROWS` the numbers of the rows of a plate that it is to have.
        kin: other programs of the model.
        plate: the plate of which it has some rows only; or how many rows all such plates have.
    """

    def call(arguments: dict[str, Any]) -> Any:
        given = {name: value for name, value in arguments.items() if name != ROWS}
        placed = inspect.BoundArguments(signature, given)  # pyright: ignore[reportArgumentType]
        with AllRows() if plate is None else SomeRows(plate, _numbers(arguments[ROWS])):
            return model(*placed.args, **placed.kwargs)

    with without_collection():
        convert, (arguments, probe) = first_that_works(bound, partial(_split, call))
        sites = _Sites.found_by(probe, arguments)

    def read_arguments(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return arguments.sort_out(convert(dict(signature.bind(*args, **kwargs).arguments)))

    made = _Model(call, arguments, sites)
    forward = find_forward(sites.counts, made.outputs_without, sites.continuous, sites.discrete, arguments.data)
    made = replace(made, forward=forward)
    directly = {
        "log_joint": partial(made.log_joint_without, forward),
        "constrain_named": made.constrain,
        "log_likelihood_named": partial(made.log_terms, sites.observed),
        "log_joint_without_data": partial(made.log_joint_without, (*forward, *sites.observed)),
        "log_terms_named": partial(made.log_terms, sites.laws),
    }
    whole = made.all_parts

    def part(name: str) -> Part:
        return Part(directly[name], whole, name)

    return Program(
        x=sites.continuous,
        z=sites.discrete,
        data=arguments.data,
        log_joint=part("log_joint"),
        constrain_named=part("constrain_named"),
        log_likelihood_named=None if sites.is_scaled else part("log_likelihood_named"),
        log_joint_without_data=None if sites.is_scaled else part("log_joint_without_data"),
        log_terms_named=part("log_terms_named"),
        log_joint_without_jacobian=partial(made.log_joint_without_jacobian, forward),
        draw_forward_named=made.draw_forward if forward else None,
        count_terms_named=made.count_terms if set(sites.counts) - set(forward) else None,
        forward=forward,
        observed=sites.observed,
        laws=sites.laws,
        dims=sites.dims,
        fixed=arguments.fixed,
        by_value=sites.by_value,
        unread=never_read(model, (name for name in bound if name != ROWS)),
        arguments_as_data=read_arguments,
        with_arrays=lambda arrays: _make(model, signature, arguments.with_arrays(arrays), kin, plate),
        plates=sites.plates,
        with_rows=None if plate is not None else partial(_with_rows, model, signature, arguments, sites.plates),
        log_joint_left_out=made.log_joint_without,
        log_joint_left_out_without_jacobian=made.log_joint_without_jacobian,
        kin=kin,
        predictor=NumPyroPredictor(
            call,
            arguments,
            list(signature.parameters),
            sites.axes,
            [*sites.continuous, *sites.discrete],
            list(sites.discrete),
            list(sites.observed),
            _all_dims,
        ),
        notes=sites.notes,
        changed_outside=watch_outside(model),
        name=_name(model),
    )


def _on_disk(model: Callable[..., Any], signature: inspect.Signature, rows: Rows) -> Program:
    """The program of rows that are on the disk: traced with a few, in all plates that have as many."""

    def given(num: int, plate: str | int) -> Program:
        return _make(model, signature, {**rows.first(num), ROWS: range(num)}, Kin(), plate)

    few = given(rows.window, rows.size)
    chosen = [name for name, plate in few.plates.items() if plate.size == rows.window]
    return rows.program(few, lambda plate, batch: [lambda: (given(batch, plate), rows.axes, None)], chosen)


def _numbers(rows: Any) -> jax.Array:
    """Numbers of rows as an array, traced or known."""
    return jnp.arange(len(rows)) if isinstance(rows, range) else jnp.asarray(rows)


def _with_rows(
    model: Callable[..., Any],
    signature: inspect.Signature,
    arguments: Arguments,
    plates: Mapping[str, Plate],
    plate: str,
    batch: int,
) -> list[Attempt]:
    """Ways to make a program of so many rows of a plate."""
    axes = arguments.axes_of(plates[plate].size)

    def given_fewer() -> tuple[Program, dict[str, int], str | None]:
        """With as many rows in all arrays that have rows."""
        bound = arguments.first_along(axes, batch)
        return _make(model, signature, {**bound, ROWS: range(batch)}, Kin(), plate), axes, None

    def picked_by_model() -> tuple[Program, dict[str, int], str | None]:
        """With all rows, of which the model picks those that its plate says."""
        return _make(model, signature, {**arguments.whole, ROWS: np.arange(batch)}, Kin(), plate), {}, ROWS

    is_picking = plates[plate].subsample_size is not None
    return [*([given_fewer] if axes else []), *([picked_by_model] if is_picking else [])]


@dataclass(frozen=True, eq=False)
class _Model:
    """A NumPyro model as functions of named unconstrained x, of z and of data.

    Attributes:
        call: runs the model with its arguments, a dict.
        arguments: what of them is data.
        sites: what one run of the model shows.
        forward: sites that are left out of the density and drawn from their own law.
    """

    call: Callable[[dict[str, Any]], Any]
    arguments: Arguments
    sites: "_Sites"
    forward: tuple[str, ...] = ()

    @cached_property
    def _resolved(self) -> Callable[..., Any]:
        """The model with data as arrays and with the values of latents that can take only one."""
        return handlers.substitute(_ArrayData(with_categories(DefaultKey(self.call))), substitute_fn=_resolve_delta)

    def _given(self, z: dict[str, Any], left_out: Sequence[str] = ()) -> Callable[..., Any]:
        """The model with z substituted, and without the laws of some sites."""
        substituted = handlers.substitute(self._resolved, data=z)
        return WithoutLaws(substituted, left_out) if left_out else substituted

    def _latent(self, x: dict, z: dict, values: dict, **options: Any) -> dict[str, Any]:
        """Values of the continuous sites."""
        return constrain_fn(self._given(z), (values,), {}, self.sites.fill_in(x), **options)

    @one_at_a_time
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


class _Probe:
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
            return bounds, observed, inside, {n: is_missing(seen[n]) for n in find_imputed(seen)}

        self.key = jax.eval_shape(lambda: jax.random.key(0))
        self.closed, self.shapes = jax.make_jaxpr(arrays, return_shape=True)(self.key, arguments.data)


@dataclass(frozen=True)
class _Sites:
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
    def found_by(probe: "_Probe", arguments: Arguments) -> "_Sites":
        """What a probe shows; what does not depend on its key, and so on no latent value, is known."""
        seen, continuous = probe.seen, dict(probe.continuous)
        is_known = [not used[0] for used in used_inputs(probe.closed)]
        known = evaluate(probe.closed, [probe.key, *jax.tree.leaves(arguments.data)], is_known)
        bounds, observed, inside, missing = jax.tree.unflatten(jax.tree.structure(probe.shapes), known)
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
        dims = _all_dims(seen)
        observed = {name: value for name, value in observed.items() if value is not None}
        for name, value in observed.items():
            check_data(name, seen[name]["fn"], value, inside[name])
        is_scaled = any(site.get("scale") is not None for site in seen.values() if _is_data(site))
        laws = {name: describe_law(site["fn"]) for name, site in seen.items() if site["type"] == "sample"}
        counts = tuple(n for n, site in discrete.items() if isinstance(site.support, Count) and is_normalised(seen[n]))
        return _Sites(
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
    first, last = (len(jax.tree.leaves(part)) for part in (shapes[0], shapes[-1]))
    used = used_inputs(closed)
    chosen = [*used[:first], *used[len(used) - last :]]
    return tuple(name for i, name in enumerate(names, start=1) if any(output[i] for output in chosen))


def _name(model: Any) -> str:
    while not hasattr(model, "__name__"):  # a handler or a partial around the model
        inner = getattr(model, "fn", None) or getattr(model, "func", None)
        if inner is None:
            return type(model).__name__
        model = inner
    return model.__name__


def _split(call: Callable[[dict], Any], arguments: dict[str, Any]) -> tuple[Arguments, _Probe]:
    """Split the arguments, with a probe of the model; say what is wrong with one that cannot be traced."""
    probes: dict[tuple[bool, ...], _Probe] = {}
    try:
        split = split_arguments(arguments, lambda split: probes.update({split.traced: _Probe(call, split)}))
        return split, probes[split.traced]
    except BY_VALUE as error:
        raise ModelError(
            f"the model asks{where_raised(error)} for the value of a latent site in Python code (`if z:`, `int(z)`, "
            "`table[z]` with a list or NumPy table, a NumPy function of it). Latent values are not known while the "
            f"model is traced: use jnp.where, lax.cond and jnp arrays. JAX says: {str(error).splitlines()[0]}"
        ) from error
    except SumoutError:
        raise
    except Exception as error:
        raise ModelError(describe_failure(error, arguments)) from error


@one_at_a_time
def _trace(call: Callable[[dict], Any], arguments: dict[str, Any], key: jax.Array) -> tuple[dict[str, dict], bool]:
    """One random run of the model, as NumPyro's trace of its sites, and whether it draws anything beside them."""
    model = DefaultKey(call)
    with validation_enabled():
        # Continuous sites are not drawn from their priors: an improper one has nothing to draw from.
        given = Keyed(UniqueNames(_ArrayData(with_categories(model))), key)
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


class _ArrayData(Messenger):
    """Observed values as JAX arrays, whatever they were given as."""

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["is_observed"] and not isinstance(msg["value"], jax.Array):
            msg["value"] = jnp.asarray(msg["value"])


def _resolve_delta(site: dict) -> Any:
    """The value of a latent that can take only one."""
    if site["type"] == "sample" and not site["is_observed"] and _is_delta(site["fn"]):
        return site["fn"].sample(None, site["kwargs"]["sample_shape"])
    return None


def _is_delta(fn: Any) -> bool:
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return isinstance(fn, Delta)


def _is_latent(site: dict) -> bool:
    return site["type"] == "sample" and not site["is_observed"] and not _is_delta(site["fn"])


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


def _all_dims(seen: dict[str, dict]) -> dict[str, tuple[str, ...]]:
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
