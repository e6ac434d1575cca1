"""One gradient of log p(x, y) with z summed out, over the time that a marginal written by hand in JAX takes.

Fourteen structures, each with its discrete variables left in, as a user would write it, and beside it the sum over z as
an expert would write it: a logsumexp, or a forward pass over all rows at once. Values and gradients are compared first.
Both run inside one compiled loop, as they do in a kernel, and take turns, so that other work on the machine weighs on
both alike. Promised: at most 1.5.

    python -m benchmarks.gradients [--only cjs lda] [--scale 1]
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import constrain_fn, log_density
from rich.console import Console
from rich.table import Table

import sumout
from benchmarks.measured import write_rows
from sumout.plan.plan import make_plan

REPEATS = 10
SECONDS = 0.05  # that one timing takes, about


@dataclass(frozen=True)
class Case:
    """A model with z left in, the same with z summed out by hand, and their arguments."""

    model: Callable[..., Any]
    by_hand: Callable[..., Any]
    data: tuple[Any, ...]


def forward(first, steps, emission):
    """Log likelihood of rows that are Markov chains.

    Args:
        first: `(n, K)`.
        steps: `(T − 1, n or 1, K, K)`.
        emission: `(T, n, K)`.
    """

    def step(alpha, parts):
        transition, emitted = parts
        return logsumexp(alpha[:, :, None] + transition, axis=1) + emitted, None

    alpha, _ = jax.lax.scan(step, first + emission[0], (steps, emission[1:]))
    return logsumexp(alpha, axis=1).sum()


# Mixtures: every z on its own.


def gmm(scale):
    points, components = 1000 * scale, 5
    rng = np.random.default_rng(0)
    y = rng.normal(rng.integers(components, size=points) * 3.0, 1.0)

    def priors():
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
        mu = numpyro.sample("mu", dist.Normal(0, 10).expand([components]).to_event(1))
        return weights, mu, numpyro.sample("sigma", dist.LogNormal(0, 1).expand([components]).to_event(1))

    def model(y):
        weights, mu, sigma = priors()
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(mu[z], sigma[z]), obs=y)

    def by_hand(y):
        weights, mu, sigma = priors()
        each = jnp.log(weights) + dist.Normal(mu, sigma).log_prob(y[:, None])
        numpyro.factor("y", logsumexp(each, axis=1).sum())

    return Case(model, by_hand, (y,))


def mixture_of_regressions(scale):
    rng = np.random.default_rng(1)
    design = rng.normal(size=(500 * scale, 4))
    y = rng.normal(size=500 * scale)

    def priors():
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        beta = numpyro.sample("beta", dist.Normal(0, 3).expand([3, 4]).to_event(2))
        return weights, beta, numpyro.sample("sigma", dist.HalfNormal(2).expand([3]).to_event(1))

    def model(design, y):
        weights, beta, sigma = priors()
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal((design * beta[z]).sum(-1), sigma[z]), obs=y)

    def by_hand(design, y):
        weights, beta, sigma = priors()
        each = jnp.log(weights) + dist.Normal(design @ beta.T, sigma).log_prob(y[:, None])
        numpyro.factor("y", logsumexp(each, axis=1).sum())

    return Case(model, by_hand, (design, y))


def occupancy(scale):
    rng = np.random.default_rng(2)
    y = (rng.uniform(size=(200 * scale, 5)) < 0.4) * (rng.uniform(size=(200 * scale, 1)) < 0.6) * 1
    elevation = rng.normal(size=200 * scale)

    def priors():
        psi = numpyro.sample("psi", dist.Normal(0, 1).expand([2]).to_event(1))
        return psi, numpyro.sample("p", dist.Beta(1, 1))

    def model(y, elevation):
        psi, p = priors()
        with numpyro.plate("sites", len(y), dim=-2):
            z = numpyro.sample("z", dist.Bernoulli(logits=(psi[0] + psi[1] * elevation)[:, None]))
            with numpyro.plate("visits", y.shape[1], dim=-1):
                numpyro.sample("y", dist.Bernoulli(z * p), obs=y)

    def by_hand(y, elevation):
        psi, p = priors()
        logit, seen = psi[0] + psi[1] * elevation, y.sum(1)
        present = jax.nn.log_sigmoid(logit) + seen * jnp.log(p) + (y.shape[1] - seen) * jnp.log1p(-p)
        absent = jnp.where(seen > 0, -jnp.inf, jax.nn.log_sigmoid(-logit))
        numpyro.factor("y", jnp.logaddexp(present, absent).sum())

    return Case(model, by_hand, (y, elevation))


def dawid_skene(scale):
    items, raters, classes = 200 * scale, 5, 4
    rng = np.random.default_rng(3)
    truth = rng.integers(classes, size=items)
    y = np.where(rng.uniform(size=(items, raters)) < 0.7, truth[:, None], rng.integers(classes, size=(items, raters)))

    def priors():
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(classes)))
        rows = dist.Dirichlet(jnp.ones(classes) + 2 * jnp.eye(classes)).expand([raters, classes]).to_event(2)
        return weights, numpyro.sample("confusion", rows)

    def model(y):
        weights, confusion = priors()
        with numpyro.plate("items", len(y), dim=-2):
            z = numpyro.sample("z", dist.Categorical(weights))
            with numpyro.plate("raters", raters, dim=-1):
                numpyro.sample("y", dist.Categorical(confusion[jnp.arange(raters), z]), obs=y)

    def by_hand(y):
        weights, confusion = priors()
        each = jnp.log(weights) + jnp.log(confusion)[jnp.arange(raters), :, y].sum(1)
        numpyro.factor("y", logsumexp(each, axis=1).sum())

    return Case(model, by_hand, (y,))


def lda(scale):
    documents, words, vocabulary, topics = 20 * scale, 100, 50, 5
    rng = np.random.default_rng(4)
    document = np.repeat(np.arange(documents), words)
    word = rng.integers(vocabulary, size=documents * words)

    def priors():
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(topics)).expand([documents]).to_event(1))
        return theta, numpyro.sample("phi", dist.Dirichlet(jnp.ones(vocabulary)).expand([topics]).to_event(1))

    def model(document, word):
        theta, phi = priors()
        with numpyro.plate("words", len(word)):
            z = numpyro.sample("z", dist.Categorical(theta[document]))
            numpyro.sample("w", dist.Categorical(phi[z]), obs=word)

    def by_hand(document, word):
        theta, phi = priors()
        numpyro.factor("w", jnp.log((theta[document] * phi.T[word]).sum(1)).sum())

    return Case(model, by_hand, (document, word))


# Markov chains: one long, many short, of equal length or not.


def chain_priors(states):
    rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(states)).expand([states]).to_event(1))
    return rows, numpyro.sample("mu", dist.Normal(0, 5).expand([states]).to_event(1))


def chain_by_hand(states):
    def by_hand(y):
        rows, mu = chain_priors(states)
        rows, emission = jnp.log(rows), dist.Normal(mu, 1.0).log_prob(y[:, None, None])
        steps = jnp.broadcast_to(rows, (len(y) - 1, 1, states, states))
        numpyro.factor("y", forward(rows[:1], steps, emission))

    return by_hand


def chain_data(length, states):
    rng = np.random.default_rng(5)
    return rng.normal(rng.integers(states, size=length) * 2.0, 1.0)


def hmm_array(scale):
    def model(y):
        rows, mu = chain_priors(3)
        z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3).expand([len(y)]).to_event(1))
        numpyro.factor("steps", jnp.log(rows)[0, z[0]] + jnp.log(rows)[z[:-1], z[1:]].sum() + len(y) * np.log(3))
        numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    return Case(model, chain_by_hand(3), (chain_data(300 * scale, 3),))


def hmm_scan(scale):
    def model(y):
        rows, mu = chain_priors(3)

        def step(before, y):
            z = numpyro.sample("z", dist.Categorical(rows[before]))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            return z, None

        scan(step, 0, y)

    return Case(model, chain_by_hand(3), (chain_data(300 * scale, 3),))


def hmm_loop(scale):
    del scale

    def model(y):
        rows, mu = chain_priors(3)
        z = 0
        for t in range(len(y)):
            z = numpyro.sample(f"z_{t}", dist.Categorical(rows[z]))
            numpyro.sample(f"y_{t}", dist.Normal(mu[z], 1.0), obs=y[t])

    return Case(model, chain_by_hand(3), (chain_data(40, 3),))


def ragged_hmms(scale):
    sequences, longest, states = 100 * scale, 30, 3
    rng = np.random.default_rng(6)
    lengths = rng.integers(2, longest + 1, size=sequences)
    y = rng.normal(size=(sequences, longest))

    def model(y, lengths):
        rows, mu = chain_priors(states)

        def step(before, parts):
            t, y = parts
            with numpyro.plate("sequences", len(y)), numpyro.handlers.mask(mask=t < lengths):
                z = numpyro.sample("z", dist.Categorical(rows[before]))
                numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            return z, None

        scan(step, jnp.zeros(len(y), int), (jnp.arange(y.shape[1]), y.T))

    def by_hand(y, lengths):
        rows, mu = chain_priors(states)
        rows = jnp.log(rows)
        is_there = jnp.arange(y.shape[1])[:, None] < lengths
        emission = jnp.where(is_there[..., None], dist.Normal(mu, 1.0).log_prob(y.T[..., None]), 0.0)

        def step(alpha, parts):
            emitted, is_there = parts
            moved = logsumexp(alpha[:, :, None] + rows, axis=1) + emitted
            return jnp.where(is_there[:, None], moved, alpha), None

        alpha, _ = jax.lax.scan(step, rows[0] + emission[0], (emission[1:], is_there[1:]))
        numpyro.factor("y", logsumexp(alpha, axis=1).sum())

    return Case(model, by_hand, (y, lengths))


def captures(animals, occasions, states=1):
    rng = np.random.default_rng(7)
    first = rng.integers(occasions - 1, size=animals)
    y = np.zeros((animals, occasions), int)
    for animal in range(animals):
        alive, state = True, rng.integers(states)
        y[animal, first[animal]] = 1 + state
        for t in range(first[animal] + 1, occasions):
            alive &= rng.uniform() < 0.8
            state = rng.integers(states) if rng.uniform() < 0.3 else state
            y[animal, t] = (1 + state) * (alive and rng.uniform() < 0.5)
    return y, first


def cjs(scale):
    """Capture–recapture as NumPyro's own example has it: a scan over occasions, masked before the first capture."""
    y, first = captures(250 * scale, 7)

    def priors(occasions):
        phi = numpyro.sample("phi", dist.Beta(1, 1).expand([occasions - 1]).to_event(1))
        return phi, numpyro.sample("p", dist.Beta(1, 1))

    def model(y, first):
        phi, p = priors(y.shape[1])

        def step(carry, parts):
            alive, t = carry
            y, phi = parts
            with numpyro.plate("animals", len(y)), numpyro.handlers.mask(mask=t > first):
                z = numpyro.sample("z", dist.Bernoulli(jnp.where(t > first, phi * alive, 1.0)))
                numpyro.sample("y", dist.Bernoulli(p * z), obs=y)
            return (jnp.where(t > first, z, 1), t + 1), None

        scan(step, (jnp.ones(len(y), int), 1), (y.T[1:], phi))

    def by_hand(y, first):
        phi, p = priors(y.shape[1])

        def step(carry, parts):
            alive, dead = carry
            y, phi, t = parts
            after = t > first
            seen = jnp.where(y == 1, p, 1 - p)
            moved = alive * phi * seen, (dead + alive * (1 - phi)) * (y == 0)
            return (jnp.where(after, moved[0], alive), jnp.where(after, moved[1], dead)), None

        start = (jnp.ones(len(y)), jnp.zeros(len(y)))
        (alive, dead), _ = jax.lax.scan(step, start, (y.T[1:], phi, jnp.arange(1, y.shape[1])))
        numpyro.factor("y", jnp.log(alive + dead).sum())

    return Case(model, by_hand, (y, first))


