"""Run in several processes at once by `tests/run/test_processes.py`, on the same runs.

Arguments: the number of this process, how many there are, where the first one listens, and a folder. Prints digests of
results; with other numbers of processes the draws must be the same.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path
from threading import Thread
from time import sleep

import jax
import numpy as np

number, count, address, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
if count > 1:
    jax.distributed.initialize(address, count, number)

import jax.numpy as jnp  # noqa: E402
from numpyro.distributions import Normal, constraints  # noqa: E402

import sumout  # noqa: E402
from sumout.errors import OptionError  # noqa: E402
from sumout.store import folder as stored  # noqa: E402

stored.OFTEN, stored.GROWTH = 0.01, 0.0  # a part for every chunk
Y = np.random.default_rng(0).normal(size=41) + np.repeat([0.0, 3.0], [30, 11])


def two_normals(x, z, data):
    likelihood = Normal(jnp.where(z["right"], x["mu"], 0.0), 1.0).log_prob(data)
    return likelihood.sum() + Normal(0.0, 5.0).log_prob(x["mu"])


def call(draws=10, **more):
    """A run of a program of its own, so that nothing is left from another."""
    z = {"right": sumout.finite(2, shape=Y.shape)}
    program = sumout.density(two_normals, x={"mu": (constraints.real, ())}, z=z, data=Y)
    mesh = None if count == 1 else jax.make_mesh((count,), ("data",))
    options = {"tune": 10, "chains": 3, "chunk": 5, "steps": 2, "progress": False, "mesh": mesh}
    return sumout.sample(program, **{**options, "draws": draws, **more})


def digest(result):
    """Of all that was drawn."""
    found = hashlib.sha256()
    for group in ("posterior", "sample_stats", "unconstrained_gradient"):
        for name in sorted(result[group].data_vars):
            found.update(result[group][name].values.tobytes())
    return found.hexdigest()


def say(what, value):
    print(what, value, flush=True)


def end_at_work():
    """Kill this process once the run is in the folder."""
    while not list((folder / "war").glob("part-*")):
        sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


chains = call(store=folder / "peace")
say("chains", digest(chains))
say("drawn", digest(call(plan={"right": "gibbs"})))
if count > 1:
    sharded = call(shard={"data": "data"})
    say("sharded", digest(sharded))
    say("apart", float(np.abs(sharded.posterior.mu.values - chains.posterior.mu.values).max()))
    say("z-apart", int((sharded.posterior.right.values != chains.posterior.right.values).sum()))
    try:
        call(seed=number)
    except OptionError as error:
        say("refused", error)
    if number == count - 1:
        Thread(target=end_at_work, daemon=True).start()
    call(draws=10**6, store=folder / "war")
else:
    say("resumed", digest(call(store=folder / "war")))
