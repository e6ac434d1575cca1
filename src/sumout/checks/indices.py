"""Indices beyond the end of an array, for which JAX silently takes the last element instead.

Labels that count from one, or an array with an element too few, are otherwise never noticed: mu[g] is a number all the
same. Indices that follow from z and data are computed by NumPy. Where some lie outside, the program is evaluated with
NaN for what they take: only if that reaches the density does it matter, and not behind a mask.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.lax import GatherScatterMode
from jaxtyping import Array

from sumout.checks.examination import Examination, Finding, quickly
from sumout.jaxpr.equations import bind
from sumout.jaxpr.numpy_evaluation import as_array, compute, is_known_to_numpy
from sumout.jaxpr.walk import all_equations, arguments, needed, read, run, variables, walk
from sumout.model.program import Nuisance
from sumout.model.supports import Finite
from sumout.structure.structure import flat_density

MOST_TRIED = 2  # values of z beside the lowest and the highest
MOST_LOOKED_AT = 2**20  # elements of an index that are looked at
NEAREST = (None, GatherScatterMode.PROMISE_IN_BOUNDS, GatherScatterMode.CLIP)  # take the nearest element there is


def check_indices(exam: Examination) -> Iterator[Finding]:
    """What is taken from an array should be there."""
    closed, data = flat_density(exam.program), exam.program.data
    taken = [eqn for eqn in closed.jaxpr.eqns if _takes_elements(eqn)]
    if any(_mode(eqn) == GatherScatterMode.CLIP for eqn in taken) and _clips_itself(exam):
        taken = [eqn for eqn in taken if _mode(eqn) != GatherScatterMode.CLIP]
    for point, z in _points(exam) if taken else ():
        known = _known_indices(closed, taken, [None, *jax.tree.leaves((z, data))])
        outside = {i: _outside(taken[i], index) for i, index in known.items()}
        for i in (i for i, wrong in outside.items() if wrong.any()):
            x = exam.x[point]
            is_possible = np.isfinite(exam.evaluate(x[None], {name: value[None] for name, value in z.items()})[0]).all()
            if is_possible and np.isnan(_poisoned(closed, taken[i], outside[i])(x, z, data)):
                yield Finding(_describe(exam, closed, taken[i], known[i]))
                return


def _takes_elements(eqn: Any) -> bool:
    """Whether an equation takes single elements along some axes, and the nearest where there is none.

    A scalar index is a slice, which in a loop that has been opened becomes a gather that clips.
    """
    is_number = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating)
    if eqn.primitive.name not in ("gather", "dynamic_slice") or not is_number:
        return False
    sizes, shape = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    is_small = all(v.aval.size <= MOST_LOOKED_AT for v in eqn.invars[1:])
    return _mode(eqn) in NEAREST and is_small and all(sizes[axis] in (1, shape[axis]) for axis in _axes(eqn))


def _mode(eqn: Any) -> Any:
    """What a gather does with indices that lie outside; a slice clips them."""
    return eqn.params.get("mode")


def _clips_itself(exam: Examination) -> bool:
    """Whether the program as it was written has gathers that clip: then that is meant."""
    closed = jax.make_jaxpr(exam.program.log_density)(*exam.program.abstract_arguments())
    return any(_mode(eqn) == GatherScatterMode.CLIP for eqn in all_equations(closed.jaxpr))


def _axes(eqn: Any) -> tuple[int, ...]:
    """The axes along which an index says what is taken."""
    is_gather = eqn.primitive.name == "gather"
    return eqn.params["dimension_numbers"].start_index_map if is_gather else tuple(range(eqn.invars[0].aval.ndim))


def _points(exam: Examination) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Points x, by number, and values of z: all the lowest, all the highest, and some of those tried."""
    sites = exam.program.z
    anchors = exam.anchors[:MOST_TRIED].tolist()
    if sites and anchors and all(isinstance(site.support, Finite) for site in sites.values()):
        rows = {name: site.support.rows()[0] for name, site in sites.items()}  # pyright: ignore[reportAttributeAccessIssue]
        for end in (np.min, np.max):
            ends = {name: end(values, axis=1).reshape(sites[name].shape) for name, values in rows.items()}
            yield anchors[0], {name: value.astype(sites[name].dtype) for name, value in ends.items()}
    for point in anchors:
        yield point, {name: np.asarray(value) for name, value in exam.at(point).items()}


