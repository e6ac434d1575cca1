"""What rows a name stands for, where they are cut up, and what is refused."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.sharding import AxisType, Mesh
from numpyro.distributions import constraints

import sumout
from sumout.errors import OptionError
from sumout.run.placement import Placement, check_axes, choose_placement, place, processes_of, rows_of

MESH = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "more"))


def model(y, x):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu * z + x.mean(0), 1), obs=y)


@pytest.fixture(scope="module")
def program():
    return sumout.program(model, np.arange(5.0), np.ones((3, 5)))


def normals(x, z, data):
    return dist.Normal(x["mu"], 1.0).log_prob(data["y"]).sum()


def test_names_of_rows(program):
    assert rows_of(program, "n") == 5
    assert rows_of(program, "x") == 3
    x, data = {"mu": (constraints.real, ())}, {"y": np.arange(4.0)}
    assert rows_of(sumout.density(normals, x=x, z={}, data=data, rows={"y": "persons"}), "persons") == 4


@pytest.mark.calibration  # as it takes seconds to import PyMC
def test_dimensions_of_a_pymc_model():
    pm = pytest.importorskip("pymc")
    with pm.Model(coords={"site": range(6)}) as made:
        z = pm.Bernoulli("z", 0.5, dims="site")
        pm.Normal("y", pm.Normal("mu") * z, 1.0, observed=np.arange(6.0), dims="site")
    program = sumout.program(made)
    assert rows_of(program, "site") == 6
    assert choose_placement(program, MESH, {"site": "data"}) is not None


def test_arrays_are_cut_up_along_their_rows():
    placement = Placement(MESH, ((5, ("data",)), (3, ("more",))))
    assert placement.axes(np.ones((3, 5))) == {0: ("more",), 1: ("data",)}
    assert placement.axes(np.ones((2, 5))) == {1: ("data",)}
    assert placement.axes(np.ones(())) == {}


def test_one_device_holds_everything(program):
    placement = choose_placement(program, MESH, {"n": "data"})
    assert place(placement, program) is program.data
    assert processes_of(placement).count == 1
    assert placement.mesh.axis_types == (AxisType.Auto,) * 2


def test_draws_on_one_device_are_the_usual_ones(program):
    options = {"draws": 5, "tune": 5, "chains": 1, "progress": False}
    usual = sumout.sample(program, **options)
    placed = sumout.sample(program, **options, mesh=MESH, shard={"n": "data"})
    assert usual.posterior.equals(placed.posterior)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard": {"n": "data"}}, "without mesh"),
        ({"mesh": "data"}, "expected a mesh of JAX's"),
        ({"mesh": MESH, "shard": "n"}, "expected a dict from a plate"),
        ({"mesh": MESH, "shard": {"m": "data"}}, r"names 'm', which is no plate .* there are: 'n', '[xy]', '[xy]'\."),
        ({"mesh": MESH, "shard": {"n": "rows"}}, r"no such axis; it has 'data' \(1 devices\), 'more'"),
        ({"mesh": MESH, "shard": {"n": "data", "x": "data"}}, "uses the axis 'data' of the mesh twice"),
        ({"mesh": MESH, "minibatch": {"n": 2}, "kernel": "sghmc"}, "mesh with a minibatch of n"),
    ],
)
def test_what_is_refused(program, options, words):
    with pytest.raises(OptionError, match=words):
        sumout.sample(program, **options)


def test_an_idle_axis_is_refused():
    two = SimpleNamespace(shape={"data": 1, "more": 2}, size=2)
    with pytest.raises(OptionError, match="its 2 devices would all do the same"):
        check_axes(two, ((5, ("data",)),))


def test_rows_without_arrays_are_refused():
    def by_value(y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        with numpyro.plate("n", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1), obs=jnp.array([float(value) for value in y]))

    program = sumout.program(by_value, np.arange(5.0))
    with pytest.raises(OptionError, match="no array among the data of 'by_value' has 5 rows"):
        choose_placement(program, MESH, {"n": "data"})
