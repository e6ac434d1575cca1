"""A plain JAX function `log_density(x, z, data)` → Program: the paper's own style of program."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import biject_to
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import IdentityTransform, IndependentTransform

from sumout.calls import public
from sumout.errors import ModelError, OptionError, SumoutError
from sumout.jaxpr.equations import without_collection
from sumout.model.arguments import BY_VALUE, Arguments, split_arguments, watch_outside
from sumout.model.containers import first_that_works
from sumout.model.kin import kin_of
from sumout.model.on_disk import Rows, is_on_disk
from sumout.model.program import ContinuousSite, DiscreteSite, Program
from sumout.model.row_program import Attempt, Plate
from sumout.model.supports import Count, Finite, Implicit, ImplicitSpec, Support, as_shape
from sumout.model.validation import first_line, one_at_a_time


def is_identity(bijection: Any) -> bool:
    """Whether a variable is on the real line already."""
    while isinstance(bijection, IndependentTransform):
        bijection = bijection.base_transform
    return isinstance(bijection, IdentityTransform)


@public
def density(
    log_density: Callable[[dict[str, Array], dict[str, Array], Any], Array],
    *,
    x: Mapping[str, Any],
    z: Mapping[str, Support | ImplicitSpec],
    data: Any = None,
    rows: Mapping[str, str] | None = None,
) -> Program:
    """Make a program from a plain JAX function, with its discrete variables left in.

    The function sees x as the user knows it (a probability in (0, 1), a positive scale); sumout moves it to the real
    line and adds the Jacobian.

    Args:
        log_density: `log_density(x, z, data) -> scalar`, x and z dicts of named arrays. Priors belong in it.
        x: for each continuous name a NumPyro constraint and a shape, `(constraint, shape)`.
        z: for each discrete name a support: `sumout.finite`, `sumout.count` or `sumout.implicit`. May be empty: a
            density marginalised by hand is sampled too.
        data: any pytree of arrays; given to the function as its third argument.
        rows: which arrays of the data (by their names in `program.data`) and which discrete variables have a row for
            each of many independent units along their first axis, and what to call these: `{"y": "n", "z": "n"}`. For
            `minibatch=` of `sumout.sample`; then the function must take any number of rows.

    Example:
        >>> import jax.numpy as jnp, sumout
        >>> from numpyro.distributions import Bernoulli, constraints
        >>> def survey(x, z, y):
        ...     honest = Bernoulli(x["theta"]).log_prob(y)
        ...     random = Bernoulli(0.5).log_prob(y)
        ...     return jnp.where(z["coin"], honest, random).sum()
        >>> y = jnp.array([1, 0, 1, 1])
        >>> program = sumout.density(
        ...     survey,
        ...     x={"theta": (constraints.unit_interval, ())},
        ...     z={"coin": sumout.finite([False, True], shape=(4,))},
        ...     data=y,
        ... )
        >>> sumout.read(program).num_sites
        4
    """
    if is_on_disk(data):
        return _on_disk(log_density, x, z, data, rows or {})
    if not callable(log_density):
        raise OptionError(f"density: expected a function log_density(x, z, data), got {type(log_density).__name__}.")
    for given, option in ((x, "x"), (z, "z")):
        if not isinstance(given, Mapping):
            raise OptionError(f"density: {option} must be a dict from names to specifications, got {given!r}.")
    bijections, continuous = {}, {}
    for name, spec in x.items():
        bijections[name], continuous[name] = _continuous_site(name, spec)
    shared = sorted(set(x) & set(z))
    if shared:
        raise ModelError(f"density: '{shared[0]}' is named both in x and in z; give each variable one name.")
    discrete = {name: DiscreteSite(_support(name, support, data)) for name, support in z.items()}

    def constrained(x: dict[str, Array]) -> dict[str, Array]:
        return {name: bijection(x[name]) for name, bijection in bijections.items()}

    @one_at_a_time
    def abstract_call(data):
        return log_density(
            {name: jnp.zeros(site.shape) for name, site in continuous.items()},
            {name: jnp.zeros(site.shape, site.dtype) for name, site in discrete.items()},
            data,
        )

    _, arguments = first_that_works(data, lambda data: _trace_arguments(abstract_call, data, continuous, discrete))

    @one_at_a_time
    def log_joint_without_jacobian(x, z, data):
        return jnp.asarray(log_density(constrained(x), z, arguments.rebuild(data)), float)

    @one_at_a_time
    def log_joint(x, z, data):
        values = constrained(x)
        jacobian = sum(
            (jnp.sum(b.log_abs_det_jacobian(x[name], values[name])) for name, b in bijections.items()), start=0.0
        )
        return jnp.asarray(log_density(values, z, arguments.rebuild(data)), float) + jacobian

    @one_at_a_time
    def constrain_named(x, z, data):
        del z, data
        return constrained(x)

    plates = _plates(rows or {}, arguments, discrete)

    def without_rows(left_out, z, data):
        gone = {name for name, plate in (rows or {}).items() if _sum_over(plate) in left_out}
        return tuple({n: a[:0] if n in gone else a for n, a in named.items()} for named in (z, data))

    def with_rows(plate: str, batch: int) -> list[Attempt]:
        axes = {path: 0 for path in arguments.data if (rows or {}).get(path) == plate}
        fewer = {n: _with_fewer(n, s, batch) if (rows or {}).get(n) == plate else s for n, s in z.items()}
        given = arguments.first_along(axes, batch)
        return [lambda: (density(log_density, x=x, z=fewer, data=given, rows=rows), axes, None)]

    return Program(
        x=continuous,
        z={name: _sampling_from(site, arguments) for name, site in discrete.items()},
        data=arguments.data,
        log_joint=log_joint,
        constrain_named=constrain_named,
        log_joint_without_jacobian=log_joint_without_jacobian,
        observed={path or "data": np.asarray(leaf) for path, leaf in arguments.data.items()},
        fixed=arguments.fixed,
        with_arrays=lambda arrays: density(log_density, x=x, z=z, data=arguments.with_arrays(arrays), rows=rows),
        plates=plates,
        with_rows=with_rows,
        log_joint_left_out=lambda out, x, z, data: log_joint(x, *without_rows(out, z, data)),
        log_joint_left_out_without_jacobian=lambda out, x, z, data: log_joint_without_jacobian(
            x, *without_rows(out, z, data)
        ),
        kin=kin_of(log_density),
        changed_outside=watch_outside(log_density),
        name=getattr(log_density, "__name__", "density"),
    )


def _on_disk(
    log_density: Callable[..., Array], x: Mapping[str, Any], z: Mapping[str, Any], data: Any, names: Mapping[str, str]
) -> Program:
    """The program of rows that are on the disk, from that of a few."""
    rows = Rows.among(data, names.__contains__)
    left = [path for path in rows.axes if path not in names]
    if left or len(set(names.values())) != 1:
        seen = (
            f"'{left[0]}' is on the disk, but not in rows" if left else f"rows names {len(set(names.values()))} kinds"
        )
        raise OptionError(f'density: {seen}: say by rows={{"{left[0] if left else "y"}": "n", …}} what has rows.')

    def given(num: int) -> Program:
        fewer = {n: _with_fewer(n, support, num) if n in names else support for n, support in z.items()}
        return density(log_density, x=x, z=fewer, data=rows.first(num), rows=names)

    with_rows = lambda plate, batch: [lambda: (given(batch), rows.axes, None)]  # noqa: E731
    return rows.program(given(rows.window), with_rows, list(names.values()))


def _plates(rows: Mapping[str, str], arguments: Arguments, discrete: dict[str, DiscreteSite]) -> dict[str, Plate]:
    """The plates that rows are declared for."""
    if not isinstance(rows, Mapping):
        raise OptionError(f'density: rows={rows!r} must be a dict from names to the name of the rows, {{"y": "n"}}.')
    shapes = {name: np.shape(array) for name, array in arguments.data.items()}
    shapes |= {name: site.support.shape for name, site in discrete.items()}
    sizes: dict[str, dict[str, int]] = {}
    for name, plate in rows.items():
        if not shapes.get(name):
            known = ", ".join(name for name, shape in shapes.items() if shape)
            raise OptionError(f"density: rows names '{name}', which is no array; those with a first axis: {known}.")
        sizes.setdefault(plate, {})[name] = shapes[name][0]
    for plate, found in sizes.items():
        if len(set(found.values())) > 1:
            seen = ", ".join(f"'{name}' has {size}" for name, size in found.items())
            raise ModelError(f"density: the rows of '{plate}' are not as many everywhere: {seen}.")
    dims = {plate: {n: -len(shapes[n]) for n in found if n in discrete} for plate, found in sizes.items()}
    return {
        plate: Plate(next(iter(found.values())), None, dims[plate] | {_sum_over(plate): 0})
        for plate, found in sizes.items()
    }


def _sum_over(plate: str) -> str:
    """What to call the one term that the rows of a plate have."""
    return f"the sum over '{plate}'"


def _with_fewer(name: str, support: Any, num: int) -> Any:
    """A support of fewer rows."""
    if isinstance(support, Implicit | ImplicitSpec) or (isinstance(support, Finite) and support.values.ndim > 1):
        raise ModelError(
            f"minibatch: the values of z['{name}'] differ from row to row, or are known by a sampler only, so that the "
            "program of other rows is another one. Give all rows the same values, or sample without minibatch."
        )
    return replace(support, shape=(num, *support.shape[1:]))


def _continuous_site(name: str, spec: Any) -> tuple[Any, ContinuousSite]:
    constraint, shape = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, ())
    if not isinstance(constraint, Constraint):
        raise ModelError(
            f"x['{name}'] = {spec!r}: expected (constraint, shape) with a constraint from "
            "numpyro.distributions.constraints, for example (constraints.positive, (3,))."
        )
    if constraint.is_discrete:
        raise ModelError(
            f"x['{name}'] has a discrete constraint; put '{name}' into z, for example as sumout.finite(k)."
        )
    shape = as_shape(shape)
    try:
        bijection = biject_to(constraint)
        unconstrained = bijection.inverse_shape(shape)
    except (NotImplementedError, ValueError, IndexError) as error:
        raise ModelError(
            f"x['{name}']: {constraint} with shape {shape} has no map to the real line: {error}"
        ) from error
    return bijection, ContinuousSite(shape, tuple(unconstrained), is_identity(bijection))


def _support(name: str, support: Any, data: Any) -> Support:
    if isinstance(support, ImplicitSpec):
        return support.resolve(data)
    if isinstance(support, Finite):
        _check_precision(name, support)
    if isinstance(support, Finite | Count | Implicit):
        return support
    raise ModelError(
        f"z['{name}'] = {support!r} is not a support sumout knows; "
        "use sumout.finite(k or values, shape=), sumout.count(shape=) or sumout.implicit(sampler, shape=)."
    )


def _check_precision(name: str, support: Finite) -> None:
    """Values must stay apart in the precision that JAX computes in."""
    kept = jax.dtypes.canonicalize_dtype(support.dtype)
    values = np.asarray(support.values).astype(kept)
    is_whole = support.dtype.kind in "iu" and (values != support.values).any()
    if is_whole or any(len(np.unique(row)) < support.num_values for row in np.atleast_2d(values)):
        raise ModelError(
            f"z['{name}'] = {support}: not all of its values ({support.dtype}) can be told apart as {kept}, in which "
            'JAX computes now: call jax.config.update("jax_enable_x64", True) first, or rescale the values.'
        )


def _sampling_from(site: DiscreteSite, arguments: Arguments) -> DiscreteSite:
    """The site, with its sampler (if it has one) reading the user's data from the program's."""
    if not isinstance(site.support, Implicit):
        return site
    sample = site.support.sample
    return DiscreteSite(replace(site.support, sample=lambda key, data: sample(key, arguments.rebuild(data))))


def _trace_arguments(
    call: Callable[[Any], Any], data: Any, continuous: dict[str, ContinuousSite], discrete: dict[str, DiscreteSite]
) -> Arguments:
    """Trace the function once; say what is wrong if that fails or if it does not return a real scalar."""
    shapes = ", ".join(f"{name} {site.shape}" for name, site in {**continuous, **discrete}.items())
    try:
        found: dict[tuple[bool, ...], Any] = {}

        def trace(split: Arguments) -> None:
            found[split.traced] = jax.eval_shape(lambda data: call(split.rebuild(data)), split.data)

        with without_collection():
            arguments = split_arguments(data, trace)
        out = found[arguments.traced]
    except KeyError as error:
        raise ModelError(f"the log density asks for {error}, but the variables are {shapes}.") from error
    except BY_VALUE as error:
        raise ModelError(
            "the log density asks for the value of x or z in Python code (`if z:`, `int(z)`, a NumPy function). These "
            f"are not known while it is traced: use jnp.where, lax.cond and jnp functions. JAX says: "
            f"{str(error).splitlines()[0]}"
        ) from error
    except SumoutError:
        raise
    except Exception as error:
        raise ModelError(
            f"the log density cannot be evaluated with variables of shape {shapes}: {first_line(error)}"
        ) from error
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise ModelError(f"the log density should return one number, but it returns {type(out).__name__}.")
    if out.shape != ():
        raise ModelError(f"the log density should be a scalar, but its shape is {out.shape}: sum over its elements.")
    if not (jnp.issubdtype(out.dtype, jnp.floating) or jnp.issubdtype(out.dtype, jnp.integer)):
        raise ModelError(f"the log density should be a real number, but its type is {out.dtype}.")
    return arguments
