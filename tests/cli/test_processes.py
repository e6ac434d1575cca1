"""`sumout run` by several processes of one machine."""

import argparse
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from sumout.cli import processes
from sumout.cli.main import main
from sumout.cli.options import DATA, MODEL


def start(monkeypatch, *scripts, store=None):
    """What `start` does with these scripts in the place of sumout."""

    def start_one(argv, place, said):
        script = scripts[int(place.partition("/")[0])]
        return subprocess.Popen([sys.executable, "-S", "-c", script], stderr=said, start_new_session=True)

    monkeypatch.setattr(processes, "_start_one", start_one)
    monkeypatch.setattr(processes, "GRACE", 0.5)
    return processes.start(argparse.Namespace(processes=len(scripts), argv=[], store=store))


WAITING = "import time; time.sleep(60)"


def test_all_go_well(monkeypatch, capsys):
    assert start(monkeypatch, "pass", "pass") == 0
    assert capsys.readouterr().err == ""


def test_a_killed_process_ends_the_others(monkeypatch, capsys):
    assert start(monkeypatch, WAITING, "import os; os.kill(os.getpid(), 9)", store="run") == 1
    words = capsys.readouterr().err
    assert "process 1 of 2 was ended by SIGKILL; the others were ended, too. The same command resumes" in words


def test_a_failed_process_is_quoted(monkeypatch, capsys):
    assert start(monkeypatch, WAITING, "import sys; sys.exit('no memory')") == 1
    assert (
        "process 1 of 2 has failed (exit code 1); the others were ended, too.\n  no memory" in capsys.readouterr().err
    )


def test_what_all_have_said_is_said_once(monkeypatch, capsys):
    assert start(monkeypatch, *["import sys; sys.exit(2)"] * 2) == 2
    assert capsys.readouterr().err == ""


def test_signals_are_passed_on(monkeypatch):
    asked = "import os, signal, time; signal.signal(2, lambda *_: os._exit(130)); "
    parent = os.getpid()
    teller = f"time.sleep(1); os.kill({parent}, {int(signal.SIGINT)}); "
    assert start(monkeypatch, f"{asked}time.sleep(60)", f"{asked}{teller}time.sleep(60)") == 130


def test_options_that_exclude_each_other(capsys, tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    (tmp_path / "model.py").write_text(MODEL)
    main(["run", str(tmp_path / "model.py:mixture"), "--cluster", "--processes", "2"])
    assert ended == [2]
    assert "--cluster and --processes exclude each other" in capsys.readouterr().err


@pytest.mark.calibration
def test_the_same_file_by_two_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.csv").write_text(DATA)
    made = {}
    for name, more in {
        "one": [],
        "two": ["--processes", "2"],
        "rows": ["--processes", "2", "--shard", "points"],
    }.items():
        given = [
            "model.py:mixture",
            "--data",
            "data.csv",
            "--out",
            f"{name}.nc",
            "--draws",
            "50",
            "--tune",
            "50",
            *more,
        ]
        subprocess.run([sys.executable, "-m", "sumout", "run", *given], check=True, capture_output=True, timeout=300)
        made[name] = xr.open_datatree(f"{name}.nc")
    assert made["one"].posterior.equals(made["two"].posterior)
    assert np.isfinite(made["rows"].posterior.mu).all()
