"""An unmodified NumPyro model → Program.

The model is run once with a traced key to see its sites; after that NumPyro's own `potential_energy` and
`constrain_fn` do the work, with z substituted, so that plates, scans, masks, scales and bijections mean exactly what
they mean in NumPyro.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sumout.errors import ModelError, OptionError, SumoutError
from sumout.jaxpr.equations import without_collection
from sumout.model.arguments import BY_VALUE, Arguments, never_read, split_arguments, watch_outside
from sumout.model.containers import first_that_works
from sumout.model.kin import Kin, kin_of
from sumout.model.numpyro_model import NumPyroModel
from sumout.model.numpyro_plates import AllRows, SomeRows
from sumout.model.numpyro_predict import NumPyroPredictor
from sumout.model.numpyro_probe import Probe, Sites, all_dims
from sumout.model.numpyro_sites import (
    find_forward,
)
from sumout.model.on_disk import Rows, is_on_disk
from sumout.model.program import Part, Program
from sumout.model.row_program import Attempt, Plate
from sumout.model.validation import (
    describe_failure,
    where_raised,
)

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
        sites = Sites.found_by(probe, arguments)

    def read_arguments(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return arguments.sort_out(convert(dict(signature.bind(*args, **kwargs).arguments)))

    made = NumPyroModel(call, arguments, sites)
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
            all_dims,
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


def _name(model: Any) -> str:
    while not hasattr(model, "__name__"):  # a handler or a partial around the model
        inner = getattr(model, "fn", None) or getattr(model, "func", None)
        if inner is None:
            return type(model).__name__
        model = inner
    return model.__name__


def _split(call: Callable[[dict], Any], arguments: dict[str, Any]) -> tuple[Arguments, Probe]:
    """Split the arguments, with a probe of the model; say what is wrong with one that cannot be traced."""
    probes: dict[tuple[bool, ...], Probe] = {}
    try:
        split = split_arguments(arguments, lambda split: probes.update({split.traced: Probe(call, split)}))
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
