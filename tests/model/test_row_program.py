"""Programs of some rows: how plates are taken apart, and what is refused by name."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import Normal, constraints

import sumout
from sumout.errors import ModelError, OptionError
from sumout.model.row_program import take_rows

from row_models import mixture

Y = np.random.default_rng(0).normal(size=60)


def two_components(z, y, mu):
    numpyro.sample("y", dist.Normal(mu * z, 1.0), obs=y)


def picked(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y), subsample_size=10) as rows:
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), y[rows], mu)


def subsampled(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", 60, subsample_size=10):
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), numpyro.subsample(y, event_dim=0), mu)


def of_a_number(y, size):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", size):
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), y, mu)


@pytest.mark.parametrize(("model", "rest"), [(mixture, ()), (picked, ()), (subsampled, ()), (of_a_number, (60,))])
def test_rows_are_those_of_the_whole_program(model, rest):
    """Whoever picks the rows, the model or its caller."""
    program = sumout.program(model, Y, *rest)
    rows = take_rows(program, "n", 10)
    assert (rows.size, rows.batch, dict(rows.site_axes)) == (60, 10, {"z": 0})
    index = jnp.arange(10, 20)
    terms = rows.program.log_terms(
        jnp.full(program.num_x, 0.3), {"z": jnp.ones(10, int)}, rows.take(rows.all_rows, index)
    )
    whole = program.log_terms(jnp.full(program.num_x, 0.3), {"z": jnp.ones(60, int)}, program.data)
    np.testing.assert_allclose(terms["y"], whole["y"][10:20])


def test_a_subsampled_plate_has_all_rows_and_no_weight_without_minibatches():
    one, other = (sumout.program(model, Y) for model in (picked, subsampled))
    z, x = {"z": jnp.ones(60, int)}, jnp.array([0.3])
    expected = Normal(0, 5).log_prob(0.3) + Normal(0.3, 1).log_prob(Y).sum() + 60 * jnp.log(0.5)
    for program in (one, other):
        np.testing.assert_allclose(program.log_density(x, z, program.data), expected)


def outside(y):
    g = numpyro.sample("g", dist.Bernoulli(0.5))
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(mu * g, 1.0), obs=y)


def local_x(y):
    with numpyro.plate("n", len(y)):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), y, mu)


def total(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        two_components(z, y, mu)
    numpyro.factor("half", -((z.mean() - 0.5) ** 2))


def centred(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), y - y.mean(), mu)


def tempered(y):
    mu = numpyro.sample("mu", dist.Normal(0, len(y)))
    with numpyro.plate("n", len(y)):
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), y, mu)


def lagged(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        two_components(numpyro.sample("z", dist.Bernoulli(0.5)), y - jnp.roll(y, 1), mu)


def other_supports(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.DiscreteUniform(0, (jnp.abs(y) + 1).astype(int)))
        two_components(z, y, mu)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (outside, "'y', inside plate 'n', depends on the discrete site 'g'"),
        (local_x, "continuous site 'mu' is inside plate 'n'"),
        (total, "'half' is outside plate 'n', but depends on site 'z'"),
        (centred, "term 'y'.* is not what it is in that of all 60"),
        (tempered, "term 'mu'.* is not what it is in that of all 60"),
        (lagged, "term 'y'.* is not what it is in that of all 60"),
        (other_supports, "follow from the values of 'y'"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_what_joins_rows_is_refused_by_name(model, words):
    with pytest.raises(ModelError, match=words):
        take_rows(sumout.program(model, Y), "n", 10)


@pytest.mark.parametrize(
    ("plate", "batch", "words"),
    [("m", 10, "no plate 'm'; its plates: 'n'"), ("n", 60, "which has 60"), ("n", 0, "at least 1"), ("n", 2.5, "2.5")],
)
def test_wrong_numbers_are_refused(plate, batch, words):
    with pytest.raises(OptionError, match=words):
        take_rows(sumout.program(mixture, Y), plate, batch)


def test_data_that_are_no_arguments_are_asked_for():
    def closed():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        with numpyro.plate("n", 60):
            two_components(numpyro.sample("z", dist.Bernoulli(0.5)), Y, mu)

    with pytest.raises(ModelError, match="pass the data as arguments"):
        take_rows(sumout.program(closed), "n", 10)


def plain(x, z, data):
    each = Normal(x["mu"] * z["z"], 1.0).log_prob(data["y"]) + jnp.where(z["z"] == 1, -1.0, -0.5)
    return Normal(0, 10).log_prob(x["mu"]) + each.sum()


def plain_lagged(x, z, data):
    return plain(x, z, data) + x["mu"] * (data["y"][1:] * data["y"][:-1]).sum()


def plain_outside(x, z, data):
    return plain(x, z, data) + x["mu"] * (z["g"] * data["y"]).sum()


def as_program(log_density, **more):
    z = {"z": sumout.finite(2, shape=60), **more}
    x = {"mu": (constraints.real, ())}
    return sumout.density(log_density, x=x, z=z, data={"y": Y}, rows={"y": "n", "z": "n"})


def test_a_plain_density_without_rows_is_what_they_share():
    rows = take_rows(as_program(plain), "n", 7)
    x, data = jnp.array([0.7]), rows.take(rows.all_rows, jnp.arange(7))
    np.testing.assert_allclose(rows.shared.log_density(x, {}, data), Normal(0, 10).log_prob(0.7))
    expected = plain({"mu": 0.7}, {"z": jnp.ones(7)}, {"y": Y[:7]})
    np.testing.assert_allclose(rows.program.log_density(x, {"z": jnp.ones(7, int)}, data), expected)


def test_rows_of_another_kind_are_shared():
    """Of two kinds of rows those of the plate that is subsampled are left out, the others are what all share."""

    def two_kinds(x, z, data):
        return plain(x, z, data) + Normal(x["mu"], 2.0).log_prob(data["w"]).sum()

    x, z = {"mu": (constraints.real, ())}, {"z": sumout.finite(2, shape=60)}
    data, rows = {"y": Y, "w": np.arange(4.0)}, {"y": "n", "z": "n", "w": "m"}
    program = sumout.density(two_kinds, x=x, z=z, data=data, rows=rows)
    made = take_rows(program, "n", 7)
    nothing = {"z": jnp.zeros(0)}, {**data, "y": Y[:0]}
    expected = two_kinds({"mu": 0.7}, *nothing)
    np.testing.assert_allclose(made.shared.log_density(jnp.array([0.7]), {}, made.program.data), expected)


def test_plain_densities_that_join_rows_are_refused():
    with pytest.raises(ModelError, match="not the sum of those of 4 and 4"):
        take_rows(as_program(plain_lagged), "n", 7)
    with pytest.raises(ModelError, match=r"not in `rows` \(g\)"):
        take_rows(as_program(plain_outside, g=sumout.finite(2)), "n", 7)
    with pytest.raises(OptionError, match="rows names 'w'"):
        x, z = {"mu": (constraints.real, ())}, {"z": sumout.finite(2, shape=60)}
        sumout.density(plain, x=x, z=z, data={"y": Y}, rows={"w": "n"})
