"""Random programs that remember little of z, summed out along paths of states whatever that costs, against brute force.

What is remembered is a carry by a random table, the time since, "not yet", a running sum, product or parity, or a
maximum, "any", sum or sum by group; with or without ragged lengths, resets that are known, and a chain beside it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.eliminate import state_summation
from sumout.eliminate.state_summation import StateSummation
from sumout.plan.plan import make_plan
from sumout.structure.structure import read

from enumeration import joint_states

REAL = (constraints.real, ())
MOST_JOINT = 2000  # joint values of a program
NUM_DRAWS = 2000
CARRIES = {
    "table": lambda s, z, table: table[s, z],
    "sum up to two": lambda s, z, table: jnp.minimum(s + z, 2),
    "not yet": lambda s, z, table: s * (1 - (z > 0)),
    "time since": lambda s, z, table: jnp.where(z > 0, 0, jnp.minimum(s + 1, 3)),
}
RUNNING = {
    "sums": lambda z: jnp.cumsum(z, 0),
    "products": lambda z: jnp.cumprod(1 - (z > 0), 0),
    "parities": lambda z: jnp.cumsum(z, 0) % 2,
}
REDUCED = {
    "maximum": lambda z: z.max(0),
    "any": lambda z: (z > 0).any(0) * 1,
    "sum": lambda z: z.sum(0),
    "sums of two groups": lambda z: jnp.zeros(2).at[np.arange(len(z)) % 2].add(z.sum(1)),
}


def random_program(seed):
    """Sites `(steps, rows)` with two or three values."""
    rng = np.random.default_rng(seed)
    num_values = int(rng.integers(2, 4))
    steps = int(rng.integers(3, 7 if num_values == 2 else 5))
    rows = 2 if num_values ** (2 * steps) <= MOST_JOINT else 1
    kind = rng.choice([*CARRIES, *RUNNING, *REDUCED])
    is_masked, is_reset, has_chain = rng.random(3) < 0.5
    table, w = rng.integers(0, 3, (3, num_values)), rng.normal(size=6)
    data = {
        "y": rng.normal(size=(max(steps, 2), 2)),
        "counts": np.arange(steps)[:, None] < rng.integers(2, steps + 1, rows),
        "reset": rng.integers(0, 2, steps),
    }

    def datum(x, state, y):
        return -0.5 * (y - x["a"] * jnp.sin(w[0] + state * w[1]) - x["b"] * (state == 1)) ** 2

    def transition(x, z, state):
        return jax.nn.log_sigmoid(x["a"] * w[3] + w[4] * z * (state + 1) + x["b"])

    def carried(x, z, data):
        def step(carry, row):
            state, before, total = carry
            z, y, counts, reset = row
            after = CARRIES[kind](state, z, jnp.asarray(table))
            after = jnp.where(reset == 1, 0, after) if is_reset else after
            term = transition(x, z, state) + datum(x, after, y)
            term += transition(x, z, before) if has_chain else 0.0
            if is_masked:
                after, term = jnp.where(counts, after, state), jnp.where(counts, term, 0.0)
            return (after, z, total + term.sum()), None

        nothing = jnp.zeros(rows, int)
        start = (nothing + (kind == "not yet"), nothing, 0.0)
        return jax.lax.scan(step, start, (z, data["y"][:steps, :rows], data["counts"], data["reset"]))[0][2]

    def density(x, z, data):
        z = z["z"]
        own = (x["b"] * w[5] * (z == 1)).sum()
        if kind in CARRIES:
            return own + carried(x, z, data)
        if kind in RUNNING:
            terms = datum(x, RUNNING[kind](z), data["y"][:steps, :rows])
            terms = jnp.where(data["counts"], terms, 0.0) if is_masked else terms
        else:
            state = REDUCED[kind](z)
            terms = datum(x, state, data["y"][0, : len(state)])
        chain = transition(x, z[1:], z[:-1]).sum() if has_chain else 0.0
        return own + terms.sum() + chain

    z = {"z": sumout.finite(num_values, (steps, rows))}
    return sumout.density(density, x={"a": REAL, "b": REAL}, z=z, data=data)


def check(seed):
    """Value, gradient, marginals, the most probable z and the law of draws; whether it went along paths of states."""
    structure = read(random_program(seed))
    program, plan = structure.program, make_plan(structure)
    assert plan.sums_all
    z = joint_states(program)
    one = {name: value[0] for name, value in z.items()}
    x = jnp.asarray(np.random.default_rng(seed).normal(size=2))
    every = jax.jit(jax.vmap(program.log_density, (None, 0, None)))

    def answers(x):
        best = plan.summation.most_probable(x, one, program.data)
        found = jnp.exp(plan.summation.log_marginals(x, one, program.data))
        return (
            jax.value_and_grad(plan.log_density)(x, one, program.data),
            found,
            program.log_density(x, best, program.data),
        )

    (value, gradient), found, log_best = jax.jit(answers)(x)
    expected, slope = jax.jit(jax.value_and_grad(lambda x: jax.nn.logsumexp(every(x, z, program.data))))(x)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-8)
    log_probabilities = np.asarray(every(x, z, program.data) - expected)
    probabilities, flat = np.exp(log_probabilities), np.asarray(z["z"]).reshape(len(log_probabilities), -1)
    num_values = program.z["z"].support.num_values
    shares = (flat[:, :, None] == np.arange(num_values)) * probabilities[:, None, None]
    np.testing.assert_allclose(found, shares.sum(axis=0), atol=1e-9)
    assert np.isclose(log_best - expected, log_probabilities.max())
    keys = jax.vmap(jax.random.key_data)(jax.random.split(jax.random.key(seed), NUM_DRAWS))
    drawn = jax.jit(jax.vmap(lambda key: plan.summation(key, x, one, program.data)))(keys)
    log_drawn = np.asarray(every(x, drawn, program.data) - expected)
    # Entropy by the draws and exactly; eight standard errors: by chance less than once in 1e14 where it is normal.
    mean = (probabilities * log_probabilities).sum()
    deviation = np.sqrt((probabilities * (log_probabilities - mean) ** 2).sum())
    assert abs(log_drawn.mean() - mean) < 8 * deviation / np.sqrt(NUM_DRAWS) + 1e-6
    return isinstance(plan.summation, StateSummation)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 300), marks=pytest.mark.calibration)])
def test_random_programs_that_remember_little(seeds, monkeypatch):
    monkeypatch.setattr(state_summation, "STATES_GAIN", 0)
    monkeypatch.setattr(state_summation, "STATES_WORTH_LOOKING", 1)
    assert np.mean([check(seed) for seed in seeds]) > 0.5
