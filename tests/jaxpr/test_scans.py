"""Loops in which nothing recurs are run for all steps at once; all loops are read as they are.

Each program has six sites with three values, so that its log density can be had for all z: two sites must be neighbours
exactly if changing one matters to what changing the other does.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout
from sumout.checks.guard import ReadingGuard
from sumout.jaxpr import scans as loops

from programs import ENUMERABLE

LENGTH, VALUES = 6, 3
EVERY_Z = np.array(list(itertools.product(range(VALUES), repeat=LENGTH)))
Y = np.array([0.3, -0.5, 1.2, 0.0, 0.8, -1.0])


def emission(s, y):
    return -0.5 * (s - y) ** 2


def carried_state(x, z, y):
    def step(previous, now):
        s, y = now
        return s, x[previous, s] + emission(s, y)

    return lax.scan(step, 0, (z, y))[1].sum()


def backwards(x, z, y):
    def step(following, now):
        s, y = now
        return s, x[s, following] + emission(s, y)

    first, terms = lax.scan(step, 0, (z, y), reverse=True)
    return terms.sum() + x[2, first]


def state_and_sum(x, z, y):
    def step(carry, now):
        previous, total = carry
        s, y = now
        return (s, total + x[previous, s] + emission(s, y)), None

    last, total = lax.scan(step, (1, 0.0), (z, y))[0]
    return total + x[last, last]


def state_and_counter(x, z, y):
    def step(carry, y):
        t, previous = carry
        return (t + 1, z[t]), x[previous, z[t]] + emission(z[t], y)

    return lax.scan(step, (0, 2), y)[1].sum()


def second_order(x, z, y):
    def step(carry, s):
        before, previous = carry
        return (previous, s), x[before, s] * x[previous, s]

    return lax.scan(step, (0, 0), z)[1].sum()


def starts_at_a_site(x, z, y):
    def step(previous, s):
        return s, x[previous, s]

    return lax.scan(step, z[0], z[1:])[1].sum()


def carried_through_a_function(x, z, y):
    def step(carry, s):
        mean, logits = carry
        return (jnp.exp(-x[s, 0]), x[s] * mean), jax.nn.log_softmax(logits)[s]

    return lax.scan(step, (0.5, jnp.zeros(3)), z)[1].sum()


def never_changes(x, z, y):
    def step(carry, s):
        table, previous = carry
        return (table, s), table[previous, s]

    return lax.scan(step, (x, 0), z)[1].sum()


def first_step_by_where(x, z, y):
    def step(carry, s):
        t, previous = carry
        return (t + 1, s), jax.nn.log_softmax(jnp.where(t == 0, x[0], x[previous]))[s]

    return lax.scan(step, (0, z[-1]), z)[1].sum()


def first_step_by_cond(x, z, y):
    """The branch not taken has no derivative: it must not be run."""

    def step(previous, now):
        t, s = now
        return s, lax.cond(t == 0, lambda: x[0, s], lambda: jnp.sqrt(x[previous, s] ** 2 * t))

    return lax.scan(step, z[-1], (jnp.arange(LENGTH), z))[1].sum()


def seasons(x, z, y):
    def step(previous, now):
        t, s = now
        branches = [lambda: x[0, s], lambda: x[previous, s], lambda: 0.3 * previous * s]
        return s, lax.switch(t % 3, branches)

    return lax.scan(step, 1, (jnp.arange(LENGTH), z))[1].sum()


def one_hot(x, z, y):
    def step(previous, s):
        code = jnp.zeros(VALUES).at[s].set(1.0)
        return code, jnp.tanh(previous @ x @ code)

    return lax.scan(step, jnp.ones(VALUES) / VALUES, z)[1].sum()


def own_derivatives(x, z, y):
    def step(previous, s):
        return s, jax.nn.relu(x[0, 0] * s - previous) + jax.nn.softplus(x[1, 1] * s)

    return lax.scan(step, 0, z)[1].sum()


def loop_in_a_loop(x, z, y):
    def step(previous, s):
        total = lax.fori_loop(0, 3, lambda k, total: total + x[k, s] * x[k, previous], 0.0)
        return s, jax.jit(jnp.sin)(total)

    return lax.scan(step, 0, z)[1].sum()


def recurring_mean(x, z, y):
    def step(carry, now):
        mean, previous = carry
        s, y = now
        mean = 0.5 * mean + jnp.tanh(x[0, 0] + y)
        return (mean, s), x[previous, s] + emission(s, mean)

    return lax.scan(step, (0.0, 0), (z, y))[1].sum()


def running_count(x, z, y):
    def step(count, s):
        return count + s, jnp.sin(x[0, 0] * count) * s

    return lax.scan(step, 0, z)[1].sum()


def unknown_branch(x, z, y):
    """Whether an observation is there is for the data to say; the square root has no derivative where it is not."""

    def step(previous, now):
        s, y = now
        return s, x[previous, s] + lax.cond(y > 0, lambda: jnp.sqrt(y * x[0, 0] ** 2) * s, lambda: 0.0)

    return lax.scan(step, 0, (z, y))[1].sum()


def own_end(x, z, y):
    def step(previous, s):
        doubled = lax.while_loop(lambda k: k < previous, lambda k: 2 * k + 1, 0)
        return s, x[previous, s] * doubled

    return lax.scan(step, 0, z)[1].sum()


def transformed(x, z, y):
    def step(previous, s):
        return s, lax.approx_max_k(jnp.stack([x[0, 0], s, previous]), 2)[0] @ jnp.array([1.0, 2.0])

    return lax.scan(step, 0, z)[1].sum()


AT_ONCE = (
    carried_state,
    backwards,
    state_and_sum,
    state_and_counter,
    second_order,
    starts_at_a_site,
    carried_through_a_function,
    never_changes,
    first_step_by_where,
    first_step_by_cond,
    seasons,
    one_hot,
    own_derivatives,
    loop_in_a_loop,
)
STEP_BY_STEP = (recurring_mean, running_count, unknown_branch, own_end, transformed)


def make(fn):
    return sumout.density(
        lambda x, z, y: fn(x["x"], z["z"], y),
        x={"x": (constraints.real, (3, 3))},
        z={"z": sumout.finite(VALUES, LENGTH)},
        data=Y,
    )


def primitives(structure):
    return {eqn.primitive.name for eqn in structure.factorisation.closed.jaxpr.eqns}


def neighbours(structure):
    return {tuple(sorted(edge)) for edge in structure.edges.tolist()}


def interacting(program, x):
    """The pairs of sites that matter to each other in the log density, over all z."""
    density = jax.jit(jax.vmap(lambda z: program.log_density(x, {"z": z}, program.data)))
    table = np.asarray(density(jnp.asarray(EVERY_Z))).reshape((VALUES,) * LENGTH)
    pairs = itertools.combinations(range(LENGTH), 2)
    return {(i, j) for i, j in pairs if np.abs(np.diff(np.diff(table, axis=i), axis=j)).max() > 1e-9}


def check_values(structure, x, seed=0):
    """Sums and scopes, and gradients one by one: mapped over z, a branch would be differentiated on both sides."""
    program = structure.program
    chosen = jnp.asarray(np.random.default_rng(seed).permutation(EVERY_Z)[:20])
    flips = (chosen[0] + jnp.concatenate([jnp.eye(LENGTH, dtype=int), 2 * jnp.eye(LENGTH, dtype=int)])) % VALUES
    ReadingGuard(structure).compare(x, {"z": chosen[0]}, {"z": jnp.concatenate([flips, chosen])})

    def total(x, z):
        factors, rest = structure.spread_factors(x, {"z": z}, program.data), structure.rest(x, {"z": z}, program.data)
        return sum(factor.full.sum() for factor in factors) + rest

    def gradients(fn):
        return jax.jit(lambda x: lax.map(lambda z: jax.grad(fn)(x, z), chosen))(x)

    expected = gradients(lambda x, z: program.log_density(x, {"z": z}, program.data))
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(gradients(total), expected, atol=1e-10)


@pytest.mark.parametrize("fn", AT_ONCE + STEP_BY_STEP, ids=lambda fn: fn.__name__)
def test_loops_are_read_as_they_are(fn):
    program = make(fn)
    structure = sumout.read(program)
    x = jnp.asarray(np.random.default_rng(3).normal(size=9))
    check_values(structure, x)
    assert neighbours(structure) == interacting(program, x)
    assert ("scan" in primitives(structure)) == (fn in STEP_BY_STEP)


def test_own_derivative_rules_survive():
    assert "custom_jvp_call" in primitives(sumout.read(make(own_derivatives)))


def test_only_what_recurs_is_left_in_the_loop():
    (loop,) = [
        eqn for eqn in sumout.read(make(recurring_mean)).factorisation.closed.jaxpr.eqns if eqn.primitive.name == "scan"
    ]
    assert loop.params["num_carry"] == 1


def test_a_loop_too_large_to_be_laid_out_still_shows_its_sum(monkeypatch):
    monkeypatch.setattr(loops, "MOST_ELEMENTS", LENGTH - 1)
    program = make(state_and_sum)
    structure = sumout.read(program)
    x = jnp.ones(9)
    check_values(structure, x)
    assert "scan" in primitives(structure)
    assert neighbours(structure) == {(t, t + 1) for t in range(LENGTH - 1)}


def test_what_a_loop_prints_is_still_printed():
    def talking(x, z, y):
        def step(previous, s):
            jax.debug.print("{}", s)
            return s, x[previous, s]

        return lax.scan(step, 0, z)[1].sum()

    structure = sumout.read(make(talking))
    assert neighbours(structure) == {(t, t + 1) for t in range(LENGTH - 1)}
    assert "debug_" in str(structure.factorisation.closed.jaxpr)


CARRIES = {
    "previous": (0, lambda c, s, t, x: s),
    "function": (0.5, lambda c, s, t, x: jnp.exp(-x[0] * s)),
    "counter": (3, lambda c, s, t, x: c - 2),
    "short": (np.int8(120), lambda c, s, t, x: c + jnp.int8(3)),
    "constant": (1.5, lambda c, s, t, x: c),
    "reset": (2.5, lambda c, s, t, x: 1.0),
    "sum": (0.0, lambda c, s, t, x: c + jnp.sin(x[1] * s)),
    "known": (0, lambda c, s, t, x: t % 2),
    "branch": (0.0, lambda c, s, t, x: lax.cond(t == 2, lambda: x[0], lambda: 1.0 * s)),
    "recurring": (0.1, lambda c, s, t, x: 0.5 * c + x[2]),
    "largest": (0, lambda c, s, t, x: jnp.maximum(c, s)),
}


@pytest.mark.parametrize("seed", range(12))
def test_mixed_carries(seed):
    rng = np.random.default_rng(seed)
    names = rng.choice(list(CARRIES), 4, replace=False)
    reverse, used = rng.random() < 0.3, rng.choice(names, 3)

    def mixed(x, z, y):
        def step(carry, now):
            t, s = now
            after = {n: jnp.asarray(CARRIES[n][1](carry[n], s, t, x[1]), jnp.asarray(carry[n]).dtype) for n in names}
            a, b, c = (1.0 * carry[n] for n in used)
            return after, jnp.sin(x[0, 0] * s + a) + b * x[0, 1] * s + jnp.cos(c + x[0, 2])

        start = {n: jnp.asarray(CARRIES[n][0]) for n in names}
        last, terms = lax.scan(step, start, (jnp.arange(LENGTH), z), reverse=bool(reverse))
        return terms.sum() + x[2] @ jnp.array([1.0 * last[n] for n in names[:3]])

    program = make(mixed)
    structure = sumout.read(program)
    x = jnp.asarray(rng.normal(size=9))
    check_values(structure, x, seed)
    assert interacting(program, x) <= neighbours(structure)


def test_numpyro_scans_are_run_at_once():
    structure = sumout.read(ENUMERABLE["scan_hmm"](1000))
    assert neighbours(structure) == {(t, t + 1) for t in range(999)}
    assert "scan" not in str(structure.factorisation.closed.jaxpr)


def test_numpyro_scan_of_a_switching_autoregression():
    """Continuous states are sites too: given them, nothing recurs."""

    def switching(y):
        slope = numpyro.sample("slope", dist.Normal(0, 1).expand([2]))

        def step(carry, y):
            z, level = carry
            with numpyro.plate("series", 3):
                z = numpyro.sample("z", dist.Categorical(logits=jnp.stack([slope, -slope])[z]))
                level = numpyro.sample("level", dist.Normal(slope[z] * level, 1.0))
                numpyro.sample("y", dist.Normal(level, 0.5), obs=y)
            return (z, level), level

        scan(step, (jnp.zeros(3, int), jnp.zeros(3)), y)

    program = sumout.program(switching, np.linspace(-1, 1, 15).reshape(5, 3))
    structure = sumout.read(program)
    assert "scan" not in str(structure.factorisation.closed.jaxpr)
    number = structure.site_numbers["z"].reshape(5, 3)
    assert neighbours(structure) == {(number[t, i], number[t + 1, i]) for t in range(4) for i in range(3)}
    rng = np.random.default_rng(0)
    z = jnp.asarray(rng.integers(0, 2, (9, 5, 3)))
    ReadingGuard(structure).compare(jnp.asarray(rng.normal(size=program.num_x)), {"z": z[0]}, {"z": z[1:]})
