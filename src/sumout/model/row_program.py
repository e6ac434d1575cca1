"""A program of some rows of a plate, taken apart into what all rows share and what is theirs.

    log p(x, y) = G(x) + Σ_rows ℓ_i(x),        ℓ_i(x) = log Σ_z p(y_i, z_i | x)

Rows are independent given x, so that a program of B rows has the log density G(x) + Σ of B of the ℓ_i. N/B times the
second part estimates the sum over all rows without bias, if rows are drawn at random; G is not weighed. What makes rows
depend on each other is refused here as far as terms and arrays tell, by name, and by comparing the terms of a row with
those that it has among all rows; which elements of z meet in a factor is looked at later (`plan/minibatch_target.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.errors import ModelError, OptionError
from sumout.jaxpr.equations import used_inputs
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z, guess_x, guess_z, value_number
from sumout.model.program import Data, Program
from sumout.model.supports import Finite, Implicit

TOLERANCE = 1e-3  # of single precision, relative, in terms that should be equal; a hundredth of a millionth in double


@dataclass(frozen=True)
class Plate:
    """Rows that are independent given what is outside.

    Attributes:
        size: how many there are.
        subsample_size: how many the model itself asks for; None for all.
        dims: for each term, and each discrete site, inside: along which axis of batches its rows lie, from the end.
        values: names of the deterministics inside.
        events: of discrete sites whose elements are arrays (a chain), how many axes these have.
    """

    size: int
    subsample_size: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RowProgram:
    """A program of so many rows of a plate.

    Attributes:
        plate: name of the plate.
        size: rows of the plate.
        batch: rows of the program.
        program: of these rows, each counted once.
        shared: of the terms outside the plate, as a program of x and of the discrete sites outside.
        axes: of the arrays in the data of the program that hold rows, along which axis; the row numbers have none.
        index: name of the array in the data that row numbers go to, where the model picks its rows itself.
        site_axes: of the discrete sites inside, along which axis rows lie.
        kept: names of the values that belong to no row.
        all_rows: the data of the whole program.
    """

    plate: str
    size: int
    batch: int
    program: Program
    shared: Program
    axes: Mapping[str, int]
    index: str | None
    site_axes: Mapping[str, int]
    kept: tuple[str, ...]
    all_rows: Data = field(repr=False)

    def take(self, arrays: Data, index: Array) -> Data:
        """The data of the program with the rows of these numbers; `arrays` are those of all rows, or of some."""
        rows = {name: jnp.take(arrays[name], index, axis=axis, mode="clip") for name, axis in self.axes.items()}
        return {**arrays, **rows, **({} if self.index is None else {self.index: index})}

    def num_held(self, arrays: Data) -> int:
        """How many rows are in these arrays: all, but where the others are on the disk."""
        return next((arrays[name].shape[axis] for name, axis in self.axes.items()), self.size)


# A front end makes a program of so many rows, in ways that it knows; each either works or raises.
Attempt = Callable[[], tuple[Program, Mapping[str, int], str | None]]


def take_rows(program: Program, plate: str, batch: int) -> RowProgram:
    """The program of so many rows of a plate, after a look at whether its rows are independent.

    Args:
        program: of all rows.
        plate: name of the plate.
        batch: rows.
    """
    check_rows(program, plate, batch)
    label = ("rows", plate, int(batch))
    return program.remember(label, lambda: _take_rows(program, plate, int(batch)))


def check_rows(program: Program, plate: str, batch: Any) -> None:
    """Refuse a plate that is not there, and a number of rows that cannot be."""
    if plate not in program.plates:
        names = ", ".join(f"'{name}'" for name in program.plates) or "none"
        raise OptionError(
            f"minibatch: '{program.name}' has no plate '{plate}'; its plates: {names}. A NumPyro model marks its "
            'rows by `with numpyro.plate("n", N):`, a PyMC model by `dims="n"`, a plain density by `rows=`.'
        )
    size = program.plates[plate].size
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or not batch >= 1:
        raise OptionError(f"minibatch: {batch!r} rows of '{plate}': give a whole number of at least 1.")
    if batch >= size:
        raise OptionError(
            f"minibatch: {batch} rows of plate '{plate}', which has {size}: give fewer, or leave minibatch out, as all "
            "rows make the exact gradient."
        )


def _take_rows(program: Program, plate: str, batch: int) -> RowProgram:
    assert program.with_rows is not None
    first: ModelError | None = None
    for attempt in program.with_rows(plate, batch):
        try:
            made = _take_apart(program, plate, batch, *attempt())
            _compare(program.few or program, made)
            return made
        except ModelError as error:
            first = first or error
    raise first or ModelError(
        f"minibatch: no array among the arguments of '{program.name}' has {program.plates[plate].size} rows, as plate "
        f"'{plate}' has: pass the data as arguments of the model, or let the model pick them itself: "
        f'`with numpyro.plate("{plate}", N, subsample_size=B) as rows: … obs=y[rows]`.'
    )


def _take_apart(
    program: Program, plate: str, batch: int, small: Program, axes: Mapping[str, int], index: str | None
) -> RowProgram:
    """Split the terms by plate; refuse what joins rows."""
    found = small.plates.get(plate)
    if found is None or found.size != batch:
        seen = "none" if found is None else str(found.size)
        raise ModelError(
            f"minibatch: with arrays of {batch} rows plate '{plate}' has {seen}: its size must follow from the arrays."
        )
    inside = set(found.dims)
    own = [name for name in small.x if name in inside]
    if own:
        raise ModelError(
            f"minibatch: the continuous site '{own[0]}' is inside plate '{plate}': every row has one of its own, which "
            "only its own row can move. Take it out of the plate, or sum over it by hand."
        )
    by_value = [name for name in (*small.by_value, *small.fixed) if name in axes]
    if by_value:
        raise ModelError(
            f"minibatch: supports, shapes or Python code follow from the values of '{by_value[0]}', which has the rows "
            f"of plate '{plate}': so the program of other rows is another one. Pass what follows from it as an array "
            "of its own, or give all rows one support."
        )
    unknown = [name for name, site in small.z.items() if isinstance(site.support, Implicit)]
    if unknown:
        raise ModelError(
            f"minibatch: '{unknown[0]}' is known by its sampler only, so that it cannot be summed out of a row. Sample "
            "without minibatch."
        )
    kept = _refuse_crossing(small, plate, inside, set(axes) | ({index} if index else set()))
    local_z = {name: value for name, value in any_z(small).items() if name in inside}
    without = (*small.forward, *sorted(inside))

    def shared(fn: Any) -> Any:
        return lambda x, z, data: fn(without, x, {**local_z, **z}, data)

    def constrain(x: Any, z: Any, data: Data) -> dict[str, Array]:
        values = small.constrain_named(x, {**local_z, **z}, data)
        return {name: value for name, value in values.items() if name in kept}

    assert small.log_joint_left_out is not None
    outside = replace(
        small,
        z={name: site for name, site in small.z.items() if name not in inside},
        log_joint=shared(small.log_joint_left_out),
        log_joint_without_jacobian=None
        if small.log_joint_left_out_without_jacobian is None
        else shared(small.log_joint_left_out_without_jacobian),
        constrain_named=constrain,
        **dict.fromkeys(("log_likelihood_named", "log_joint_without_data", "log_terms_named"), None),
        **dict.fromkeys(("draw_forward_named", "count_terms_named", "with_arrays", "with_rows", "predictor"), None),
        forward=(),
        observed={},
        constant={},
        order=tuple(name for name in small.order if name in kept),
    )
    events = {name: len(site.event_shape) + found.events.get(name, 0) for name, site in small.z.items()}
    ndim = {name: len(site.shape) - events[name] for name, site in small.z.items()}
    site_axes = {name: ndim[name] + dim for name, dim in found.dims.items() if name in ndim}
    hidden = tuple(name for name in small.data if name in axes or name == index)
    return RowProgram(
        plate, program.plates[plate].size, batch, replace(small, free=hidden), outside, dict(axes), index, site_axes,
        tuple(kept), dict(program.data),
    )  # fmt: skip


def _refuse_crossing(small: Program, plate: str, inside: set[str], of_rows: set[str]) -> list[str]:
    """Refuse terms that join rows, or rows and what is outside; returns the values that belong to no row."""
    if small.log_terms_named is None:  # a plain density, looked at by `_compare_sums`
        return list(small.x)

    def everything(x: Array, z: Any, data: Data) -> Any:
        return small.log_terms(x, z, data), small.constrain(x, z, data)

    x, z, data = small.abstract_arguments()
    closed, (terms, values) = jax.make_jaxpr(everything, return_shape=True)(x, z, data)
    inputs = ["x", *(f"site '{name}'" for name in sorted(z)), *(f"array '{name}'" for name in sorted(data))]
    local = {f"site '{name}'" for name in z if name in inside} | {f"array '{name}'" for name in of_rows}
    shared = {f"site '{name}'" for name in z if name not in inside}
    kept = []
    results = [*((name, True) for name in sorted(terms)), *((name, False) for name in sorted(values))]
    for (name, is_term), used in zip(results, used_inputs(closed), strict=True):
        uses = {one for one, is_used in zip(inputs, used, strict=True) if is_used}
        if is_term and name in inside and uses & shared:
            raise ModelError(
                f"minibatch: '{name}', inside plate '{plate}', depends on the discrete {sorted(uses & shared)[0]}, "
                "which is outside: a sum over that joins all rows, so that no few of them tell its gradient. Put it "
                "inside the plate, or sample without minibatch."
            )
        if is_term and name not in inside and uses & local:
            raise ModelError(
                f"minibatch: '{name}' is outside plate '{plate}', but depends on {sorted(uses & local)[0]}, which has "
                "a value for every row: it joins the rows. Put it inside the plate, or sample without minibatch."
            )
        if not is_term and not uses & (local | shared) and name not in small.plates[plate].values:
            kept.append(name)
    return kept


def _compare(program: Program, made: RowProgram) -> None:
    """The terms of some rows must be those that the same rows have among all, and all other terms the same.

    So it is seen where a model looks at other rows (their mean, the row before) or at how many there are.
    """
    rng = np.random.default_rng(0)
    if program.log_terms_named is None:
        _compare_sums(program, made, rng)
        return
    small, inside = made.program, program.plates[made.plate].dims
    size = program.plates[made.plate].size
    index = rng.permutation(size)[: made.batch] if made.batch <= size < 10**6 else rng.integers(0, size, made.batch)
    x = guess_x(rng, program, 1)[0]
    all_z = {name: value[0] for name, value in guess_z(rng, program, 1).items()}
    axes = made.site_axes
    z = {name: np.take(all_z[name], index, axes[name]) if name in axes else all_z[name] for name in small.z}
    data = jax.jit(made.take)(as_jax(program.data), as_jax(index.astype(np.int32)))
    some = jax.jit(small.log_terms)(*as_jax((x, z)), data)

    def of_rows(x: Array, z: Any, data: Data, index: Array) -> dict[str, Array]:
        terms = program.log_terms(x, z, data)
        return {n: jnp.take(t, index, t.ndim + inside[n]) if n in inside else t for n, t in terms.items()}

    whole = jax.jit(of_rows)(*as_jax((x, all_z)), as_jax(program.data), as_jax(index.astype(np.int32)))
    for name, term in whole.items():
        one, other = np.asarray(some[name]), np.asarray(term)
        tolerance = TOLERANCE if one.dtype == np.float32 else 1e-5 * TOLERANCE
        is_same = one.shape == other.shape and np.allclose(one, other, tolerance, tolerance, equal_nan=True)
        if not is_same:
            raise ModelError(
                f"minibatch: the term '{name}' of a program of {made.batch} rows of plate '{made.plate}' is not what "
                f"it is in that of all {size}: it depends on other rows (their mean, the one before), on how many "
                "there are, or an array of as many elements has other rows. Compute such numbers beforehand and pass "
                "them as arguments."
            )


MOST_VALUES = 2**30  # more than a site has: its last value is meant
FEW = 4  # rows: of so few, one term that joins two of them is a large part


def rounding() -> float:
    """Relative, of a sum of many terms in the precision in force."""
    return 1e-5 if jnp.result_type(float) == jnp.float32 else 1e-11


def _compare_sums(program: Program, made: RowProgram, rng: np.random.Generator) -> None:
    """A plain density must be a sum over rows and what is there without any; z outside must not meet rows."""
    x = program.unravel(as_jax(guess_x(rng, program, 1)[0]))
    all_z = {name: value[0] for name, value in guess_z(rng, program, 1).items()}
    outside = {n: s for n, s in program.z.items() if n not in made.site_axes and isinstance(s.support, Finite)}
    ends = [{name: value_number(site, number) for name, site in outside.items()} for number in (0, MOST_VALUES)]
    index = rng.permutation(min(program.plates[made.plate].size, 10**6))[: 2 * FEW]

    def at(index: np.ndarray, changed: dict[str, np.ndarray]) -> float:
        z = {name: np.take(all_z[name], index, axis) for name, axis in made.site_axes.items()}
        data = {name: np.take(np.asarray(program.data[name]), index, axis) for name, axis in made.axes.items()}
        whole = as_jax(({**all_z, **z, **changed}, {**program.data, **data}))
        return float(program.log_joint(x, *whole))

    try:
        nothing, both = at(index[:0], {}), at(index, {})
        parts = at(index[:FEW], {}), at(index[FEW:], {})
        of_rows = [at(index, end) - at(index[:0], end) for end in ends]
    except Exception as error:
        raise ModelError(
            f"minibatch: '{program.name}' cannot be evaluated with other numbers of rows of '{made.plate}', none among "
            f"them, as is needed to tell what rows share: {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    size = 1 + sum(map(abs, (nothing, both, *parts)))
    tolerance = size * rounding()
    if not abs(both - nothing - sum(part - nothing for part in parts)) <= tolerance:
        raise ModelError(
            f"minibatch: the log density of {2 * FEW} rows of '{made.plate}' is not the sum of those of {FEW} and "
            f"{FEW} of them: rows depend on each other, or on how many there are (a mean). Compute such numbers "
            "beforehand, or sample without minibatch."
        )
    if not abs(of_rows[0] - of_rows[1]) <= tolerance:
        raise ModelError(
            f"minibatch: rows of '{made.plate}' depend on a discrete variable that is not in `rows` "
            f"({', '.join(outside)}): a sum over it joins all rows. Sample without minibatch."
        )


def row_numbers(made: RowProgram, names: Sequence[str]) -> dict[str, np.ndarray]:
    """For each discrete site the row that every element belongs to; −1 outside the plate."""
    numbers = {}
    for name in names:
        shape = made.program.z[name].support.shape
        if name in made.site_axes:
            axis = made.site_axes[name]
            spread = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
            numbers[name] = np.broadcast_to(spread, shape)
        else:
            numbers[name] = np.full(shape, -1)
    return numbers
