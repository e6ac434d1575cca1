"""Rows of a PyMC model: its dimensions as plates, and the first rows of one in the place of all.

A dimension is a plate where variables name it by `dims=`. Its length is a shared variable of the graphs, and so are the
arrays of `pm.Data`: with fewer rows in them, and in the observed arrays, the same graphs are those of the program of so
few rows. What a model holds besides, an array of NumPy's or a `shape=`, keeps its size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable

from sumout.errors import ModelError
from sumout.model.pymc_supports import index_name, is_one_of_many
from sumout.model.row_program import Plate

Dims = Mapping[str, Sequence[str | None]]


@dataclass(frozen=True, eq=False)
class Cut:
    """The first rows of a dimension, in the place of all.

    Attributes:
        dim: its name.
        size: how many rows it has.
        num: how many are left.
    """

    dim: str
    size: int
    num: int

    def axis_of(self, name: str, shape: Sequence[int], dims: Dims) -> int | None:
        """Along which axis an array has the rows; None if it has none.

        Where its dimensions have no names that is the one axis with as many elements.
        """
        named = dims.get(name)
        if named is not None and any(named):
            return list(named).index(self.dim) if self.dim in named else None
        return list(shape).index(self.size) if list(shape).count(self.size) == 1 else None

    def first(self, name: str, array: np.ndarray, dims: Dims) -> np.ndarray:
        """The array with the rows that are left."""
        axis = self.axis_of(name, array.shape, dims)
        return array if axis is None else array[(slice(None),) * axis + (slice(self.num),)]


def find_plates(model: pm.Model, terms: Iterable[Any], cut: Cut | None = None) -> dict[str, Plate]:
    """The dimensions of a model, cut or not, that some of its terms, variables or potentials, name."""
    dims, plates = model.named_vars_to_dims, {}
    for dim, length in model.dim_lengths.items():
        if not isinstance(length, SharedVariable):
            continue
        inside, events = {}, {}
        for term in terms:
            named = list(dims.get(term.name, ()))
            num_events = getattr(getattr(term.owner, "op", None), "ndim_supp", 0)
            batch_dims = named[: len(named) - num_events]
            if dim in batch_dims:
                inside[term.name] = batch_dims.index(dim) - len(batch_dims)
                if term in model.free_RVs and is_one_of_many(term):  # the site is the index of the one
                    inside[index_name(term)] = inside[term.name]
                else:
                    events[term.name] = num_events
        values = tuple(v.name for v in model.deterministics if dim in dims.get(v.name, ()))
        size = cut.num if cut is not None and cut.dim == dim else int(length.get_value())
        if inside:
            plates[dim] = Plate(size, None, inside, values, {name: num for name, num in events.items() if num})
    return plates


def refuse_weighed(model: pm.Model, dim: str) -> None:
    """Refuse a model that weighs its rows itself."""
    for rv in model.observed_RVs:
        if "Minibatch" in type(rv.owner.op).__name__:
            raise ModelError(
                f"minibatch: '{rv.name}' is weighed by total_size=, inside the sum over the discrete variables of a "
                f"row, where that is biased. Leave it out: the weight of a row follows from the length of '{dim}'."
            )


def refuse_cut(cut: Cut, error: Exception) -> ModelError:
    """The error where the graphs do not take fewer rows."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return ModelError(
        f"minibatch: the model cannot be given {cut.num} of the {cut.size} rows of '{cut.dim}' ({first}). Name "
        f'the rows wherever there are any: dims="{cut.dim}" in latents and observed variables, and arrays with a value '
        f'for every row as pm.Data(…, dims="{cut.dim}") or observed=.'
    )
