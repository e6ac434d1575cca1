"""Ctrl-C keeps what was drawn."""

import signal
import threading

import numpy as np
import pytest

import sumout
from sumout.run import sample as sampling
from sumout.run.interrupt import stoppable

from programs import ENUMERABLE

PROGRAM = ENUMERABLE["survey"]()
OPTIONS = {"draws": 400, "tune": 20, "chains": 2, "chunk": 10}


def stop_at(monkeypatch, number, when):
    """Send the signal after a chunk that reaches so many draws, warm-up included."""
    from contextlib import contextmanager

    @contextmanager
    def bar(wanted, chains):
        yield lambda progress: signal.raise_signal(number) if progress.done >= when else None

    monkeypatch.setattr(sampling, "progress_bar", bar)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_drawn_is_kept(monkeypatch, capsys, number):
    whole = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop_at(monkeypatch, number, 60)
    part = sumout.sample(PROGRAM, "ghmc", plan={"coin": "draw"}, **OPTIONS)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert whole.posterior.attrs["complete"] is True
    assert part.posterior.attrs["complete"] is False
    drawn = part.posterior.sizes["draw"]
    assert 40 <= drawn <= 60
    for group in ("posterior", "sample_stats", "unconstrained_gradient"):
        for name, values in part[group].data_vars.items():
            np.testing.assert_array_equal(values, whole[group][name][:, :drawn])
    assert "what was drawn is kept" in capsys.readouterr().err


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
