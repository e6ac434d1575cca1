"""Rows on the disk: what can be a source, what is refused, and that only minibatches read them."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import Normal, constraints

import sumout
from sumout.errors import FileError, ModelError, OptionError
from sumout.model.row_program import take_rows

from row_models import mixture, outliers

ROWS = np.random.default_rng(0).normal(size=(2_000, 2)).astype(np.float32)


def as_npy(folder):
    np.save(folder / "rows.npy", ROWS)
    return sumout.on_disk(folder / "rows.npy")


def as_memmap(folder):
    big_endian = np.memmap(folder / "rows.raw", ">f4", "w+", shape=ROWS.shape)
    big_endian[:] = ROWS
    return sumout.on_disk(big_endian)


def as_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    return sumout.on_disk(h5py.File(folder / "rows.h5", "w").create_dataset("rows", data=ROWS, chunks=(300, 2)))


def as_zarr(folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(folder / "rows.zarr", shape=ROWS.shape, chunks=(300, 2), dtype="f4")
    made[:] = ROWS
    return sumout.on_disk(folder / "rows.zarr")


def as_parquet(folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"other": np.arange(2_000), "a": ROWS[:, 0], "b": ROWS[:, 1]})
    for part in range(2):
        parquet.write_table(table[part * 1_000 : part * 1_000 + 1_000], folder / f"{part}.parquet", row_group_size=300)
    return sumout.on_disk(folder, ["a", "b"])


@pytest.mark.parametrize("source", [as_npy, as_memmap, as_hdf5, as_zarr, as_parquet])
def test_rows_are_read_from_whatever_gives_them(source, tmp_path):
    rows = source(tmp_path)
    assert (rows.shape, rows.dtype, len(rows)) == (ROWS.shape, np.float32, 2_000)
    for start, stop in ((0, 1), (250, 650), (1_299, 1_301), (0, 2_000)):
        np.testing.assert_array_equal(rows.read(start, stop), ROWS[start:stop])
    np.testing.assert_array_equal(rows.read(1_990, 2_010), np.concatenate([ROWS[-10:], ROWS[:10]]))
    assert rows.fingerprint == sumout.on_disk(ROWS).fingerprint != sumout.on_disk(ROWS + 1).fingerprint


class Wrong:
    """An array that gives other rows than it says."""

    shape, dtype = (100, 2), np.dtype("f4")

    def __getitem__(self, rows):
        return np.zeros((3, 2), np.float32)


def test_sources_that_are_none_are_refused(tmp_path):
    (tmp_path / "rows.txt").write_text("1 2 3")
    (tmp_path / "broken.npy").write_text("1 2 3")
    for source, words in (
        (tmp_path / "none.npy", "there is no"),
        (tmp_path / "rows.txt", r"no \.npy file"),
        (tmp_path / "broken.npy", "cannot be read"),
        (np.array(1.0), r"the shape \(\)"),
        (np.zeros((0, 3)), "no rows"),
        (np.array(["a", "b"]), "no number"),
        (3, "expected a path or an array"),
    ):
        with pytest.raises((OptionError, FileError), match=words):
            sumout.on_disk(source)
    with pytest.raises(OptionError, match="leave column out"):
        sumout.on_disk(ROWS, column="a")
    with pytest.raises(FileError, match=r"came as float32 \(3, 2\), not as float32 \(4, 2\)"):
        sumout.on_disk(Wrong()).read(0, 4)


def test_columns_of_parquet_are_asked_for_by_name(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [1.0, None], "b": ["x", "y"]}), tmp_path / "rows.parquet")
    for column, words in ((None, "no column was asked for"), ("c", "there is no 'c'.*: a, b"), ("b", "no number")):
        with pytest.raises(OptionError, match=words):
            sumout.on_disk(tmp_path / "rows.parquet", column)
    with pytest.raises(FileError, match="'a' has missing values"):
        sumout.on_disk(tmp_path / "rows.parquet", "a").read(0, 2)


def picked(y, size):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", size, subsample_size=10) as rows:
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu * z, 1.0), obs=y[rows])


def test_a_program_has_all_rows_and_is_traced_with_few():
    """Whoever picks them, and beside an array in memory."""
    y, covariate = ROWS[:, 0], ROWS[:, 1]
    for program in (
        sumout.program(mixture, sumout.on_disk(y)),
        sumout.program(outliers, covariate, sumout.on_disk(y)),
        sumout.program(picked, sumout.on_disk(y), 2_000),
    ):
        rows = take_rows(program, "n", 10)
        assert (rows.size, rows.batch, program.plates["n"].size) == (2_000, 10, 2_000)
        data = {name: jnp.asarray(array.read(20, 30)) for name, array in rows.all_rows.items()}
        x, z = jnp.full(program.num_x, 0.3), {name: jnp.ones(10, int) for name in rows.program.z}
        np.testing.assert_array_equal(rows.program.log_terms(x, z, data)["y"].shape, (10,))
        assert data["y"].tolist() == y[20:30].tolist()


def test_only_minibatches_read_them():
    program = sumout.program(mixture, sumout.on_disk(ROWS[:, 0]))
    for use in (sumout.read, sumout.explain, sumout.check, sumout.sample, sumout.maximize, sumout.predict):
        with pytest.raises(OptionError, match=r"rows on the disk, which only minibatches read.*'n': 1000"):
            use(program)
    with pytest.raises(OptionError, match="rows on the disk"):
        program.with_data(y=np.zeros(2_000))
    with pytest.raises(OptionError, match="rows on the disk"):
        np.asarray(program.data["y"])


def test_arrays_that_do_not_go_together_are_refused():
    y = sumout.on_disk(ROWS[:, 0])
    with pytest.raises(ModelError, match=r"'covariate' 1,999, 'y' 2,000"):
        sumout.program(outliers, sumout.on_disk(ROWS[:-1, 1]), y)
    with pytest.raises(ModelError, match=r"'covariate', of shape \(3, 2000\).* transpose"):
        sumout.program(outliers, np.zeros((3, 2_000)), y)


def plain(x, z, data):
    mean = jnp.where(z["z"], x["mu"], 0.0)
    return Normal(0, 5).log_prob(x["mu"]) + Normal(mean, 1).log_prob(data["y"]).sum()


def test_plain_densities_say_what_has_rows():
    def made(rows, y=ROWS[:, 0]):
        site, given = sumout.finite(2, shape=2_000), {"y": sumout.on_disk(y)}
        return sumout.density(plain, x={"mu": (constraints.real, ())}, z={"z": site}, data=given, rows=rows)

    rows = take_rows(made({"y": "n", "z": "n"}), "n", 10)
    assert (rows.size, rows.batch) == (2_000, 10)
    with pytest.raises(OptionError, match="'y' is on the disk, but not in rows"):
        made({"z": "n"})


def depends_on_how_many(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu * z, 1.0 + len(y)), obs=y)


def test_rows_that_are_not_independent_are_refused():
    with pytest.raises(ModelError, match=r"the term 'y'.* is not what it is"):
        take_rows(sumout.program(depends_on_how_many, sumout.on_disk(ROWS[:, 0])), "n", 10)
