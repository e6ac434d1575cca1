"""Data over two devices of one process: as on one, also where rows are no multiple of two, meet or form chains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CACHE = {
    "JAX_COMPILATION_CACHE_DIR": str(TESTS.parent / ".pytest_cache" / "compiled"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.calibration)])
def test_two_devices_compute_what_one_does(which):
    env = {**os.environ, **CACHE, "JAX_ENABLE_X64": "1"}
    command = [sys.executable, str(TESTS / "on_two_devices.py"), which]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=900)
    assert done.returncode == 0, done.stderr
    found = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert len(found) >= 5
    # Whole runs follow each other for so many gradients that rounding has grown.
    far = {name: apart for name, apart in found.items() if not float(apart) < (1e-6 if "run" in name else 1e-10)}
    assert not far
