"""Several processes on one run: the draws are those of one, in all of them, and one that is killed ends the others."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from sumout.errors import OptionError, ProcessError
from sumout.run.processes import Processes

TESTS = Path(__file__).parents[1]


def start(count, folder):
    """The script in so many processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    env = {**os.environ, "JAX_ENABLE_X64": "1"}
    script = str(TESTS / "on_some_processes.py")
    commands = [[sys.executable, script, str(i), str(count), address, str(folder)] for i in range(count)]
    return [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) for c in commands]


def end(process):
    """What it said: lines as a dict, and the rest."""
    out, err = process.communicate(timeout=300)
    lines = [line for line in out.splitlines() if " " in line and not line.startswith("[Gloo]")]
    return dict(line.split(" ", 1) for line in lines), err


def check_same_run(folder, count):
    processes = start(count, folder)
    found, errors = zip(*(end(process) for process in reversed(processes)), strict=True)
    assert processes[-1].returncode == -9, errors[0]  # it has killed itself
    for process, error in zip(processes[:-1], reversed(errors[1:]), strict=True):
        assert process.returncode not in (0, -9)
        # The words are JAX's own where process 0, by which all know of each other, is the one that is gone.
        assert "another process of this run has ended" in error, error
    first = found[-1]
    assert all(other == first for other in found)
    assert float(first["apart"]) < 1e-8
    assert first["z-apart"] == "0"
    assert "differs from process 0 in the options" in first["refused"]
    (alone,) = start(1, folder)
    expected, error = end(alone)
    assert alone.returncode == 0, error
    assert first["chains"] == expected["chains"]
    assert first["drawn"] == expected["drawn"]
    assert expected["resumed"] == expected["chains"]


def test_two_processes_draw_what_one_draws(tmp_path):
    begun = time.monotonic()
    check_same_run(tmp_path, 2)
    assert time.monotonic() - begun < 200  # nobody waited for the dead, which would take a hundred seconds each time


@pytest.mark.calibration
def test_three_processes_draw_what_one_draws(tmp_path):
    check_same_run(tmp_path, 3)


@dataclass(frozen=True)
class Heard(Processes):
    """One of several processes, to which the others say what they are told to."""

    others: list = field(default_factory=list)

    def _exchange(self, content):
        said = [other(content) for other in self.others]
        return np.stack([*said[: self.number], content, *said[self.number :]])


@pytest.mark.parametrize(("count", "groups"), [(1, 4), (2, 4), (3, 4), (4, 4), (5, 3), (2, 1)])
def test_every_group_has_its_process(count, groups):
    numbers = [{"x": np.arange(3.0) + i, "n": np.array(i)} for i in range(groups)]
    processes = [Processes(count, number, share_chains=True) for number in range(count)]
    made = [process.own(numbers) for process in processes]
    assert len({len(own) for own in made}) == 1  # so that what they say is as long

    def saying(number):
        bytes_of = [array.tobytes() for part in made[number] for array in (part["n"], part["x"])]
        return lambda content: np.frombuffer(b"".join(bytes_of).ljust(len(content), b"\0"), np.uint8)

    for number in range(count):
        process = Heard(count, number, True, [saying(other) for other in range(count) if other != number])
        gathered = process.gather(made[number], groups)
        assert [int(part["n"]) for part in gathered] == list(range(groups))
        np.testing.assert_array_equal(gathered[-1]["x"], numbers[-1]["x"])


def test_process_0_decides_and_any_may_stop():
    states = {"x": np.ones(3)}
    assert Heard(2, 1, others=[lambda c: np.array([7, 0, c[2]], c.dtype)]).agree(3, False, states) == 7
    assert Heard(2, 0, others=[lambda c: np.array([7, 0, c[2]], c.dtype)]).agree(3, False, states) == 3
    assert Heard(2, 0, others=[lambda c: np.array([7, 1, c[2]], c.dtype)]).agree(3, False, states) == 0
    assert Heard(2, 1, others=[lambda c: c]).agree(3, True, states) == 0
    with pytest.raises(ProcessError, match="process 1 has other states"):
        Heard(2, 0, others=[lambda c: c + np.array([0, 0, 1], c.dtype)]).agree(3, False, states)


def test_calls_must_be_the_same():
    call = {"the data": {"y": np.arange(3.0)}, "the options": (None, 5)}
    Heard(2, 0, others=[lambda c: c]).compare(call)
    with pytest.raises(OptionError, match="process 2 differs from process 0 in the data"):
        Heard(3, 0, others=[lambda c: c, lambda c: c + np.array([[1], [0]], np.uint8)]).compare(call)


def test_words_are_heard():
    assert Heard(2, 0, others=[np.zeros_like]).hear("größer") == "größer"
    said = np.zeros(4096, np.uint8)
    said[:2] = list(b"no")
    assert Heard(2, 1, others=[lambda c: said]).hear("yes") == "no"


def test_a_lost_process_is_told_of():
    with pytest.raises(ProcessError, match="another process of this run has ended"), Processes(2).ending_together():
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer")
    with pytest.raises(ValueError, match="mine"), Processes(2).ending_together():
        raise ValueError("mine")
