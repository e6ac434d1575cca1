"""How sites are set, all those of a kind at once, while tables are filled: to one of K values, or to joint values."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.model.program import Nuisance
from sumout.structure.structure import Structure
from sumout.tables.blocks import as_columns, value_rows


@dataclass(frozen=True, eq=False)
class Setting:
    """How a round sets a named site: the values of its elements, `(K, n)` or `(K, 1)`, and which elements are set."""

    values: np.ndarray
    chosen: np.ndarray | None  # None: all of them

    @property
    def source(self) -> tuple[str, bytes] | None:
        """The same for settings that put the same number everywhere; None where one number is not enough."""
        is_one = self.chosen is None and self.values.shape[1] == 1
        return (self.values.dtype.str, self.values.tobytes()) if is_one else None

    def place(self, old: Array, number: Array) -> Array:
        """The array with the chosen elements set to their value of that number."""
        new = jnp.asarray(self.values, old.dtype)[number]
        if self.chosen is None:
            return new.reshape((1,) * old.ndim) if len(new) == 1 else new.reshape(old.shape)
        return jnp.where(self.chosen.reshape(old.shape), new if len(new) == 1 else new.reshape(old.shape), old)

    def place_each(self, old: Array) -> Array:
        """The array with the chosen elements set, for each number, along a first axis."""
        new = np.broadcast_to(self.values, (len(self.values), old.size)).astype(old.dtype).reshape(-1, *old.shape)
        return jnp.asarray(new) if self.chosen is None else jnp.where(self.chosen.reshape(old.shape), new, old)


def place_numbers(z: Nuisance, settings: Mapping[str, Setting], number: Array) -> Nuisance:
    """Z with every chosen element at its value of that number; a site of one value throughout is held as one number."""
    return {**z, **{name: setting.place(z[name], number) for name, setting in settings.items()}}


def make_settings(structure: Structure, chosen: np.ndarray, num_values: int) -> dict[str, Setting]:
    """For every name with chosen sites (a mask) how these are set; a site that has fewer values repeats its first."""
    settings = {}
    for name, numbers in structure.site_numbers.items():
        mask = chosen[numbers]
        if mask.any():
            values, _ = value_rows(structure, [name], num_values)
            settings[name] = Setting(as_columns(values), None if mask.all() else mask)
    return settings


def joint_settings(structure: Structure, sites: np.ndarray, num_values: int) -> dict[str, Setting]:
    """For every name with sites in some cells how these are set, at all joint values of a cell.

    Args:
        structure: the reading.
        sites: `(cells, m)` the sites of each cell; −1 for none.
        num_values: K.
    """
    place = np.full(structure.num_sites, -1)
    cell, position = np.nonzero(sites >= 0)
    place[sites[cell, position]] = position
    each = digits(sites.shape[1], num_values)
    settings = {}
    for name, numbers in structure.site_numbers.items():
        chosen = place[numbers] >= 0
        if chosen.any():
            values, _ = value_rows(structure, [name], num_values)
            at = each[:, np.maximum(place[numbers], 0)]
            settings[name] = Setting(np.take_along_axis(values.T, at, axis=0), None if chosen.all() else chosen)
    return settings


def digits(size: int, num_values: int) -> np.ndarray:
    """For all joint values of some sites the number of each site's value, `(J, size)`."""
    return np.indices((num_values,) * size).reshape(size, -1).T
