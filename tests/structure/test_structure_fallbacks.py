"""Whatever step of the reading fails, a plainer way is taken: the answer stays right, and what failed can be seen."""

import logging
from dataclasses import replace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpyro.distributions import constraints

import sumout
from sumout.jaxpr.primitives import TABLE, Kind
from sumout.plan.plan import make_plan
from sumout.structure.scope_rules import RULES

from enumeration import joint_states, log_marginal, random_x


def everyday(x, z, data):
    """A little of everything that the reading has a step of its own for."""
    s, a = z["s"], x["a"]
    rate = jnp.where(jnp.arange(4) < s[0], jnp.exp(a), 2.0)

    def step(total, t):
        return total + a * data[t] * s[t], jnp.sin(a * s[t])

    total, waves = lax.scan(step, 0.0, jnp.arange(4))
    pairs = lax.fori_loop(0, 3, lambda t, acc: acc.at[t].set(s[t] * s[t + 1] * a), jnp.zeros(3))
    return (data * jnp.log(rate) - rate).sum() + total + waves.sum() + pairs @ data[:3] - a**2


def program():
    data = np.array([0.5, -0.2, 0.3, 0.1])
    return sumout.density(everyday, x={"a": (constraints.real, ())}, z={"s": sumout.finite(3, 4)}, data=data)


def fail(*args, **kwargs):
    raise RuntimeError("nobody foresaw this")


STEPS = {
    "rules": "sumout.structure.interpret.apply_rule",
    "scan": "sumout.structure.interpret.Reader.call",
    "numpy": "sumout.structure.interpret.compute",
    "folding": "sumout.jaxpr.simplify.compute",
    "same": "sumout.jaxpr.simplify._Editor._same",
    "simplification": "sumout.jaxpr.simplify._Editor.write",
    "choices": "sumout.jaxpr.flatten._is_in_place",
    "loops": "sumout.jaxpr.flatten.run_at_once",
    "steps": "sumout.jaxpr.scans._map",
    "flatten": "sumout.jaxpr.flatten._run",
    "singular points": "sumout.jaxpr.flatten.with_rules",
    "factors": "sumout.structure.structure.factorise",
    "roles": "sumout.structure.structure.assign_roles",
    "quadratic": "sumout.patterns.quadratic_forms._find_quadratic",
    "changes": "sumout.patterns.find_changes._find_changes",
}


@pytest.fixture
def noted():
    """What the reading notes, instead of an error for it."""
    logger, records = logging.getLogger("sumout.reading"), []
    handler = logging.Handler()
    handler.emit = records.append
    with mock.patch.object(logger, "handlers", [handler]):
        yield records


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_is_noted_and_the_answer_stays_right(step, noted):
    model, x = program(), jnp.array([0.4])
    states = joint_states(model)
    expected = log_marginal(model, states)(x)
    with mock.patch(STEPS[step], fail):
        plan = make_plan(sumout.read(model), {"s": "gibbs"} if step in ("quadratic", "changes") else None)
        z = {"s": states["s"][7]}
        if plan.sums_all:
            np.testing.assert_allclose(plan.log_density(x, z, model.data), expected, rtol=1e-9)
        drawn = plan.sweep(jax.random.key(0), x, z, model.data)
        assert np.isin(drawn["s"], [0, 1, 2]).all()
    if step not in ("quadratic", "changes"):
        assert noted and all(record.exc_info for record in noted)


def test_what_numpy_fails_at_is_left_to_jax(noted):
    model, x = program(), jnp.array([0.4])
    states = joint_states(model)
    failing = {name: replace(row, numpy=fail) for name, row in TABLE.items() if row.numpy}
    with mock.patch.dict(TABLE, failing):
        plan = make_plan(sumout.read(model))
    found = plan.log_density(x, {"s": states["s"][7]}, model.data)
    np.testing.assert_allclose(found, log_marginal(model, states)(x), rtol=1e-9)
    assert noted


def test_a_rule_that_fails_is_named(noted):
    with mock.patch.dict(RULES, {Kind.SCATTER: fail}):
        structure = sumout.read(program())
    assert "scatter" in structure.opaque or "scan" in structure.opaque
    assert structure.num_edges == 6


IDIOMS = {
    "set one": (lambda z: z.at[0].set(1), 0),
    "set the last": (lambda z: z.at[-1].set(0), 0),
    "add to one": (lambda z: jnp.zeros((2, 4)).at[1, 2].add(z[0] * 1.0).sum() + z, 3),
    "add two": (lambda z: jnp.zeros((3, 4)).at[:2, 1].add(z[:2] * 1.0), 0),
    "loop": (lambda z: lax.fori_loop(0, 4, lambda t, a: a.at[t].set(z[t] + t), jnp.zeros(4, int)), 0),
    "median": (lambda z: jnp.median(z), 6),
    "quantile": (lambda z: jnp.quantile(z * 1.0, 0.3), 6),
    "linear system": (lambda z: jnp.linalg.solve(jnp.eye(2) + 0.3, z.reshape(2, 2) * 1.0), 2),
    "inverses": (lambda z: jnp.linalg.inv(jnp.eye(2) * (2.0 + z[:, None, None])), 0),
    "sliding maximum": (lambda z: lax.reduce_window(z * 1.0, -jnp.inf, lax.max, (2,), (1,), "VALID"), 3),
    "sliding sums": (
        lambda z: lax.reduce_window(z.reshape(2, 2) * 1.0, 0.0, lax.add, (2, 1), (1, 2), [(1, 0), (0, 1)], (1, 2)),
        2,
    ),
    "transform": (lambda z: jnp.abs(jnp.fft.rfft(z.reshape(2, 2) * 1.0) + 0.5), 2),
    "convolution": (lambda z: jnp.convolve(z * 1.0, jnp.array([1.0, 0.5])), 6),
    "one of a table": (lambda z: (z * jnp.ones((4, 1)))[1, 2], 0),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_common_idioms_are_read(name):
    fn, num_edges = IDIOMS[name]

    def model(x, z, data):
        return x["a"] * jnp.sin(1.0 + fn(z["z"])).sum() - x["a"] ** 2

    read = sumout.density(model, x={"a": (constraints.real, ())}, z={"z": sumout.finite(3, 4)})
    structure = sumout.read(read)
    assert structure.opaque == () and structure.num_edges == num_edges
    x, states = random_x(read), joint_states(read)
    plan = make_plan(structure)
    np.testing.assert_allclose(
        plan.log_density(x, {"z": states["z"][0]}, read.data), log_marginal(read, states)(x), rtol=1e-9
    )
