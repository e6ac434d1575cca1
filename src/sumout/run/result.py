"""From the collected draws to an `xarray.DataTree` in ArviZ's schema."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sumout.program import Program
from sumout.run.loop import Record

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

STAT_NAMES = {"log_density": "lp"}


def build_result(program: Program, record: Record, attrs: Mapping[str, Any]) -> "xr.DataTree":
    """Name, shape and label the draws: x and deterministics as the user knows them, z in its support values."""
    from arviz_base import from_dict  # takes half a second to import

    named = jax.jit(jax.vmap(jax.vmap(program.constrain, in_axes=(0, 0, None)), in_axes=(0, 0, None)))
    posterior = {name: np.asarray(value) for name, value in named(record.x, record.z, program.data).items()}
    posterior.update({name: np.asarray(value) for name, value in record.z.items()})
    stats = {STAT_NAMES.get(name, name): np.asarray(value) for name, value in vars(record.info).items()}
    groups: dict[str, Any] = {"posterior": posterior, "sample_stats": stats}
    if program.observed:
        groups["observed_data"] = dict(program.observed)
    dims = {name: list(dims) for name, dims in program.dims.items()}
    tree = from_dict(groups, dims=dims)
    tree["posterior"].attrs.update(attrs, discrete=list(program.z))
    return tree
