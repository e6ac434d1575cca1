"""What does a step cost where a discrete variable has very many values?

A hidden Markov model of 200 steps: the state walks up and down among K levels by known transition probabilities, and is
seen with noise, unknown slope and unknown scale. z is moved by Metropolis steps, each of which looks at two values,
however many there are. Promised: with 500 states at most 3 times the cost with 10.
"""

import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints
from rich.console import Console
from rich.table import Table

import sumout
from sumout.model.program import Program

LENGTH = 200
STATES = (10, 50, 250, 500, 2000)
REPEATS = 5


def make_program(num_states: int) -> Program:
    rng = np.random.default_rng(0)
    levels = np.arange(num_states)
    log_transition = -np.abs(levels[:, None] - levels) / 2.0
    log_transition -= np.logaddexp.reduce(log_transition, axis=1, keepdims=True)
    state = [num_states // 2]
    for _ in range(LENGTH - 1):
        state.append(rng.choice(num_states, p=np.exp(log_transition[state[-1]])))
    y = np.asarray(state) + rng.normal(size=LENGTH)

    def walk(x, z, data):
        s = z["s"]
        prior = dist.Normal(1, 0.1).log_prob(x["slope"]) + dist.LogNormal(0, 1).log_prob(x["sigma"])
        moves = data["log_transition"][s[:-1], s[1:]].sum()
        return prior + moves + dist.Normal(x["slope"] * s, x["sigma"]).log_prob(data["y"]).sum()

    x = {"slope": (constraints.real, ()), "sigma": (constraints.positive, ())}
    data = {"y": jnp.asarray(y), "log_transition": jnp.asarray(log_transition)}
    return sumout.density(walk, x=x, z={"s": sumout.finite(num_states, LENGTH)}, data=data)


def seconds_per_step(program: Program, seed: int) -> float:
    steps = 20
    result = sumout.sample(
        program, sumout.HMC(step_size=0.01, num_leapfrog=1), plan={"s": "metropolis"}, draws=200, tune=0, steps=steps,
        chains=2, seed=seed, progress=False, log_likelihood=False,
    )  # fmt: skip
    return result["posterior"].attrs["sampling_time"] / (200 * steps)


def main() -> None:
    programs = {num_states: make_program(num_states) for num_states in STATES}
    for program in programs.values():
        seconds_per_step(program, 0)  # compiles
    times = {n: [] for n in STATES}
    for seed in range(REPEATS):  # in turns, so that other work on the machine weighs on all alike
        for num_states, program in programs.items():
            times[num_states].append(seconds_per_step(program, seed))
    table = Table("states", "µs a step, 2 chains", f"over that with {STATES[0]}", title="Large supports, Metropolis")
    for num_states, seconds in times.items():
        ratio = np.median(np.asarray(seconds) / times[STATES[0]])
        table.add_row(f"{num_states:,}", f"{1e6 * min(seconds):.1f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
