"""A program's kernel as pure functions: they jit, vmap and scan, tune as `sample` does, and take other data."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.errors import OptionError, StartError

import models
import programs

NUM = 400


def gaussian(x, z, y):
    """Exact: x is N(Σy / (1 + n), 1 / (1 + n)), z a fair coin."""
    coin = jnp.where(z["coin"], jnp.log(0.5), jnp.log(0.5))
    return dist.Normal(0, 1).log_prob(x["a"]) + dist.Normal(x["a"], 1).log_prob(y).sum() + coin


def gaussian_program(y):
    return sumout.density(gaussian, x={"a": (constraints.real, ())}, z={"coin": sumout.finite(2)}, data=y)


def run(steps, state, key, num=NUM, data=None):
    def one(state, key):
        state, info = steps.step(key, state, data)
        return state, (steps.constrain(state, data), info)

    return jax.jit(lambda state: jax.lax.scan(one, state, jax.random.split(key, num)))(state)


def test_scanned_steps_have_the_exact_law():
    """The error of a mean of 2 × 2,000 draws is about 0.02 sd: five times that is allowed."""
    y = np.array([1.0, 2.0, 1.5])
    steps = sumout.steps(gaussian_program(y))
    keys = jax.random.split(jax.random.key(1), 2)
    states = jax.vmap(lambda key: sumout.tune(steps, key, 300))(keys)
    _, (draws, info) = jax.vmap(lambda state, key: run(steps, state, key, 2000))(states, keys)
    exact, sd = y.sum() / 4, 0.5
    assert draws["a"].shape == (2, 2000)
    assert float(draws["a"].mean()) == pytest.approx(exact, abs=0.1 * sd)
    assert float(draws["a"].std()) == pytest.approx(sd, rel=0.1)
    assert float(draws["coin"].mean()) == pytest.approx(0.5, abs=0.05)
    assert float(info.acceptance_rate.mean()) > 0.7
    np.testing.assert_allclose(states.scale[:, 0], sd, rtol=0.4)


def test_steps_are_pure_and_one_chain_is_as_one_of_several():
    steps = sumout.steps(programs.mixture())
    keys = jax.random.split(jax.random.key(3), 3)
    states = jax.vmap(steps.init)(keys)
    alone = steps.init(keys[1])
    np.testing.assert_allclose(states.x[1], alone.x, rtol=1e-6)
    first, again = (steps.step(keys[0], alone)[0] for _ in range(2))
    np.testing.assert_array_equal(first.x, again.x)
    values = steps.constrain(first)
    np.testing.assert_array_equal(values["z"], steps.constrain(first)["z"])
    np.testing.assert_allclose(jax.jit(steps.constrain)(first)["mu"], values["mu"])


def test_blackjax_runs_them():
    steps = sumout.steps(gaussian_program(np.zeros(3)), sumout.HMC(step_size=0.3, num_leapfrog=4))
    start = steps.init(jax.random.key(1), [0.3])
    final, x = blackjax.util.run_inference_algorithm(
        jax.random.key(0), steps, 20, initial_state=start, transform=lambda state, _: state.x
    )
    assert x.shape == (20, 1)
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(final.x, x[-1])


@pytest.mark.parametrize("kernel", ["nuts", "ghmc", "split_sghmc", "sgnht"])
def test_every_kind_of_kernel_can_be_stepped(kernel):
    steps = sumout.steps(gaussian_program(np.zeros(3)), kernel, {"coin": "draw"})
    start = steps.init(jax.random.key(0), [0.3])
    state, _ = steps.step(jax.random.key(1), sumout.tune(steps, jax.random.key(0), 20, state=start))
    values = steps.constrain(state)
    assert set(values) == {"a", "coin"}
    assert all(np.isfinite(value).all() for value in values.values())


def test_tuned_by_hand():
    steps = sumout.steps(gaussian_program(np.zeros(3)))
    state = steps.with_tuning(steps.init(jax.random.key(0)), step_size=0.4, scale=0.5)
    assert float(state.step_size) == pytest.approx(0.4)
    assert float(state.scale[0]) == 0.5
    state, info = steps.step(jax.random.key(1), state)
    assert float(info.step_size) == pytest.approx(0.4)


def test_a_start_by_hand_and_one_that_is_impossible():
    def positive(x, z, y):
        return jnp.where(x["a"] > 100.0, 0.0, -jnp.inf) - x["a"] + 0.0 * z["coin"]

    program = sumout.density(positive, x={"a": (constraints.real, ())}, z={"coin": sumout.finite(2)})
    steps = sumout.steps(program)
    assert float(steps.init(jax.random.key(0), [101.0]).x[0]) == 101.0
    with pytest.raises(StartError):
        steps.init(jax.random.key(0))
    with pytest.raises(OptionError, match="1 coordinates"):
        steps.init(jax.random.key(0), [1.0, 2.0])


def test_other_data_are_an_argument():
    """Steps for one y and run with another have the law of the other."""
    steps = sumout.steps(gaussian_program(np.zeros(3)))
    data = {"data": np.array([4.0, 5.0, 3.0])}
    state = sumout.tune(steps, jax.random.key(0), 300, data=data)
    _, (draws, _) = run(steps, state, jax.random.key(1), 2000, data)
    assert float(draws["a"].mean()) == pytest.approx(3.0, abs=0.1)
    moved = steps.refresh(state)
    assert float(moved.chain.point.log_density) != float(state.chain.point.log_density)


def pointed(pointer, y):
    """Data that say which sites belong together: the structure follows from their values."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("n", 4):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(mu + z * z[pointer], 1.0), obs=y)


def test_data_from_which_the_structure_follows_cannot_change():
    y = np.array([0.1, 1.2, -0.3, 0.8])
    steps = sumout.steps(sumout.program(pointed, np.array([1, 0, 3, 2]), y))
    assert steps.program.free == ("y",)
    state = steps.init(jax.random.key(0), data={"y": y + 1, "pointer": np.array([1, 0, 3, 2])})
    with pytest.raises(OptionError, match="follows from the values of 'pointer'"):
        steps.step(jax.random.key(0), state, {"pointer": np.array([2, 3, 0, 1])})
    with pytest.raises(OptionError, match="'pointer', so they cannot be unknown"):
        jax.jit(lambda p: steps.step(jax.random.key(0), state, {"pointer": p}))(np.array([1, 0, 3, 2]))
    with pytest.raises(OptionError, match=r"'y' has the shape \(3,\)"):
        steps.step(jax.random.key(0), state, {"y": y[:3]})
    with pytest.raises(OptionError, match="there: pointer, y"):
        steps.step(jax.random.key(0), state, {"w": y})


def test_options_are_checked():
    with pytest.raises(OptionError, match="expected a Program"):
        sumout.steps(models.mixture)
    with pytest.raises(OptionError, match=r"sumout.steps returns"):
        sumout.tune(programs.mixture(), jax.random.key(0))
    with pytest.raises(OptionError, match="num_steps=0"):
        sumout.tune(sumout.steps(programs.mixture()), jax.random.key(0), 0)
