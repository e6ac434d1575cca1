"""Random programs against brute force: value, gradient, marginals, most probable z, log likelihood and moves."""

from unittest import mock

import numpy as np
import pytest

from sumout.plan.plan import Plan

from hostile.random_programs import Spec, attack, examine, find_truth, is_numpyro, make, shrink
from hostile.terms import KINDS

NUM_ALL = 2000
CHUNK = 6
# A NumPyro model takes four times as long as a density: of the quick ones only two are such.
QUICK = [seed for seed in range(60) if seed in (4, 9) or not is_numpyro(Spec(seed))][:12]


def tell(failed):
    """The programs that failed, in the fewest terms."""
    lines = []
    for is_double, verdict in failed:
        small = make(shrink(verdict.spec, is_double))
        lines += [
            f"in {'double' if is_double else 'single'} precision:",
            *map(str, verdict.failures[:2]),
            verdict.refused,
            str(small),
        ]
    return "\n".join(lines)


def check(verdicts):
    failed = [(is_double, verdict) for is_double, verdict in verdicts if verdict.failures or verdict.refused]
    assert not failed, tell(failed[:3])


@pytest.mark.parametrize("first", range(0, len(QUICK), CHUNK))
def test_some_random_programs(first):
    """Of two terms, and each in one precision: what takes the time is to trace and to compile."""
    for seed in QUICK[first : first + CHUNK]:
        spec = Spec(seed, kept=(0, 1))
        check([(seed % 2 == 0, examine(spec, is_double=seed % 2 == 0))])


@pytest.mark.calibration
@pytest.mark.parametrize("first", range(0, NUM_ALL, CHUNK))
def test_many_random_programs(first):
    check(attack(range(first, first + CHUNK)))


@pytest.mark.calibration
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_term_alone(name):
    spec = Spec(seed=len(name), kind=name)
    truth = find_truth(make(spec))
    check((is_double, examine(spec, is_double, truth)) for is_double in (True, False))


def test_there_are_many_kinds_of_terms_and_all_are_met():
    met = set().union(*(make(Spec(seed)).kinds for seed in range(NUM_ALL)))
    assert len(KINDS) >= 70 and met == set(KINDS)


def test_a_program_follows_from_its_seed():
    first, second = (find_truth(make(Spec(3))) for _ in range(2))
    np.testing.assert_array_equal(first.table, second.table)


def test_a_failure_is_shrunk_to_one_term():
    spec = next(Spec(seed) for seed in range(1000) if len(make(Spec(seed)).terms) == 2 and not is_numpyro(Spec(seed)))

    def spoiled(self):
        return lambda x, z, data: self.summation.log_density(x, z, data) + 0.01

    with mock.patch.object(Plan, "log_density", property(spoiled)):
        assert "value" in examine(spec).what
        assert len(make(shrink(spec)).terms) == 1
    assert not examine(spec).failures
