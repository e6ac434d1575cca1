"""Results in files: what was written comes back, and nothing else is taken for it."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import sumout
from sumout.errors import FileError
from sumout.results.data_tree import as_attribute
from sumout.store.netcdf import open_result, save_result

from models import survey


def made_up(discrete, names=("a", "b"), **attrs):
    zeros = (("chain", "draw"), np.zeros((2, 3)))
    posterior = xr.Dataset(dict.fromkeys(names, zeros), attrs={"discrete": discrete, **attrs})
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": xr.Dataset({"lp": zeros, "bad": zeros})})


@pytest.mark.parametrize("discrete", [[], ["b"], ["a", "b"]])
def test_the_names_of_discrete_variables_stay_a_list(tmp_path, discrete):
    tree = made_up(discrete, flag=True, scale=0.5)
    found = open_result(save_result(tree, tmp_path / "r.nc"))
    assert found.posterior.attrs == {"discrete": discrete, "flag": True, "scale": 0.5}
    assert tree.posterior.attrs["flag"] is True  # what was given is not changed


def test_unusual_names_come_back(tmp_path):
    names = ["β.x[0]", "two words", "b", "'quoted\"", "a", "_FillValue"]
    tree = made_up(names[:2], names)
    found = open_result(save_result(tree, tmp_path / "ünï cödé.nc"))
    assert found.identical(tree)
    assert list(found.posterior.data_vars) == names
    with pytest.raises(FileError, match="netCDF does not take a name"):
        save_result(made_up(["."], ["."]), tmp_path / "r.nc")


def refusal(path):
    with pytest.raises(FileError) as caught:
        open_result(path)
    return str(caught.value)


def test_files_that_are_no_results(tmp_path):
    whole = save_result(made_up(["a"]), tmp_path / "whole.nc").read_bytes()
    path = tmp_path / "r.nc"
    for content in (b"", b"y\n1\n", whole[:500], whole[:-10]):
        path.write_bytes(content)
        assert "r.nc cannot be read as netCDF" in refusal(path)
    rng = np.random.default_rng(0)
    for _ in range(20):  # whatever is damaged, nothing else is raised
        damaged = np.frombuffer(whole, np.uint8).copy()
        damaged[rng.integers(len(whole), size=20)] = rng.integers(256, size=20)
        path.write_bytes(damaged.tobytes())
        try:
            open_result(path)
        except FileError as error:
            assert str(error).startswith(str(path))
    xr.Dataset({"t": ("n", [1.0])}).to_netcdf(path, engine="h5netcdf")
    assert "there is no group 'posterior'" in refusal(path)
    for spoil, told in (
        (lambda tree: tree.posterior.attrs.pop("discrete"), "has no attribute 'discrete'"),
        (lambda tree: tree.posterior.attrs.update(discrete=["q"]), "has no 'q'"),
        (lambda tree: tree["sample_stats"].__delitem__("lp"), "have no 'lp'"),
        (
            lambda tree: tree.__setitem__("posterior/a", xr.DataArray([1.0], dims="n")),
            r"'a' in its posterior has dimensions",
        ),
    ):
        tree = made_up(["a"])
        spoil(tree)
        save_result(tree, path)
        assert told in refusal(path)
    assert "No such file" in refusal(tmp_path / "no.nc")
    assert "Is a directory" in refusal(tmp_path)


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    def write_half(path, content):
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    save_result(made_up(["a"]), tmp_path / "r.nc")
    before = (tmp_path / "r.nc").read_bytes()
    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(FileError, match=r"r\.nc cannot be written: No space left on device"):
        save_result(made_up(["b"]), tmp_path / "r.nc")
    assert [path.name for path in tmp_path.iterdir()] == ["r.nc"]
    assert (tmp_path / "r.nc").read_bytes() == before


def sampled():
    program = sumout.program(survey, np.array([1, 0, 1, 1]))
    return sumout.sample(program, draws=20, tune=20, chains=2)


def test_a_result_goes_to_netcdf_by_itself_and_comes_back(tmp_path):
    result = sampled()
    result.to_netcdf(tmp_path / "r.nc")
    found = sumout.load(tmp_path / "r.nc")
    assert found.identical(result) and list(found.children) == list(result.children)
    assert found.posterior.attrs == result.posterior.attrs and found.posterior.attrs["complete"] == 1
    with pytest.raises(FileError, match="No such file"):
        sumout.load(tmp_path / "no.nc")


def test_attributes_are_what_netcdf_zarr_and_json_take(tmp_path):
    attrs = sampled().posterior.attrs
    assert json.loads(json.dumps(attrs)) == attrs
    assert not any(isinstance(value, bool) for value in attrs.values())
    given = {"flag": True, "many": (np.int64(2), "a"), "large": 2**70, "array": np.array([0.5, 1.0])}
    assert {name: as_attribute(value) for name, value in given.items()} == {
        "flag": 1,
        "many": [2, "a"],
        "large": str(2**70),
        "array": [0.5, 1.0],
    }


def test_a_result_goes_to_zarr_and_comes_back(tmp_path):
    pytest.importorskip("zarr")
    result = sampled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr's own, of formats that are new
        result.to_zarr(tmp_path / "r.zarr")
        assert sumout.load(tmp_path / "r.zarr").identical(result)