def multistate(scale):
    """Animals that move between two places, or die: transitions by place, captures by place."""
    y, first = captures(200 * scale, 8, 2)
    start = y[np.arange(len(y)), first] - 1

    def priors():
        phi = numpyro.sample("phi", dist.Beta(1, 1).expand([2]).to_event(1))
        psi = numpyro.sample("psi", dist.Beta(1, 1).expand([2]).to_event(1))
        p = numpyro.sample("p", dist.Beta(1, 1).expand([2]).to_event(1))
        moves = jnp.array([[phi[0] * (1 - psi[0]), phi[0] * psi[0], 1 - phi[0]],
                           [phi[1] * psi[1], phi[1] * (1 - psi[1]), 1 - phi[1]], [0.0, 0.0, 1.0]])  # fmt: skip
        seen = jnp.array([[1 - p[0], p[0], 0.0], [1 - p[1], 0.0, p[1]], [1.0, 0.0, 0.0]])
        return moves, seen

    def model(y, first, start):
        moves, seen = priors()

        def step(carry, y):
            before, t = carry
            with numpyro.plate("animals", len(y)), numpyro.handlers.mask(mask=t > first):
                z = numpyro.sample("z", dist.Categorical(moves[before]))
                numpyro.sample("y", dist.Categorical(seen[z]), obs=y)
            return (jnp.where(t > first, z, start), t + 1), None

        scan(step, (start, 1), y.T[1:])

    def by_hand(y, first, start):
        moves, seen = priors()

        def step(alpha, parts):
            y, t = parts
            moved = (alpha @ moves) * seen.T[y]
            return jnp.where((t > first)[:, None], moved, alpha), None

        alpha, _ = jax.lax.scan(step, jnp.eye(3)[start], (y.T[1:], jnp.arange(1, y.shape[1])))
        numpyro.factor("y", jnp.log(alpha.sum(1)).sum())

    return Case(model, by_hand, (y, first, start))


