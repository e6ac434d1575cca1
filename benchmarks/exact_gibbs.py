"""Exact samplers for the two models that nobody can sum out, written by hand for their structure.

They make the references of spike and slab and of the Potts picture, and share nothing with sumout. Spike and slab:
each indicator is drawn with its coefficient integrated out, then the coefficient, then σ² from the inverse gamma law
that the likelihood alone would give, accepted by the prior. Potts: the two colours of the chequerboard in turns, then
Metropolis steps on the brightnesses and the noise, which need the sums over each class only.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.model import Data, Draws
from benchmarks.models import potts, spike
from benchmarks.models.ordering import base_of

STEPS = 20  # of Metropolis in each sweep
SCALES = np.array([0.03, 0.045, 0.045, 0.02])  # of its proposals: roughly the sds of the base and log σ, given z


def run_chains(sweep, start, chains: int, sweeps: int, warmup: int, seed: int):
    """Many chains at once; what `sweep(key, state)` says of each sweep, `(chain, sweep, …)`."""

    def one(key):
        keys = jax.random.split(key, warmup + sweeps)
        state, _ = jax.lax.scan(lambda s, k: (sweep(k, s)[0], None), start, keys[:warmup])
        return jax.lax.scan(lambda s, k: sweep(k, s), state, keys[warmup:])[1]

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), chains))


def sample_spike(data: Data, *, chains: int, sweeps: int, warmup: int, seed: int) -> Draws:
    """Draws of β and σ."""
    design, y = jnp.asarray(data["design"]), jnp.asarray(data["y"])
    squares = (design**2).sum(axis=0)
    log_odds = jnp.log(spike.INCLUDED) - jnp.log1p(-spike.INCLUDED)

    def update(j, carry, variance, uniforms, normals):
        beta, gamma, residual = carry
        column = design[:, j]
        residual = residual + column * (gamma[j] * beta[j])
        precision = squares[j] / variance + 1
        mean = column @ residual / variance / precision
        gain = log_odds - 0.5 * jnp.log(precision) + 0.5 * mean**2 * precision
        included = (uniforms[j] < jax.nn.sigmoid(gain)).astype(beta.dtype)
        value = jnp.where(included > 0, mean + normals[j] / jnp.sqrt(precision), normals[j])
        return beta.at[j].set(value), gamma.at[j].set(included), residual - column * (included * value)

    def sweep(key, state):
        beta, gamma, variance = state
        key_u, key_n, key_v, key_accept = jax.random.split(key, 4)
        uniforms = jax.random.uniform(key_u, (spike.COLUMNS,))
        normals = jax.random.normal(key_n, (spike.COLUMNS,))
        step = partial(update, variance=variance, uniforms=uniforms, normals=normals)
        residual = y - design @ (gamma * beta)
        beta, gamma, residual = jax.lax.fori_loop(0, spike.COLUMNS, step, (beta, gamma, residual))
        proposed = (residual**2).sum() / 2 / jax.random.gamma(key_v, (spike.ROWS - 1) / 2)
        is_taken = jnp.log(jax.random.uniform(key_accept)) < (variance - proposed) / 2
        variance = jnp.where(is_taken, proposed, variance)
        return (beta, gamma, variance), {"beta": beta, "sigma": jnp.sqrt(variance)}

    start = (jnp.zeros(spike.COLUMNS), jnp.zeros(spike.COLUMNS), jnp.asarray(1.0))
    return run_chains(sweep, start, chains, sweeps, warmup, seed)


def sample_potts(data: Data, *, chains: int, sweeps: int, warmup: int, seed: int) -> Draws:
    """Draws of μ and σ."""
    y = jnp.asarray(data["y"])
    classes = jnp.arange(potts.CLASSES)
    is_even = np.indices(y.shape).sum(axis=0) % 2 == 0

    def ordered(base):
        return jnp.concatenate([base[:1], base[0] + jnp.cumsum(jnp.exp(base[1:]))])

    def move_z(key, z, mu, sigma, is_moved):
        alike = jnp.pad(z[..., None] == classes, ((1, 1), (1, 1), (0, 0))).astype(y.dtype)
        near = alike[2:, 1:-1] + alike[:-2, 1:-1] + alike[1:-1, 2:] + alike[1:-1, :-2]
        logits = potts.COUPLING * near - 0.5 * ((y[..., None] - mu) / sigma) ** 2
        return jnp.where(is_moved, jax.random.categorical(key, logits), z)

    def log_density(x, number, total, square):
        base, log_sigma = x[:-1], x[-1]
        mu = ordered(base)
        prior = -0.5 * (((base - potts.BASE_MEAN) / potts.BASE_SD) ** 2).sum() - 0.5 * ((log_sigma + 0.5) / 0.5) ** 2
        fit = (square - 2 * mu * total + mu**2 * number).sum()
        return prior - y.size * log_sigma - 0.5 * fit * jnp.exp(-2 * log_sigma)

    def sweep(key, state):
        x, z = state
        key_even, key_odd, key_x = jax.random.split(key, 3)
        mu, sigma = ordered(x[:-1]), jnp.exp(x[-1])
        z = move_z(key_even, z, mu, sigma, is_even)
        z = move_z(key_odd, z, mu, sigma, ~is_even)
        member = (z[..., None] == classes).astype(y.dtype)
        sums = member.sum((0, 1)), (member * y[..., None]).sum((0, 1)), (member * y[..., None] ** 2).sum((0, 1))

        def metropolis(x, key):
            key_move, key_accept = jax.random.split(key)
            other = x + SCALES * jax.random.normal(key_move, x.shape)
            gain = log_density(other, *sums) - log_density(x, *sums)
            return jnp.where(jnp.log(jax.random.uniform(key_accept)) < gain, other, x), None

        x, _ = jax.lax.scan(metropolis, x, jax.random.split(key_x, STEPS))
        return (x, z), {"mu": ordered(x[:-1]), "sigma": jnp.exp(x[-1])}

    mu = np.array([-1.0, 0.0, 1.0])
    nearest = jnp.argmin(jnp.abs(y[..., None] - mu), axis=-1)
    start = (jnp.asarray([*base_of(mu), np.log(0.6)]), nearest)
    return run_chains(sweep, start, chains, sweeps, warmup, seed)
