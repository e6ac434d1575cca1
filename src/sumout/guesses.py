"""Rough guesses of x and z: what is known before anything of the density is."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sumout.program import Data, Nuisance, Program
from sumout.randomness import split, uniform
from sumout.supports import Count, Finite, Implicit

HALF_WIDTH = 2.0  # x starts uniformly in (−2, 2) on the unconstrained line, as in Stan and NumPyro


def draw_x(key: Array, program: Program) -> Array:
    """A rough start for x."""
    return HALF_WIDTH * (2 * uniform(key, (program.num_x,)) - 1)


def draw_z(key: Array, program: Program, data: Data) -> Nuisance:
    """A rough start for z: any value of its support."""
    keys = split(key, len(program.z))
    return {name: _draw_site(k, site, data) for k, (name, site) in zip(keys, program.z.items(), strict=True)}


def _draw_site(key, site, data):
    support, size = site.support, site.num_elements
    if isinstance(support, Implicit):
        drawn = jax.vmap(support.sample, in_axes=(0, None))(split(key, size), data)
    elif isinstance(support, Count):
        drawn = support.lower + jnp.exp2(8 * uniform(key, (size,))).astype(site.dtype) - 1
    else:
        assert isinstance(support, Finite)
        values, allowed = support.rows()
        num_allowed = jnp.asarray(allowed.sum(axis=1))
        which = jnp.floor(uniform(key, (size,)) * num_allowed).astype(int)
        drawn = jnp.take_along_axis(jnp.asarray(values), jnp.minimum(which, num_allowed - 1)[:, None], axis=1)
    return drawn.reshape(site.shape).astype(site.dtype)
