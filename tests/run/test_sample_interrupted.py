"""Ctrl-C keeps what was drawn."""

import signal
import threading
import time

import numpy as np
import pytest
import xarray as xr

import sumout
from sumout.results import data_tree as result
from sumout.run import loop
from sumout.run import starts as start
from sumout.run.progress import Report
from sumout.store import backend as memory
from sumout.threads import in_threads, stoppable

from programs import ENUMERABLE

PROGRAM = ENUMERABLE["survey"]()
OPTIONS = {"draws": 400, "tune": 20, "chains": 2, "chunk": 10}


def stop_at(monkeypatch, number, when):
    """Send the signal after a chunk that reaches so many draws, warm-up included."""

    def stop(report, progress):
        if progress.done >= when:
            signal.raise_signal(number)

    monkeypatch.setattr(Report, "__call__", stop)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_drawn_is_kept(monkeypatch, capsys, number):
    whole = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop_at(monkeypatch, number, 60)
    part = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert whole.posterior.attrs["complete"] == 1
    assert 40 <= check_prefix(part, whole) <= 60
    assert "what was drawn is kept" in capsys.readouterr().err


def check_prefix(part, whole):
    assert part.posterior.attrs["complete"] == 0
    drawn = part.posterior.sizes["draw"]
    for group in ("posterior", "sample_stats", "unconstrained_gradient"):
        for name, values in part[group].data_vars.items():
            np.testing.assert_array_equal(values, whole[group][name][:, :drawn])
    return drawn


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_chunk_that_takes_too_long_is_left_behind(monkeypatch, tmp_path, is_stored):
    whole = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    store = {"store": tmp_path / "run"} if is_stored else {}
    chunks = iter(range(1000))

    def slowly(do, each, most, is_over):
        if next(chunks) == 12:
            signal.raise_signal(signal.SIGTERM)
            return in_threads(lambda one: (time.sleep(0.5), do(one)), each, most, is_over)
        return in_threads(do, each, most, is_over)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "in_threads", slowly)
        patch.setattr(loop, "SECONDS_FOR_CHUNK", 0.05)
        part = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS, **store)
    assert check_prefix(part, whole) > 0
    if is_stored:
        rest = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS, **store)
        assert rest.posterior.attrs["complete"]
        np.testing.assert_array_equal(rest.posterior["theta"], whole.posterior["theta"])


@pytest.mark.parametrize("is_stored", [False, True])
def test_naming_that_takes_too_long_is_left_behind(monkeypatch, tmp_path, is_stored):
    whole = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    store = {"store": tmp_path / "run"} if is_stored else {}
    calls = iter(range(1000))

    def slowly(do, each, most, is_over):
        def one(start):
            if start:  # all but the first block of draws
                time.sleep(0.5)
            return do(start)

        if next(calls) == 0:
            signal.raise_signal(signal.SIGINT)
        return in_threads(one, each, most, is_over)

    with monkeypatch.context() as patch:
        patch.setattr(result, "in_threads", slowly)
        patch.setattr(memory, "SECONDS_FOR_POSTPROCESSING", 0.3)
        if is_stored:
            with pytest.raises(KeyboardInterrupt, match="resume"):
                sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS, **store)
        else:
            part = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
            assert check_prefix(part, whole) == result.BLOCK // 2
    if is_stored:
        rest = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS, **store)
        np.testing.assert_array_equal(rest.posterior["theta"], whole.posterior["theta"])


def test_draws_named_on_the_way_are_the_draws(monkeypatch):
    whole = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    monkeypatch.setattr(memory, "SELDOM", 0.0)
    monkeypatch.setattr(memory, "ENOUGH", 1)
    parts = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    assert parts.posterior.attrs["complete"]
    for group in ("posterior", "sample_stats", "unconstrained_gradient"):
        xr.testing.assert_equal(parts[group].to_dataset(), whole[group].to_dataset())


def test_the_search_for_starts_is_interrupted(monkeypatch):
    def find(self, key, num_chains, *processes):
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("went on")

    monkeypatch.setattr(start.Starts, "find", find)
    with pytest.raises(KeyboardInterrupt, match="before this call has made a draw"):
        sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_before_the_first_draw_there_is_nothing_to_keep(monkeypatch):
    stop_at(monkeypatch, signal.SIGINT, 1)
    with pytest.raises(KeyboardInterrupt, match="no draw yet"):
        sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)


def test_the_second_signal_leaves_at_once():
    with pytest.raises(KeyboardInterrupt), stoppable() as stop:
        stop.is_deferred = True
        assert not stop.is_asked
        signal.raise_signal(signal.SIGINT)
        assert stop.is_asked
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_sample_too():
    answers = []

    def ask():
        with stoppable() as stop:
            answers.append(stop.is_asked)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [False]
