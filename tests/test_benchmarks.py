"""The parts of the benchmark that need no peers: what counts as right, what as reached; sumout takes the models."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sumout

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed

from benchmarks.jags import Jags, is_there, read_draws
from benchmarks.model import NAMES, bugs_program, find_model
from benchmarks.pages import fill, pages
from benchmarks.references import STORE, Reference, load_reference
from benchmarks.runs import DONE, OVER, Record
from benchmarks.samplers.names import BY_HAND, LEFT_IN, OURS
from benchmarks.score import APART, RIGHT, WRONG, Score, better
from benchmarks.summary import Summary, summarise
from benchmarks.tables import HEADER, Line, markdown, score_row
from benchmarks.targets import judge, read_reasons

REFERENCE = Reference(["mu"], [0.0], [1.0], [0.005], [0.005], "made up", "nothing")


def record(sampler="sumout", *, mean=0.0, sd=1.0, ess=4000.0, rhat=1.0, cold=10.0, warm=2.0, status=DONE, repeat=0):
    summary = Summary(["mu"], [mean], [sd], [3.0], [[ess] * 3], [rhat]) if status == DONE else None
    times = {"cold": cold, "warm": warm} if status == DONE else {}
    return Record("gmm", sampler, "", repeat, {"limit": 60}, status, summary=summary, **times)


def score(sampler="sumout", **changes):
    return Score("gmm", sampler, "", [record(sampler, **changes)], REFERENCE)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, RIGHT),
        ({"mean": 0.09, "sd": 1.04}, RIGHT),
        ({"mean": 0.3}, WRONG),
        ({"mean": -0.3}, WRONG),
        ({"sd": 1.2}, WRONG),
        ({"sd": 0.8}, WRONG),
        ({"mean": 0.3, "ess": 20.0}, RIGHT),  # so few draws cannot tell
        ({"mean": 0.3, "ess": 20.0, "rhat": 1.5}, APART),
        ({"mean": 14.0, "ess": 5.0, "rhat": 2.0}, WRONG),
        ({"sd": 0.0, "ess": float("nan")}, WRONG),  # it never moved
        ({"status": OVER}, None),
    ],
)
def test_what_counts_as_right(changes, verdict):
    assert score(**changes).verdict == verdict


def test_a_sampler_that_cannot_take_all_of_z_has_some_of_it_summed_out():
    kinds = {name: Score("coal", name, "", [], None).kind for name in ("sumout", "gibbs", "pymc", "nuts")}
    assert kinds == {"sumout": OURS, "gibbs": BY_HAND, "pymc": LEFT_IN, "nuts": BY_HAND}
    assert Score("gmm", "gibbs", "", [], None).kind == LEFT_IN


def test_times_and_rates():
    one = score(ess=4000.0, cold=10.0, warm=2.0)
    assert (one.rate, one.cold_rate) == (2000.0, 400.0)
    assert one.seconds_to_enough == 8.0 + 0.5


def test_runs_are_pooled():
    """Two runs that are off to either side are right together, with twice the draws; times are medians."""
    both = Score("gmm", "sumout", "", [record(mean=-0.2, warm=1.0), record(mean=0.2, warm=3.0, repeat=1)], REFERENCE)
    assert both.worst_mean_error == 0.0
    assert both.summary.ess[0][0] == 8000
    assert both.worst_sd_ratio == pytest.approx(np.sqrt(1.04))
    assert (both.ess, both.warm) == (4000, 2.0)


def test_right_variants_come_before_fast_ones():
    wrong, right = score("nuts", mean=1.0, warm=0.1), score("nuts", warm=5.0)
    assert better([wrong, right]) is right
    assert better([score("nuts", status=OVER), wrong]) is wrong


def reached(model, *scores):
    return {target.key: target for target in judge(model, {one.sampler: one for one in scores}, {"c": "slow compiler"})}


def test_targets_are_ratios_to_the_best_right_peer():
    peers = (
        score("gibbs", warm=40.0, cold=60.0),
        score("mixed", warm=0.1, mean=1.0),
        score("nuts", warm=1.0),
        score("pymc", warm=80.0, cold=100.0),
    )
    found = reached("hmm", score(warm=2.0, cold=10.0), *peers)
    assert found["a"].ratio == 20 and found["a"].is_reached and found["a"].note == "NumPyro DiscreteHMCGibbs"
    assert found["b"].ratio == 0.5 and not found["b"].is_reached and found["b"].needed == "≥ 3"
    assert found["c"].ratio == pytest.approx(8.5 / 9.25) and not found["c"].is_reached
    assert (found["b"].reason, found["c"].reason) == ("", "slow compiler")
    assert found["d"].ratio == pytest.approx(2000 / 13000) and not found["d"].is_reached
    assert "d" not in reached("lda", score())


def test_a_right_answer_is_enough_where_no_peer_has_one():
    wrong = score("gibbs", mean=1.0), score("nuts", status=OVER)
    found = reached("lda", score(), *wrong)
    assert [found[key].is_reached for key in "abc"] == [True, None, True]
    found = reached("lda", score(mean=1.0), *wrong)
    assert [found[key].is_reached for key in "abc"] == [False, None, False]


def test_a_line_for_every_end():
    done, over = (score_row(Line.of(score("nuts", status=status))) for status in (DONE, OVER))
    assert len(done) == len(over) == len(HEADER)
    assert done[-1] == RIGHT and over[-1] == "over 60 s"
    failed = replace(record("nuts", status="failed"), message="ValueError: a | b")
    lines = markdown(HEADER, [score_row(Line.of(Score("gmm", "nuts", "", [failed], None)))]).splitlines()
    assert len(lines) == 3 and "a \\| b" in lines[-1]


def test_reasons_are_of_known_models():
    assert set(read_reasons()) <= set(NAMES)


def test_summary_names_every_element():
    rng = np.random.default_rng(0)
    found = summarise({"a": rng.normal(size=(2, 100)), "b": rng.normal(size=(2, 100, 1, 2))})
    assert found.elements == ["a", "b[0, 0]", "b[0, 1]"]
    assert 50 < found.fewest < 400 and found.worst_rhat < 1.2


@pytest.mark.parametrize("name", NAMES)
def test_sumout_takes_the_model(name):
    model = find_model(name)
    program = sumout.program(model.numpyro().left_in, **model.data())
    assert set(program.x) == set(model.parameters)
    assert program.z


@pytest.mark.parametrize("name", NAMES)
def test_bugs_programs_have_their_data_and_parameters(name):
    """JAGS itself reads them in `make bench`; here they are only held against what it will be given."""
    model, text = find_model(name), bugs_program(name)
    data = model.bugs_data(model.data())
    words = set(re.findall(r"\w+", text))
    drawn = set(re.findall(r"(\w+)(?:\[[^\]]*\])* *(?:~|<-)", text))
    assert set(data) <= words and set(model.parameters) <= drawn - set(data)


def test_draws_of_jags_are_put_in_their_places(tmp_path):
    """It writes one column after the other, the elements of a matrix in its own order."""
    (tmp_path / "outindex.txt").write_text("a 1 2\nb[1,1] 3 4\nb[2,1] 5 6\nb[1,2] 7 8\nb[2,2] 9 10\n")
    for chain in (1, 2):
        rows = [f"{1 + row % 2} {row + 100 * chain}" for row in range(10)]
        (tmp_path / f"outchain{chain}.txt").write_text("\n".join(rows))
    draws = read_draws(tmp_path, "out", 2, ("a", "b"))
    np.testing.assert_array_equal(draws["a"], [[100, 101], [200, 201]])
    np.testing.assert_array_equal(draws["b"][1, 0], [[202, 206], [204, 208]])


@pytest.mark.skipif(not is_there(), reason="JAGS is not installed")
def test_jags_gives_the_posterior():
    """1,000 draws of each chain: the error of the mean is below .04 sd, so the bound holds but once in 10⁶ times."""
    model = find_model("survey")
    run = Jags(bugs_program("survey"), model.bugs_data(model.data()), model.parameters, {}).run(1000, 200)
    logit = model.scored(run.draws)["logit theta"]
    reference = load_reference("survey")
    assert logit.shape == (4, 1000)
    assert logit.mean() == pytest.approx(reference.mean[0], abs=0.25 * reference.sd[0])


def test_pages_say_what_was_measured():
    for path, text in pages().items():
        assert path.read_text() == text, f"{path.name}: run python -m benchmarks.pages"


def test_places_of_pages_are_filled():
    assert "Measured" in fill("a\n<!-- made: sweep -->\nold\n<!-- end -->\nb")
    assert "old" not in fill("a\n<!-- made: sweep -->\nold\n<!-- end -->\nb")


@pytest.mark.parametrize("path", sorted(STORE.glob("*.json")), ids=lambda path: path.stem)
def test_references_are_whole(path):
    reference = load_reference(path.stem)
    lengths = {len(column) for column in json.loads(path.read_text()).values() if isinstance(column, list)}
    assert lengths == {len(set(reference.elements))}
    assert max(*reference.mean_error, *reference.sd_error) <= 0.02