def _known_indices(closed: ClosedJaxpr, taken: list[Any], args: list[Any]) -> dict[int, np.ndarray]:
    """By number of the equation, its indices along the last axis, where NumPy can tell them; None stands for x."""
    jaxpr = closed.jaxpr
    eqns = needed(jaxpr.eqns, [v for eqn in taken for v in eqn.invars[1:]])

    def step(eqn: Any, operands: list[Any]) -> list[Any]:
        if any(operand is None for operand in operands) or not is_known_to_numpy(eqn):
            return [None] * len(eqn.outvars)
        return compute(eqn, list(map(np.asarray, operands)))

    env = walk(eqns, arguments(jaxpr, closed.consts, args), step, as_array)
    each = {i: read(env, eqn.invars[1:], as_array) for i, eqn in enumerate(taken)}
    return {
        i: np.asarray(index[0]) if taken[i].primitive.name == "gather" else np.stack(index, axis=-1)
        for i, index in each.items()
        if not any(one is None for one in index)
    }


def _outside(eqn: Any, index: np.ndarray) -> np.ndarray:
    """Which of the elements that are taken are not there."""
    shape, sizes = np.array(eqn.invars[0].aval.shape), np.array(eqn.params["slice_sizes"])
    most = (shape - sizes)[list(_axes(eqn))]
    return np.asarray(((index < 0) | (index > most)).any(axis=-1))


def _poisoned(closed: ClosedJaxpr, chosen: Any, wrong: np.ndarray) -> Callable[..., Array]:
    """The log density with NaN for what is not there."""
    if chosen.primitive.name == "gather":
        wrong = np.expand_dims(wrong, chosen.params["dimension_numbers"].offset_dims)

    def step(eqn: Any, operands: list[Any]) -> list[Array]:
        out = bind(eqn, operands)
        return [jnp.where(wrong, jnp.nan, out[0])] if eqn is chosen else out

    def log_density(x: Array, z: Nuisance, data: Any) -> Array:
        return run(closed.jaxpr, closed.consts, jax.tree.leaves((x, z, data)), step)[0]

    return quickly(log_density)


def _describe(exam: Examination, closed: ClosedJaxpr, eqn: Any, index: np.ndarray) -> str:
    flat, shape = index.reshape(-1, index.shape[-1]), eqn.invars[0].aval.shape
    each = zip((shape[axis] for axis in _axes(eqn)), flat.min(axis=0), flat.max(axis=0), strict=True)
    size, high = next((size, high) for size, low, high in each if low < 0 or high >= size)
    where = f"is {high}, beyond the last" if high >= size else "lies before the first"
    used = {*eqn.invars[1:], *(v for e in needed(closed.jaxpr.eqns, eqn.invars[1:]) for v in variables(e.invars))}
    names = [name for name, v in zip(_names(exam), closed.jaxpr.invars[1:], strict=True) if v in used]
    return (
        f"an index that follows from {', '.join(names) or 'constants'} {where} element of an array of size {size} "
        "along that axis: JAX silently takes the nearest element, and the density depends on it. Count from 0, or make "
        "the array as long as the index needs."
    )


def _names(exam: Examination) -> list[str]:
    """Of the inputs after x."""
    sites = [exam.program.packs.names(name) for name in sorted(exam.program.z)]
    data = jax.tree_util.tree_leaves_with_path(exam.program.data)
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") or "data" for path, _ in data]
    return [
        *(" to ".join(f"'{name}'" for name in dict.fromkeys((s[0], s[-1]))) for s in sites),
        *(f"'{p}'" for p in paths),
    ]
