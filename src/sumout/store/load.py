"""`sumout.load`: the result of a run that was stored, finished or not."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from sumout.calls import public
from sumout.errors import OptionError, SamplingWarning, StoreError
from sumout.results.data_tree import Groups, build_tree, describe_upper
from sumout.store.format import (
    CHECKPOINT,
    CONSTANT,
    COORDS,
    ENDS,
    OBSERVED,
    SECONDS,
    STATE,
    TUNED,
    check_parts,
    is_sound,
    list_parts,
    read_about,
    read_part,
)
from sumout.store.netcdf import is_zarr, open_result

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


@public
def load(store: str | os.PathLike[str], *, skip_damaged: bool = False) -> "xr.DataTree":
    """Read a run that `sumout.sample(program, store=…)` has written, or is still writing, or a result that was saved.

    A result is saved by `result.to_netcdf("run.nc")` or `result.to_zarr("run.zarr")`, and by `sumout run`. Draws of a
    stored run stay on the disk until they are looked at. The files hold arrays and text only; nothing in them is run.

    Args:
        store: the folder of a run, a netCDF file or a folder of Zarr's.
        skip_damaged: of a stored run, leave out parts that are damaged or missing, with a warning, instead of refusing.

    Returns:
        What `sumout.sample` would return had it been stopped after the last part: `posterior.attrs["complete"]` says
        whether all draws are there that were asked for.

    Example:
        >>> import tempfile, jax.numpy as jnp, sumout
        >>> from numpyro.distributions import Normal, constraints
        >>> def two_normals(x, z, data):
        ...     return Normal(jnp.where(z["right"], 1.0, -1.0), 0.5).log_prob(x["x"])
        >>> program = sumout.density(two_normals, x={"x": (constraints.real, ())}, z={"right": sumout.finite(2)})
        >>> folder = tempfile.mkdtemp()
        >>> result = sumout.sample(program, store=folder, draws=50, tune=50, chains=2)
        >>> dict(sumout.load(folder).posterior.sizes)
        {'chain': 2, 'draw': 50}
        >>> result.to_netcdf(folder + "/run.nc")
        >>> dict(sumout.load(folder + "/run.nc").posterior.sizes)
        {'chain': 2, 'draw': 50}
    """
    if not isinstance(store, str | os.PathLike):
        raise OptionError(f"load: expected the name of a folder or of a file, got {type(store).__name__}.")
    folder = Path(store)
    if folder.is_file() or is_zarr(folder) or (folder.suffix == ".nc" and not folder.exists()):
        return open_result(folder)
    noted = read_about(folder)
    files = _sound_parts(folder) if skip_damaged else check_parts(folder)
    parts = [Part(path, int(read_part(path, [CHECKPOINT])[CHECKPOINT][3])) for path in files]
    parts = [part for part in parts if part.draws]
    if not parts:
        raise StoreError(f"{folder} holds no draws yet: the run is in its warm-up. The same call resumes it.")
    first, last = read_part(parts[0].path), read_part(parts[-1].path)
    drawn, num_chains = sum(part.draws for part in parts), len(first[f"{STATE}/0"])
    attrs = {
        **noted["about"],
        "steps": int(last[CHECKPOINT][2]),
        "sampling_time": float(last[SECONDS]),
        "complete": drawn >= noted["draws"],
    }
    tuned, about = _by_group(last).get(TUNED, {}), _by_group(read_part(files[0]))
    ends = _by_group(last).get(ENDS, {})
    if ends:
        attrs["count_ends"] = describe_upper(ends)
    no_draws = (STATE, TUNED, ENDS, OBSERVED, CONSTANT, COORDS)
    groups = {group: named for group, named in _by_group(first).items() if group not in no_draws}
    # With one draw of one chain, for dimensions and labels; then all draws in its place.
    one = {group: {name: value[:1, :1] for name, value in named.items()} for group, named in groups.items()}
    tree = build_tree(
        one, tuned, about.get(OBSERVED, {}), constant=about.get(CONSTANT, {}), coords=about.get(COORDS, {}),
        dims=noted["dims"], coordinates=noted["coordinates"], attrs=attrs,
    )  # fmt: skip
    for group, variables in groups.items():
        labelled = tree[group].to_dataset()
        arrays = {
            name: (labelled[name].dims, lazy_array(f"{group}/{name}", parts, value))
            for name, value in variables.items()
        }
        numbers = {"chain": np.arange(num_chains), "draw": np.arange(drawn)}
        tree[group].dataset = labelled.drop_dims(["chain", "draw"]).assign_coords(numbers).assign(arrays)
    return tree


def _by_group(content: dict[str, np.ndarray]) -> Groups:
    """Arrays named "group/name" as groups; others left out."""
    groups: Groups = {}
    for name, value in content.items():
        group, slash, variable = name.partition("/")
        if slash:
            groups.setdefault(group, {})[variable] = value
    return groups


def _sound_parts(folder: Path) -> list[Path]:
    found = list_parts(folder)
    sound = [path for path in found.values() if is_sound(path)]
    missing = max(found, default=-1) + 1 - len(sound)
    if missing:
        warnings.warn(
            f"{folder}: {missing} of {max(found) + 1} parts are damaged or missing; their draws are left out.",
            SamplingWarning,
            stacklevel=4,
        )
    return sound


@dataclass(frozen=True)
class Part:
    """A file, and how many draws it holds."""

    path: Path
    draws: int


class LazyArray(BackendArray):
    """One variable of a stored run, `(chain, draw, …)`, read from its files when it is indexed."""

    def __init__(self, name: str, parts: Sequence[Part], like: np.ndarray):
        self._name, self._parts = name, parts
        self.dtype = like.dtype
        self.shape = (like.shape[0], sum(part.draws for part in parts), *like.shape[2:])

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        chain, draw, *others = key
        if not isinstance(draw, slice):
            return self._between(draw, draw + 1)[(chain, 0, *others)]
        wanted = range(self.shape[1])[draw]
        rows = (
            self._between(min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1]) + 1) if wanted else self._between(0, 0)
        )
        return rows[(chain, slice(None, None, wanted.step), *others)]

    def _between(self, low: int, high: int) -> np.ndarray:
        """The draws from number `low` up to `high`."""
        found, start = [np.empty((self.shape[0], 0, *self.shape[2:]), self.dtype)], 0
        for part in self._parts:
            first, last = max(low - start, 0), min(high - start, part.draws)  # within this part
            if first < last:
                found.append(read_part(part.path, [self._name])[self._name][:, first:last])
            start += part.draws
        return np.concatenate(found, axis=1)


def lazy_array(name: str, parts: Sequence[Part], like: np.ndarray) -> Any:
    """The array in the form that xarray takes; `like` is some of it."""
    return indexing.LazilyIndexedArray(LazyArray(name, parts, like))
