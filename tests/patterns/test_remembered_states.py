"""Sums along paths of what a program remembers, against brute force: value, gradient, marginals, draws, best z."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan as numpyro_scan
from numpyro.distributions import constraints

import sumout
from sumout.eliminate import state_summation
from sumout.eliminate.state_summation import StateSummation
from sumout.plan.plan import make_plan
from sumout.structure.structure import read

from enumeration import joint_states

RNG = np.random.default_rng(7)
UNIT, REAL = (constraints.unit_interval, ()), (constraints.real, ())
Y = RNG.binomial(1, 0.5, (6, 2))
MASK = np.arange(6)[:, None] < np.array([6, 4])


def bernoulli(p, k):
    p = jnp.where(k == 1, p, 1 - p)
    return jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1.0)), -jnp.inf)


def program(density, z, data=None, **x):
    return sumout.density(density, x=x or {"a": UNIT, "b": UNIT, "c": UNIT}, z=z, data=data)


def entry(x, z, before, waiting, y):
    """Of an animal that enters once, and leaves for good."""
    present = bernoulli(jnp.where(before == 1, x["a"], x["b"] * waiting), z)
    return present + bernoulli(x["c"] * z, y)


def jolly_seber_scan():
    def density(x, z, y):
        def step(carry, row):
            waiting, before, total = carry
            z, y = row
            total = total + entry(x, z, before, waiting, y).sum()
            return (waiting * (1 - z), z, total), None

        start = jnp.ones(2), jnp.zeros(2, int), 0.0
        return jax.lax.scan(step, start, (z["z"], y))[0][2]

    return program(density, {"z": sumout.finite(2, Y.shape)}, Y)


def jolly_seber_fori():
    def density(x, z, y):
        def step(t, carry):
            waiting, before, total = carry
            now = z["z"][t]
            return waiting & (now == 0), now, total + entry(x, now, before, waiting, y[t]).sum()

        return jax.lax.fori_loop(0, 6, step, (jnp.ones(2, bool), jnp.zeros(2, int), 0.0))[2]

    return program(density, {"z": sumout.finite(2, Y.shape)}, Y)


def jolly_seber_python():
    def model(y):
        a, b, c = (numpyro.sample(name, dist.Uniform()) for name in "abc")
        z, waiting = 0, 1
        with numpyro.plate("animals", 2):
            for t in range(6):
                z = numpyro.sample(f"z{t}", dist.Bernoulli(a * z + b * waiting * (1 - z)))
                waiting = waiting * (1 - z)
                numpyro.sample(f"y{t}", dist.Bernoulli(c * z), obs=y[t])

    return sumout.program(model, Y)


def jolly_seber_numpyro():
    def model(y):
        a, b, c = (numpyro.sample(name, dist.Uniform()) for name in "abc")

        def step(carry, y):
            z, waiting = carry
            with numpyro.plate("animals", 2):
                z = numpyro.sample("z", dist.Bernoulli(a * z + b * waiting * (1 - z)))
                numpyro.sample("y", dist.Bernoulli(c * z), obs=y)
            return (z, waiting * (1 - z)), None

        numpyro_scan(step, (jnp.zeros(2, int), jnp.ones(2, int)), y)

    return sumout.program(model, Y)


def jolly_seber_cumprod():
    def density(x, z, y):
        before = jnp.concatenate([jnp.zeros((1, 2), int), z["z"][:-1]])
        return entry(x, z["z"], before, jnp.cumprod(1 - before, axis=0), y).sum()

    return program(density, {"z": sumout.finite(2, Y.shape)}, Y)


def ragged():
    """Animals are followed for different numbers of occasions."""

    def density(x, z, data):
        y, mask = data

        def step(carry, row):
            waiting, before, total = carry
            z, y, mask = row
            total = total + jnp.where(mask, entry(x, z, before, waiting, y), 0.0).sum()
            return (jnp.where(mask, waiting * (1 - z), waiting), jnp.where(mask, z, before), total), None

        return (
            jax.lax.scan(step, (jnp.ones(2), jnp.zeros(2, int), 0.0), (z["z"], y, mask))[0][2]
            + bernoulli(0.3, z["z"]).sum()
        )

    return program(density, {"z": sumout.finite(2, Y.shape)}, (Y, MASK))


def time_since():
    """The chance depends on the time since the last event; events that are observed reset it, too."""

    def density(x, z, y):
        def step(since, row):
            z, y = row
            term = bernoulli(jnp.exp(-x["c"] * (1 + since)), z) + bernoulli(jnp.where(z == 1, x["a"], x["b"]), y)
            return jnp.where((z == 1) | (y == 1), 0, since + 1), term

        return jax.lax.scan(step, 0, (z["z"], y))[1].sum()

    return program(density, {"z": sumout.finite(2, (7,))}, np.array([0, 0, 1, 0, 0, 0, 1]))


def durations():
    """Semi-Markov: how long the present state has lasted decides when it ends."""

    def density(x, z, y):
        z = z["z"]

        def step(carry, now):
            before, lasted = carry
            stays = jnp.exp(-x["b"] * lasted)
            term = jnp.where(now == before, jnp.log(stays), jnp.log1p(-stays) - jnp.log(2.0))
            return (now, jnp.where(now == before, jnp.minimum(lasted + 1, 4), 1)), term

        terms = jax.lax.scan(step, (z[0], jnp.ones((), int)), z[1:])[1]
        return terms.sum() + dist.Normal(x["a"] * z, 1).log_prob(y).sum()

    x = {"a": REAL, "b": (constraints.positive, ())}
    return program(density, {"z": sumout.finite(3, (6,))}, RNG.normal(1, 1, 6), **x)


def counts_so_far():
    """A state whose number grows: how many there were so far."""

    def density(x, z, y):
        before = jnp.cumsum(z["z"]) - z["z"]
        return (
            bernoulli(jax.nn.sigmoid(x["a"] - x["b"] * before), z["z"]).sum()
            + bernoulli(jnp.where(z["z"] == 1, 0.8, x["c"]), y).sum()
        )

    return program(density, {"z": sumout.finite(2, (7,))}, np.array([0, 1, 1, 0, 1, 0, 0]))


def parity():
    def density(x, z, y):
        odd = jax.lax.scan(lambda odd, z: (odd ^ (z == 1), odd), jnp.asarray(False), z["z"])[1]
        return (
            bernoulli(jnp.where(odd, x["a"], x["b"]), z["z"]).sum()
            + bernoulli(jnp.where(z["z"] == 1, 0.8, x["c"]), y).sum()
        )

    return program(density, {"z": sumout.finite(2, (7,))}, np.array([0, 1, 1, 0, 1, 0, 0]))


def two_carries():
    """Two are carried, of which not all pairs are reached."""

    def density(x, z, y):
        def step(carry, row):
            one, other = carry
            z, y = row
            term = bernoulli(jnp.where(one == other, x["a"], x["b"]), z) + bernoulli(jnp.where(z == 1, x["c"], 0.3), y)
            return (other, (one + z) % 3), term

        return jax.lax.scan(step, (0, 1), (z["z"], y))[1].sum()

    return program(density, {"z": sumout.finite(2, (7,))}, np.array([0, 1, 1, 0, 1, 0, 0]))


def any_cause():
    """Findings that are there if any of their causes acts."""

    def density(x, z, y):
        found = (z["z"] == 1).any(axis=1)
        return bernoulli(x["a"], z["z"]).sum() + bernoulli(jnp.where(found, x["b"], 0.05), y).sum()

    return program(density, {"z": sumout.finite(2, (2, 5))}, np.array([1, 0]))


def pooled_by_segment():
    """Pools of different size, by number; a test is the better the more are ill."""
    pool = np.array([0, 0, 0, 1, 1, 1, 1, 0])

    def density(x, z, y):
        ill = jax.ops.segment_sum(z["z"], pool, num_segments=2)
        return bernoulli(x["a"], z["z"]).sum() + bernoulli(1 - (1 - x["b"]) * x["c"] ** ill, y).sum()

    return program(density, {"z": sumout.finite(2, (8,))}, np.array([1, 0]))


def at_least_k():
    def density(x, z, y):
        risk = jnp.linspace(0.2, 0.8, 8) * x["a"]
        return bernoulli(risk, z["z"]).sum() + bernoulli(jnp.where(z["z"].sum() >= 3, x["b"], x["c"]), y)

    return program(density, {"z": sumout.finite(2, (8,))}, 1)


def groups_of_groups():
    """How many of some groups have any member that is ill."""

    def density(x, z, y):
        num = (z["z"].max(axis=1) > 0).sum()
        return bernoulli(x["a"], z["z"]).sum() + dist.Poisson(0.2 + x["b"] * num).log_prob(y)

    return program(density, {"z": sumout.finite(2, (3, 3))}, 2, a=UNIT, b=(constraints.positive, ()))


def maximum():
    def density(x, z, y):
        laws = jnp.log(jnp.array([0.5, 0.3, 0.2])) * x["b"]
        largest = jnp.max(z["z"])
        return laws[z["z"]].sum() + dist.Normal(x["a"] * largest, 1).log_prob(y)

    return program(density, {"z": sumout.finite(3, (6,))}, 1.3, a=REAL, b=(constraints.positive, ()))


def weighted():
    """A product with known numbers, looked up in a table by a sum."""
    weights = np.array([1, 2, 1, 0, 3, 1])

    def density(x, z, y):
        table = jax.nn.softmax(jnp.arange(9) * x["a"])
        return bernoulli(x["b"], z["z"]).sum() + jnp.log(table[z["z"] @ weights]) + 0.0 * y

    return program(density, {"z": sumout.finite(2, (6,))}, 1.0, a=REAL, b=UNIT)


def limited():
    """At most two, and never two in a row."""

    def density(x, z, y):
        z = z["z"]
        is_possible = (z.sum() <= 2) & ~((z[1:] * z[:-1]) > 0).any()
        return (
            jnp.where(is_possible, 0.0, -jnp.inf)
            + bernoulli(x["a"], z).sum()
            + bernoulli(jnp.where(z == 1, x["b"], x["c"]), y).sum()
        )

    return program(density, {"z": sumout.finite(2, (7,))}, np.array([0, 1, 1, 0, 1, 0, 0]))


def two_sites_a_step():
    """A hidden state and an event, and whether there was an event before."""

    def density(x, z, y):
        def step(carry, row):
            before, ever = carry
            s, e, y = row
            term = bernoulli(jnp.where(s == before, 0.7, 0.3), 1) + bernoulli(jnp.where(ever, x["a"], x["b"]), e)
            term += dist.Normal(s + e * ever, 1.0).log_prob(y) + x["c"] * s
            return (s, ever | (e == 1)), term

        return jax.lax.scan(step, (0, False), (z["s"], z["e"], y))[1].sum()

    z = {"s": sumout.finite(2, (5,)), "e": sumout.finite(2, (5,))}
    return program(density, z, RNG.normal(0, 1, 5))


def logical_accumulate():
    """Trap response: once caught, caught again with another probability; and a running maximum."""

    def density(x, z, y):
        z = z["z"]
        ever = jnp.concatenate([jnp.zeros(1, bool), jax.lax.cummax(z)[:-1] > 0])
        return bernoulli(jnp.where(ever, x["a"], x["b"]), z).sum() + bernoulli(jnp.where(z == 1, x["c"], 0.2), y).sum()

    return program(density, {"z": sumout.finite(2, (7,))}, np.array([0, 1, 1, 0, 1, 0, 0]))


def array_carry():
    """The carry is an array that is filled place by place."""

    def density(x, z, y):
        def step(t, q):
            return q.at[t].set(q[t - 1] * (1 - z["z"][t - 1]))

        q = jax.lax.fori_loop(1, 6, step, jnp.ones(6))
        return (
            bernoulli(0.1 + 0.8 * x["a"] * q, z["z"]).sum() + bernoulli(jnp.where(z["z"] == 1, x["c"], x["b"]), y).sum()
        )

    return program(density, {"z": sumout.finite(2, (6,))}, np.array([0, 1, 1, 0, 1, 0]))


def unlike_values():
    """Sites of values that are no numbers from 0 on, some of which have fewer."""
    values = np.array([[-1, 2], [-1, 2], [3, 4], [-1, 2], [-1, 2]])
    allowed = np.array([[True, True], [True, True], [True, False], [True, True], [True, True]])
    support = sumout.model.supports.Finite(values, (5,), allowed)

    def density(x, z, y):
        total = jnp.cumsum(z["z"])
        return dist.Normal(x["a"] * total, 1).log_prob(y).sum() + x["b"] * (z["z"] > 0).sum()

    return program(density, {"z": support}, RNG.normal(0, 1, 5), a=REAL, b=REAL)


PROGRAMS = [
    jolly_seber_scan, jolly_seber_fori, jolly_seber_python, jolly_seber_numpyro, jolly_seber_cumprod, ragged,
    time_since, durations, counts_so_far, parity, two_carries, any_cause, pooled_by_segment, at_least_k,
    groups_of_groups, maximum, weighted, limited, two_sites_a_step, logical_accumulate, array_carry, unlike_values,
]  # fmt: skip
MAKE = {make.__name__: make for make in PROGRAMS}


@pytest.fixture
def always(monkeypatch):
    """States whatever the sums cost without them."""
    monkeypatch.setattr(state_summation, "STATES_GAIN", 0)
    monkeypatch.setattr(state_summation, "STATES_WORTH_LOOKING", 1)


SOON = "jolly_seber_scan ragged durations parity two_carries at_least_k maximum array_carry unlike_values".split()


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.calibration) for name in MAKE]
)
def test_as_by_brute_force(name, always):
    made = MAKE[name]()
    structure = read(made)
    made = structure.program
    plan = make_plan(structure)
    assert isinstance(plan.summation, StateSummation)
    assert plan.sums_all
    z = joint_states(made)
    one = {key: value[0] for key, value in z.items()}
    x = jnp.asarray(np.random.default_rng(1).normal(0, 0.7, made.num_x))
    every = jax.jit(jax.vmap(made.log_density, (None, 0, None)))

    def log_total(x):
        return jax.nn.logsumexp(every(x, z, made.data))

    def answers(x):
        best = plan.summation.most_probable(x, one, made.data)
        marginals = jnp.exp(plan.summation.log_marginals(x, one, made.data))
        return jax.value_and_grad(plan.log_density)(x, one, made.data), marginals, made.log_density(x, best, made.data)

    (value, gradient), marginals, log_best = jax.jit(answers)(x)
    expected, expected_gradient = jax.jit(jax.value_and_grad(log_total))(x)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-8, atol=1e-9)
    log_probabilities = np.asarray(every(x, z, made.data) - expected)
    flat = np.concatenate([np.asarray(z[key]).reshape(len(log_probabilities), -1) for key in made.z], axis=1)
    assert np.isclose(log_best - expected, log_probabilities.max())
    _compare_marginals(marginals, made, flat, np.exp(log_probabilities))
    keys = jax.random.split(jax.random.key(0), 2000)
    keys = jax.vmap(jax.random.key_data)(keys)
    drawn = jax.jit(jax.vmap(lambda key: plan.summation(key, x, one, made.data)))(keys)
    log_drawn = np.asarray(every(x, drawn, made.data) - expected)
    _compare_law(log_drawn, log_probabilities)


def _compare_marginals(found, made, flat, probabilities):
    starts = 0
    for site in made.z.values():
        rows, allowed = site.support.rows()
        for values, is_value, marginal, column in zip(
            rows, allowed, found[starts:], flat.T[starts : starts + site.num_elements], strict=False
        ):
            for value, is_one, probability in zip(values, is_value, marginal, strict=False):
                if is_one:
                    np.testing.assert_allclose(probability, probabilities[column == value].sum(), atol=1e-9)
        starts += site.num_elements


def _compare_law(log_drawn, log_probabilities):
    """The mean of log p over draws, and how often the likeliest joint values are drawn: six standard deviations."""
    p = np.exp(log_probabilities)
    finite = np.where(p > 0, log_probabilities, 0.0)
    mean = (p * finite).sum()
    spread = np.sqrt((p * (finite - mean) ** 2).sum() / len(log_drawn))
    assert np.isfinite(log_drawn).all()
    assert abs(log_drawn.mean() - mean) <= 6 * spread + 1e-9
    for level in np.sort(log_probabilities)[-3:]:
        share = p[np.isclose(log_probabilities, level)].sum()
        rate = np.isclose(log_drawn, level).mean()
        assert abs(rate - share) <= 6 * np.sqrt(share * (1 - share) / len(log_drawn)) + 1e-9