def dynamic_occupancy(scale):
    """Sites that are settled and left from year to year, each with its own probabilities; three visits a year."""
    sites, years, visits = 150 * scale, 9, 3
    rng = np.random.default_rng(8)
    y = (rng.uniform(size=(sites, years, visits)) < 0.4) * (rng.uniform(size=(sites, years, 1)) < 0.5) * 1
    forest = rng.normal(size=sites)

    def priors():
        psi = numpyro.sample("psi", dist.Beta(1, 1))
        stay = numpyro.sample("stay", dist.Normal(0, 1).expand([2]).to_event(1))
        settle = numpyro.sample("settle", dist.Normal(0, 1).expand([years - 1]).to_event(1))
        return psi, stay, settle, numpyro.sample("p", dist.Beta(1, 1).expand([years]).to_event(1))

    def model(y, forest):
        psi, stay, settle, p = priors()
        remain = jax.nn.sigmoid(stay[0] + stay[1] * forest)
        with numpyro.plate("sites", len(y)):
            z = numpyro.sample("z_0", dist.Bernoulli(psi))
            numpyro.sample("y_0", dist.Binomial(visits, z * p[0]), obs=y[:, 0].sum(1))

        def step(before, parts):
            y, settle, p = parts
            with numpyro.plate("sites", len(y)):
                z = numpyro.sample("z", dist.Bernoulli(jnp.where(before == 1, remain, jax.nn.sigmoid(settle))))
                numpyro.sample("y", dist.Binomial(visits, z * p), obs=y)
            return z, None

        scan(step, z, (y[:, 1:].sum(2).T, settle, p[1:]))

    def by_hand(y, forest):
        psi, stay, settle, p = priors()
        seen = y.sum(2).T
        remain = jax.nn.sigmoid(stay[0] + stay[1] * forest)
        present = jnp.exp(dist.Binomial(visits, p[:, None]).log_prob(seen))

        def step(alpha, parts):
            seen, present, settle = parts
            settle = jax.nn.sigmoid(settle)
            there = (alpha[0] * settle + alpha[1] * remain) * present
            return jnp.stack([(alpha[0] * (1 - settle) + alpha[1] * (1 - remain)) * (seen == 0), there]), None

        start = jnp.stack([(1 - psi) * (seen[0] == 0), psi * present[0]])
        alpha, _ = jax.lax.scan(step, start, (seen[1:], present[1:], settle))
        numpyro.factor("y", jnp.log(alpha.sum(0)).sum())

    return Case(model, by_hand, (y, forest))


