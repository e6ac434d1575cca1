"""One gradient of sums along what programs remember, over the time that a recursion written by hand in JAX takes.

Seven structures in which a datum depends on all sites before it, or beside it, by few values of a state only: not yet
entered, time since, run lengths, trap response, any, counts in pools, at least k. By hand they are recursions over the
state by an expert: products of probabilities, scaled at each step, or a closed form. Promised: at most 2.

    python -m benchmarks.state_gradients [--only jolly_seber pools] [--scale 1]
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan

from benchmarks.gradients import Case, compare_all


def rescaled(alpha, axis=0):
    """Weights that sum to one, and the logarithm of what they summed to."""
    total = alpha.sum(axis)
    return alpha / jnp.expand_dims(total, axis), jnp.log(total)


def jolly_seber(scale):
    """Restricted occupancy: animals, some of which never are, enter and die. The state: not yet, alive, dead."""
    animals, occasions = 300 * scale, 7
    rng = np.random.default_rng(0)
    entered = rng.integers(0, occasions + 3, animals)
    left = entered + rng.geometric(0.25, animals)
    t = np.arange(occasions)
    is_alive = (t >= entered[:, None]) & (t < left[:, None])
    y = (is_alive & (rng.uniform(size=(animals, occasions)) < 0.5)).astype(np.int32)

    def priors():
        gamma = numpyro.sample("gamma", dist.Beta(1, 1).expand([occasions]).to_event(1))
        return gamma, numpyro.sample("phi", dist.Beta(1, 1)), numpyro.sample("p", dist.Beta(1, 1))

    def model(y):
        gamma, phi, p = priors()

        def step(carry, parts):
            z, waiting = carry
            y, gamma = parts
            with numpyro.plate("animals", len(y)):
                z = numpyro.sample("z", dist.Bernoulli(phi * z + gamma * waiting))
                numpyro.sample("y", dist.Bernoulli(p * z), obs=y)
            return (z, waiting * (1 - z)), None

        nothing = jnp.zeros(len(y), jnp.int32)
        scan(step, (nothing, nothing + 1), (y.T, gamma))

    def by_hand(y):
        gamma, phi, p = priors()

        def step(carry, parts):
            (waiting, alive, dead), total = carry
            y, gamma = parts
            seen = jnp.where(y == 1, p, 1 - p)
            alpha = jnp.stack([
                waiting * (1 - gamma) * (y == 0), (waiting * gamma + alive * phi) * seen,
                (alive * (1 - phi) + dead) * (y == 0),
            ])  # fmt: skip
            alpha, more = rescaled(alpha)
            return (alpha, total + more), None

        start = jnp.zeros((3, len(y))).at[0].set(1.0)
        (_, total), _ = lax.scan(step, (start, jnp.zeros(len(y))), (y.T, gamma))
        numpyro.factor("y", total.sum())

    return Case(model, by_hand, (y,))


def explicit_durations(scale):
    """Three regimes that end with a probability of their own after each number of steps, up to 30."""
    length, regimes, longest = 500 * scale, 3, 30
    y = np.random.default_rng(1).normal(size=length)

    def priors():
        log_odds = numpyro.sample("log_odds", dist.Normal(0, 1).expand([regimes, longest]).to_event(2))
        mu = numpyro.sample("mu", dist.Normal(0, 3).expand([regimes]).to_event(1))
        return jax.nn.sigmoid(log_odds - 2), mu

    def model(y):
        ends, mu = priors()

        def step(carry, y):
            before, time = carry
            end = ends[before, time]
            z = numpyro.sample("z", dist.Categorical(jnp.where(jnp.arange(regimes) == before, 1 - end, end / 2)))
            numpyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)
            return (z, jnp.where(z == before, jnp.minimum(time + 1, longest - 1), 0)), None

        scan(step, (0, 0), y)

    def by_hand(y):
        ends, mu = priors()
        moves = (1 - jnp.eye(regimes)) / (regimes - 1)
        seen = jnp.exp(dist.Normal(mu, 1.0).log_prob(y[:, None]))

        def step(carry, seen):
            alpha, total = carry
            over, stays = (alpha * ends).sum(1) @ moves, alpha * (1 - ends)
            moved = jnp.concatenate([over[:, None], stays[:, :-2], stays[:, -2:-1] + stays[:, -1:]], axis=1)
            moved = moved * seen[:, None]
            whole = moved.sum()
            return (moved / whole, total + jnp.log(whole)), None

        start = jnp.zeros((regimes, longest)).at[0, 0].set(1.0)
        (_, total), _ = lax.scan(step, (start, 0.0), seen)
        numpyro.factor("y", total)

    return Case(model, by_hand, (y,))


def run_length(scale):
    """Runs that end with a hazard; data drift away from zero since the last end. As many states as steps."""
    length = 500 * scale
    y = np.random.default_rng(2).normal(size=length)

    def priors():
        return (numpyro.sample("hazard", dist.Beta(1, 9)), numpyro.sample("drift", dist.Normal(0, 0.1)))

    def model(y):
        hazard, drift = priors()

        def step(run, y):
            ends = numpyro.sample("ends", dist.Bernoulli(hazard))
            run = jnp.where(ends == 1, 0, run + 1)
            numpyro.sample("y", dist.Normal(drift * run, 1.0), obs=y)
            return run, None

        scan(step, 0, y)

    def by_hand(y):
        hazard, drift = priors()
        log_seen = dist.Normal(drift * jnp.arange(length + 1), 1.0).log_prob(y[:, None])
        highest = log_seen.max(1)
        seen = jnp.exp(log_seen - highest[:, None])

        def step(carry, seen):
            alpha, total = carry
            moved = jnp.concatenate([hazard * alpha.sum(keepdims=True), (1 - hazard) * alpha[:-1]]) * seen
            whole = moved.sum()
            return (moved / whole, total + jnp.log(whole)), None

        start = jnp.zeros(length + 1).at[0].set(1.0)
        (_, total), _ = lax.scan(step, (start, 0.0), seen)
        numpyro.factor("y", total + highest.sum())

    return Case(model, by_hand, (y,))


def trap_response(scale):
    """Animals that are there or not on each occasion, caught more easily once they have been there before."""
    animals, occasions = 200 * scale, 10
    y = (np.random.default_rng(3).uniform(size=(animals, occasions)) < 0.3).astype(np.int32)

    def priors():
        p = numpyro.sample("p", dist.Beta(1, 1).expand([2]).to_event(1))
        return numpyro.sample("psi", dist.Beta(1, 1)), p

    def model(y):
        psi, p = priors()

        def step(before, y):
            with numpyro.plate("animals", len(y)):
                z = numpyro.sample("z", dist.Bernoulli(psi))
                numpyro.sample("y", dist.Bernoulli(0.05 + 0.9 * z * jnp.where(before == 1, p[1], p[0])), obs=y)
            return jnp.maximum(before, z), None

        scan(step, jnp.zeros(len(y), jnp.int32), y.T)

    def by_hand(y):
        psi, p = priors()

        def seen(chance, y):
            return jnp.where(y == 1, chance, 1 - chance)

        def step(carry, y):
            (new, old), total = carry
            absent = (1 - psi) * seen(0.05, y)
            first, again = (psi * seen(0.05 + 0.9 * each, y) for each in p)
            alpha, more = rescaled(jnp.stack([new * absent, new * first + old * (absent + again)]))
            return (alpha, total + more), None

        start = jnp.zeros((2, len(y))).at[0].set(1.0)
        (_, total), _ = lax.scan(step, (start, jnp.zeros(len(y))), y.T)
        numpyro.factor("y", total.sum())

    return Case(model, by_hand, (y,))


def any_cause(scale):
    """A finding in each of some patients that any of 40 causes brings about."""
    patients, causes = 100 * scale, 40
    y = (np.random.default_rng(4).uniform(size=patients) < 0.5).astype(np.int32)

    def priors():
        rate = numpyro.sample("rate", dist.Normal(-3, 1).expand([causes]).to_event(1))
        return rate, numpyro.sample("p", dist.Beta(1, 1).expand([2]).to_event(1))

    def model(y):
        rate, p = priors()
        z = numpyro.sample("z", dist.Bernoulli(logits=rate).expand([len(y), causes]).to_event(2))
        numpyro.sample("y", dist.Bernoulli(p[z.max(1)]).to_event(1), obs=y)

    def by_hand(y):
        rate, p = priors()
        none = jax.nn.log_sigmoid(-rate).sum()
        seen = jnp.where(y[:, None] == 1, p, 1 - p)
        numpyro.factor("y", jnp.log(jnp.exp(none) * seen[:, 0] - jnp.expm1(none) * seen[:, 1]).sum())

    return Case(model, by_hand, (y,))


def pools(scale):
    """Pools of 12 samples, measured with an error around how many are positive; by hand a binomial distribution."""
    number, size = 50 * scale, 12
    y = np.random.default_rng(5).normal(3.0, 2.0, size=number)

    def priors():
        return numpyro.sample("p", dist.Beta(1, 1)), numpyro.sample("gain", dist.Normal(1, 1))

    def model(y):
        p, gain = priors()
        z = numpyro.sample("z", dist.Bernoulli(p).expand([len(y), size]).to_event(2))
        numpyro.sample("y", dist.Normal(gain * z.sum(1), 1.0).to_event(1), obs=y)

    def by_hand(y):
        p, gain = priors()
        positive = jnp.arange(size + 1)
        each = dist.Binomial(size, p).log_prob(positive) + dist.Normal(gain * positive, 1.0).log_prob(y[:, None])
        numpyro.factor("y", logsumexp(each, axis=1).sum())

    return Case(model, by_hand, (y,))


def at_least_k(scale):
    """Patients who are referred if at least 5 of 30 items, each with its own rate, are positive."""
    patients, items, least = 60 * scale, 30, 5
    y = (np.random.default_rng(6).uniform(size=patients) < 0.5).astype(np.int32)

    def priors():
        rate = numpyro.sample("rate", dist.Normal(-2, 1).expand([items]).to_event(1))
        return rate, numpyro.sample("p", dist.Beta(1, 1).expand([2]).to_event(1))

    def model(y):
        rate, p = priors()
        z = numpyro.sample("z", dist.Bernoulli(logits=rate).expand([len(y), items]).to_event(2))
        numpyro.sample("y", dist.Bernoulli(p[(z.sum(1) >= least).astype(int)]).to_event(1), obs=y)

    def by_hand(y):
        rate, p = priors()

        def step(alpha, chance):
            moved = jnp.concatenate([jnp.zeros(1), alpha[:-1]]) * chance + alpha * (1 - chance)
            return moved.at[-1].add(alpha[-1] * chance), None

        alpha, _ = lax.scan(step, jnp.zeros(least + 1).at[0].set(1.0), jax.nn.sigmoid(rate))
        seen = jnp.where(y[:, None] == 1, p, 1 - p)
        numpyro.factor("y", jnp.log((1 - alpha[-1]) * seen[:, 0] + alpha[-1] * seen[:, 1]).sum())

    return Case(model, by_hand, (y,))


CASES = (jolly_seber, explicit_durations, run_length, trap_response, any_cause, pools, at_least_k)

if __name__ == "__main__":
    compare_all("state_gradients", CASES, __doc__)
