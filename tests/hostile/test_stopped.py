"""Processes told to end while they compile, look for starts, run trajectories or post-process draws: they do."""

import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import sys, threading
import jax, jax.numpy as jnp, numpy as np
from numpyro.distributions import constraints
import sumout
from sumout.results import data_tree
from sumout.run import loop, sample, starts

phase = sys.argv[1]

def tell(kind, name, when):
    usual = getattr(kind, name)
    def telling(self, *args, **kwargs):
        if phase == when:
            threading.Timer(0.5, lambda: print("there", flush=True)).start()
        return usual(self, *args, **kwargs)
    setattr(kind, name, telling)

tell(starts.Starts, "find", "starts")
tell(loop.Loop, "run", "trajectory")
tell(data_tree.EachDraw, "__call__", "post-processing")
tell(starts.Ascents, "run", "maximum")
tell(sample.Setup, "prepare", "compiling")

def bell(x):
    return -0.5 * x["x"] ** 2

def chain(x, z, data):
    v = jnp.full(30, x["x"])
    for i in range(200):
        v = jnp.sort(jnp.tanh(v * 1.1 + i) + v[::-1])
    return bell(x) + 1e-3 * v.sum() + 0.1 * z["z"]

def large(x, z, data):
    return bell(x) + jnp.sin(data - x["x"]).sum() + 0.1 * z["z"]

kinds = {"compiling": chain, "starts": large, "maximum": large}
density, options, kernel = kinds.get(phase, lambda x, z, data: bell(x) + 0.1 * z["z"]), {"tune": 20, "draws": 20}, None
data = np.arange(3e6 if density is large else 3.0, dtype=np.float32)
program = sumout.density(density, x={"x": (constraints.real, ())}, z={"z": sumout.finite(2)}, data=data)
if phase == "trajectory":
    kernel = sumout.HMC(step_size=1e-6, num_leapfrog=2_000_000_000)
if phase == "post-processing":
    heavy = lambda x: jax.lax.fori_loop(0, 300, lambda i, a: jnp.sin(a @ a), jnp.eye(100) * x["x"]).sum()
    usual = program.constrain_named
    object.__setattr__(program, "constrain_named", lambda x, z, data: usual(x, z, data) | {"heavy": heavy(x)})
    options["draws"] = 3000
if phase == "maximum":
    sumout.maximize(program, progress=False)
else:
    sumout.sample(program, kernel, chains=2, progress=False, **options)
print("went on to the end")
"""
FEW = 8.0  # seconds; the machine may be busy


def stop(phase, numbers):
    """Seconds until the process ends after the last of these signals, its exit code, and what it said."""
    command = [sys.executable, "-c", SCRIPT, phase]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "there\n", process.communicate()[1]
        for number in numbers:
            begun = time.perf_counter()
            process.send_signal(number)
            time.sleep(0.3)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return time.perf_counter() - begun, process.returncode, out + err


SLOWLY = pytest.mark.calibration


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("trajectory", signal.SIGTERM),
        *(
            pytest.param(phase, signal.SIGINT, marks=SLOWLY)
            for phase in ("compiling", "starts", "trajectory", "post-processing")
        ),
        *(pytest.param(phase, signal.SIGTERM, marks=SLOWLY) for phase in ("compiling", "starts", "post-processing")),
        pytest.param("maximum", signal.SIGINT, marks=SLOWLY),
    ],
)
def test_the_process_ends(phase, number):
    seconds, code, said = stop(phase, [number])
    assert seconds < FEW, said
    assert code == -signal.SIGINT, said
    assert "KeyboardInterrupt" in said
    assert "went on" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=SLOWLY)])
@pytest.mark.parametrize("phase", ["post-processing", pytest.param("trajectory", marks=SLOWLY)])
def test_a_second_signal_ends_it_at_once(phase, number):
    seconds, code, said = stop(phase, [number, number])
    assert seconds < FEW / 2, said
    assert code in (-signal.SIGINT, -number), said
