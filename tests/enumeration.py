"""Brute force: everything about a small program by listing its joint states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp


def site_values(site, num_counts):
    """The values of every element of a site, one list for each."""
    if hasattr(site.support, "values"):
        values, allowed = site.support.rows()
        return [v[a] for v, a in zip(values, allowed, strict=True)]
    return [np.arange(site.support.lower, site.support.lower + num_counts)] * site.num_elements


def joint_states(program, num_counts=0):
    """All joint values of z, as a dict of arrays with a leading axis."""
    per_site = {name: site_values(site, num_counts) for name, site in program.z.items()}
    columns = list(itertools.product(*(v for values in per_site.values() for v in values)))
    states, start = {}, 0
    for name, site in program.z.items():
        rows = [row[start : start + site.num_elements] for row in columns]
        states[name] = jnp.asarray(np.array(rows, site.dtype).reshape((len(rows), *site.shape)))
        start += site.num_elements
    return states


def log_joint(program, states):
    """The log density of every joint state, as a function of x."""
    return jax.jit(lambda x: jax.vmap(lambda z: program.log_density(x, z, program.data))(states))


def log_marginal(program, states):
    """log Σ_z p(x, z, y), as a function of x."""
    return jax.jit(lambda x: logsumexp(log_joint(program, states)(x)))


def random_x(program, seed=0):
    return jax.random.normal(jax.random.key(seed), (program.num_x,)) * 0.7


def state_numbers(states):
    """A dict from the bytes of a joint state to its number."""
    flat = np.concatenate([np.asarray(a, float).reshape(len(a), -1) for a in states.values()], axis=1)
    return flat, {row.tobytes(): i for i, row in enumerate(flat)}


def quadrature(program, states, low=-12.0, high=12.0, num=4001):
    """Mean and sd of the (single) coordinate x on the unconstrained line, and P(z) of every joint state."""
    points = jnp.linspace(low, high, num)
    table = jax.jit(jax.vmap(lambda x: log_joint(program, states)(x[None])))(points)
    weights = np.exp(np.asarray(table) - np.max(table))
    weights = weights / weights.sum()
    on_x = weights.sum(axis=1)
    mean = float(on_x @ points)
    return mean, float(np.sqrt(on_x @ (np.asarray(points) - mean) ** 2)), weights.sum(axis=0)