# Chains that are not.


def ladder(scale):
    """Two binary chains side by side that meet at every step."""
    length = 100 * scale
    y = np.random.default_rng(9).normal(size=length)

    def priors():
        return numpyro.sample("along", dist.Normal(0, 1)), numpyro.sample("across", dist.Normal(0, 1))

    def model(y):
        along, across = priors()
        half = dist.Bernoulli(0.5).expand([len(y)]).to_event(1)
        a, b = numpyro.sample("a", half), numpyro.sample("b", half)
        alike = (a[1:] == a[:-1]).sum() + (b[1:] == b[:-1]).sum()
        numpyro.factor("pairs", along * alike + across * (a == b).sum())
        numpyro.sample("y", dist.Normal(a + 2.0 * b, 1.0), obs=y)

    def by_hand(y):
        along, across = priors()
        a, b = jnp.arange(4) // 2, jnp.arange(4) % 2
        alike = (a[:, None] == a).astype(float) + (b[:, None] == b)
        own = across * (a == b) + dist.Normal(a + 2.0 * b, 1.0).log_prob(y[:, None]) - 2 * np.log(2)
        steps = jnp.broadcast_to(along * alike, (len(y) - 1, 1, 4, 4))
        numpyro.factor("y", forward(jnp.zeros((1, 4)), steps, own[:, None]))

    return Case(model, by_hand, (y,))


