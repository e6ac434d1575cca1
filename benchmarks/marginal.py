"""What does one marginal log density with its gradient cost, next to the one a person would write?

Two models with their discrete variables left in, a Gaussian mixture of 10,000 points in 5 components and a hidden
Markov model of 1,000 steps with 8 states, are read and summed out by sumout. Beside them stand the same marginals
written by hand in JAX (a logsumexp over components, a forward pass by `lax.scan`) and NumPyro's own enumeration of the
same model. Promised: at most 1.5 times the hand-written one, at most the time of the enumeration. All values are
compared first. All run inside one compiled loop, as they do in a kernel, and take turns, so that other work on the
machine weighs on all alike.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan
from numpyro.distributions import biject_to, constraints
from numpyro.infer.util import initialize_model
from rich.console import Console
from rich.table import Table

import sumout
from benchmarks.measured import write_rows
from sumout.plan.plan import make_plan

REPEATS = 10
LENGTH = 50  # evaluations in one timing
COMPONENTS, POINTS = 5, 10_000
STATES, STEPS = 8, 1_000


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(COMPONENTS)))
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([COMPONENTS]).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 1).expand([COMPONENTS]).to_event(1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)


def mixture_by_hand(named, y):
    weights, mu, sigma = named["weights"], named["mu"], named["sigma"]
    prior = dist.Normal(0, 10).log_prob(mu).sum() + dist.LogNormal(0, 1).log_prob(sigma).sum()
    each = jnp.log(weights) + dist.Normal(mu, sigma).log_prob(y[:, None])
    return prior + dist.Dirichlet(jnp.ones(COMPONENTS)).log_prob(weights) + logsumexp(each, axis=1).sum()


def markov(y):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(STATES)).expand([STATES]).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(0, 5).expand([STATES]).to_event(1))

    def step(previous, y):
        z = numpyro.sample("z", dist.Categorical(rows[previous]), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
        return z, None

    scan(step, 0, y)


def markov_as_arrays(x, z, y):
    """The same model as a plain density on arrays."""
    rows = jnp.log(x["rows"])
    z = z["z"]
    prior = dist.Dirichlet(jnp.ones(STATES)).log_prob(x["rows"]).sum() + dist.Normal(0, 5).log_prob(x["mu"]).sum()
    return prior + rows[0, z[0]] + rows[z[:-1], z[1:]].sum() + dist.Normal(x["mu"][z], 1.0).log_prob(y).sum()


def markov_by_hand(named, y):
    rows, mu = jnp.log(named["rows"]), named["mu"]
    emission = dist.Normal(mu, 1.0).log_prob(y[:, None])

    def step(alpha, emission):
        return logsumexp(alpha[:, None] + rows, axis=0) + emission, None

    alpha, _ = jax.lax.scan(step, rows[0] + emission[0], emission[1:])
    prior = dist.Dirichlet(jnp.ones(STATES)).log_prob(named["rows"]).sum() + dist.Normal(0, 5).log_prob(mu).sum()
    return prior + logsumexp(alpha)


CONSTRAINTS = {
    "mixture": {"weights": constraints.simplex, "mu": constraints.real, "sigma": constraints.positive},
    "markov": {"rows": constraints.simplex, "mu": constraints.real},
}


def by_hand(program, domain, marginal, y):
    """The hand-written marginal as a function of the flat unconstrained x."""

    def log_density(x):
        total, named = 0.0, {}
        for name, value in program.unravel(x).items():
            bijection = biject_to(domain[name])
            named[name] = bijection(value)
            total += bijection.log_abs_det_jacobian(value, named[name]).sum()
        return total + marginal(named, y)

    return log_density


def summed(program):
    plan = make_plan(sumout.read(program))
    assert plan.sums_all
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    return lambda x: plan.log_density(x, z, program.data)


def enumerated(model, program, y):
    """NumPyro's potential with its discrete sites enumerated."""
    potential = initialize_model(jax.random.key(0), model, model_args=(y,)).potential_fn
    return lambda x: -potential(program.unravel(x))


def prepare(name):
    rng = np.random.default_rng(0)
    if name == "mixture":
        y = jnp.asarray(rng.normal(rng.integers(COMPONENTS, size=POINTS) * 3.0, 1.0), jnp.float32)
        program = sumout.program(mixture, y)
        functions = {"sumout": summed(program), "enumeration": enumerated(mixture, program, y)}
        marginal = mixture_by_hand
    else:
        y = jnp.asarray(rng.normal(rng.integers(STATES, size=STEPS) * 2.0, 1.0), jnp.float32)
        program = sumout.program(markov, y)
        domain = {"rows": (constraints.simplex, (STATES, STATES)), "mu": (constraints.real, (STATES,))}
        arrays = sumout.density(markov_as_arrays, x=domain, z={"z": sumout.finite(STATES, STEPS)}, data=y)
        functions = {"sumout": summed(program), "sumout, arrays": summed(arrays)}
        functions["enumeration"] = enumerated(markov, program, y)
        marginal = markov_by_hand
    functions["by hand"] = by_hand(program, CONSTRAINTS[name], marginal, y)
    return program, functions


def in_a_loop(function, chains):
    """Value and gradient many times over, each at a slightly different x."""
    value_and_grad = jax.value_and_grad(function)
    if chains > 1:
        value_and_grad = jax.vmap(value_and_grad)

    def turn(_, carry):
        x, total = carry
        value, gradient = value_and_grad(x)
        return x + 1e-9 * gradient, total + value.sum()

    return jax.jit(lambda x: jax.lax.fori_loop(0, LENGTH, turn, (x, 0.0)))


def measure(program, functions, chains):
    """The shortest time of one evaluation for each function, in milliseconds, all taking turns."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(chains, program.num_x)) * 0.3, jnp.float32)
    x = x if chains > 1 else x[0]
    compiled = {name: in_a_loop(function, chains) for name, function in functions.items()}
    for run in compiled.values():
        jax.block_until_ready(run(x))
    best = dict.fromkeys(compiled, np.inf)
    for _ in range(REPEATS):
        for name, run in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(run(x))
            best[name] = min(best[name], (time.perf_counter() - start) / LENGTH * 1e3)
    return best


def check(program, functions):
    x = jnp.asarray(np.random.default_rng(2).normal(size=program.num_x) * 0.3, jnp.float32)
    found = {name: jax.jit(jax.value_and_grad(function))(x) for name, function in functions.items()}
    for name, (value, gradient) in found.items():
        np.testing.assert_allclose(value, found["by hand"][0], rtol=1e-4, err_msg=name)
        scale = np.abs(found["by hand"][1]).max()
        np.testing.assert_allclose(gradient, found["by hand"][1], rtol=1e-2, atol=1e-3 * scale, err_msg=name)


def main():
    table = Table("model", "chains", "form", "ms", "/ by hand", "/ enumeration", title="Marginal value and gradient")
    sizes = {"mixture": f"mixture, {POINTS:,} × {COMPONENTS}", "markov": f"Markov, {STEPS:,} × {STATES}"}
    rows = []
    for name, title in sizes.items():
        program, functions = prepare(name)
        check(program, functions)
        for chains in (1, 4):
            best = measure(program, functions, chains)
            rows += [{"model": title, "chains": chains, "form": form, "ms": round(ms, 4)} for form, ms in best.items()]
            for form, ms in best.items():
                ratios = (f"{ms / best[other]:.2f}" for other in ("by hand", "enumeration"))
                table.add_row(title, str(chains), form, f"{ms:.3f}", *ratios)
    Console().print(table)
    write_rows("marginal", rows)


if __name__ == "__main__":
    main()
