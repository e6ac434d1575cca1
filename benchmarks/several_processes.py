"""A gradient and whole draws with data sharded over one and two processes of this machine.

    python -m benchmarks.several_processes [rows …]

Every number is measured in processes of their own, one and two in turn, and the fastest of the rounds counts: a machine
that does other things as well shows them otherwise. Two processes on one machine share its cores and its memory, so
that this tells what telling each other costs; what is gained needs machines that one process does not fill.
"""

import socket
import subprocess
import sys
from time import perf_counter

import numpy as np

ROUNDS, REPEATS = 3, 20
DRAWS = 10


def measure(number: int, count: int, address: str, rows: int) -> None:
    """In one process of so many: milliseconds of a gradient, and of a draw of ten leapfrog steps or so."""
    import jax

    if count > 1:
        jax.distributed.initialize(address, count, number)
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import sumout
    from sumout.compile.ahead import Ahead
    from sumout.model.initial_values import guess_x, guess_z
    from sumout.plan.plan import plan_for
    from sumout.plan.target import make_target
    from sumout.run.placement import choose_placement, place

    def mixture(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        mu = numpyro.sample("mu", dist.Normal(jnp.array([-3.0, 0.0, 3.0]), 1).to_event(1))
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)

    rng = np.random.default_rng(0)
    y = rng.choice([-3.0, 0.0, 3.0], rows) + rng.normal(size=rows)
    program = sumout.program(mixture, y.astype(np.float32))
    plan = plan_for(program)
    over = {} if count == 1 else {"mesh": jax.make_mesh((count,), ("data",)), "shard": {"n": "data"}}
    data = place(choose_placement(program, over.get("mesh"), over.get("shard")), program)
    x = jnp.asarray(guess_x(rng, program, 1)[0])
    z = {name: jnp.asarray(value[0]) for name, value in guess_z(rng, program, 1).items()}
    gradient = Ahead(make_target(plan).value_and_gradient).compiled(x, z, data)
    jax.block_until_ready(gradient(x, z, data))
    times = []
    for _ in range(REPEATS):
        begun = perf_counter()
        jax.block_until_ready(gradient(x, z, data))
        times.append(perf_counter() - begun)
    options = {"chains": 1, "draws": DRAWS, "tune": DRAWS, "steps": 1, "progress": False, "log_likelihood": False}
    result = sumout.sample(program, **options, **over)
    seconds = result["posterior"].attrs["sampling_time"]
    if number == 0:
        print("measured", np.median(times) * 1e3, seconds / DRAWS * 1e3, flush=True)


def run(count: int, rows: int) -> tuple[float, float]:
    """Start so many processes; what the first has measured."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.several_processes", "--process"]
    started = [
        subprocess.Popen([*command, str(i), str(count), address, str(rows)], stdout=subprocess.PIPE, text=True)
        for i in range(count)
    ]
    said = [process.communicate()[0] for process in started]
    (line,) = (line for line in said[0].splitlines() if line.startswith("measured"))
    gradient, draw = map(float, line.split()[1:])
    return gradient, draw


def main() -> None:
    """Print a table."""
    if sys.argv[1:2] == ["--process"]:
        number, count, address, rows = sys.argv[2:]
        measure(int(number), int(count), address, int(rows))
        return
    print("| rows | processes | gradient, ms | draw, ms |\n| --- | --- | --- | --- |")
    for rows in map(int, sys.argv[1:] or ["10000", "100000", "1000000"]):
        rounds = [[run(count, rows) for count in (1, 2)] for _ in range(ROUNDS)]
        for i, count in enumerate((1, 2)):
            gradient, draw = np.min([each[i] for each in rounds], axis=0)
            print(f"| {rows:,} | {count} | {gradient:.2f} | {draw:.1f} |", flush=True)


if __name__ == "__main__":
    main()
