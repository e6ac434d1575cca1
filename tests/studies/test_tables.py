"""Tables, claims and agreement of the studies, on draws whose bias and number are known."""

import numpy as np
import pytest

from sumout.adaptation.bias_meter import Meter
from sumout_studies.agreement import Moments, agreement_table, agreement_to_json
from sumout_studies.claims import CLAIMS, judge, stand
from sumout_studies.evaluate import QUICK, Evaluation
from sumout_studies.measure import Measurement, Outcome
from sumout_studies.models import GMM, SURVEY
from sumout_studies.paper import PRINTED, REBUILT
from sumout_studies.schemes import SCHEMES
from sumout_studies.tables import accuracy_table, claims_table, paper_tables, short, standing_table, to_json, whole

NO_BIAS = Meter(np.ones(1), np.full(1, 0.01))


def measured(scheme, *, seconds=1.0, shift=0.0, wider=1.0, study=SURVEY, seed=0):
    """Independent draws from a normal with the posterior's moments, moved and widened."""
    rng = np.random.default_rng(seed)
    outcomes = []
    for _ in range(2):
        noise = rng.normal(size=(4, 1000, len(study.mean)))
        x = np.asarray(study.mean) + np.asarray(study.sd) * (shift + wider * noise)
        outcomes.append(Outcome(x, seconds, 10, NO_BIAS))
    return Measurement(study, SCHEMES[scheme], outcomes)


def evaluation(**changes):
    found = {("survey", name): measured(name, **changes.get(name.replace("-", "_"), {})) for name in SCHEMES}
    programs = {"survey": None}
    return Evaluation(QUICK, list(SCHEMES.values()), programs, found, {"survey": 0.2})


@pytest.mark.parametrize(
    ("shift", "wider", "is_biased"),
    [(0, 1, False), (0.04, 1.03, False), (0.07, 1, False), (0.2, 1, True), (0, 1.12, True), (0, 0.88, True)],
)
def test_bias_is_told(shift, wider, is_biased):
    one = measured("ghmc", shift=shift, wider=wider)
    assert one.is_biased == is_biased
    assert (one.unbiased_rate is None) == is_biased
    assert abs(one.mean_error.value - shift) < 5 * one.mean_error.error
    assert abs(one.sd_ratio.value - wider) < 5 * one.sd_ratio.error


def test_effective_draws_and_seconds_are_for_ten_thousand_draws():
    one = measured("ghmc", seconds=2.0)
    assert 7000 < one.ess[0] < 11_000
    assert one.seconds == (5.0, 0.0)
    assert one.rate == one.ess[0] / 5


def test_claims_are_judged_with_and_without_bias():
    fast_but_wrong = {"seconds": 0.1, "wider": 1.5}
    slow_turns = {"seconds": 1.0}
    found = evaluation(sghmc_1=fast_but_wrong, sghmc_10={"seconds": 0.9}, mh_hmc=slow_turns)
    verdicts = list(judge({name: found.measurements["survey", name] for name in SCHEMES}).values())
    assert [one.holds for one in verdicts] == [True, True, True, False, True, False]
    assert [one.holds_without_bias for one in verdicts] == [None, None, False, False, False, False]
    assert not judge({"nuts": measured("nuts")})


def test_ours_are_compared_with_what_counts():
    found = evaluation(sghmc_1={"seconds": 0.01, "shift": 1}, hmc={"seconds": 0.5}, nuts={"seconds": 0.1})
    standing = stand({name: found.measurements["survey", name] for name in SCHEMES})
    assert standing["nuts"].is_first
    assert np.isinf(standing["nuts"].ahead["sghmc-1"])
    assert not standing["ghmc"].is_first
    assert 0.4 < standing["ghmc"].ahead["hmc"] < 0.6


def test_tables_have_a_row_for_each_study_and_a_column_for_each_scheme():
    found = evaluation(sghmc_1={"wider": 1.5})
    for table in paper_tables(found):
        assert len(table.header) == 1 + len(SCHEMES)
        assert [len(row) for row in table.rows] == [1 + len(SCHEMES)]
    assert paper_tables(found)[2].rows[0][1].is_off
    accuracy = accuracy_table(found)
    assert [row[4].here for row in accuracy.rows] == ["no", *["yes"] * 7]
    assert accuracy.rows[0][5].here == "0"
    assert len(claims_table(found).rows) == len(CLAIMS)
    assert len(standing_table(found).rows) == 4
    numbers = to_json(found)["studies"]["survey"]["schemes"]
    assert numbers["sghmc-1"]["printed"]["ess"] == (4600, 180)
    assert numbers["nuts"]["rebuilt"] is None


def test_all_cells_of_the_paper_are_there():
    papers = [name for name, scheme in SCHEMES.items() if not scheme.is_ours]
    assert set(PRINTED) == set(REBUILT) == {(study, name) for study in ("survey", "gmm", "hmm") for name in papers}


def test_agreement_with_stan_is_told():
    stan = {"survey": Moments(np.array(SURVEY.mean), np.array(SURVEY.sd), np.array([10_000.0]))}
    table = agreement_table(evaluation(sghmc_1={"wider": 1.6}, mh_hmc={"shift": 0.4}), stan)
    assert [row[3].here for row in table.rows] == ["no", "yes", "no", *["yes"] * 5]
    numbers = agreement_to_json(evaluation(mh_hmc={"shift": 0.4}), stan)["survey"]
    assert numbers["mh-hmc"]["is_off"] and not numbers["hmc"]["is_off"]
    assert abs(numbers["mh-hmc"]["difference"] - 0.4) < 0.1


def test_labels_are_put_in_order():
    x = np.array([[[1.0, -1.0, 0.1, 0.2], [-1.0, 1.0, 0.3, 0.4]]])
    gradient = np.array([[[10.0, 20.0, 30.0, 40.0], [50.0, 60.0, 70.0, 80.0]]])
    np.testing.assert_array_equal(GMM.in_order(x), [[[-1.0, 1.0, 0.2, 0.1], [-1.0, 1.0, 0.3, 0.4]]])
    np.testing.assert_array_equal(GMM.in_order(x, gradient)[0, 0], [20.0, 10.0, 40.0, 30.0])
    np.testing.assert_array_equal(SURVEY.in_order(x), x)


@pytest.mark.parametrize(("value", "words"), [(0, "0"), (12.3, "12"), (12_345, "12,300"), (float("nan"), "–")])
def test_counts_have_three_digits(value, words):
    assert whole(value) == words


def test_seconds_have_two_digits():
    assert [short(value) for value in (0.01234, 1.26, 340.0)] == ["0.012", "1.3", "340"]