def second_order(scale):
    length, states = 150 * scale, 3
    y = chain_data(length, states)

    def priors():
        rows = dist.Dirichlet(jnp.ones(states)).expand([states, states]).to_event(2)
        return numpyro.sample("rows", rows), numpyro.sample("mu", dist.Normal(0, 5).expand([states]).to_event(1))

    def model(y):
        rows, mu = priors()

        def step(carry, y):
            before, last = carry
            z = numpyro.sample("z", dist.Categorical(rows[before, last]))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            return (last, z), None

        scan(step, (0, 0), y)

    def by_hand(y):
        rows, mu = priors()
        rows, emission = jnp.log(rows), dist.Normal(mu, 1.0).log_prob(y[:, None])

        def step(alpha, emitted):
            return logsumexp(alpha[:, :, None] + rows, axis=0) + emitted, None

        only = jnp.where(jnp.arange(states**2).reshape(states, states) == 0, 0.0, -1e30)
        alpha, _ = jax.lax.scan(step, only, emission)
        numpyro.factor("y", logsumexp(alpha))

    return Case(model, by_hand, (y,))


CASES = (gmm, mixture_of_regressions, occupancy, dawid_skene, lda, hmm_array, hmm_scan, hmm_loop, ragged_hmms, cjs,
         multistate, dynamic_occupancy, ladder, second_order)  # fmt: skip


def functions(case):
    """Log densities of the unconstrained flat x: z summed out here, and by hand."""
    program = sumout.program(case.model, *case.data)
    plan = make_plan(sumout.read(program))
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in plan.structure.program.z.items()}
    data = tuple(jnp.asarray(each) for each in case.data)

    def by_hand(x):
        named = program.unravel(x)
        substituted = numpyro.handlers.seed(case.by_hand, 0)
        constrained = constrain_fn(substituted, data, {}, named)
        jacobian = 0.0
        trace = numpyro.handlers.trace(numpyro.handlers.substitute(substituted, data=constrained)).get_trace(*data)
        for name, value in named.items():
            bijection = dist.biject_to(trace[name]["fn"].support)
            jacobian += bijection.log_abs_det_jacobian(value, constrained[name]).sum()
        return log_density(case.by_hand, data, {}, constrained)[0] + jacobian

    return program, plan, {"sumout": lambda x: plan.log_density(x, z, program.data), "by hand": by_hand}


def in_a_loop(function, length):
    """Value and gradient many times over, each at a slightly different x."""
    value_and_grad = jax.value_and_grad(function)

    def turn(_, carry):
        x, total = carry
        value, gradient = value_and_grad(x)
        return x + 1e-9 * gradient, total + value

    return jax.jit(lambda x: jax.lax.fori_loop(0, length, turn, (x, jnp.zeros((), x.dtype))))


def measure(program, found):
    """The shortest time of one evaluation for each function, in microseconds, all taking turns."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=program.num_x) * 0.3, jnp.result_type(float))
    alone = {name: jax.jit(jax.value_and_grad(function)) for name, function in found.items()}
    changes = {name: run(x)[0] - run(x / 2)[0] for name, run in alone.items()}  # masked z add constants
    np.testing.assert_allclose(changes["sumout"], changes["by hand"], rtol=1e-3, atol=1e-2)
    gradient, slope = (alone[name](x)[1] for name in ("sumout", "by hand"))
    np.testing.assert_allclose(gradient, slope, rtol=1e-2, atol=2e-3 * np.abs(slope).max())
    start = time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(alone["by hand"](x))
    length = int(np.clip(SECONDS / ((time.perf_counter() - start) / 5), 20, 2000))
    compiled = {name: in_a_loop(function, length).lower(x).compile() for name, function in found.items()}
    best = dict.fromkeys(compiled, np.inf)
    for _ in range(REPEATS):
        for name, run in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(run(x))
            best[name] = min(best[name], (time.perf_counter() - start) / length * 1e6)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[case.__name__ for case in CASES])
    parser.add_argument("--scale", type=int, default=1, help="times as many rows")
    chosen = parser.parse_args()
    table = Table("structure", "sites", "µs", "by hand, µs", "ratio", title="One gradient, z summed out")
    rows = []
    for case in CASES:
        if case.__name__ not in chosen.only:
            continue
        program, plan, found = functions(case(chosen.scale))
        assert plan.sums_all, case.__name__
        best = measure(program, found)
        sites = sum(site.num_elements for site in program.z.values())
        here, by_hand = best["sumout"], best["by hand"]
        table.add_row(case.__name__, f"{sites:,}", f"{here:.1f}", f"{by_hand:.1f}", f"{here / by_hand:.2f}")
        rows.append({"structure": case.__name__, "sites": sites, "us": round(here, 2), "by_hand_us": round(by_hand, 2)})
        print(case.__name__, sites, f"{here:.1f} {by_hand:.1f} {here / by_hand:.2f}", flush=True)
    Console().print(table)
    write_rows("gradients", rows)


if __name__ == "__main__":
    main()
