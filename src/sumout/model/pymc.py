"""An unmodified PyMC model → Program.

PyMC's own graphs do the work: `model.logp` for the terms of the density, transforms and Jacobians included, and
`replace_rvs_by_values` for values and deterministics. They become JAX functions of value variables and of data
(`pymc_graphs.py`); what values a discrete law allows stands in `pymc_supports.py`.

Data are the shared variables of the graphs, `pm.Data` or not, and the arrays given as `observed`. Lengths of dimensions
are constants: another length is another program.

Two kinds of latents are not what they seem. A DiracDelta can take one value only, which is put in its place. Of a
vector of counts with one trial (Multinomial) the discrete site is the index of the one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from jaxtyping import Array
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import RandomType, random_generator_type
from pytensor.tensor.type import TensorType

from sumout.errors import ModelError, SumoutError
from sumout.jaxpr.equations import used_inputs
from sumout.jaxpr.numpy_evaluation import evaluate
from sumout.model.numpyro_sites import find_forward
from sumout.model.program import ContinuousSite, DiscreteSite, Program
from sumout.model.pymc_counts import PyMCCounts
from sumout.model.pymc_data import (
    Inputs,
    all_variables,
    by_values,
    labels_of,
    observed_variables,
    read_inputs,
    shared_variables,
    transforms_of,
)
from sumout.model.pymc_graphs import Function, make_function
from sumout.model.pymc_predict import PyMCPredictor
from sumout.model.pymc_rows import Cut, find_plates, refuse_cut, refuse_weighed
from sumout.model.pymc_supports import (
    ends,
    index_name,
    is_dirac,
    is_discrete,
    is_one_of_many,
    is_site,
    law_of,
    num_trials,
    refuse_law,
)
from sumout.model.row_program import Attempt, Plate
from sumout.model.supports import Count, Finite, Support, whole_numbers
from sumout.model.validation import first_line
from sumout.randomness import as_jax_key

Named = dict[str, Any]

# The program last made of a model, and of what: a second call compiles nothing. Gone with its model.
_KEPT: "WeakKeyDictionary[pm.Model, tuple[Any, Program]]" = WeakKeyDictionary()


def kept_program(model: pm.Model) -> Program:
    """The program of a PyMC model, the same one while neither the model nor its data have been changed."""
    now = _state_of(model)
    kept = _KEPT.get(model)
    if kept is None or not _is_same(kept[0], now):
        made = program(model)
        # With other data only, what was compiled for the last ones may serve.
        kept = _KEPT[model] = now, made if kept is None else replace(made, kin=kept[1].kin)
    return kept[1]


def _state_of(model: pm.Model) -> tuple[list[Any], list[np.ndarray]]:
    """All that a program is made of: variables of the model, and present values of what is shared."""
    variables = [*all_variables(model), *model.deterministics, *model.potentials]
    given = [value for value in model.rvs_to_initial_values.values() if value is not None]
    shared = [
        v for v in shared_variables([*variables, *model.rvs_to_values.values()]) if isinstance(v.type, TensorType)
    ]
    return [*variables, *model.rvs_to_values.values(), *given], [np.array(v.get_value()) for v in shared]


def _is_same(before: tuple[list[Any], list[np.ndarray]], now: tuple[list[Any], list[np.ndarray]]) -> bool:
    if len(before[0]) != len(now[0]) or len(before[1]) != len(now[1]):
        return False
    is_model = all(one is other for one, other in zip(before[0], now[0], strict=True))
    return is_model and all(
        one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        for one, other in zip(before[1], now[1], strict=True)
    )


def program(model: pm.Model) -> Program:
    """Make a program from a PyMC model; see `sumout.program`."""
    try:
        return _program(model)
    except SumoutError:
        raise
    except NotImplementedError as error:
        raise ModelError(f"PyMC knows no log density of a part of the model: {first_line(error)}") from error


def _program(model: pm.Model) -> Program:
    _refuse(model)
    return _make(model)[0]


def _make(model: pm.Model, cut: Cut | None = None) -> tuple[Program, Inputs]:
    """The program, or that of some rows of a dimension; and what its graphs are functions of."""
    latent = [rv for rv in model.free_RVs if not is_dirac(rv)]
    terms = [*latent, *observed_variables(model), *model.potentials]
    shown = [v for v in [*model.free_RVs, *model.deterministics] if not is_site(v)]
    inputs = read_inputs(model, {"terms": _log_terms(model, terms), "shown": by_values(model, shown)}, latent, cut)
    sites = _find_sites(model, inputs, latent)
    made = _Model(
        inputs=inputs,
        sites=sites,
        terms=tuple(v.name for v in terms),
        terms_without_jacobian=inputs.place(_log_terms(model, terms, jacobian=False)),
        shown=tuple(v.name for v in shown),
        is_checked=model.check_bounds,
    )
    forward, draw_forward = made.find_forward(model)
    observed = [rv.name for rv in observed_variables(model)]
    is_scaled = any("Minibatch" in type(rv.owner.op).__name__ for rv in observed_variables(model))
    observations = {rv.name: inputs.value_of(model.rvs_to_values[rv]) for rv in observed_variables(model)}
    plates = find_plates(model, terms, cut)
    cut_off = () if cut is None or cut.dim not in plates else plates[cut.dim].dims
    program = Program(
        x=sites.continuous,
        z=sites.discrete,
        data=inputs.data,
        log_joint=partial(made.log_joint_without, forward),
        constrain_named=made.constrain,
        log_likelihood_named=None if is_scaled else partial(made.log_terms, observed),
        log_joint_without_data=None if is_scaled else partial(made.log_joint_without, (*forward, *observed)),
        log_terms_named=partial(made.log_terms, made.terms),
        log_joint_without_jacobian=partial(made.log_joint_without, forward, is_jacobian=False),
        draw_forward_named=draw_forward,
        count_terms_named=None if is_scaled else made.find_counts(model, forward),
        forward=forward,
        observed=observations,
        constant=_constant_data(model),
        coords={dim: labels for dim, labels in labels_of(model).items() if cut is None or dim != cut.dim},
        order=tuple(v.name for v in [*model.free_RVs, *model.deterministics]),
        initial={name: value for name, value in _initial_values(model, sites).items() if name not in cut_off},
        laws={rv.name: law_of(rv) for rv in all_variables(model)},
        dims=_dims(model, sites),
        fixed=inputs.fixed,
        predictor=PyMCPredictor(ref(model), _dims(model, sites)),
        plates=plates,
        with_rows=None if cut is not None else partial(_with_rows, ref(model), plates),
        log_joint_left_out=made.log_joint_without,
        log_joint_left_out_without_jacobian=partial(made.log_joint_without, is_jacobian=False),
        name=model.name or "model",
    )
    return program, inputs


def _with_rows(
    model_of: Callable[[], pm.Model | None], plates: Mapping[str, Plate], dim: str, batch: int
) -> list[Attempt]:
    """The way to make a program of so many rows of a dimension."""

    def given_fewer() -> tuple[Program, Mapping[str, int], str | None]:
        model, cut = model_of(), Cut(dim, plates[dim].size, batch)
        if model is None:
            raise ModelError("minibatch: the PyMC model is gone: keep it while its program is in use.")
        refuse_weighed(model, dim)
        try:
            made, inputs = _make(model, cut)
        except Exception as error:  # whatever PyTensor says of graphs that do not fit together
            raise refuse_cut(cut, error) from error
        return made, inputs.row_axes, None

    return [given_fewer]


@dataclass(frozen=True, eq=False)
class _Model:
    """A PyMC model as functions of named value variables and of data.

    Attributes:
        inputs: what its graphs are functions of.
        sites: its latents.
        terms: names of all variables and potentials that have a log density.
        terms_without_jacobian: graphs of their log densities in the coordinates of the user.
        shown: names of what the user sees, but for discrete sites.
        is_checked: whether parameters are checked.
    """

    inputs: Inputs
    sites: "_Sites"
    terms: tuple[str, ...]
    terms_without_jacobian: list[Variable]
    shown: tuple[str, ...]
    is_checked: bool

    def _run(self, function: Function, x: Named, z: Named, data: Named) -> list[Any]:
        return function(*self.inputs.arguments(self.sites.values(x, z), data))

    @cached_property
    def _without_jacobian(self) -> Function:
        return make_function(self.inputs.variables, self.terms_without_jacobian, self.is_checked)

    def log_joint_without(
        self, left_out: Sequence[str], x: Named, z: Named, data: Named, is_jacobian: bool = True
    ) -> Any:
        """The log density without some of its terms."""
        function = self.inputs.functions["terms"] if is_jacobian else self._without_jacobian
        found = zip(self.terms, self._run(function, x, z, data), strict=True)
        return sum((jnp.sum(jnp.asarray(term, float)) for name, term in found if name not in left_out), start=0.0)

    def log_terms(self, names: Sequence[str], x: Named, z: Named, data: Named) -> dict[str, Array]:
        """Some of the terms."""
        found = dict(zip(self.terms, self._run(self.inputs.functions["terms"], x, z, data), strict=True))
        return {name: jnp.asarray(found[name], float) for name in names}

    def constrain(self, x: Named, z: Named, data: Named) -> dict[str, Array]:
        """What the user sees of x, and the deterministics."""
        found = self._run(self.inputs.functions["shown"], x, z, data)
        return {name: jnp.asarray(value) for name, value in zip(self.shown, found, strict=True)}

    def find_forward(self, model: pm.Model) -> tuple[tuple[str, ...], Callable[..., Named] | None]:
        """Counts that only their own law depends on, and how they are drawn given all else.

        Deterministics may depend on them: these are computed afterwards.
        """
        rvs = {rv.name: rv for rv in model.free_RVs}
        counts = [name for name, site in self.sites.discrete.items() if isinstance(site.support, Count)]
        counts = [name for name in counts if self._draw(model, [rvs[name]]) is not None]
        without, sites = self.log_joint_without, self.sites
        names = find_forward(counts, without, sites.continuous, sites.discrete, self.inputs.data)
        return names, self._draw(model, [rvs[name] for name in names]) if names else None

    def find_counts(self, model: pm.Model, forward: Sequence[str]) -> PyMCCounts | None:
        """What is known of the laws for sums over counts; None where no count is part of the density."""
        sites = self.sites.discrete.items()
        counts = [name for name, site in sites if isinstance(site.support, Count) and name not in forward]
        if not counts:
            return None
        laws = {rv.name: rv for rv in all_variables(model) if rv.name in self.terms and rv.name not in forward}
        return PyMCCounts(model, self.inputs, self.sites.values, counts, laws, partial(self._plain_terms, forward))

    def _plain_terms(self, left_out: Sequence[str], x: Named, z: Named, data: Named) -> dict[str, Array]:
        """The terms but for some, in the coordinates of the user."""
        found = zip(self.terms, self._run(self._without_jacobian, x, z, data), strict=True)
        return {name: jnp.asarray(term, float) for name, term in found if name not in left_out}

    def _draw(self, model: pm.Model, drawn: list[Any]) -> Callable[..., Named] | None:
        """A function that draws some variables given all others; None where PyTensor cannot do so by JAX."""
        names = [rv.name for rv in drawn]
        given = {rv: value for rv, value in model.rvs_to_values.items() if rv.name not in names}
        graphs = replace_rvs_by_values(drawn, rvs_to_values=given, rvs_to_transforms=transforms_of(model))
        generators = {v: random_generator_type() for v in shared_variables(graphs) if isinstance(v.type, RandomType)}
        placed = self.inputs.place(graphs, generators)
        try:
            run = make_function([*generators.values(), *self.inputs.variables], placed)

            def draw(key: Array, x: Named, z: Named, data: Named) -> Named:
                keys = jax.random.split(as_jax_key(key), len(generators))
                states = [{"jax_state": jax.random.key_data(keys[i])} for i in range(len(generators))]
                found = run(*states, *self.inputs.arguments(self.sites.values(x, z), data))
                return {name: jnp.asarray(v, z[name].dtype) for name, v in zip(names, found, strict=True)}

            x, z = self.sites.zeros()
            jax.eval_shape(draw, jax.ShapeDtypeStruct((2,), np.uint32), x, z, self.inputs.data)
        except (ModelError, NotImplementedError, TypeError, ValueError):
            return None
        return draw


@dataclass(frozen=True)
class _Sites:
    """The latents of a model.

    Attributes:
        continuous: those of x.
        discrete: those of z.
        one_of: of the discrete sites that are an index, the vector of which it is, and how long that is.
    """

    continuous: dict[str, ContinuousSite]
    discrete: dict[str, DiscreteSite]
    one_of: dict[str, tuple[str, int]]

    def values(self, x: Named, z: Named) -> Named:
        """The value variables, by the names of their latents."""
        found = {**x, **z}
        for index, (name, length) in self.one_of.items():
            found[name] = (found.pop(index)[..., None] == np.arange(length)).astype(int)
        return found

    def zeros(self) -> tuple[Named, Named]:
        """Some x and z, for tracing."""
        x = {name: np.zeros(site.unconstrained_shape) for name, site in self.continuous.items()}
        return x, {name: np.zeros(site.shape, site.dtype) for name, site in self.discrete.items()}


def _refuse(model: pm.Model) -> None:
    """Refuse what cannot work, before anything is computed."""
    for variable in [*all_variables(model), *model.deterministics]:
        if variable.name in ("chain", "draw"):
            raise ModelError(f"'{variable.name}': results use this name for their own dimension; choose another one.")
        if "/" in variable.name:
            raise ModelError(f"'{variable.name}': a name cannot contain '/', which separates the groups of a result.")
    for rv in all_variables(model):
        refuse_law(rv.name, rv, is_latent=rv in model.free_RVs)
    if not any(is_discrete(rv) and not is_dirac(rv) for rv in model.free_RVs):
        raise ModelError(
            "the model has no discrete latent variable, so there is nothing to sum out "
            f"(its latents: {', '.join(rv.name for rv in model.free_RVs) or 'none'}). Run pm.sample on it."
        )


def _log_terms(model: pm.Model, variables: Sequence[Any], jacobian: bool = True) -> list[Any]:
    """The log densities of variables, then of potentials, element by element."""
    laws = [v for v in variables if v not in model.potentials]
    densities = transformed_conditional_logp(
        laws, rvs_to_values=model.rvs_to_values, rvs_to_transforms=transforms_of(model), jacobian=jacobian
    )
    return [*densities, *by_values(model, [v for v in variables if v in model.potentials])]


def _find_sites(model: pm.Model, inputs: Inputs, latent: Sequence[Any]) -> _Sites:
    shapes = inputs.shapes
    supports = _find_supports(model, inputs, [rv for rv in latent if is_discrete(rv)])
    continuous, discrete, one_of = {}, {}, {}
    for rv in latent:
        shape, unconstrained = shapes[rv.name]
        if rv.name not in supports:
            is_real = transforms_of(model)[rv] is None
            continuous[rv.name] = ContinuousSite(shape, unconstrained, is_real)
        elif is_one_of_many(rv):
            index = index_name(rv)
            if index in model.named_vars:
                raise ModelError(f"'{index}' is the index of the one in '{rv.name}': give your variable another name.")
            discrete[index], one_of[index] = DiscreteSite(supports[rv.name]), (rv.name, shape[-1])
        else:
            discrete[rv.name] = DiscreteSite(supports[rv.name])
    return _Sites(continuous, discrete, one_of)


def _find_supports(model: pm.Model, inputs: Inputs, rvs: Sequence[Any]) -> dict[str, Support]:
    """The supports of discrete variables, from the ends of their laws as far as these do not depend on latents."""
    graphs = {}
    for rv in rvs:
        try:
            graphs[rv.name] = (num_trials(rv),) * 2 if is_one_of_many(rv) else ends(rv)
        except KeyError as error:
            raise ModelError(
                f"discrete latent '{rv.name}' has the law {error.args[0]}, of which sumout does not know what values "
                "it allows. Write it by PyMC's own discrete laws (also in a pm.CustomDist with `dist=`)."
            ) from error
    flat = [pt.as_tensor(end).astype("float64") for both in graphs.values() for end in both]
    placed = inputs.place(by_values(model, flat))
    with jax.enable_x64(True):  # ends are whole numbers of any size
        run = make_function(inputs.variables, placed)
        values = {v.name: jax.ShapeDtypeStruct(v.type.shape, v.type.dtype) for v in inputs.values}
        data = {name: np.asarray(array) for name, array in inputs.data.items()}
        closed = jax.make_jaxpr(lambda values, data: run(*inputs.arguments(values, data)))(values, data)
        is_known = [not any(used[: len(values)]) for used in used_inputs(closed)]
        found = evaluate(closed, [*jax.tree.leaves(values), *jax.tree.leaves(data)], is_known)
    pairs = zip(found[::2], found[1::2], strict=True)
    return {rv.name: _support(rv, inputs.shapes[rv.name][0], *pair) for rv, pair in zip(rvs, pairs, strict=True)}


def _support(rv: Any, shape: tuple[int, ...], lower: np.ndarray | None, upper: np.ndarray | None) -> Support:
    if is_one_of_many(rv):
        if lower is None or np.any(np.asarray(lower) != 1):
            raise ModelError(
                f"discrete latent '{rv.name}' ({law_of(rv)}) is a vector of counts of more than one trial, whose "
                "values sumout cannot list. With n=1 it can; more trials can be as many Categorical latents."
            )
        return Finite(np.arange(shape[-1]), shape[:-1])
    lower, upper = (None if end is None else np.broadcast_to(end, shape) for end in (lower, upper))
    for end in (lower, upper):
        if end is not None and np.any(np.isfinite(end) & (end != np.round(end))):
            raise ModelError(f"discrete latent '{rv.name}': {law_of(rv)} is cut at {end.ravel()[0]}, no whole number.")
    if lower is not None and np.isneginf(lower).any():
        raise ModelError(f"discrete latent '{rv.name}' ({law_of(rv)}) has no lowest value; bound it from below.")
    is_bounded = upper is not None and np.isfinite(upper).all()
    if is_bounded and lower is not None and np.any(upper < lower):
        raise ModelError(f"discrete latent '{rv.name}' ({law_of(rv)}) has no value: its support ends before it begins.")
    return whole_numbers(rv.name, shape, lower, upper if is_bounded else None)


def _initial_values(model: pm.Model, sites: _Sites) -> dict[str, np.ndarray]:
    """The values that the user has given to start from, on the real line."""
    given = {rv for rv, value in model.rvs_to_initial_values.items() if value is not None and not value_is_prior(value)}
    if not given:
        return {}
    point = model.initial_point(0)
    found = {rv.name: np.asarray(point[model.rvs_to_values[rv].name]) for rv in given if not is_dirac(rv)}
    for index, (name, _) in sites.one_of.items():
        if name in found:
            found[index] = found.pop(name).argmax(axis=-1)
    return found


def value_is_prior(value: Any) -> bool:
    """Whether an initial value is to be drawn, as all are that are not given."""
    return isinstance(value, str) and value == "prior"


def _constant_data(model: pm.Model) -> dict[str, np.ndarray]:
    """The `pm.Data` that are not observations, as PyMC has them in its results."""
    observations = {model.rvs_to_values[rv] for rv in observed_variables(model)}
    return {v.name: np.asarray(v.get_value()) for v in model.data_vars if v not in observations}


def _dims(model: pm.Model, sites: _Sites) -> dict[str, tuple[str, ...]]:
    """Names of dimensions; ArviZ's for those without."""
    found = {}
    for name, dims in model.named_vars_to_dims.items():
        found[name] = tuple(f"{name}_dim_{i}" if dim is None else dim for i, dim in enumerate(dims))
    for index, (name, _) in sites.one_of.items():
        if name in found:
            found[index] = found[name][:-1]
    return found
