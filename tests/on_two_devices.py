"""Run in a process of its own, by `tests/compile/test_spread.py`: what two devices compute is what one computes.

Prints a line for each program: its name, and how far values, gradients, moved and recovered z are apart.
"""

import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np

import sumout
from sumout.compile.ahead import Ahead
from sumout.model.arguments import as_jax
from sumout.model.initial_values import guess_x, guess_z
from sumout.plan.plan import plan_for
from sumout.plan.target import make_target
from sumout.run.placement import choose_placement, place

import programs
import row_models

KEY = np.array([1, 2], np.uint32)
ROWS = ("mixture", "mixture_data"), ("sequences", "sequence_data"), ("documents", "document_data")
MORE_ROWS = ("outliers", "outlier_data"), ("occupancy", "occupancy_data"), ("with_a_switch", "switch_data")

MORE_PROGRAMS = (
    "array_hmm loop_hmm scan_hmm spike_and_slab factorial_hmm tree second_order_chain ladder unequal_paths "
    "capture_recapture switches"
).split()


def of_rows(model, data, num):
    """A model of rows, as many as that."""
    made = getattr(row_models, data)(np.random.default_rng(num), num)
    return sumout.program(getattr(row_models, model), *(made if isinstance(made, tuple) else (made,)))


def largest(program):
    """The array of data with the longest first axis."""
    shapes = {name: np.shape(array) for name, array in program.data.items() if np.ndim(array)}
    return max(shapes, key=lambda name: shapes[name][0])


def apart(program, shard, mesh, overrides):
    """How far results on one and on two devices are apart, relative to their size."""
    plan = plan_for(program, overrides)
    read, target = plan.structure.program, make_target(plan)

    def results(key, x, z, data):
        moved = z if target.is_marginalised else target.move(key, x, z, data)
        return target.value_and_gradient(x, moved, data), moved, target.recovered(key, x, moved, data)

    rng = np.random.default_rng(0)
    x, z = as_jax((guess_x(rng, read, 1)[0], {name: value[0] for name, value in guess_z(rng, read, 1).items()}))
    data = place(choose_placement(program, mesh, {shard: "data"}), read)
    pairs = [jax.tree.leaves(Ahead(results)(KEY, x, z, where)) for where in (as_jax(read.data), data)]
    far = [np.max(np.abs(a - b) / (1 + np.abs(a)), initial=0) for a, b in zip(*pairs, strict=True)]
    return float(max(far))


def run_apart(program, mesh, plan):
    """How far the draws of whole runs are apart."""
    options = {"draws": 20, "tune": 20, "chains": 2, "progress": False, "plan": plan, "log_likelihood": False}
    runs = [sumout.sample(program, **options, **more) for more in ({}, {"mesh": mesh, "shard": {"n": "data"}})]
    one, two = (run["posterior"] for run in runs)
    return max(float(np.abs(np.asarray(one[name] - two[name], float)).max()) for name in one)


def main():
    mesh = jax.make_mesh((2,), ("data",))
    assert jax.config.jax_enable_x64, jnp.result_type(float)
    is_all = sys.argv[1:] == ["all"]
    for num in (40, 41) if is_all else (41,):
        for model, data in (*ROWS, *MORE_ROWS) if is_all else ROWS[:1]:
            program = of_rows(model, data, num)
            plate = max(program.plates, key=lambda name: program.plates[name].size)
            for overrides in (None, dict.fromkeys(program.z, "draw")):
                print(f"{model}-{num}-{overrides}", apart(program, plate, mesh, overrides), flush=True)
    for name in ["grid", *MORE_PROGRAMS] if is_all else ["grid"]:
        made = getattr(programs, name)()
        program = made[0] if isinstance(made, tuple) else made
        for overrides in (None, dict.fromkeys(program.z, "draw")) if is_all else (None,):
            print(f"{name}-{overrides}", apart(program, largest(program), mesh, overrides), flush=True)
    mixture = of_rows("mixture", "mixture_data", 41)
    for plan in (None, dict.fromkeys(mixture.z, "gibbs")):
        print(f"run-{plan}", run_apart(mixture, mesh, plan), flush=True)


if __name__ == "__main__":
    main()
