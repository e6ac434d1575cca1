"""Bars of progress in terminals of several widths, in notebooks, and where nobody watches."""

import io
import os
import pty
import re
import sys
from contextlib import suppress
from threading import Thread
from types import ModuleType, SimpleNamespace

import pytest

import sumout
from sumout.run import bars

from programs import ENUMERABLE

NOTES = "acceptance 0.50 0.70 0.90 0.80 · divergences 0 2 0 1 · 1,234 effective draws"


def in_terminal(monkeypatch, columns, do):
    """What a terminal of so many columns shows in the end, without control sequences."""
    main, other = pty.openpty()
    written = []

    def read():  # all the time, or the terminal would be full
        with suppress(OSError):  # when it is closed
            while part := os.read(main, 65536):
                written.append(part)

    reader = Thread(target=read)
    reader.start()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(other, "w") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        do()
    reader.join(10)
    os.close(main)
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", b"".join(written).decode()).replace("\r", "\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_nothing_is_cut(monkeypatch, columns):
    def draw():
        with bars.bar(None) as drawn:
            drawn.show("warming up, 4 chains", 1_000, 2_000, NOTES)

    lines = in_terminal(monkeypatch, columns, draw).splitlines()
    assert all(len(line) <= columns for line in lines)
    text = " ".join(" ".join(lines).split())
    for words in ("warming up, 4 chains", "1,000/2,000", "0:00:00", *NOTES.split(" · ")):
        assert words in text


def test_phases_are_told_from_the_first_second(monkeypatch):
    program = ENUMERABLE["survey"]()
    run = lambda: sumout.sample(program, draws=120, tune=50, chains=2)  # noqa: E731
    text = in_terminal(monkeypatch, 80, run)
    places = [
        text.index(words) for words in ("reading the model", "compiling", "sampling, 2 chains", "effective draws")
    ]
    assert places == sorted(places)


@pytest.fixture
def notebook(monkeypatch):
    """IPython, as it is loaded behind a notebook; what its cell shows."""
    shown = []
    handle = SimpleNamespace(update=lambda html: shown.append(html))
    display = ModuleType("IPython.display")
    display.HTML, display.display = (lambda html: html), (lambda html, display_id: handle)
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_notebooks_show_a_bar_by_default(notebook, capsys):
    sumout.sample(ENUMERABLE["survey"](), draws=800, tune=200, chains=2)
    assert "reading the model" in notebook[0] and "<progress>" in notebook[0]
    assert any('value="1000" max="1000"' in html and "sampling, 2 chains" in html for html in notebook)
    printed = capsys.readouterr()
    assert "2 chains of 800 draws" in printed.out and printed.err == ""  # which a notebook would show as trouble


def test_nobody_watches(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with bars.bar(None) as drawn:
        drawn.phase("compiling")
        drawn.show("sampling", 1, 2, NOTES)
    assert stream.getvalue() == ""
