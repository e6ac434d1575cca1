"""How time and memory grow with the rows of the data: 10³ to 10⁷ of a mixture of three normals, z summed out.

CPU milliseconds of a gradient of all rows; of a step by minibatches of 1,000, rows in memory or in a file; and of an
exact draw, which is trajectories on 20,000 rows and one pass over all. Beside them the most memory that the process has
held, Python and JAX included, each in a process of its own.

    python -m benchmarks.rows [--rows 1e3 1e4 1e5 1e6 1e7] [--out out/bench]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

WAYS = ("all rows", "minibatch", "minibatch, on disk", "exact draw")
COLOURS = ("#0b6e4f", "#3d5a80", "#98c1d9", "#c8553d")
REPEATS = 7
DRAWS = 200


def gradient_of_all(num: int) -> float:
    """CPU milliseconds of the marginal log density of all rows and its gradient."""
    import jax
    import jax.numpy as jnp

    import sumout
    from benchmarks.minibatch import data, mixture
    from sumout.model.initial_values import any_z
    from sumout.plan.plan import plan_for
    from sumout.plan.target import make_target

    program = sumout.program(mixture, data(num))
    plan = plan_for(program)
    compute, z = jax.jit(make_target(plan).value_and_gradient), any_z(plan.structure.program)
    x, times = jnp.zeros(program.num_x), []
    for _ in range(REPEATS):
        begun = time.process_time()
        jax.block_until_ready(compute(x, z, program.data))
        times.append(time.process_time() - begun)
    return 1e3 * min(times)


def step_of_some(num: int, way: str) -> float:
    """CPU milliseconds of a step by minibatches, or of an exact draw."""
    import sumout
    from benchmarks.minibatch import BATCH, SURROGATE, data, minibatches, mixture, on_disk
    from sumout.run.minibatch import set_up_rows

    rows = on_disk(num) if way == "minibatch, on disk" else data(num)
    kernel, batch = ("hmc", SURROGATE) if way == "exact draw" else (None, BATCH)
    return minibatches(set_up_rows(sumout.program(mixture, rows), kernel, {"n": batch}, None), DRAWS)[
        "milliseconds a step"
    ]


def measure(num: int, way: str) -> dict[str, Any]:
    """Time and memory of one way, in this process."""
    warnings.simplefilter("ignore")
    milliseconds = gradient_of_all(num) if way == WAYS[0] else step_of_some(num, way)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"way": way, "rows": num, "milliseconds": milliseconds, "peak in GB": round(peak, 3)}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Time in one panel, memory in the other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, layout="constrained")
    for panel, what, label in zip(panels, ("milliseconds", "peak in GB"), ("CPU ms", "peak GB"), strict=True):
        for way, colour in zip(WAYS, COLOURS, strict=True):
            line = [one for one in found if one["way"] == way]
            panel.loglog([one["rows"] for one in line], [one[what] for one in line], marker="o", markersize=3,
                         color=colour, label=way)  # fmt: skip
        panel.set_xlabel("rows")
        panel.set_ylabel(label)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e3, 1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for rows.json and rows.png")
    parser.add_argument("--way", choices=WAYS, help="one way only, in this process")
    options = parser.parse_args()
    if options.way:
        for num in map(int, options.rows):
            print(json.dumps(measure(num, options.way)), flush=True)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for num in map(int, options.rows):
        for way in WAYS:
            if way != WAYS[0] and num <= (20_000 if way == "exact draw" else 1_000):
                continue  # as few rows as a batch
            command = [sys.executable, "-m", "benchmarks.rows", "--rows", str(num), "--way", way]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(found[-1]), flush=True)
            (options.out / "rows.json").write_text(json.dumps(found, indent=1))
    draw(found, options.out / "rows.png")


if __name__ == "__main__":
    main()
