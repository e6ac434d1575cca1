"""The same program as a density and as a NumPyro model; names, shapes and supports as the user knows them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout
from sumout.errors import ModelError
from sumout.model.supports import Count, Finite


def assert_same_density(one, other, rename=lambda name: name):
    """Equal log densities at 100 random points, up to nothing."""
    rng = np.random.default_rng(0)
    first = jax.jit(one.log_density)
    second = jax.jit(other.log_density)
    for _ in range(100):
        x = jnp.asarray(rng.normal(size=one.num_x))
        z = {}
        for name, site in one.z.items():
            values = site.support.values if isinstance(site.support, Finite) else np.arange(6)
            z[name] = jnp.asarray(rng.choice(values, size=site.shape))
        named = {rename(name): value for name, value in z.items()}
        a, b = first(x, z, one.data), second(x, named, other.data)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_survey_both_ways():
    y = np.array([1, 0, 1, 1, 0])

    def model(y):
        theta = numpyro.sample("theta", dist.Beta(2, 3))
        with numpyro.plate("employees", len(y)):
            coin = numpyro.sample("coin", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Bernoulli(jnp.where(coin, theta, 0.5)), obs=y)

    def density(x, z, y):
        ll = dist.Beta(2, 3).log_prob(x["theta"])
        for i in range(len(y)):
            ll += jnp.log(0.5)
            ll += jnp.where(z["coin"][i], dist.Bernoulli(x["theta"]).log_prob(y[i]), jnp.log(0.5))
        return ll

    spec = {"theta": (constraints.unit_interval, ())}
    assert_same_density(
        sumout.program(model, y), sumout.density(density, x=spec, z={"coin": sumout.finite(2, 5)}, data=y)
    )


def test_mixture_with_constrained_parameters_both_ways():
    y = np.array([0.3, -1.0, 2.0])

    def model(y, components):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0).expand([components]))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(z, sigma[z]), obs=y)

    def density(x, z, y):
        prior = dist.Dirichlet(jnp.ones(3)).log_prob(x["weights"]) + dist.HalfNormal(1.0).log_prob(x["sigma"]).sum()
        return prior + jnp.log(x["weights"])[z["z"]].sum() + dist.Normal(z["z"], x["sigma"][z["z"]]).log_prob(y).sum()

    spec = {"weights": (constraints.simplex, (3,)), "sigma": (constraints.positive, (3,))}
    assert_same_density(
        sumout.program(model, y, components=3),
        sumout.density(density, x=spec, z={"z": sumout.finite(3, 3)}, data=y),
    )


def test_scan_with_plates_and_continuous_latents_inside_both_ways():
    y = np.random.default_rng(0).normal(size=(4, 2))

    def model(y):
        stay = numpyro.sample("stay", dist.Beta(1, 1))

        def step(previous, y):
            scale = numpyro.sample("scale", dist.HalfNormal(1.0))
            with numpyro.plate("series", 2):
                z = numpyro.sample("z", dist.Bernoulli(jnp.where(previous == 1, stay, 1 - stay)))
                numpyro.sample("y", dist.Normal(z, scale), obs=y)
            return z, None

        scan(step, jnp.zeros(2, int), y)

    def density(x, z, y):
        ll = dist.HalfNormal(1.0).log_prob(x["scale"]).sum()
        previous = jnp.zeros(2, int)
        for t in range(4):
            ll += dist.Bernoulli(jnp.where(previous == 1, x["stay"], 1 - x["stay"])).log_prob(z["z"][t]).sum()
            ll += dist.Normal(z["z"][t], x["scale"][t]).log_prob(y[t]).sum()
            previous = z["z"][t]
        return ll

    program = sumout.program(model, y)
    assert program.dims["z"] == ("z_dim_0", "series")
    spec = {"stay": (constraints.unit_interval, ()), "scale": (constraints.positive, (4,))}
    assert_same_density(program, sumout.density(density, x=spec, z={"z": sumout.finite(2, (4, 2))}, data=y))


def test_mask_scale_factor_delta_improper_both_ways():
    data = {"y": np.array([0.5, -9.0, 1.5]), "mask": np.array([True, False, True])}

    def model(data):
        a = numpyro.sample("a", dist.ImproperUniform(constraints.positive, (), ()))
        shift = numpyro.sample("shift", dist.Delta(1.5, log_density=-0.3))
        with numpyro.plate("n", 3, dim=-1):
            n = numpyro.sample("n_latent", dist.Poisson(a))
            with numpyro.handlers.mask(mask=data["mask"]), numpyro.handlers.scale(scale=2.0):
                numpyro.sample("y", dist.Normal(n + shift, 1.0), obs=data["y"])
        numpyro.factor("bonus", -a * n.sum())
        numpyro.deterministic("double", 2 * n)

    def density(x, z, data):
        n = z["n_latent"]
        ll = dist.Poisson(x["a"]).log_prob(n).sum() - 0.3 - x["a"] * n.sum()
        return ll + 2 * jnp.where(data["mask"], dist.Normal(n + 1.5, 1.0).log_prob(data["y"]), 0.0).sum()

    program = sumout.program(model, data)
    assert list(program.x) == ["a"]
    other = sumout.density(density, x={"a": (constraints.positive, ())}, z={"n_latent": sumout.count(3)}, data=data)
    assert_same_density(program, other)
    values = program.constrain(jnp.zeros(1), {"n_latent": jnp.array([1, 2, 3])}, program.data)
    np.testing.assert_array_equal(values["double"], [2, 4, 6])


@pytest.mark.parametrize(
    ("fn", "values"),
    [
        (dist.DiscreteUniform(3, 7), [3, 4, 5, 6, 7]),
        (dist.Binomial(4, 0.3), [0, 1, 2, 3, 4]),
        (dist.Bernoulli(0.2), [0, 1]),
        (dist.Bernoulli(logits=0.2), [0, 1]),
        (dist.Categorical(jnp.ones(3) / 3), [0, 1, 2]),
        (dist.OrderedLogistic(0.1, jnp.array([-1.0, 0.5, 2.0])), [0, 1, 2, 3]),
        (dist.BetaBinomial(1.0, 2.0, 3), [0, 1, 2, 3]),
        (dist.Poisson(2.0), None),
        (dist.NegativeBinomial2(2.0, 1.0), None),
        (dist.Geometric(0.3), None),
        (dist.ZeroInflatedPoisson(0.2, 3.0), None),
        (dist.ZeroInflatedNegativeBinomial2(2.0, 1.0, gate=0.3), None),
    ],
)
def test_supports_hold_the_values_themselves(fn, values):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        z = numpyro.sample("z", fn)
        numpyro.sample("y", dist.Normal(mu + z, 1.0), obs=y)

    support = sumout.program(model, np.array(0.5)).z["z"].support
    if values is None:
        assert support == Count((), 0)
    else:
        np.testing.assert_array_equal(support.values, values)


def test_an_upper_end_that_depends_on_another_latent_becomes_a_count():
    def model(y):
        p = numpyro.sample("p", dist.Beta(1, 1))
        size = numpyro.sample("size", dist.Poisson(5.0))
        k = numpyro.sample("k", dist.Binomial(size, p))
        numpyro.sample("y", dist.Normal(k, 1.0), obs=y)

    program = sumout.program(model, np.array(2.0))
    assert isinstance(program.z["k"].support, Count)
    z = {"size": jnp.array(3), "k": jnp.array(4)}
    assert jax.jit(program.log_density)(jnp.zeros(1), z, program.data) == -jnp.inf


def test_data_are_arguments_and_not_constants():
    def model(y, group, name, switch=True):
        assert name == "label" and switch
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([3]))
        z = numpyro.sample("z", dist.Bernoulli(0.5).expand([len(y)]))
        numpyro.sample("y", dist.Normal(mu[group] + z, 1.0), obs=y)

    program = sumout.program(model, np.zeros(7), np.arange(7) % 3, "label", switch=True)
    assert set(program.data) == {"y", "group"}
    assert program.fixed == ()
    arguments = program.abstract_arguments()
    closed = jax.make_jaxpr(program.log_density)(*arguments)
    assert all(np.size(const) < 7 for const in closed.consts)
    x, z = jnp.zeros(3), {"z": jnp.zeros(7, int)}
    moved = {**program.data, "y": program.data["y"] + 1}
    assert program.log_density(x, z, moved) != program.log_density(x, z, program.data)


def test_an_argument_used_by_value_is_kept_and_named():
    def model(y, group):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([int(group.max()) + 1]))
        z = numpyro.sample("z", dist.Bernoulli(0.5).expand([len(y)]))
        numpyro.sample("y", dist.Normal(mu[group] + z, 1.0), obs=y)

    program = sumout.program(model, np.zeros(4), np.array([0, 1, 1, 2]))
    assert program.fixed == ("group",)
    assert set(program.data) == {"y"}
    assert "group" in sumout.explain(program)


def test_arrays_that_change_later_do_not_change_the_program():
    def model(y, group, more):
        group -= group.min()  # works on its own copy
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([int(group.max()) + 1]))
        z = numpyro.sample("z", dist.Bernoulli(0.5).expand([len(y)]))
        numpyro.sample("y", dist.Normal(mu[group] + z + np.log(more["scale"][0]), 1.0), obs=y)
        numpyro.sample("size", dist.Poisson(3), obs=np.exp(more["log_size"]).round())

    given = np.array([0.5, 1.0]), np.array([1, 2]), {"scale": (np.array([1.0, 2.0]),), "log_size": np.zeros(2)}
    program = sumout.program(model, *given)
    again = sumout.program(model, *(jax.tree.map(np.array, given)))
    for array in jax.tree.leaves(given):
        array[...] = 3
    x, z = jnp.ones(2), {"z": jnp.zeros(2, int)}
    for _ in range(2):
        named = program.unravel(x)
        assert program.log_joint(named, z, program.data) == again.log_joint(named, z, again.data)
    np.testing.assert_array_equal(program.observed["size"], 1)
    np.testing.assert_array_equal(program.observed["y"], [0.5, 1.0])


def test_data_of_a_density_that_change_later_do_not_change_it():
    data = {"n": np.array([1, 2]), "w": [np.ones(2)]}
    values = np.array([1, 2])

    def density(x, z, data):
        return -int(data["n"].sum()) * x["a"] ** 2 + z["z"] * data["w"][0].sum()

    program = sumout.density(density, x={"a": (constraints.real, ())}, z={"z": sumout.finite(values)}, data=data)
    for array in (data["n"], data["w"][0], values):
        array[:] = 9
    assert program.log_joint({"a": jnp.ones(())}, {"z": jnp.array(2)}, program.data) == -3 + 4
    assert program.z["z"].support.values.tolist() == [1, 2]


def test_an_array_from_around_the_model_that_changes_is_told():
    y = np.array([0.5, 1.0])

    def model():
        z = numpyro.sample("z", dist.Bernoulli(0.5).expand([2]))
        numpyro.sample("y", dist.Normal(z, numpyro.sample("s", dist.HalfNormal(1))), obs=y)

    program = sumout.program(model)
    assert program.changed_outside() == ()
    y[0] = 7.0
    assert "y has been changed since the program was made" in sumout.check(program).errors[0]


def test_values_that_single_precision_cannot_tell_apart_are_refused():
    def density(x, z, data):
        return -(x["a"] ** 2) + 0 * z["z"]

    for values in ([0, 2**40], [1.0, 1.0 + 1e-12]):
        with jax.enable_x64(False), pytest.raises(ModelError, match="told apart"):
            sumout.density(density, x={"a": (constraints.real, ())}, z={"z": sumout.finite(values)})


def test_nested_plates_give_dims():
    def model(y):
        with numpyro.plate("rows", 2, dim=-2):
            mu = numpyro.sample("mu", dist.Normal(0, 1))
            with numpyro.plate("columns", 3, dim=-1):
                z = numpyro.sample("z", dist.Bernoulli(0.5))
                numpyro.sample("y", dist.Normal(mu + z, 1.0), obs=y)

    program = sumout.program(model, np.zeros((2, 3)))
    assert program.z["z"].shape == (2, 3)
    result = sumout.sample(program, draws=3, tune=3, chains=1)
    assert result.posterior["z"].dims == ("chain", "draw", "rows", "columns")
    assert result.observed_data["y"].dims == ("rows", "columns")
