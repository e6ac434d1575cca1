"""Predicted data come from the laws of the observed sites, given the latents of the posterior or new ones."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

import sumout
from sumout.errors import ModelError, ModelWarning, OptionError
from sumout.results.data_tree import build_tree

from models import mixture, scan_hmm


def made_up(program, draws=200, **values):
    """A result with these values at every draw."""
    posterior = {name: np.broadcast_to(value, (2, draws, *np.shape(value))) for name, value in values.items()}
    groups = {"posterior": posterior, "sample_stats": {"lp": np.zeros((2, draws))}}
    attrs = {"discrete": list(program.z)}
    dims = {name: list(dims) for name, dims in program.dims.items()}
    return build_tree(groups, {}, program.observed, constant={}, coords={}, dims=dims, coordinates=[], attrs=attrs)


Y = np.array([0.0, 1.0, 2.0, 3.0])


def test_the_same_rows_have_the_posterior_s_z():
    program = sumout.program(mixture, Y)
    result = made_up(program, mu=[-100.0, 100.0], sigma=1.0, z=[0, 1, 1, 0])
    made = sumout.predict(program, result)
    y = made.posterior_predictive.y
    assert y.dims == ("chain", "draw", "points") and made.posterior_predictive.attrs["redrawn"] == []
    assert np.array_equal(y.values > 0, np.broadcast_to([False, True, True, False], y.shape))
    assert np.allclose(abs(y.values), 100, atol=6) and y.values.std(axis=(0, 1)).min() > 0.8
    assert "posterior_predictive" not in result.children and "observed_data" in made.children
    assert np.array_equal(sumout.predict(program, result).posterior_predictive.y, y)
    assert not np.array_equal(sumout.predict(program, result, seed=1).posterior_predictive.y, y)
    few = sumout.predict(program, result, draws=5).posterior_predictive
    assert few.sizes["draw"] == 5 and few.draw.values[-1] == 199


@pytest.mark.parametrize("num", [4, 7])
def test_new_rows_have_a_z_of_their_own(num):
    program = sumout.program(mixture, Y)
    result = made_up(program, mu=[-100.0, 100.0], sigma=1.0, z=[1, 1, 1, 1])
    made = sumout.predict(program, result, data={"y": [0.0] * num})
    group = made.posterior_predictive
    assert group.y.shape == (2, 200, num) and group.attrs["redrawn"] == ["z"]
    assert np.array_equal(group.y.values > 0, group.z.values == 1)
    assert group.z.values.mean() == pytest.approx(0.4, abs=6 * np.sqrt(0.24 / group.z.size))
    assert "observed_data" not in made.children  # which are of other rows
    kept = sumout.predict(program, result, data={"y": Y + 1}, redraw=[]).posterior_predictive
    assert (kept.y.values > 0).all() and kept.attrs["redrawn"] == []


def regression(x, y=None):
    with numpyro.plate("columns", x.shape[1]):
        is_in = numpyro.sample("is_in", dist.Bernoulli(0.5))
        b = numpyro.sample("b", dist.Normal(0, 1))
    mean = numpyro.deterministic("mean", x @ (is_in * b))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, 0.01), obs=y)


def test_what_belongs_to_no_row_is_the_posterior_s():
    program = sumout.program(regression, np.ones((5, 2)), np.zeros(5))
    result = made_up(program, b=[3.0, 5.0], is_in=[1, 0], mean=np.zeros(5))
    new = {"x": np.array([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0]]), "y": None}
    group = sumout.predict(program, result, data=new, var_names=["y", "mean"]).posterior_predictive
    assert np.allclose(group["mean"].values, [3.0, 6.0, 9.0]) and np.allclose(group.y.values, [3.0, 6.0, 9.0], atol=0.1)
    assert group.attrs["redrawn"] == []
    with pytest.raises(OptionError, match=r"'(b|is_in)' has shape \(2,\) in the result and \(3,\)"):
        sumout.predict(program, result, data={"x": np.ones((5, 3)), "y": None})


def test_inside_loops():
    program = sumout.program(scan_hmm, Y)
    result = made_up(program, stay=0.9, z=[0, 1, 0, 1])
    y = sumout.predict(program, result).posterior_predictive.y.values
    assert np.allclose(y.mean(axis=(0, 1)), [0.0, 2.0, 0.0, 2.0], atol=6 / np.sqrt(400))
    assert y.std() > 0.9
    new = sumout.predict(program, result, data={"y": np.zeros(6)}).posterior_predictive
    assert new.y.shape == (2, 200, 6) and new.attrs["redrawn"] == ["z"]


def test_prior():
    program = sumout.program(mixture, Y)
    made = sumout.predict(program, draws=400)
    assert set(made.children) == {"prior", "prior_predictive", "observed_data"}
    z, mu, sigma = (made.prior[name].values for name in ("z", "mu", "sigma"))
    assert mu.std() == pytest.approx(3, rel=0.25) and sigma.min() > 0
    deviation = made.prior_predictive.y.values - np.take_along_axis(mu, z, axis=-1)
    assert (deviation / sigma[..., None]).std() == pytest.approx(1, rel=0.15)


def nested(y):
    with numpyro.plate("groups", y.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        with numpyro.plate("visits", y.shape[0]):
            numpyro.sample("y", dist.Normal(2.0 * z, 1), obs=y)


def test_what_nobody_can_know_is_asked_for():
    program = sumout.program(nested, np.zeros((3, 2)))
    result = made_up(program, draws=3, z=[1, 1])
    with pytest.raises(OptionError, match=r"whether 'z' belongs to new rows.*redraw=\['z'\]"):
        sumout.predict(program, result, data={"y": np.zeros((5, 2))})
    kept = sumout.predict(program, result, data={"y": np.zeros((5, 2))}, redraw=[]).posterior_predictive
    assert kept.y.shape[2:] == (5, 2)
    assert sumout.predict(program, result, data={"y": np.zeros((3, 4))}).posterior_predictive.attrs["redrawn"] == ["z"]


def with_factor(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.factor("tilt", 3.0 * z)
    numpyro.sample("y", dist.Normal(z, 1), obs=y)


def test_refusals():
    program = sumout.program(mixture, Y)
    result = made_up(program, draws=3, mu=[0.0, 1.0], sigma=1.0, z=[1, 1, 1, 1])
    for arguments, told in (
        ({"data": {"yy": Y}}, "no argument 'yy'. Did you mean 'y'"),
        ({"data": Y}, "data should be a dict"),
        ({"var_names": ["mue"]}, "no site 'mue'. Did you mean 'mu'"),
        ({"redraw": ["q"]}, "no latent site 'q'. There are: mu, sigma, z"),
        ({"draws": 0}, "draws=0 must be a whole number"),
    ):
        with pytest.raises(OptionError, match=told.replace(".", r"\.")):
            sumout.predict(program, result, **arguments)
    with pytest.raises(OptionError, match="the result has no 'stay'"):
        sumout.predict(sumout.program(scan_hmm, Y), result)
    with pytest.raises(OptionError, match="expected a result"):
        sumout.predict(program, xr.Dataset())
    density = sumout.density(lambda x, z, data: -jnp.sum(z["z"]), x={}, z={"z": sumout.finite(2)})
    with pytest.raises(ModelError, match="is a log density, which does not say by what laws"):
        sumout.predict(density, result)
    with pytest.warns(ModelWarning, match=r"factors \(tilt\)"):
        sumout.predict(sumout.program(with_factor, 0.5), draws=3)


def test_pymc():
    import pymc as pm

    with pm.Model(coords={"rows": ["a", "b", "c"]}) as model:
        x = pm.Data("x", [1.0, 2.0, 3.0], dims="rows")
        b = pm.Normal("b", 0, x.std())  # PyMC alone would draw it anew with the data
        z = pm.Bernoulli("z", 0.25, dims="rows")
        pm.Normal("y", b * x + 100 * z, 0.01, observed=[0.0, 0.0, 0.0], shape=x.shape, dims="rows")
    program = sumout.program(model)
    result = made_up(program, b=2.0, z=[0, 1, 0])
    y = sumout.predict(model, result, draws=20).posterior_predictive.y
    assert y.dims == ("chain", "draw", "rows") and list(y.rows.values) == ["a", "b", "c"]
    assert np.allclose(y, [2.0, 104.0, 6.0], atol=0.1)
    new = sumout.predict(model, result, data={"x": [5.0, 7.0]}).posterior_predictive
    assert new.attrs["redrawn"] == ["z"] and np.allclose(new.y - 100 * new.z, [10.0, 14.0], atol=0.1)
    assert new.z.values.mean() == pytest.approx(0.25, abs=6 * np.sqrt(0.19 / new.z.size))
    assert list(model["x"].get_value()) == [1.0, 2.0, 3.0] and tuple(model.coords["rows"]) == ("a", "b", "c")
    prior = sumout.predict(model, draws=10)
    assert prior.prior.z.shape == (1, 10, 3) and prior.prior_predictive.y.shape == (1, 10, 3)
    with pytest.raises(OptionError, match=r"no pm\.Data 'xx'"):
        sumout.predict(model, result, data={"xx": 1})
