"""Runs killed with SIGKILL at random instants, started again and again on the same folder, on one core or on all: the
draws are those of a run that was left in peace. And how much memory a long run takes.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import hashlib, os, sys
if sys.argv[3] == "one core":
    os.sched_setaffinity(0, {0})
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
import jax.numpy as jnp
from numpyro.distributions import Normal, constraints
import sumout
from sumout.store import folder
from sumout.run.progress import Report

folder.OFTEN, folder.GROWTH = 0.01, 0.0
draws = int(sys.argv[2])

def two_normals(x, z, data):
    return Normal(jnp.where(z["right"], 1.0, -1.0), 0.5).log_prob(x["x"])

Report.__call__ = lambda report, progress: print("going", flush=True)
program = sumout.density(two_normals, x={"x": (constraints.real, ())}, z={"right": sumout.finite(2)})
result = sumout.sample(program, "ghmc", plan={"right": "draw"}, store=sys.argv[1], draws=draws, tune=draws, chunk=3,
                       steps=10, chains=2)
digest = hashlib.sha256()
for group in ("posterior", "sample_stats", "unconstrained_gradient"):
    for name in sorted(result[group].data_vars):
        digest.update(result[group][name].values.tobytes())
print("digest", digest.hexdigest())
"""


def start(folder, draws, cores="all cores"):
    env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled")}
    command = [sys.executable, "-c", SCRIPT, str(folder), str(draws), cores]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def digest(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()[-1]


@pytest.mark.parametrize(
    ("kills", "draws"),
    [(4, 600), *(pytest.param(*more, marks=pytest.mark.calibration) for more in ((10, 1500), (100, 30_000)))],
    ids=["4", "10", "100"],
)
def test_killed_at_random_instants(tmp_path, kills, draws):
    expected = digest(start(tmp_path / "peace", draws))
    dice = random.Random(0)
    were_going, sizes = 0, set()
    for _ in range(kills):
        process = start(tmp_path / "war", draws, dice.choice(["one core", "all cores"]))
        line = process.stdout.readline()  # compiled, and the first chunk is done
        time.sleep(dice.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        were_going += line == "going\n" and process.returncode == -signal.SIGKILL
        sizes.add(len(list((tmp_path / "war").glob("part-*.npz"))))
    assert were_going > kills / 2, "hardly any was killed at work"
    assert len(sizes) > kills / 4, "hardly any got further than the one before"
    assert digest(start(tmp_path / "war", draws)) == expected


LONG = """
import resource, sys
from numpyro.distributions import constraints
import sumout

program = sumout.density(lambda x, z, data: -0.5 * x["x"] ** 2, x={"x": (constraints.real, ())}, z={})
kernel = sumout.HMC(step_size=1.0, num_leapfrog=1)
result = sumout.sample(program, kernel, store=sys.argv[1], chains=50, draws=int(sys.argv[2]) // 50, tune=10)
assert result.posterior.attrs["complete"] and result.posterior["x"].size == int(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.calibration
def test_a_long_run_takes_no_more_memory(tmp_path):
    peak = {}
    for draws in (10_000, 10_000_000):
        command = [sys.executable, "-c", LONG, str(tmp_path / str(draws)), str(draws)]
        peak[draws] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak[10_000_000] < peak[10_000] + 300, peak
