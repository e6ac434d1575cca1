"""Exact sums: marginal, gradient, draws, mode and marginals of z against the list of all joint states."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax.scipy.special import logsumexp

import sumout
from sumout.eliminate.components import find_components
from sumout.eliminate.fill_tables import fill_tables
from sumout.eliminate.summation import build_summation
from sumout.patterns.registry import PATTERNS
from sumout.patterns.scaled_messages import ScaledMessages
from sumout.plan.plan import make_plan
from sumout.structure.structure import Structure
from sumout_studies.models import STUDIES

from enumeration import joint_states, log_joint, log_marginal, random_x, state_numbers
from programs import ENUMERABLE, array_hmm


def sum_all(program, patterns=PATTERNS):
    structure = sumout.read(program)
    components = find_components(structure, np.ones(structure.num_sites, bool), patterns)
    return build_summation(structure, components, patterns)


def any_z(program):
    return {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}


def check_marginal(program, summation, tolerance=1e-8):
    states = joint_states(program)
    brute = jax.jit(jax.value_and_grad(log_marginal(program, states)))
    ours = jax.jit(jax.value_and_grad(lambda x: summation.log_density(x, any_z(program), program.data)))
    for seed in range(3):
        x = random_x(program, seed)
        (value, gradient), (expected, expected_gradient) = ours(x), brute(x)
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ENUMERABLE)
def test_marginal_and_its_gradient(name):
    program = ENUMERABLE[name]()
    check_marginal(program, sum_all(program))


@pytest.mark.parametrize("name", ["unequal_paths", "ladder", "second_order_chain"])
def test_tables_by_colour_are_those_by_role(name, monkeypatch):
    program = ENUMERABLE[name]()

    def nothing_by_role(structure, is_set, size):
        return None, np.zeros(len(structure.factor_shapes), bool)

    monkeypatch.setattr(Structure, "find_roles", nothing_by_role)
    summation = sum_all(program)
    assert all(one.roles is None for one in summation.rounds)
    check_marginal(program, summation)


def test_an_array_of_transitions_is_evaluated_by_role():
    summation = sum_all(ENUMERABLE["unequal_paths"]())
    assert [len(one.axes) for one in summation.rounds if one.roles is not None] == [1, 2]


def test_sites_that_meet_one_after_the_other_are_evaluated_by_role():
    summation = sum_all(ENUMERABLE["switches"]())
    assert [len(one.axes) for one in summation.rounds if one.roles is not None] == [1, 2, 3]
    assert all(one.roles is not None or len(one.axes) == 1 for one in summation.rounds)


def test_pairs_that_go_into_two_factors_are_evaluated_by_colour():
    summation = sum_all(ENUMERABLE["shared_pairs"]())
    assert [one.roles for one in summation.rounds if len(one.axes) == 3]
    assert all(one.roles is None for one in summation.rounds)


@pytest.mark.parametrize("name", ENUMERABLE)
def test_draws_mode_and_marginals(name):
    """The law of the draws without noise: the product of the conditionals on the way down is p(z|x, y)."""
    program = ENUMERABLE[name]()
    check_law(program, sum_all(program))


IN_SLICES = "grid spike_and_slab factorial_hmm opaque odd_values ladder switches shared_pairs one_way".split()


@pytest.mark.parametrize("name", IN_SLICES)
def test_site_by_site(name):
    """What is summed out in slices above gives the same site by site."""
    program = ENUMERABLE[name]()
    assert all(trees.buckets.size > 1 for trees in sum_all(program).trees)
    summation = sum_all(program, [pattern for pattern in PATTERNS if pattern.name != "slices"])
    assert all(trees.buckets.size == 1 for trees in summation.trees)
    check_marginal(program, summation)
    check_law(program, summation)


@pytest.mark.parametrize(
    "name", ["scan_hmm", pytest.param("switches", marks=pytest.mark.calibration), "one_way", "bare_end"]
)
def test_long_chains_by_products_in_logarithms_and_site_by_site(name):
    program = ENUMERABLE[name](80)
    others = [pattern for pattern in PATTERNS if pattern.name != "scaled messages"]
    always = [*others, ScaledMessages(least_values=1)]

    def value_and_gradient(patterns):
        summation = sum_all(program, patterns)

        def log_density(x):
            return summation.log_density(x, any_z(program), program.data)

        return jax.jit(jax.value_and_grad(log_density))(random_x(program))

    x, z = random_x(program), any_z(program)
    traced = jax.make_jaxpr(lambda x: sum_all(program, always).log_density(x, z, program.data))(x)
    assert "custom_vjp" in str(traced) or name == "one_way"  # whose tables are laid out for every step
    by_products, in_logarithms, site_by_site = map(value_and_gradient, (always, others, ()))
    for other in (in_logarithms, site_by_site):
        np.testing.assert_allclose(by_products[0], other[0], rtol=1e-12)
        np.testing.assert_allclose(by_products[1], other[1], rtol=1e-8, atol=1e-8)


def check_law(program, summation):
    states, x, data = joint_states(program), random_x(program), program.data
    density = np.asarray(log_joint(program, states)(x))
    exact = np.exp(density - logsumexp(density))

    @jax.jit
    def said(x):
        mode = summation.most_probable(x, z, data)
        law = log_law(summation, program, states, x)
        return law, program.log_density(x, mode, data), summation.log_marginals(x, z, data)

    z = any_z(program)
    law, highest, marginals = said(x)
    drawn = np.exp(np.asarray(law))
    assert np.abs(drawn - exact).max() < 1e-10
    assert abs(drawn.sum() - 1) < 1e-10
    assert float(highest) == pytest.approx(density.max(), abs=1e-10)
    table = np.exp(np.asarray(marginals))
    flat = np.concatenate([np.asarray(a).reshape(len(exact), -1) for a in states.values()], axis=1)
    rows = [row for site in program.z.values() for row in zip(*site.support.rows(), strict=True)]
    for i, (values, allowed) in enumerate(rows):
        for k, (value, counts) in enumerate(zip(values, allowed, strict=True)):
            expected = exact[flat[:, i] == value].sum() if counts else 0.0
            assert table[i, k] == pytest.approx(expected, abs=1e-10)


def log_law(summation, program, states, x):
    """The log probability of every joint state of a draw."""
    z, data = any_z(program), program.data
    total = jnp.zeros(len(next(iter(states.values()))))
    for gibbs in summation.blocks:
        table = jnp.log(gibbs.conditionals(x, z, data))
        present = jax.vmap(gibbs.block.take)(states)
        values = jnp.broadcast_to(gibbs.values, table.shape)
        allowed = True if gibbs.allowed is None else gibbs.allowed
        number = jnp.argmax((values == present[:, None]) & allowed, axis=1)
        total += jax.vmap(lambda row, table=table: jnp.take_along_axis(table, row[None], axis=0).sum())(number)
    tables = fill_tables(summation.rounds, [trees.buckets for trees in summation.trees], x, z, data)
    for trees, table in zip(summation.trees, tables, strict=True):
        present = jax.vmap(trees.block.take)(states)
        values = jnp.broadcast_to(trees.values, (trees.values.shape[0], trees.block.size))
        number = jnp.argmax(values == present[:, None], axis=1)
        cells = jnp.zeros((len(number), trees.buckets.sites.size), int).at[:, trees.cells].set(number)
        cells = cells.reshape(-1, *trees.buckets.sites.shape)
        total += jax.vmap(lambda c, t=trees, table=table: log_probability(t.buckets, table, c))(cells)
    return total


def log_probability(buckets, tables, numbers):
    """The log probability that a draw of the buckets has these numbers."""
    filled = buckets.up(tables)[0]
    entries = buckets._choose(filled, lambda _, number: number, (numbers * buckets._powers).sum(axis=-1))
    levels, own, joint, columns = buckets.shape
    given = buckets.log_conditionals(tables).reshape(levels, own * joint, columns)
    each = jnp.take_along_axis(given, entries[:, None], axis=1)[:, 0]
    return jnp.where(buckets.is_padding, 0.0, each).sum()


@pytest.mark.parametrize(
    "name",
    [
        "ladder",
        *(pytest.param(name, marks=pytest.mark.calibration) for name in ("unequal_paths", "tree", "mixed_values")),
    ],
)
def test_dice_follow_the_law(name):
    """Frequencies of joint states (chi-square; fails by chance once in 1e8)."""
    program = ENUMERABLE[name]()
    states, x = joint_states(program), random_x(program)
    summation = sum_all(program)
    density = np.asarray(log_joint(program, states)(x))
    exact = np.exp(density - logsumexp(density))
    keys = jax.random.split(jax.random.key(5), 40_000)
    drawn = jax.jit(jax.vmap(lambda key: summation(key, x, any_z(program), program.data)))(keys)
    check_frequencies(drawn, states, exact)


def check_frequencies(drawn, states, exact):
    _, numbers = state_numbers(states)
    rows, _ = state_numbers({name: drawn[name] for name in states})  # JAX sorts the names
    found = np.bincount([numbers[row.tobytes()] for row in rows], minlength=len(exact))
    expected = exact * found.sum()
    common = expected > 5
    assert found[exact == 0].sum() == 0
    groups = np.append(found[common], found[~common].sum()), np.append(expected[common], expected[~common].sum())
    statistic = ((groups[0] - groups[1]) ** 2 / np.maximum(groups[1], 1)).sum()
    assert statistic < common.sum() + 8 * np.sqrt(2 * common.sum()) + 20


def test_draws_of_a_long_chain():
    """Frequencies of the states of a chain of 200 (six standard errors each; fails by chance once in 1e6)."""
    program = array_hmm(200, 3)
    summation, x, z = sum_all(program), random_x(program), any_z(program)
    keys = jax.random.split(jax.random.key(2), 20_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: summation(key, x, z, program.data)["state"]))(keys))
    table = np.exp(np.asarray(jax.jit(lambda: summation.log_marginals(x, z, program.data))()))
    for k in range(3):
        frequency = (drawn == k).mean(axis=0)
        spread = np.sqrt(table[:, k] * (1 - table[:, k]) / len(keys))
        assert (np.abs(frequency - table[:, k]) < 6 * spread + 1e-4).all()


@pytest.mark.parametrize("what", ["log_density", "most_probable", "log_marginals"])
def test_compiled_code_does_not_grow_with_a_chain(what):
    def size(length):
        program = array_hmm(length, 2)
        function = getattr(sum_all(program), what)
        traced = jax.make_jaxpr(lambda x: function(x, any_z(program), program.data))(random_x(program))
        return str(traced).count(" = ")

    assert size(120) == size(80)  # of up to 32 levels each is written out


@pytest.mark.parametrize(
    "name",
    [
        "mixed_values",
        "grid",
        *(pytest.param(name, marks=pytest.mark.calibration) for name in ("ladder", "spike_and_slab", "named_scalars")),
    ],
)
def test_some_summed_the_others_given(name):
    """With part of the sites drawn, the sum is over the rest at their present values."""
    program = ENUMERABLE[name]()
    first = next(iter(program.z))
    structure = sumout.read(program)
    candidates = np.ones(structure.num_sites, bool)
    candidates[structure.site_numbers[first][: max(1, program.z[first].num_elements // 2)]] = False
    summation = build_summation(structure, find_components(structure, candidates))
    states, x = joint_states(program), random_x(program, 1)
    density = np.asarray(log_joint(program, states)(x))
    flat, _ = state_numbers(states)
    for state in (0, len(flat) // 2, len(flat) - 1):
        z = jax.tree.map(lambda a, state=state: a[state], states)
        same = (flat[:, ~candidates] == flat[state, ~candidates]).all(axis=1)
        expected = logsumexp(density[same])
        assert float(jax.jit(summation.log_density)(x, z, program.data)) == pytest.approx(float(expected), abs=1e-8)
        drawn = jax.jit(summation)(jax.random.key(0), x, z, program.data)
        kept = state_numbers({name: drawn[name][None] for name in states})[0][0]
        assert (kept[~candidates] == flat[state, ~candidates]).all()


# The survey and the mixture as plain loops over 60 and 100 data compile for long; the Markov model stands for them.
@pytest.mark.parametrize(
    "name, form",
    [*((name, "program") for name in STUDIES), pytest.param("hmm", "density", marks=pytest.mark.calibration)],
)
def test_the_papers_programs_marginalised_by_hand(name, form):
    study = STUDIES[name]
    program = getattr(study, form)()
    plan = make_plan(sumout.read(program))
    assert plan.sums_all
    data = jnp.asarray(study.data())

    def by_hand(x):
        named = program.unravel(x)
        constrained = {n: numpyro.distributions.biject_to(c)(named[n]) for n, (c, _) in study.x.items()}
        jacobian = sum(
            numpyro.distributions.biject_to(c).log_abs_det_jacobian(named[n], constrained[n]).sum()
            for n, (c, _) in study.x.items()
        )
        return study.marginal(constrained, data) + jacobian

    ours = jax.jit(jax.value_and_grad(lambda x: plan.log_density(x, any_z(program), program.data)))
    theirs = jax.jit(jax.value_and_grad(by_hand))
    first, second = random_x(program, 0), random_x(program, 1)
    # The NumPyro form of the Markov model has a uniform first state, a constant.
    ours_moved, theirs_moved = (float(f(first)[0] - f(second)[0]) for f in (ours, theirs))
    assert ours_moved == pytest.approx(theirs_moved, abs=1e-8)
    np.testing.assert_allclose(ours(first)[1], theirs(first)[1], rtol=1e-8, atol=1e-8)
