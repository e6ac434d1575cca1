"""Nanoseconds a site that one gradient takes, from 10³ to 10⁶ discrete sites; linear where they stay the same.

python -m benchmarks.linearity [--only gmm occupancy] [--most 1e6]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gradients import cjs, functions, gmm, hmm_array, occupancy

CASES = {gmm: 1000, hmm_array: 300, cjs: 1500, occupancy: 200}  # sites at scale 1
REPEATS = 20


def nanoseconds(case, scale):
    """How many sites there are, the seconds that reading them takes, and nanoseconds of a gradient for each."""
    start = time.perf_counter()
    program, plan, found = functions(case(scale))
    assert plan.sums_all, case.__name__
    reading = time.perf_counter() - start
    x = jnp.asarray(np.random.default_rng(1).normal(size=program.num_x) * 0.3, jnp.result_type(float))
    gradient = jax.jit(jax.value_and_grad(found["sumout"])).lower(x).compile()
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(gradient(x))
        best = min(best, time.perf_counter() - start)
    sites = sum(site.num_elements for site in program.z.values())
    return sites, reading, best / sites * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    names = {case.__name__: (case, sites) for case, sites in CASES.items()}
    parser.add_argument("--only", nargs="*", default=list(names))
    parser.add_argument("--most", type=float, default=1e6, help="sites")
    chosen = parser.parse_args()
    for name in chosen.only:
        case, at_scale_one = names[name]
        for wanted in 10.0 ** np.arange(3, np.log10(chosen.most) + 0.5):
            sites, reading, each = nanoseconds(case, max(1, round(wanted / at_scale_one)))
            print(f"{name:10s} {sites:9,d} sites  read in {reading:5.1f} s  {each:7.1f} ns a site", flush=True)


if __name__ == "__main__":
    main()
