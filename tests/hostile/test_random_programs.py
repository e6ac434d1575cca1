"""Random programs against brute force: value, gradient, marginals, most probable z, log likelihood and moves."""

import numpy as np
import pytest

from hostile.random_programs import Spec, attack, examine, find_truth, make, shrink
from hostile.terms import KINDS

NUM_QUICK = 40
NUM_ALL = 2000
CHUNK = 10


def tell(failed):
    """The programs that failed, in the fewest terms."""
    lines = []
    for is_double, verdict in failed:
        small = make(shrink(verdict.spec, is_double))
        lines += [f"in {'double' if is_double else 'single'} precision:", *map(str, verdict.failures[:2]), str(small)]
    return "\n".join(lines)


def check(verdicts):
    failed = [(is_double, verdict) for is_double, verdict in verdicts if verdict.failures or verdict.refused]
    assert not failed, tell(failed[:3])


@pytest.mark.parametrize("first", range(0, NUM_QUICK, CHUNK))
def test_some_random_programs(first):
    """Each in one precision, in turn."""
    for seed in range(first, first + CHUNK):
        check(attack(range(seed, seed + 1), (seed % 2 == 0,)))


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


def test_a_failure_is_shrunk_to_the_term_that_fails(monkeypatch):
    """A term whose gradient was spoiled on purpose is what is left."""
    import sumout.plan

    plain = sumout.plan.Plan.log_density.func
    spec = next(Spec(seed) for seed in range(1000) if {"alone"} < make(Spec(seed)).kinds)

    def spoiled(self):
        right = plain(self)
        names = {name for name, _ in self.structure.program.z.items()}
        return lambda x, z, data: right(x, z, data) + 0.01 * len(names)

    monkeypatch.setattr(sumout.plan.Plan, "log_density", property(spoiled))
    verdict = examine(spec)
    assert "value" in verdict.what
    assert len(make(shrink(spec)).terms) == 1
