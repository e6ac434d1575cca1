"""What does a Gibbs sweep cost, next to the table it cannot do without?

A sweep over N independent sites with K values needs the N × K table of the exact conditionals p(z_i = k | x, y). Here a
Gaussian mixture is read and planned by sumout, and a sweep (the table and one draw for each site) is timed against one
evaluation of that table. Promised: a ratio of at most 3. Beside it stand the same table written by hand in JAX and the
bare log joint terms log p(z_i = k) + log p(y_i | k), by sumout and by hand, which for this model are a few products for
each entry and run at the speed of memory. All run many times inside one compiled loop, as they do in a kernel, and take
turns within one run, so that other work on the machine weighs on all alike.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table

import sumout
from benchmarks.measured import write_rows
from sumout.plan.plan import make_plan

SIZES = [(1_000, 2), (10_000, 5), (100_000, 5), (10_000, 50)]
PROMISED = 3.0
REPEATS = 15
LENGTH = 100  # steps in one timing
NAMES = ("sweep", "table", "table_by_hand", "terms", "terms_by_hand")  # of what is timed


def mixture(y, num_values):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(num_values)))
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([num_values]))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 1).expand([num_values]))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)


def table_by_hand(weights, mu, sigma, y):
    """`(N, K)`: log p(z_i = k) + log p(y_i | z_i = k)."""
    residual = (y[:, None] - mu) / sigma
    return jnp.log(weights) - jnp.log(sigma) - 0.5 * jnp.log(2 * jnp.pi) - 0.5 * residual**2


def prepare(num_sites, num_values):
    """The functions, jitted, with the arguments they are to be called with."""
    rng = np.random.default_rng(0)
    y = rng.normal(rng.integers(num_values, size=num_sites) * 2.0, 1.0).astype(np.float32)
    program = sumout.program(mixture, y, num_values)
    plan = make_plan(sumout.read(program), {"z": "gibbs"})
    x = jnp.asarray(rng.normal(size=program.num_x), jnp.float32)
    z = {"z": jnp.asarray(rng.integers(num_values, size=num_sites), program.z["z"].dtype)}
    named = program.constrain(x, z, program.data)
    by_hand = (named["weights"], named["mu"], named["sigma"], jnp.asarray(y))
    check(plan, x, z, program.data, by_hand)
    (gibbs,) = plan.moves
    key = jax.random.key(0)
    empty = jnp.zeros((num_values, num_sites))

    # A slightly different x each time, or the compiler would compute the table once for the whole loop.
    def sweep(i, z, x, data):
        return plan.sweep(jax.random.fold_in(key, i), x + 1e-6 * i, z, data)

    def conditionals(i, previous, x, data):
        return gibbs.conditionals(x + 1e-6 * i, z, data)

    def conditionals_by_hand(i, previous, weights, mu, sigma, y):
        return jax.nn.softmax(table_by_hand(weights, mu + 1e-6 * i, sigma, y), axis=1)

    def terms(i, previous, x, data):
        return gibbs.log_weights(x + 1e-6 * i, z, data)

    def terms_by_hand(i, previous, weights, mu, sigma, y):
        return table_by_hand(weights, mu + 1e-6 * i, sigma, y)

    return (
        (loop(sweep), (z, x, program.data)),
        (loop(conditionals), (empty, x, program.data)),
        (loop(conditionals_by_hand), (empty.T, *by_hand)),
        (loop(terms), (empty, x, program.data)),
        (loop(terms_by_hand), (empty.T, *by_hand)),
    )


def loop(step):
    """The step `LENGTH` times in one compiled program."""
    return jax.jit(lambda carry, *args: jax.lax.fori_loop(0, LENGTH, lambda i, c: step(i, c, *args), carry))


def check(plan, x, z, data, by_hand):
    """The two must speak of the same model, or their times cannot be compared."""
    (gibbs,) = plan.moves
    found = gibbs.conditionals(x, z, data)
    expected = jax.nn.softmax(table_by_hand(*by_hand), axis=1).T
    np.testing.assert_allclose(found, expected, atol=1e-3)


def seconds(function, args):
    """Seconds for one step."""
    start = time.perf_counter()
    jax.block_until_ready(function(*args))
    return (time.perf_counter() - start) / LENGTH


def measure(num_sites, num_values):
    """Median seconds of all functions, and the median ratio of the sweep to the table of conditionals."""
    functions = prepare(num_sites, num_values)
    for one in functions:
        seconds(*one)  # compiles
    times = np.array([[seconds(*one) for one in functions] for _ in range(REPEATS)])
    return np.median(times, axis=0), np.median(times[:, 0] / times[:, 1])


def main():
    columns = ("N", "K", "sweep", "table", "by hand", "terms", "by hand", "sweep/table", f"≤ {PROMISED:g}?")
    table = Table(*columns, title="One Gibbs sweep against one N × K table of conditionals, ms")
    ratios, rows = [], []
    for num_sites, num_values in SIZES:
        times, ratio = measure(num_sites, num_values)
        ratios.append(ratio)
        milliseconds = dict(zip(NAMES, (round(1e3 * float(t), 4) for t in times), strict=True))
        rows.append({"sites": num_sites, "values": num_values, **milliseconds, "ratio": round(float(ratio), 3)})
        shown = [f"{1e3 * t:.3f}" for t in times]
        table.add_row(f"{num_sites:,}", str(num_values), *shown, f"{ratio:.2f}", "yes" if ratio <= PROMISED else "NO")
    Console().print(table)
    write_rows("gibbs_sweep", rows)
    verdict = "holds" if max(ratios) <= PROMISED else "does NOT hold"
    print(f"The promise of at most {PROMISED:g} {verdict}: the largest ratio is {max(ratios):.2f}.")


if __name__ == "__main__":
    main()
