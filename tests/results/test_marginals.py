"""What a run says about z, and about every datum, with z summed out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import sumout
from sumout.errors import OptionError
from sumout.plan.plan import make_plan
from sumout.results.likelihood import build_likelihood
from sumout.results.marginals import frequencies, probabilities

from enumeration import joint_states, log_joint, random_x, state_numbers
from programs import ENUMERABLE, REAL


@pytest.mark.parametrize("name", ["mixture", "scan_hmm", "ragged_binomials", "capture_recapture"])
def test_log_likelihood_of_every_datum(name):
    """log p(y_i | x, y_{−i}) by listing all joint states, with and without the term of the datum."""
    program = ENUMERABLE[name]()
    states, x = joint_states(program), random_x(program)
    likelihood = build_likelihood(make_plan(sumout.read(program)))
    found = jax.jit(likelihood)(x, jax.tree.map(lambda a: a[0], states), program.data)
    density = np.asarray(log_joint(program, states)(x))
    terms = jax.jit(jax.vmap(lambda z: program.log_likelihood_named(program.unravel(x), z, program.data)))(states)
    for observed, each in terms.items():
        without = np.where(
            density[:, None] == -np.inf, -np.inf, density[:, None] - np.asarray(each).reshape(len(each), -1)
        )
        expected = logsumexp(density) - logsumexp(without, axis=0)
        np.testing.assert_allclose(np.ravel(found[observed]), expected, rtol=1e-8)


@pytest.mark.parametrize(
    "name, words",
    [("grid", "does not say which"), ("named_scalars", "scales")],
)
def test_where_there_is_no_log_likelihood_it_is_said_why(name, words):
    assert words in build_likelihood(make_plan(sumout.read(ENUMERABLE[name]())))


def test_marginals_by_another_plan():
    program = ENUMERABLE["mixture"]()
    result = sumout.sample(program, draws=100, tune=50, chains=2)
    summed, drawn = (sumout.marginals(program, result, plan=plan) for plan in (None, {"z": "gibbs"}))
    assert "z_mode" in summed and "z_mode" not in drawn  # no joint mode where z is not summed out
    np.testing.assert_allclose(drawn.z, summed.z, atol=1e-6)  # sites of a mixture are independent given x
    with pytest.raises(OptionError, match="no discrete site 'q'"):
        sumout.marginals(program, result, plan={"q": "sum"})


@pytest.mark.calibration
def test_marginals_are_averages_of_exact_conditionals():
    program = ENUMERABLE["mixed_values"]()
    result = sumout.sample(program, draws=20, tune=20, chains=2)
    found = sumout.marginals(program, result)
    assert found.kind.dims == ("groups", "kind_value")
    assert found.flag.sizes == {"items": 4, "flag_value": 2}
    states = joint_states(program)
    draws = result.unconstrained_posterior
    x = np.concatenate([draws[name].values.reshape(40, -1) for name in program.x], axis=1)
    density = np.asarray(jax.jit(jax.vmap(log_joint(program, states)))(x))
    exact = np.exp(density - logsumexp(density, axis=1)[:, None]).mean(axis=0)
    for name, values in states.items():
        for k, value in enumerate(program.z[name].support.values):
            expected = np.tensordot(exact, np.asarray(values == value, float), axes=1)
            np.testing.assert_allclose(found[name].values[..., k], expected, rtol=1e-6)
    mode = {name: found[f"{name}_mode"].values for name in states}
    flat, numbers = state_numbers(states)
    chosen = numbers[np.concatenate([mode[name].ravel().astype(float) for name in states]).tobytes()]
    candidates = np.unique(density.argmax(axis=1))  # the most probable given each draw
    assert exact[chosen] == pytest.approx(exact[candidates].max())
    assert len(flat) == len(exact)


def test_frequencies_of_values_drawn_in_single_precision():
    support = sumout.finite([0.1, 0.2, 0.7])
    drawn = np.array([0.2, 0.7, 0.7, 0.1], np.float32)
    np.testing.assert_allclose(frequencies(support, drawn), [[0.25, 0.25, 0.5]])


def test_marginals_of_sites_that_are_drawn():
    program = ENUMERABLE["grid"](24, 24)
    result = sumout.sample(program, draws=10, tune=10, chains=2)
    found = sumout.marginals(program, result)
    np.testing.assert_allclose(found.s.values.sum(axis=-1), 1.0, rtol=1e-6)
    assert "s_mode" not in found


def test_marginals_of_another_program():
    program = ENUMERABLE["mixture"]()
    result = sumout.sample(program, draws=5, tune=5, chains=2)
    with pytest.raises(OptionError, match="no 'theta'"):
        sumout.marginals(ENUMERABLE["survey"](), result)
    with pytest.raises(OptionError, match="do not fit"):
        sumout.marginals(ENUMERABLE["mixture"](4), result)


def test_padding_of_a_stack_is_no_site():
    """Colours of one and of two sites in one stack: what fills up the small ones is not the first site."""

    def cliques(x, z, data):
        s = z["s"]
        pairs = [(i, j) for i in range(6) for j in range(i)] + [(6, 3), (7, 2)]
        return sum(x["a"] * jnp.sin(1.3 * s[i] * s[j] + i + j) for i, j in pairs) - x["a"] ** 2

    program = sumout.density(cliques, x={"a": REAL}, z={"s": sumout.finite(3, 8)})
    plan = make_plan(sumout.read(program), {"s": "gibbs"})
    assert -1 in np.concatenate([block.block.members for block in plan.moves[0].split()])
    x, z = jnp.array([0.7]), {"s": jnp.arange(8) % 3}
    found = probabilities(plan, x, z, program.data)
    for i in range(8):
        each = jnp.stack([program.log_density(x, {"s": z["s"].at[i].set(k)}, program.data) for k in range(3)])
        np.testing.assert_allclose(found[i], jax.nn.softmax(each), atol=1e-9)
