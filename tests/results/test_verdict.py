"""What a run ends with."""

import numpy as np
import pytest

import sumout
from sumout.errors import UntrustedWarning
from sumout.results.data_tree import build_tree
from sumout.results.summary import examine
from sumout.results.verdict import judge

from made_up_runs import autoregressive, tree_of
from made_up_runs import run as made_up_run
from models import mixture


def run(x, diverging=None):
    stats = {"lp": -0.5 * (x - x.mean(axis=1, keepdims=True)) ** 2}
    stats |= {} if diverging is None else {"diverging": diverging}
    groups = {"posterior": {"x": x}, "sample_stats": stats, "unconstrained_posterior": {"x": x}}
    return build_tree(groups, {}, {}, constant={}, coords={}, dims={}, coordinates=["x"], attrs={"discrete": []})


def test_verdicts():
    x = np.random.default_rng(0).normal(size=(4, 500))
    good = judge(run(x))
    assert not good.is_bad and good.words.startswith("4 chains of 500 draws: r_hat up to 1.0")
    apart = judge(run(x + 5 * np.arange(4)[:, None]))
    assert apart.is_bad and "the chains disagree" in apart.words
    diverged = judge(run(x, np.arange(2000).reshape(4, 500) == 7))
    assert diverged.is_bad and "1 draws diverged" in diverged.words
    slow = judge(run(np.cumsum(x[:1], axis=1)))
    assert slow.is_bad and "worth only" in slow.words
    few = judge(run(x[:, :50] + 5 * np.arange(4)[:, None]))
    assert not few.is_bad and "too few" in few.words


def made_up():
    """Runs with one fault each, and some without."""
    rng = np.random.default_rng(0)
    still = np.repeat(np.arange(4) % 2, 2000).reshape(4, 2000)
    coins = rng.integers(0, 2, size=(4, 2000, 6))
    slow = autoregressive(rng, 300)
    tail = autoregressive(rng, 4000, draws=1000)
    return {
        "good": made_up_run(),
        "good, with z": made_up_run(z=coins),
        "too wide": made_up_run(spread=1.3),
        "too narrow": made_up_run(spread=0.8),
        "few accepted": made_up_run(acceptance=0.2),
        "slow": tree_of({"x": slow}),
        "enough": tree_of({"x": autoregressive(rng, 700)}),
        "slow among many": tree_of({"x": np.concatenate([rng.normal(size=(4, 1000, 200)), slow[..., None]], axis=-1)}),
        "slow deterministic": tree_of({"x": tail, "y": np.cumsum(rng.normal(size=(4, 1000)), axis=1)}),
        "apart": tree_of({"x": rng.normal(size=(4, 1000)) + np.arange(4)[:, None]}),
        "apart in one of many": tree_of({"x": rng.normal(size=(4, 1000, 99)) + 2 * (np.arange(99) == 7) * stairs()}),
        "frozen z": made_up_run(z=still),
        "labels switch": tree_of({"mu": np.stack([switching(rng, 0), switching(rng, 1)], axis=-1)}),
    }


def stairs():
    return (np.arange(4) == 2)[:, None, None]


def switching(rng, number):
    return rng.normal(size=(4, 1000)) + 6 * ((np.arange(4) + number) % 2)[:, None]


@pytest.mark.parametrize("name", made_up())
def test_it_is_as_strict_as_the_summary(name):
    result = made_up()[name]
    verdict, warnings = judge(result), examine(result).warnings
    assert verdict.is_bad == bool(warnings), (verdict.words, warnings)
    assert verdict.is_bad != name.startswith(("good", "enough"))


def test_sample_ends_with_it(capsys, monkeypatch):
    program = sumout.program(mixture, np.array([0.0, 0.5, 4.0, 4.5, 5.0]))
    sumout.sample(program, draws=20, tune=20, chains=2, progress=True)
    assert capsys.readouterr().err.splitlines()[-1].startswith("2 chains of 20 draws: too few")
    monkeypatch.setattr("sumout.run.sample.judge", lambda result: judge(run(np.arange(400.0).reshape(2, 200))))
    with pytest.warns(UntrustedWarning, match="these draws should not be trusted") as told:
        sumout.sample(program, draws=20, tune=20, chains=2)
    assert told[0].filename == __file__
