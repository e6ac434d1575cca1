"""Minibatches: what a step costs at 10⁵, 10⁶ and 10⁷ rows, and effective draws a second beside full-batch HMC.

A mixture of three normals with a label for each row, z summed out, batches of 1,000 rows. A step is one of SplitSGHMC
in the compiled loop, two batches each. Full-batch HMC has the labels summed out as well, from the same mode and in the
same coordinates, with the best of four settings, and pays for every leapfrog step a pass over all rows.

    python -m benchmarks.minibatch [--rows 1e5 1e6 1e7] [--hmc 1e6] [--draws 1000]
"""

import argparse
import json
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
from sumout.run.minibatch import Rows, search, set_up_rows

BATCH = 1_000
SETTINGS = ((0.5, 3), (0.7, 3), (0.9, 2), (1.1, 2))  # step size and number of leapfrog steps, in u


def mixture(y):
    """The model."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([3]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(3))
    with numpyro.plate("n", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)


def data(num: int) -> np.ndarray:
    """Rows of the mixture."""
    rng = np.random.default_rng(0)
    z = rng.choice(3, num, p=[0.2, 0.3, 0.5])
    return (np.array([-3.0, 0.0, 2.0])[z] + 0.7 * rng.standard_normal(num)).astype(np.float32)


def minibatches(program: Any, num: int, draws: int) -> dict[str, Any]:
    """A run by minibatches: CPU time of a step, effective draws a second of sampling, and what the check says."""
    options = {"minibatch": {"n": BATCH}, "chains": 2, "tune": 500, "progress": False}
    sumout.sample(program, draws=10, **options)  # compiled
    begun = time.process_time()
    result = sumout.sample(program, draws=10, **options)
    before = time.process_time() - begun
    begun = time.process_time()
    result = sumout.sample(program, draws=draws, **options)
    seconds = time.process_time() - begun
    u = np.concatenate(
        [v.values.reshape(2, draws, -1) for v in result["unconstrained_posterior"].data_vars.values()], -1
    )
    steps = 2 * (draws - 10) * result.posterior.attrs["steps"]
    effective = slowest(u)[0]
    return {
        "rows": num,
        "milliseconds a step": round(1e3 * (seconds - before) / steps, 4),
        "effective draws a CPU second": round(effective / (seconds - before), 1),
        "whole run, CPU seconds": round(seconds, 1),
        "passes to the mode": result.posterior.attrs["passes_to_mode"],
        "check": result.posterior.attrs["full_data_check"],
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
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for num in map(int, options.rows):
        program = sumout.program(mixture, data(num))
        print(json.dumps(minibatches(program, num, options.draws), ensure_ascii=False), flush=True)
        if num == int(options.hmc):
            rows = set_up_rows(program, None, "n", BATCH, None)
            print(json.dumps({"full-batch HMC": full_batch(rows, 60)}), flush=True)


if __name__ == "__main__":
    main()
