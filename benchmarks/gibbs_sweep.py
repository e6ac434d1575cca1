"""What does a Gibbs sweep cost, next to the table it cannot do without?

A sweep over N independent sites with K values needs the N × K table of log joint terms log p(z_i = k) + log p(y_i | k).
Here a Gaussian mixture is read and planned by sumout, and one jitted sweep (table, normalisation, one draw for each
site) is timed against one jitted evaluation of that table written by hand in JAX. The two take turns within one run and
their medians are compared, so that other work on the machine weighs on both alike. Promised: a ratio of at most 3.
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
from sumout.plan import make_plan

SIZES = [(1_000, 2), (10_000, 5), (100_000, 5), (10_000, 50)]
PROMISED = 3.0
REPEATS = 30
SHORTEST = 0.02  # seconds a single timing should last


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
    """Both functions, jitted, with the arguments they are to be called with."""
    rng = np.random.default_rng(0)
    y = rng.normal(rng.integers(num_values, size=num_sites) * 2.0, 1.0).astype(np.float32)
    program = sumout.program(mixture, y, num_values)
    plan = make_plan(sumout.read(program))
    x = jnp.asarray(rng.normal(size=program.num_x), jnp.float32)
    z = {"z": jnp.asarray(rng.integers(num_values, size=num_sites), program.z["z"].dtype)}
    named = program.constrain(x, z, program.data)
    by_hand = (named["weights"], named["mu"], named["sigma"], jnp.asarray(y))
    check(plan, x, z, program.data, by_hand)
    return (jax.jit(plan.sweep), (jax.random.key(0), x, z, program.data)), (jax.jit(table_by_hand), by_hand)


def check(plan, x, z, data, by_hand):
    """The two must speak of the same model, or their times cannot be compared."""
    (gibbs,) = plan.moves
    found = gibbs.log_conditionals(x, z, data)
    expected = jax.nn.log_softmax(table_by_hand(*by_hand), axis=1).T
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-3)


def seconds(function, args, calls):
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(function(*args))
    return (time.perf_counter() - start) / calls


def measure(num_sites, num_values):
    """Median seconds of one sweep and of one table, and the median of the ratios of neighbouring timings."""
    pair = prepare(num_sites, num_values)
    calls = []
    for function, args in pair:
        seconds(function, args, 1)  # compiles
        calls.append(max(1, round(SHORTEST / seconds(function, args, 3))))
    times = np.array([[seconds(*one, n) for one, n in zip(pair, calls, strict=True)] for _ in range(REPEATS)])
    return *np.median(times, axis=0), np.median(times[:, 0] / times[:, 1])


def main():
    table = Table("sites N", "values K", "sweep, ms", "table, ms", "ratio", f"at most {PROMISED:g}?")
    table.title = "One Gibbs sweep against one N × K table by hand"
    ratios = []
    for num_sites, num_values in SIZES:
        sweep, by_hand, ratio = measure(num_sites, num_values)
        ratios.append(ratio)
        kept = "yes" if ratio <= PROMISED else "NO"
        table.add_row(
            f"{num_sites:,}", str(num_values), f"{1e3 * sweep:.3f}", f"{1e3 * by_hand:.3f}", f"{ratio:.2f}", kept
        )
    Console().print(table)
    worst = max(ratios)
    verdict = "holds" if worst <= PROMISED else "does NOT hold"
    print(f"The promise of at most {PROMISED:g} {verdict}: the largest ratio is {worst:.2f}.")


if __name__ == "__main__":
    main()
