"""NumPyro's idioms around a model: params, modules, handlers, one-hot latents, models without a discrete site."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import Predictive
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density, potential_energy

import sumout
from sumout.errors import ModelError
from sumout.plan.plan import plan_for

import models

Y = np.array([-1.0, 0.2, 3.1, 2.8])
LABELS = np.array([0, 0, 1, 1])
SHARES = jnp.array([0.2, 0.3, 0.5])


def density_at(program, x, z=None):
    return float(program.log_density(jnp.asarray(x), z or {}, program.data))


def marginal_at(program, x):
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    return float(plan_for(program).log_density(jnp.asarray(x), z, program.data))


def with_scale(scale):
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]))
    with numpyro.plate("points", len(Y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu[z], scale), obs=Y)


@pytest.mark.parametrize("initial", [1.5, lambda key: jnp.asarray(1.5)])
def test_a_param_is_held_at_its_initial_value(initial):
    def with_param():
        with_scale(numpyro.param("scale", initial, constraint=dist.constraints.positive))

    x, z = [0.3, 2.5], {"z": jnp.asarray(LABELS)}
    held, fixed = sumout.program(with_param), sumout.program(with_scale, 1.5)
    assert list(held.x) == ["mu"]
    assert density_at(held, x, z) == pytest.approx(density_at(fixed, x, z), abs=1e-12)
    assert "'scale'" in held.notes[0]
    assert held.notes[0] in str(sumout.explain(held))
    assert fixed.notes == ()


def test_a_module_with_parameters_and_one_without():
    def network(init):
        def with_module():
            apply = numpyro.module("net", (init, lambda p, x: jnp.tanh(x) + sum(p)), (2,))
            mu = apply(numpyro.sample("mu", dist.Normal(0, 3).expand([2])))
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=0.5)

        return sumout.program(with_module)

    bare = network(lambda key, shape: (shape, ()))
    random = network(lambda key, shape: (shape, (jax.random.normal(key, shape),)))
    weights = jax.random.normal(jax.random.key(0), (2,))
    x, z = jnp.array([0.3, -0.5]), {"z": jnp.array(1)}
    prior = float(dist.Normal(0, 3).log_prob(x).sum() + jnp.log(0.4))
    expected = [float(dist.Normal(jnp.tanh(x)[1] + shift, 1.0).log_prob(0.5)) for shift in (0.0, weights[1])]
    assert density_at(bare, x, z) == pytest.approx(prior + expected[0], abs=1e-12)
    assert density_at(random, x, z) == pytest.approx(prior + expected[1], abs=1e-12)
    assert len(random.notes) == 2


def test_learned_centering_is_taken_at_one_half():
    def levels(y):
        top = numpyro.sample("top", dist.Normal(0, 3))
        mu = numpyro.sample("mu", dist.Normal(top, 2.0).expand([2]))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    learned, half = (
        sumout.program(handlers.reparam(levels, config={"mu": LocScaleReparam(centered)}), Y)
        for centered in (None, 0.5)
    )
    assert list(learned.x) == ["top", "mu_decentered"]
    x, z = [0.4, -0.2, 1.0], {"z": jnp.asarray(LABELS)}
    assert density_at(learned, x, z) == pytest.approx(density_at(half, x, z), abs=1e-12)
    assert "mu" in learned.constrain(jnp.asarray(x), z, learned.data)


def one_hot(y):
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([3]))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Multinomial(1, SHARES))
        numpyro.sample("y", dist.Normal(z @ mu, 1.0), obs=y)


def categorical(y):
    mu = numpyro.sample("mu", dist.Normal(0, 3).expand([3]))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(SHARES))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def test_a_one_trial_multinomial_is_a_category():
    program, x = sumout.program(one_hot, Y), [0.3, -1.0, 2.0]
    assert marginal_at(program, x) == pytest.approx(marginal_at(sumout.program(categorical, Y), x), abs=1e-10)
    category = jnp.array([0, 2, 1, 1])
    values = program.constrain(jnp.asarray(x), {"z_category": category}, program.data)
    np.testing.assert_array_equal(values["z"], np.eye(3, dtype=int)[np.asarray(category)])
    as_numpyro = log_density(one_hot, (Y,), {}, {"mu": jnp.asarray(x), "z": values["z"]})[0]
    assert density_at(program, x, {"z_category": category}) == pytest.approx(float(as_numpyro), abs=1e-10)


def test_one_hot_draws_come_back_as_the_model_has_them():
    result = sumout.sample(sumout.program(one_hot, Y), draws=20, tune=20, chains=2, log_likelihood=False)
    assert result.posterior.z.shape == (2, 20, 4, 3)
    assert (result.posterior.z.sum("z_dim_1") == 1).all()
    samples = sumout.to_numpyro(result)
    predicted = Predictive(one_hot, posterior_samples=samples, return_sites=["y", "z"])(jax.random.key(0), Y)
    np.testing.assert_array_equal(predicted["z"], samples["z"])


def test_more_trials_are_refused_by_name():
    def counts():
        numpyro.sample("counts", dist.Multinomial(3, SHARES))

    with pytest.raises(ModelError, match=r"'counts'.*Multinomial of one trial"):
        sumout.program(counts)


def test_a_model_without_a_discrete_site_is_sampled():
    def known(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    program = sumout.program(known, Y)
    assert "0 discrete sites" in str(sumout.explain(program))
    result = sumout.sample(program, draws=1000, tune=300, chains=2)
    # Exact: N(Σy / 5, 1/5). The error of a mean of about 2,000 draws is a hundredth: five of these are allowed.
    assert float(result.posterior.mu.mean()) == pytest.approx(Y.sum() / 5, abs=0.05)
    assert float(result.posterior.mu.std()) == pytest.approx(5**-0.5, rel=0.1)


def test_conditioned_on_z_the_density_is_that_at_z():
    conditioned = sumout.program(handlers.condition(models.mixture, {"z": LABELS}), Y)
    assert not conditioned.z
    x = [0.3, 2.5, 0.1]
    joint = sumout.program(models.mixture, Y)
    assert density_at(conditioned, x) == pytest.approx(density_at(joint, x, {"z": jnp.asarray(LABELS)}), abs=1e-12)


def test_what_is_hidden_is_held_where_numpyro_holds_it():
    hidden = handlers.block(models.mixture, hide=["z"])
    program, x = sumout.program(hidden, Y), {"mu": jnp.array([0.3, 2.5]), "sigma": jnp.array(0.1)}
    expected = potential_energy(handlers.seed(hidden, 0), (Y,), {}, x)
    seeded = sumout.program(handlers.seed(hidden, 0), Y)
    flat = [0.3, 2.5, 0.1]
    assert not program.z
    assert density_at(seeded, flat) == pytest.approx(-float(expected), abs=1e-10)
    assert density_at(program, flat) == density_at(program, flat)
    assert "held fixed" in program.notes[0]
    without_x = sumout.program(handlers.block(models.mixture, hide=["mu", "sigma"]), Y)
    assert list(without_x.z) == ["z"]
    assert np.isfinite(marginal_at(without_x, np.zeros(0)))


def test_a_seed_inside_does_not_make_latents_known():
    """The support of the second count ends at the first; were its seeded draw known, larger values would be lost."""

    def nested():
        p = numpyro.sample("p", dist.Beta(2, 2))
        first = numpyro.sample("first", dist.Binomial(3, p))
        numpyro.sample("second", dist.Binomial(first, 0.5))
        numpyro.sample("y", dist.Normal(first, 1.0), obs=1.0)

    plain, seeded = sumout.program(nested), sumout.program(handlers.seed(nested, 0))
    assert str(plain.z["second"].support) == str(seeded.z["second"].support)


def test_a_seed_inside_does_not_repeat_forward_draws():
    def counts():
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("next", dist.Poisson(5 * rate))
        numpyro.sample("y", dist.Poisson(rate), obs=3)

    program = sumout.program(handlers.seed(counts, 0))
    assert program.forward == ("next",)
    z = {"next": jnp.array(0)}
    draw = jax.jit(lambda key: program.draw_forward(key, jnp.array([1.0]), z, program.data)["next"])
    assert len({int(draw(jax.random.key(i))) for i in range(10)}) > 2


def test_a_loop_without_a_carry():
    def loop(y):
        share = numpyro.sample("share", dist.Beta(2, 2))

        def step(carry, y):
            z = numpyro.sample("z", dist.Bernoulli(share))
            numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)
            return carry, None

        scan(step, None, y)

    def plate(y):
        share = numpyro.sample("share", dist.Beta(2, 2))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(share))
            numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)

    looped, plated = sumout.program(loop, Y), sumout.program(plate, Y)
    assert marginal_at(looped, [0.4]) == pytest.approx(marginal_at(plated, [0.4]), abs=1e-10)


def test_a_loop_whose_carry_changes_its_kind_is_told_in_whole():
    def loop(y):
        def step(previous, y):
            z = numpyro.sample("z", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Normal(2.0 * z, 1.0), obs=y)
            return z, None

        scan(step, None, y)

    with pytest.raises(ModelError, match=r"they differ: The input carry .*NoneType"):
        sumout.program(loop, Y)
