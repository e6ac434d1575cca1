"""Data as they come are the arrays they hold."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from numpyro.distributions import constraints

import sumout
from sumout.errors import ModelError

X, Y = np.array([0.5, 1.5, -1.0, 2.0]), np.array([0.0, 1.0, 2.0, 3.0])


def regression(x, y):
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.2))
        numpyro.sample("y", dist.Normal(b * x, jnp.where(z, 5.0, 1.0)), obs=y)


class Column:
    """What polars and others are to NumPy."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __len__(self):
        return len(self.values)


def value(program):
    at = jnp.full(program.num_x, 0.3)
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    return float(program.log_density(at, z, program.data))


@pytest.mark.parametrize(
    "hold",
    [
        pd.Series,
        lambda a: pd.Series(a, index=list("dcba")),
        lambda a: pd.Series(a, dtype="Float64"),
        list,
        xr.DataArray,
        Column,
    ],
)
def test_columns(hold):
    program = sumout.program(regression, hold(X), hold(Y))
    assert sorted(program.data) == ["x", "y"]
    assert value(program) == pytest.approx(value(sumout.program(regression, X, Y)))


def test_tuples_of_numbers():
    program = sumout.program(lambda y: regression(X, y), tuple(Y))
    assert value(program) == pytest.approx(value(sumout.program(regression, X, Y)))


def by_name(df):
    regression(df["x"], df.y)


def by_matrix(x, y):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    z = numpyro.sample("z", dist.Bernoulli(0.2))
    numpyro.sample("y", dist.Normal(x @ b + z, 1).to_event(1), obs=y)


def by_pandas(df):
    means = df.groupby("kind").y.mean()
    regression(means.to_numpy() * 0 + means.to_numpy(), means.to_numpy())


def test_frames():
    frame = pd.DataFrame({"x": X, "y": Y, "kind": list("aabb")})
    program = sumout.program(by_name, frame)
    assert {"df.x", "df.y"} <= set(program.data)
    assert value(program) == pytest.approx(value(sumout.program(regression, X, Y)))
    pair = frame[["x", "y"]]
    arrays = sumout.program(by_matrix, pair.to_numpy(), Y)
    assert value(sumout.program(by_matrix, pair, frame["y"])) == pytest.approx(value(arrays))
    assert value(sumout.program(by_pandas, frame)) == pytest.approx(
        value(sumout.program(regression, np.array([0.5, 2.5]), np.array([0.5, 2.5])))
    )
    with pytest.raises(ModelError, match="the model stops"):
        sumout.program(lambda df: regression(df["x"], df["nothing"]), frame)


def test_density():
    def log_density(x, z, data):
        return -0.5 * jnp.sum((data["y"] - x["m"] - z["z"]) ** 2)

    x, z = {"m": (constraints.real, ())}, {"z": sumout.finite(2)}
    plain = sumout.density(log_density, x=x, z=z, data={"y": Y})
    for data in ({"y": pd.Series(Y)}, pd.DataFrame({"y": Y}), {"y": Y.tolist()}):
        assert value(sumout.density(log_density, x=x, z=z, data=data)) == pytest.approx(value(plain))


def test_lists_that_steer_python_stay_usable():
    def model(sizes, y):
        for i, size in enumerate(sizes):
            numpyro.sample(f"z{i}", dist.Categorical(jnp.ones(int(size)) / size))
        numpyro.sample("y", dist.Normal(0, 1), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = sumout.program(model, [2, 3], 0.5)
    assert [site.support.num_values for site in program.z.values()] == [2, 3]
