"""The plan: what is summed, what is drawn, and why."""

import pytest
from numpyro.distributions import constraints

import sumout
from sumout.errors import OptionError
from sumout.plan.plan import make_plan

from programs import ENUMERABLE, abundance_in_fog


def methods(program, overrides=None):
    choices = make_plan(sumout.read(program), overrides).choices
    return {name: [choice.method for choice in found] for name, found in choices.items()}


@pytest.mark.parametrize("name", ENUMERABLE)
def test_small_programs_are_summed_out(name):
    plan = make_plan(sumout.read(ENUMERABLE[name]()))
    assert plan.sums_all
    assert {choice.method for found in plan.choices.values() for choice in found} == {"sum"}


def test_a_large_lattice_is_drawn_and_a_narrow_one_summed():
    assert methods(ENUMERABLE["grid"](24, 24)) == {"s": ["gibbs"]}
    assert methods(ENUMERABLE["grid"](5, 60)) == {"s": ["sum"]}
    text = sumout.explain(ENUMERABLE["grid"](24, 24))
    assert "to sum over 576 sites that depend on each other would take tables of more than 4,194,304 entries" in text
    assert "Kernel: HMC" in text


def test_an_override_cuts_a_component_apart():
    program = ENUMERABLE["mixed_values"]()
    assert methods(program, {"kind": "gibbs"}) == {"kind": ["gibbs"], "flag": ["sum"]}
    assert methods(program, {"kind": "draw", "flag": "metropolis"}) == {"kind": ["joint"], "flag": ["metropolis"]}
    plan = make_plan(sumout.read(program), {"kind": "gibbs"})
    assert len(plan.sweep.moves) == 2  # the flags are drawn first, then the kinds given them


def test_counts_are_drawn_and_what_depends_on_them_is_summed_out():
    assert methods(abundance_in_fog()) == {"n": ["metropolis"], "fog": ["sum"]}
    text = sumout.explain(abundance_in_fog(), plan={"n": "draw"})
    assert "as you asked" in text
    assert "summed out exactly" in text


@pytest.mark.parametrize(
    "make, overrides, words",
    [
        (lambda: ENUMERABLE["grid"](24, 24), {"s": "sum"}, "s cannot be done by 'sum': 576 sites"),
        (lambda: ENUMERABLE["grid"](24, 24), {"s": "joint"}, "cannot be done by 'joint'"),
        (abundance_in_fog, {"n": "sum"}, "'n' cannot be done by 'sum', as it has infinitely many values"),
        (abundance_in_fog, {"fog": "prior"}, "'fog' cannot be done by 'prior'"),
        (abundance_in_fog, {"fog": "marginalise"}, "the methods are sum, joint, gibbs, metropolis, prior, draw"),
        (abundance_in_fog, {"mist": "sum"}, "no discrete site 'mist'; the sites are n, fog"),
    ],
)
def test_overrides_that_are_not_possible(make, overrides, words):
    with pytest.raises(OptionError, match=words):
        make_plan(sumout.read(make()), overrides)


def test_work_is_counted_in_entries():
    plan = make_plan(sumout.read(ENUMERABLE["loop_hmm"](5, 3)))
    # Five emissions of 3 and four transitions of 9, then four tables of 9 and one of 3.
    assert plan.summing == pytest.approx(5 * 3 + 4 * 9 + 4 * 9 + 3)
    # Five emissions and, from either side, four transitions, of 3 each; then five conditionals of 3.
    assert plan.drawing == pytest.approx(5 * 3 + 2 * 4 * 3 + 5 * 3)


@pytest.mark.parametrize(
    "num_values, num_sites, method", [(500, 1, "sum"), (5000, 1, "sum"), (500, 50, "sum"), (5000, 3000, "metropolis")]
)
def test_sites_of_many_values_are_summed_where_their_tables_are_affordable(num_values, num_sites, method):
    program = sumout.density(
        lambda x, z, data: -0.5 * ((0.01 * z["n"] - x["m"]) ** 2).sum(),
        x={"m": (constraints.real, ())},
        z={"n": sumout.finite(num_values, shape=num_sites)},
    )
    assert methods(program) == {"n": [method]}
