"""Minibatches: what a step costs at 10⁵, 10⁶ and 10⁷ rows, and effective draws a second beside full-batch HMC.

A mixture of three normals with a label for each row, z summed out, batches of 1,000 rows. A step is one of SplitSGHMC
in the compiled loop, with two parts of 500 rows each. Full-batch HMC has the labels summed out as well, from the same
mode and in the same coordinates, with the best of four settings, and pays for every leapfrog step a pass over all rows.

With --disk the rows are in a file, and a step takes its own from a pool of 100,000. With --exact a step is some
trajectories on a surrogate of 20,000 rows, accepted by all.

    python -m benchmarks.minibatch [--rows 1e5 1e6 1e7] [--hmc 1e6] [--draws 1000] [--disk] [--exact]
"""

import argparse
import json
import resource
import tempfile
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import sumout
from sumout.randomness import new_key
from sumout.results.effective_draws import slowest
from sumout.results.full_data_check import check_against_all
from sumout.run.loop import Schedule
from sumout.run.minibatch import Rows, search, set_up_rows

BATCH, SURROGATE = 1_000, 20_000
CHAINS, TUNE = 2, 500
SETTINGS = ((0.5, 3), (0.7, 3), (0.9, 2), (1.1, 2))  # step size and number of leapfrog steps, in u


def mixture(y):
    """The model."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([3]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(3))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)


def data(num: int, seed: int = 0) -> np.ndarray:
    """Rows of the mixture."""
    rng = np.random.default_rng(seed)
    z = rng.choice(3, num, p=[0.2, 0.3, 0.5])
    return (np.array([-3.0, 0.0, 2.0])[z] + 0.7 * rng.standard_normal(num)).astype(np.float32)


def on_disk(num: int) -> Any:
    """The same in a file, written piece by piece."""
    path = f"{tempfile.mkdtemp()}/y.npy"
    array = np.lib.format.open_memmap(path, "w+", np.float32, (num,))
    for start in range(0, num, 10**6):
        array[start : start + 10**6] = data(min(10**6, num - start), seed=start)
    array.flush()
    return sumout.on_disk(path)


def minibatches(rows: Rows, draws: int) -> dict[str, Any]:
    """Chains on minibatches: CPU time of a step, effective draws a CPU second after warm-up, what the check says."""
    mode = search(rows, new_key(0))
    inner = rows.program(rows.prepared(new_key(4), mode))
    checkpoint = rows.loop.start(new_key(2), rows.starts(new_key(1), CHAINS, inner.data), {})
    kept: list[np.ndarray] = []
    times: list[tuple[float, int]] = []

    def record(checkpoint: Any, made: Any) -> None:
        if checkpoint.done >= TUNE:
            times.append((time.process_time(), checkpoint.t))
        if checkpoint.done > TUNE:
            kept.append(made.x)

    renew = rows.renewal(new_key(3), inner.data)
    rows.loop.run(new_key(2), checkpoint, inner.data, Schedule(draws, TUNE), record, renew=renew)
    (begun, first), (ended, last) = times[0], times[-1]
    u = np.concatenate(kept, axis=1)
    x = mode.x + u.astype(np.float64) @ mode.spread.T
    names = [str(i) for i in range(rows.sums.num_x)]
    check = check_against_all(x, lambda points: rows.full.at(points)[1], rows.sums.size, names)
    return {
        "rows": rows.sums.size,
        "milliseconds a step": round(1e3 * (ended - begun) / (CHAINS * (last - first)), 4),
        "effective draws a CPU second": round(slowest(u)[0] / (ended - begun), 1),
        "step size": round(float(np.mean(checkpoint.states.tuning.step_size)), 3),
        "passes to the mode": mode.passes,
        "check": check.words,
        "peak in GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def full_batch(rows: Rows, draws: int) -> dict[str, Any]:
    """HMC on all rows in u, by hand: effective draws a CPU second with the best setting."""
    mode = search(rows, new_key(0))
    best: dict[str, Any] = {"effective draws a CPU second": 0.0}
    for step_size, num in SETTINGS:
        rng, u, kept, passes = np.random.default_rng(1), np.zeros(rows.sums.num_x), [], 0

        def at(u: np.ndarray) -> tuple[float, np.ndarray]:
            (value,), (gradient,), _ = rows.full.at((mode.x + mode.spread @ u)[None])
            return float(value), gradient @ mode.spread

        value, gradient = at(u)
        begun = time.process_time()
        for _ in range(draws):
            momentum = rng.standard_normal(len(u))
            here, v, slope, height = u, momentum, gradient, value
            for _ in range(num):
                v = v + 0.5 * step_size * slope
                here = here + step_size * v
                height, slope = at(here)
                v = v + 0.5 * step_size * slope
                passes += 1
            if np.log(rng.random()) < height - value - 0.5 * (v @ v - momentum @ momentum):
                u, value, gradient = here, height, slope
            kept.append(u)
        seconds = time.process_time() - begun
        effective = slowest(np.array(kept)[None])[0] / seconds
        if effective > best["effective draws a CPU second"]:
            best = {
                "step size": step_size, "leapfrog steps": num, "milliseconds a pass": round(1e3 * seconds / passes, 2),
                "effective draws a CPU second": round(effective, 2),
            }  # fmt: skip
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e5, 1e6, 1e7])
    parser.add_argument("--hmc", type=float, default=1e6, help="rows of the comparison with full-batch HMC; 0 for none")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--disk", action="store_true", help="keep the rows in a file")
    parser.add_argument("--exact", action="store_true", help="accept every draw by all rows")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for num in map(int, options.rows):
        program = sumout.program(mixture, on_disk(num) if options.disk else data(num))
        kernel, batch = ("hmc", SURROGATE) if options.exact else (None, BATCH)
        rows = set_up_rows(program, kernel, {"n": batch}, None)
        print(json.dumps(minibatches(rows, options.draws), ensure_ascii=False), flush=True)
        if num == int(options.hmc):
            print(json.dumps({"full-batch HMC": full_batch(rows, 100)}), flush=True)


if __name__ == "__main__":
    main()
