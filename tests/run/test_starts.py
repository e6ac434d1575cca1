"""Starts: sound, in the best hill that was found, and apart from each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sumout
from sumout.moves.sweep import STAY
from sumout.plan.plan import make_plan
from sumout.plan.target import Target, make_target
from sumout.randomness import new_key
from sumout.run.starts import Ascents, Starts, choose_ascents

from programs import ENUMERABLE, REAL


def with_x(num_x, num_z=1):
    """A program with so many coordinates and sites; its own density is not looked at."""
    return sumout.density(
        lambda x, z, data: -0.5 * sum(v**2 for v in x.values()) + z["z"].sum(),
        x={f"x{i}": REAL for i in range(num_x)},
        z={"z": sumout.finite(2, shape=num_z)},
    )


def starts_of(log_density, num_x, num_chains=16):
    target = Target(lambda x, z, data: log_density(x), STAY)
    points, _ = Starts(with_x(num_x), target).find(new_key(0), num_chains)
    np.testing.assert_allclose(points.log_density, jax.vmap(log_density)(points.x))
    np.testing.assert_allclose(points.gradient, jax.vmap(jax.grad(log_density))(points.x))
    return points.x, points.log_density


def test_a_minor_mode_near_by_does_not_trap_a_chain():
    def two_hills(x):  # nearly all mass is on the hill that starts in (−2, 2) are far from
        return jnp.logaddexp(-0.5 * (x[0] + 1) ** 2, 8.0 - 0.5 * (x[0] - 6) ** 2 / 4)

    x, _ = starts_of(two_hills, 1)
    assert (x > 2.5).all()


def test_a_chain_that_finds_a_minor_mode_only_follows_the_others():
    def far_hill(x):  # few of all restarts begin on its slope
        return jnp.logaddexp(-0.5 * (x[0] + 1) ** 2, 8.0 - 0.5 * (x[0] - 6) ** 2 / 0.85**2)

    x, _ = starts_of(far_hill, 1)
    assert (x > 2.5).all()
    assert len(np.unique(x)) > 1


def test_chains_share_the_only_ascent_that_is_high():
    optima = np.array([[-50.0, -60.0], [-70.0, -2.0], [-np.inf, -np.inf]])
    chain, number = choose_ascents(optima, spread=10.0)
    assert chain.tolist() == [1, 1, 1]
    assert number.tolist() == [1, 1, 1]


def test_modes_of_about_the_same_height_keep_their_chains():
    chain, number = choose_ascents(np.array([[-3.0, -9.0], [-40.0, -8.0], [-5.0, -4.0]]), spread=6.0)
    assert chain.tolist() == [0, 1, 2]
    assert number.tolist() == [0, 1, 1]


def test_starts_are_spread_like_draws_or_wider():
    scales = jnp.array([0.1, 0.3, 1.0, 3.0])
    x, log_density = starts_of(lambda x: -0.5 * ((x / scales) ** 2).sum(), 4, num_chains=64)
    assert log_density.min() > -5  # within num_x of the top, where the ascent has come to a stop
    spread = (x / np.asarray(scales)).std(axis=0)
    assert spread.max() > 1
    assert len(np.unique(x.round(6), axis=0)) == 64


def test_an_ascent_does_not_end_in_the_void():
    def fenced(x):  # rises towards a fence behind which nothing is finite
        return jnp.where(x[0] < 3, 2.0 * x[0], jnp.nan) - 0.5 * x[1] ** 2

    x, log_density = starts_of(fenced, 2)
    assert np.isfinite(log_density).all()
    assert (x[:, 0] < 3).all()


@pytest.mark.parametrize(
    ("log_density", "num_z", "rounds"),
    [
        pytest.param(lambda x: -0.5 * (x**2).sum(), 1000, 1, id="one hill"),
        pytest.param(lambda x: 99 * jnp.cos(20 * x[0]) - 20 * x[0], 1000, 2, id="hills of all heights"),
        pytest.param(lambda x: 99 * jnp.cos(20 * x[0]) - 20 * x[0], 1, 1, id="little data"),
    ],
)
def test_ascents_go_on_until_enough_of_them_are_as_high(monkeypatch, log_density, num_z, rounds):
    lengths = []
    advance = Ascents._advance
    monkeypatch.setattr(Ascents, "_advance", lambda *args: lengths.append(len(args[2])) or advance(*args))
    ascents = Ascents(with_x(1, num_z), Target(lambda x, z, data: log_density(x), STAY), restarts=3)
    ascents.run(np.arange(2, dtype=np.uint32)[None], {}, below=0.0)
    assert lengths == [200, 800][:rounds]


@pytest.mark.parametrize("how", [pytest.param("sum", marks=pytest.mark.calibration), "gibbs"])
def test_starts_do_not_depend_on_the_number_of_chains(how):
    program = ENUMERABLE["mixture"]()
    target = make_target(make_plan(sumout.read(program), {"z": how}))
    few, few_z = Starts(program, target).find(new_key(1), 2)
    many, many_z = Starts(program, target).find(new_key(1), 5)
    np.testing.assert_array_equal(few.x, many.x[:2])
    np.testing.assert_array_equal(few_z["z"], many_z["z"][:2])
    assert few_z["z"].dtype == program.z["z"].dtype
    density = jax.vmap(jax.value_and_grad(target.log_density), in_axes=(0, 0, None))
    assert all(np.isfinite(a).all() for a in density(many.x, many_z, program.data))


def test_mixtures_far_apart_are_found():
    """Two clusters at ±20 with weights 0.2 and 0.8; of single ascents, most end the wrong way round."""

    def mixture(x, z, y):
        prior = -0.5 * (x["mu"] ** 2).sum() / 400
        weight = jnp.log(jnp.where(z["z"], 0.2, 0.8)).sum()
        return prior + weight - 0.5 * ((y - x["mu"][z["z"]]) ** 2).sum()

    rng = np.random.default_rng(0)
    y = rng.normal(np.repeat([-20.0, 20.0], [20, 80]), 1.0)
    program = sumout.density(mixture, x={"mu": (REAL[0], (2,))}, z={"z": sumout.finite(2, shape=100)}, data=y)
    target = make_target(make_plan(sumout.read(program)))
    x = Starts(program, target).find(new_key(0), 16)[0].x
    assert (x[:, 0] > x[:, 1]).mean() > 0.8  # the heavier component at the heavier cluster
