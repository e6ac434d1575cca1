"""The loop: what is summed out of z is drawn for the record only, and chunks and groups leave no trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.kernels.leapfrog import Point
from sumout.moves.sweep import STAY
from sumout.plan.target import Target
from sumout.randomness import new_key
from sumout.run.loop import ALONE, SIDE_BY_SIDE, Loop, Schedule
from sumout.run.setup import set_up
from sumout.store.backend import DrawBuffer, split_chains

from programs import ENUMERABLE


def recover(key, x, z, data):
    """A number never drawn twice, so that a key used twice would show."""
    return {"z": jax.random.uniform(key, ()) + 0 * z["z"]}


def run(kernel, recover, chunk):
    target = Target(lambda x, z, data: -0.5 * x @ x, recover=recover)
    x, z = jnp.ones((4, 2)), {"z": jnp.full(4, -1.0)}
    loop, buffer, key = Loop(kernel.bind(target), 8), DrawBuffer(4), new_key(0)
    checkpoint = loop.start(key, jax.vmap(lambda x: Point.at(target, x, {}, {}))(x), z, 3)
    loop.run(key, checkpoint, {}, Schedule(9, 4, 3, chunk), buffer.record)
    return buffer.collected(), checkpoint.states


@pytest.mark.parametrize("kernel", [sumout.GHMC(), sumout.SplitSGHMC()], ids=repr)
def test_recovered_z_does_not_depend_on_the_chunks_and_stays_out_of_the_chain(kernel):
    record, states = run(kernel, recover, 100)
    other, _ = run(kernel, recover, 2)
    plain, _ = run(kernel, STAY, 100)
    np.testing.assert_array_equal(record.z["z"], other.z["z"])
    np.testing.assert_array_equal(record.x, other.x)
    np.testing.assert_allclose(record.x, plain.x, rtol=1e-9)  # compiled apart
    np.testing.assert_array_equal(plain.z["z"], -1.0)
    np.testing.assert_array_equal(states.z["z"], -1.0)
    assert len(np.unique(record.z["z"])) == record.z["z"].size


@pytest.mark.parametrize(
    ("least", "chains", "sizes"),
    [
        (2, 1, [1]), (2, 2, [2]), (2, 3, [3]), (2, 4, [2, 2]), (2, 5, [5]), (2, 6, [2, 2, 2]), (2, 9, [3, 3, 3]),
        (1, 1, [1]), (1, 3, [1, 1, 1]), (1, 4, [1, 1, 1, 1]),
    ],
)  # fmt: skip
def test_groups_are_of_one_size(least, chains, sizes):
    groups = split_chains({"a": np.arange(chains), "b": np.arange(2 * chains).reshape(chains, 2)}, least)
    assert [len(group["a"]) for group in groups] == sizes
    np.testing.assert_array_equal(np.concatenate([group["b"] for group in groups])[:, 0], 2 * np.arange(chains))


def test_a_group_does_not_know_of_the_others():
    program = sumout.density(lambda x, z, data: -0.5 * x["x"] ** 2, x={"x": (constraints.real, ())}, z={})
    two, four = (sumout.sample(program, chains=chains, draws=20, tune=20, progress=False) for chains in (2, 4))
    np.testing.assert_array_equal(two.posterior.x, four.posterior.x[:2])


@pytest.mark.parametrize(("name", "plan"), [("survey", "sum"), ("grid", "gibbs"), ("spike_and_slab", "gibbs")])
def test_chains_of_small_programs_run_alone(name, plan):
    program = ENUMERABLE[name]()
    assert set_up(program, None, dict.fromkeys(program.z, plan)).loop_for({}).group == ALONE


@pytest.mark.parametrize(("steps", "plan", "group"), [(300, "sum", SIDE_BY_SIDE), (300, "gibbs", ALONE)])
def test_chains_of_large_programs_run_alone_where_a_step_has_no_loop(steps, plan, group):
    def path(x, z, data):
        return x["h"] * (z["s"][1:] == z["s"][:-1]).sum() - x["h"] ** 2

    program = sumout.density(path, x={"h": (constraints.real, ())}, z={"s": sumout.finite(2, shape=steps)})
    assert set_up(program, None, {"s": plan}).loop_for({}).group == group
