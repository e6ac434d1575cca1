"""Every move on z leaves p(z|x, y) invariant: πP = π, without noise, on spaces that can be listed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sumout
from sumout.moves.metropolis import AroundTheCircle
from sumout.moves.windows import NARROW, WIDE
from sumout.plan.plan import make_plan
from sumout.tables.logsumexp import draw

from enumeration import joint_states, log_joint, random_x, state_numbers
from programs import ENUMERABLE, REAL
from transitions import transition_matrices, transition_matrix

MOST_STATES = 256


def check_invariance(program, overrides=None, num_counts=0):
    states = joint_states(program, num_counts)
    x = random_x(program)
    density = np.asarray(log_joint(program, states)(x))
    pi = np.exp(density - density.max())
    pi /= pi.sum()
    sweep = np.eye(len(pi))
    for matrix in transition_matrices(make_plan(sumout.read(program), overrides), x, states):
        assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-10
        assert np.abs(pi @ matrix - pi).sum() < 1e-10
        sweep = sweep @ matrix
    # A sweep moves every site: it must not leave anything it could reach untouched.
    assert np.abs(np.linalg.matrix_power(sweep, 200)[density > -np.inf] - pi).sum(axis=1).max() < 0.5
    return sweep


@pytest.mark.parametrize("name", ENUMERABLE)
@pytest.mark.parametrize("method", ["gibbs", "metropolis"])
def test_moves_leave_the_conditional_invariant(name, method):
    program = ENUMERABLE[name]()
    states = int(np.prod([site.support.num_values**site.num_elements for site in program.z.values()]))
    if states > MOST_STATES:
        small = {"loop_hmm": (4, 3), "tree": (2,), "spike_and_slab": (5,), "switches": (2,), "one_way": (2,)}[name]
        program = ENUMERABLE[name](*small)
    check_invariance(program, dict.fromkeys(program.z, method))


def test_windows_of_counts_leave_the_conditional_invariant():
    def counts(x, z, data):
        n = z["n"]
        log_poisson = n * jnp.log(3.0) - jax.scipy.special.gammaln(n + 1.0)
        joined = -0.1 * (n[0] - n[1]) ** 2 * jnp.exp(-(x["a"] ** 2))
        return jnp.where(n < 15, log_poisson, -jnp.inf).sum() + joined

    program = sumout.density(counts, x={"a": REAL}, z={"n": sumout.count(2)})
    states = joint_states(program, 15)
    x, plan = random_x(program), make_plan(sumout.read(program))
    density = np.asarray(log_joint(program, states)(x))
    pi = np.exp(density - density.max()) / np.exp(density - density.max()).sum()
    assert len(plan.moves) == 2
    for move in plan.moves:
        for stride in (*NARROW, *WIDE):
            matrix = transition_matrix(move, x, states, program.data, jnp.asarray(stride))
            assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-10
            assert np.abs(pi @ matrix - pi).sum() < 1e-10


@pytest.mark.parametrize(("scale", "correlation"), [(0.7, 0.4), (30.0, 0.7), (2000.0, 0.8)])
def test_windows_suit_conditionals_of_every_width(scale, correlation):
    """Draws of a rounded normal, and from a start far out: 500 chains, 60 sweeps of which the last 20 count."""

    def wide(x, z, data):
        return -0.5 * ((z["n"] - 10 * scale) / scale) ** 2

    program = sumout.density(lambda *args: wide(*args).sum(), x={"a": REAL}, z={"n": sumout.count(500)})
    (move,) = make_plan(sumout.read(program)).moves
    x, z = jnp.zeros(1), {"n": jnp.zeros(500, int)}
    draws = []
    sweep = jax.jit(lambda key, z: move(key, x, z, program.data))
    for key in jax.random.split(jax.random.key(0), 60):
        z = sweep(key, z)
        draws.append(np.asarray(z["n"], float))
    last = (np.array(draws[40:]) - 10 * scale) / scale
    now, next_ = last[:-1].ravel(), last[1:].ravel()
    assert abs(last.mean()) < 0.1  # 500 chains and at least 2 draws of each: 3 % to a deviation
    assert abs(last.std() / np.hypot(1, 0.29 / scale) - 1) < 0.1
    assert np.corrcoef(now, next_)[0, 1] < correlation


def test_proposals_from_a_sampler_leave_the_conditional_invariant():
    """The sampler's own law multiplies the density of the program: p(z) p(x|z)."""

    def given(x, z, data):
        joined = 0.7 * (z["z"][1:] == z["z"][:-1]).sum()
        return joined - 0.5 * ((x["a"] - z["z"]) ** 2).sum()

    sampler = sumout.implicit(lambda key: jax.random.bernoulli(key, 0.3).astype(int), shape=4)
    program = sumout.density(given, x={"a": REAL}, z={"z": sampler})
    explicit = sumout.density(given, x={"a": REAL}, z={"z": sumout.finite(2, 4)})
    states = joint_states(explicit)
    x = random_x(program)
    prior = jnp.where(states["z"] == 1, jnp.log(0.3), jnp.log(0.7)).sum(axis=1)
    density = np.asarray(log_joint(program, states)(x) + prior)
    pi = np.exp(density) / np.exp(density).sum()
    for move in make_plan(sumout.read(program)).moves:
        matrix = transition_matrix(move, x, states, program.data)
        assert np.abs(pi @ matrix - pi).sum() < 1e-10


