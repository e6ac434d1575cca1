"""Every bad model ends in one error or warning that names what is wrong, soon; good models in none."""

import warnings
from time import process_time

import pytest

import sumout
from sumout.errors import ModelError, ModelWarning, SumoutError

from faulty_models import FAULTS
from sound_models import GOOD

MOST_SECONDS = 10.0  # of this process: how busy the machine is does not count
# A few of each for every run of the suite; all of them for `make calibrate`.
QUICK = [
    *("negative_scale-mixture", "impossible_factor-survey", "without_influence-scan_hmm", "flat-spike_and_slab"),
    *("improper_location-groups", "in_steps-failures", "moving_edge-survey", "tiny_scale-switch_point", "twice-groups"),
    *(
        "branching-abundance",
        "moving_lower_end-mixture",
        "index_that_is_no_integer-scan_hmm",
        "stretched_column-survey",
    ),
    *("forced_sum-survey", "missing-spike_and_slab", "broken_count-failures", "objects-mixture", "complex-groups"),
    *("plate_named_like_a_site-survey", "nan_of_z-coins", "stretched-levels", "hard_edge-lattice", "empty_z-path"),
    *("open_count-coins", "tied_counts-levels"),
]
QUIET = ["wide_normal-tail-log_poisson-3", "vague_gamma-binomial-log_poisson-8", "cauchy-count-laplace-8", "ladder"]


def diagnose(fault):
    """What is said of a bad model: one error, or else warnings."""
    try:
        found = sumout.check(fault.make(), plan=fault.plan)
    except SumoutError as error:
        return [str(error)]
    return found.errors[:1] or found.warnings


def judge(fault):
    """What is wrong with what is said of a bad model; nothing if all is as it should be."""
    begun = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = diagnose(fault)
    seconds = process_time() - begun
    complaints = []
    if len(said) != 1:
        complaints.append(f"{len(said)} messages: {said}")
    if not any(fault.words in message for message in said):
        complaints.append(f"{fault.words} is not named in {said}")
    if seconds > MOST_SECONDS:
        complaints.append(f"it took {seconds:.1f} s")
    return complaints


def named(cases, names):
    found = [case for case in cases if case.name in names]
    assert len(found) == len(names)
    return found


def test_there_are_many_of_both():
    assert len({fault.kind for fault in FAULTS}) >= 25
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 500
    assert len({good.name for good in GOOD}) == len(GOOD) >= 200


@pytest.mark.parametrize("fault", named(FAULTS, QUICK), ids=lambda fault: fault.name)
def test_some_faults(fault):
    assert judge(fault) == []


@pytest.mark.parametrize("good", named(GOOD, QUIET), ids=lambda good: good.name)
def test_some_good_models(good):
    assert str(sumout.check(good.make(), plan=good.plan)).endswith("nothing found.")


@pytest.mark.calibration
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_all_faults(fault):
    assert judge(fault) == []


@pytest.mark.calibration
@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.name)
def test_all_good_models(good):
    assert str(sumout.check(good.make(), plan=good.plan)).endswith("nothing found.")


def test_sampling_raises_what_the_doctor_finds():
    (flat,) = named(FAULTS, ["flat-spike_and_slab"])
    with pytest.raises(ModelError, match="does not depend on 'bad'"):
        sumout.sample(flat.make())


def test_sampling_warns_of_what_the_doctor_finds():
    (idle,) = named(FAULTS, ["unused_z-levels"])
    program = idle.make()
    for _ in range(2):
        with pytest.raises(ModelWarning, match="'bad' has no influence"):  # the suite turns warnings into errors
            sumout.sample(program)
