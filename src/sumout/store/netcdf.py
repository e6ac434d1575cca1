"""A result in a file: netCDF, or a folder of Zarr's, which xarray and ArviZ read as well.

Nothing in such a file is code: it holds arrays, names and attributes. What netCDF cannot tell apart (a list of one
name and the name, a number and an array of one) is put right when the file is opened.

Files are read and written whole by Python, not by HDF5, which crashes where a disk is full.
"""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sumout.errors import FileError

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

ENGINE = "h5netcdf"
ZARR = ("zarr.json", ".zgroup")  # what stands at the top of a folder of Zarr's, by its version


def save_result(result: "xr.DataTree", path: str | os.PathLike[str]) -> Path:
    """Write what `sumout.sample` returned; the name appears only when the file is whole.

    Args:
        result: from `sumout.sample`.
        path: the file to write; one that is there already is replaced.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    noted = result.copy()
    for group in noted.subtree:
        group.attrs = {name: int(value) if isinstance(value, bool) else value for name, value in group.attrs.items()}
    try:
        content = noted.to_netcdf(engine=ENGINE)
    except (ValueError, TypeError) as error:
        raise FileError(
            f"{target} cannot be written: netCDF does not take a name or an attribute in it ({error})."
        ) from error
    try:
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return target


def open_result(path: str | os.PathLike[str]) -> "xr.DataTree":
    """Read a file of `save_result` or `to_netcdf`, or a folder of `to_zarr`: as `sumout.sample` returned it."""
    source = Path(path)
    if is_zarr(source):
        result = _decode_zarr(source)
    else:
        try:
            content = source.read_bytes()
        except OSError as error:
            raise FileError(f"{source} cannot be read: {error.strerror}. Expected a result, a .nc file.") from error
        result = _decode(content, source)
    for group in result.subtree:
        group.attrs = {name: _plain(value) for name, value in group.attrs.items()}
    _check(result, source)
    return result


def is_zarr(path: Path) -> bool:
    """Whether this is a folder that Zarr has written."""
    return any((path / name).is_file() for name in ZARR)


def _decode_zarr(source: Path) -> "xr.DataTree":
    import xarray as xr

    try:
        with xr.open_datatree(source, engine="zarr", decode_times=False) as tree:
            return tree.load()
    except Exception as error:  # Zarr is not installed, or a damaged file breaks the reading anywhere
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(f"{source} cannot be read as Zarr: {first}") from error


def _decode(content: bytes, source: Path) -> "xr.DataTree":
    import h5py
    import xarray as xr  # takes half a second to import

    try:
        with h5py.File(io.BytesIO(content)) as whole:  # h5netcdf would print tracebacks about what breaks here
            whole.visititems(_touch)
        with xr.open_datatree(io.BytesIO(content), engine=ENGINE, decode_times=False) as tree:
            return tree.load()
    except Exception as error:  # a damaged file can break the reading anywhere
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(
            f"{source} cannot be read as netCDF: it is damaged, cut short or of another kind ({first})."
        ) from error


def _touch(name: str, item: Any) -> None:
    """Read the attributes of a group or an array, to see that they can be read."""
    del name
    list(item.attrs.items())


def _plain(value: Any) -> Any:
    """A number or a list in place of NumPy's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _check(result: "xr.DataTree", source: Path) -> None:
    """Refuse a file without what the summary, the report and the marginals need."""

    def refuse(missing: str) -> NoReturn:
        raise FileError(f"{source} is not a result of sumout: {missing}.")

    for name in ("posterior", "sample_stats"):
        if name not in result.children:
            refuse(f"there is no group '{name}' in it")
    posterior = result["posterior"]
    if "discrete" not in posterior.attrs:
        refuse("its posterior has no attribute 'discrete', which says which variables are discrete")
    posterior.attrs["discrete"] = [str(name) for name in np.atleast_1d(posterior.attrs["discrete"])]
    for name in posterior.attrs["discrete"]:
        if name not in posterior:
            refuse(f"its posterior has no '{name}', which should be a discrete variable")
    for name, values in posterior.data_vars.items():
        if values.dims[:2] != ("chain", "draw"):
            refuse(f"'{name}' in its posterior has dimensions {values.dims}, not chain and draw first")
    if "lp" not in result["sample_stats"]:
        refuse("its sample_stats have no 'lp', the log density of the draws")