@pytest.mark.parametrize("method", ["gibbs", "metropolis"])
def test_dice_follow_the_table(method):
    """What a move draws has the frequencies its table says (chi-square; fails by chance once in 1e8)."""
    program = ENUMERABLE["grid"]()
    states = joint_states(program)
    x, plan = random_x(program), make_plan(sumout.read(program), {"s": method})
    move = plan.moves[0]
    start = jax.tree.map(lambda a: a[5], states)
    row = transition_matrix(move, x, states, program.data)[5]
    keys = jax.random.split(jax.random.key(3), 40_000)
    drawn = jax.jit(jax.vmap(lambda key: move(key, x, start, program.data)))(keys)
    _, numbers = state_numbers(states)
    found = np.bincount([numbers[r.tobytes()] for r in state_numbers(drawn)[0]], minlength=len(row))
    assert found[row == 0].sum() == 0
    expected = row[row > 0] * len(keys)
    statistic = ((found[row > 0] - expected) ** 2 / expected).sum()
    degrees = (row > 0).sum() - 1
    assert statistic < degrees + 8 * np.sqrt(2 * degrees) + 20


def test_draw_never_takes_an_impossible_value():
    table = jnp.log(jnp.array([[0.0, 1.0, 0.5], [0.5, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    drawn = jax.vmap(lambda key: draw(key, table))(jax.random.split(jax.random.key(0), 5000))
    assert set(np.unique(drawn[:, 0])) == {1, 2}
    assert set(np.unique(drawn[:, 1])) == {0}
    assert set(np.unique(drawn[:, 2])) == {0, 2}


def test_the_work_of_metropolis_does_not_grow_with_the_number_of_values():
    def walk(x, z, data):
        s = z["s"]
        return data["log_p"][s[1:] - s[:-1] + 2].sum() - 0.5 * ((data["y"] - x["a"] * s) ** 2).sum() - x["a"] ** 2

    def work(num_values):
        data = {"log_p": np.log([0.1, 0.2, 0.4, 0.2, 0.1]), "y": np.arange(20.0)}
        program = sumout.density(walk, x={"a": REAL}, z={"s": sumout.finite(num_values, 20)}, data=data)
        sweep = make_plan(sumout.read(program), {"s": "metropolis"}).sweep
        x, z, data = program.abstract_arguments()
        cost = jax.jit(sweep).lower(jax.eval_shape(lambda: jax.random.key(0)), x, z, data).compile().cost_analysis()
        return cost["flops"] + cost["bytes accessed"]

    assert work(5000) < 1.1 * work(10)


SHORT = {
    "uint8": np.arange(200, dtype=np.uint8),
    "int8": np.arange(-100, 100, dtype=np.int8),
    "uint16": np.arange(300, dtype=np.uint16),
    "uint8 in steps": np.arange(0, 250, 5, dtype=np.uint8),
    "bool": np.array([False, True]),
    "half": np.linspace(0, 1, 9).astype(np.float16),
    "uint32": np.arange(2**32 - 20, 2**32).astype(np.uint32),
    "far out": 2**40 + np.arange(20),
}


@pytest.mark.parametrize("name", SHORT)
def test_proposals_on_short_integers_are_those_of_long_ones(name):
    """The steps drawn from one key are the same around the circle, whatever type the values have."""
    values = SHORT[name]
    count = len(values)
    current = jnp.repeat(jnp.asarray(values), 50)
    key, size = jax.random.key_data(jax.random.key(0)), np.array([count])
    plain = AroundTheCircle.over(np.arange(count)[:, None], size)
    expected = values[np.asarray(jax.jit(plain)(key, jnp.repeat(jnp.arange(count), 50), None))]
    proposed = jax.jit(AroundTheCircle.over(values[:, None], size))(key, current, None)
    assert proposed.dtype == values.dtype
    np.testing.assert_array_equal(proposed, expected)
    near = np.abs(np.searchsorted(values, proposed) - np.repeat(np.arange(count), 50))
    assert np.isin([1, count - 1], near).all()


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16"])
def test_metropolis_on_short_integers(name):
    """The mean of a geometric distribution; its error is some .2 after 20,000 steps."""
    values = SHORT[name]
    first = float(values[0])

    def geometric(x, z, data):
        return -0.5 * x["a"] ** 2 + jnp.log(0.87) * (z["z"].astype(float) - first)

    program = sumout.density(geometric, x={"a": REAL}, z={"z": sumout.finite(values)})
    plan = make_plan(sumout.read(program), {"z": "metropolis"})

    @jax.jit
    def run(keys, z):
        return jax.lax.scan(lambda z, key: (plan.sweep(key, jnp.zeros(1), z, {}),) * 2, z, keys)[1]["z"]

    keys = jax.vmap(jax.random.key_data)(jax.random.split(jax.random.key(1), 20_000))
    drawn = np.asarray(run(keys, {"z": jnp.asarray(values[3])})).astype(float) - first
    assert abs(drawn.mean() - 0.87 / 0.13) < 1.5
