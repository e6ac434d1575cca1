"""Without any of the patterns, or all of them, every answer is the same."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.eliminate.state_summation import StateSummation
from sumout.moves.sweep import Stack
from sumout.patterns import change_points
from sumout.patterns.contract import Elimination
from sumout.patterns.quadratic_gibbs import QuadraticGibbs
from sumout.patterns.registry import PATTERNS, find_match
from sumout.patterns.slices import Cells
from sumout.plan.plan import make_plan
from sumout.results.likelihood import build_likelihood
from sumout.results.marginals import probabilities

from enumeration import joint_states, log_joint, random_x
from programs import ENUMERABLE
from transitions import transition_matrices

RNG = np.random.default_rng(0)
DRAWS = 2_000


def change_point(steps=300):
    """More values than a table holds that no pattern fills."""

    def model(y):
        rate = numpyro.sample("rate", dist.Exponential(1.0).expand([2]).to_event(1))
        k = numpyro.sample("k", dist.DiscreteUniform(0, len(y) - 1))
        numpyro.sample("y", dist.Poisson(jnp.where(jnp.arange(len(y)) < k, rate[0], rate[1])), obs=y)

    return sumout.program(model, RNG.poisson(np.where(np.arange(steps) < steps // 3, 4.0, 1.0)))


def chain(length=12, states=20):
    """A hidden Markov model with many states."""

    def model(y):
        logits = numpyro.sample("logits", dist.Normal(0, 1).expand([states]).to_event(1))
        far = jnp.abs(jnp.arange(states)[:, None] - jnp.arange(states))
        before = numpyro.sample("s0", dist.Categorical(logits=logits))
        for t in range(len(y)):
            before = numpyro.sample(f"s{t + 1}", dist.Categorical(logits=logits - 0.3 * far[before]))
            numpyro.sample(f"y{t}", dist.Normal(0.3 * before, 1.0), obs=y[t])

    return sumout.program(model, RNG.normal(2.0, 2.0, length))


def grid():
    return ENUMERABLE["grid"](3, 12)


def spike_and_slab():
    return ENUMERABLE["spike_and_slab"](5)


def comings(steps=5, animals=1):
    """Animals that come once, and leave for good: each step depends on all before, through "has not come yet"."""

    def model(y):
        gamma, phi, p = (numpyro.sample(name, dist.Beta(2, 2)) for name in ("gamma", "phi", "p"))
        z, waiting = 0, 1
        with numpyro.plate("animals", animals):
            for t in range(steps):
                z = numpyro.sample(f"z{t}", dist.Bernoulli(phi * z + gamma * waiting))
                waiting = waiting * (1 - z)
                numpyro.sample(f"y{t}", dist.Bernoulli(p * z), obs=y[t])

    return sumout.program(model, np.eye(steps, animals, -2, int))


@dataclass
class Case:
    """A program, how it is to be planned, and whether a plan uses the pattern."""

    make: object
    override: str
    uses: object


CASES = {
    "change points": Case(change_point, "sum", lambda plan: plan.summation.blocks[0].matched is not None),
    "quadratic form": Case(spike_and_slab, "gibbs", lambda plan: isinstance(plan.moves[0], QuadraticGibbs)),
    "deterministic states": Case(comings, "sum", lambda plan: isinstance(plan.summation, StateSummation)),
    "slices": Case(grid, "sum", lambda plan: plan.summation.trees[0].buckets.size > 1),
    "scaled messages": Case(chain, "sum", lambda plan: plan.summation.trees[0].buckets.chain is not None),
}


@cache
def plans(name):
    """The program, its plan with all patterns, and those without the one in question and without any."""
    structure = sumout.read(CASES[name].make())
    program = structure.program  # with sites of one kind as one array
    overrides = dict.fromkeys(program.z, CASES[name].override)
    others = [pattern for pattern in PATTERNS if pattern.name != name]
    return program, *(make_plan(structure, overrides, patterns) for patterns in (PATTERNS, others, ()))


def some_z(program):
    return {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}


def test_there_is_a_case_for_every_pattern():
    assert [pattern.name for pattern in PATTERNS] == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_value_gradient_and_probabilities(name):
    program, *made = plans(name)
    assert [CASES[name].uses(plan) for plan in made] == [True, False, False]
    x, z = random_x(program), some_z(program)

    def answers(plan):
        value_and_gradient = jax.jit(jax.value_and_grad(plan.log_density))(x, z, program.data)
        return *value_and_gradient, jax.jit(lambda: probabilities(plan, x, z, program.data))()

    expected = answers(made[0])
    assert np.isfinite(expected[1]).all() and not np.isnan(expected[2]).any()
    for plan in made[1:]:
        for found, wanted in zip(answers(plan), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.override == "sum"])
def test_draws_follow_the_marginals(name):
    """Frequencies within seven standard errors (2e-12 for each of some 3,000: fails by chance once in 1e8)."""
    program, *made = plans(name)
    x, z = random_x(program), some_z(program)
    table = np.asarray(jax.jit(lambda: probabilities(made[0], x, z, program.data))())
    keys = jax.random.split(jax.random.key(1), DRAWS)
    for plan in (made[0], made[-1]):
        drawn = jax.jit(jax.vmap(lambda key, plan=plan: plan.recover(key, x, z, program.data)))(keys)
        flat = np.concatenate([np.asarray(drawn[name]).reshape(DRAWS, -1) for name in program.z], axis=1)
        found = (flat[:, :, None] == np.arange(table.shape[1])).mean(axis=0)
        assert (np.abs(found - table) < 7 * np.sqrt(table * (1 - table) / DRAWS) + 10 / DRAWS).all()


def test_sweeps_leave_the_conditional_invariant():
    program, *made = plans("quadratic form")
    states, x = joint_states(program), random_x(program)
    law = np.asarray(jax.nn.softmax(log_joint(program, states)(x)))
    assert isinstance(made[-1].moves[0], Stack) and not made[-1].sweep.moves_x
    for plan in (made[0], made[-1]):
        for matrix in transition_matrices(plan, x, states):
            assert np.abs(law @ matrix - law).sum() < 1e-10


@pytest.mark.parametrize("name", ["change points", "deterministic states", "scaled messages"])
def test_log_likelihoods(name):
    program, *made = plans(name)
    x, z = random_x(program), some_z(program)
    expected, *others = (jax.jit(build_likelihood(plan))(x, z, program.data) for plan in made)
    for found in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), found, expected)


def test_a_site_of_many_values_is_summed_value_by_value_where_no_pattern_fills_its_table():
    structure = sumout.read(change_point())
    for patterns, is_matched in ((PATTERNS, True), ((), False)):
        plan = make_plan(structure, patterns=patterns)
        assert plan.sums_all
        assert (plan.summation.blocks[0].matched is not None) == is_matched


def test_a_change_point_is_looked_for_once(monkeypatch):
    calls, find = [], change_points._find_table
    monkeypatch.setattr(change_points, "_find_table", lambda *args: calls.append(args) or find(*args))
    structure = sumout.read(change_point())
    assert make_plan(structure).summation.blocks[0].matched is not None
    make_plan(structure, {"k": "gibbs"})
    assert len(calls) == 1


def test_of_several_matches_the_cheapest_is_taken():
    @dataclass(frozen=True)
    class Known:
        cost: float
        name: str = "known"
        subject: type = Elimination

        def match(self, subject):
            return Cells(np.zeros((1, 1)), self.cost) if self.cost else None

    subject = Elimination(1, np.zeros((0, 2)), 2, 2)
    assert find_match([Known(3.0), Known(1.0), Known(0.0), Known(2.0)], subject).cost == 1.0
    assert find_match([Known(0.0)], subject) is None
    assert find_match([Known(1.0)], None) is None
