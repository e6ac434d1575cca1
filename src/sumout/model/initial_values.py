"""Random initial values of x and z, before anything is known of the density."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.model.arguments import as_jax
from sumout.model.program import Data, DiscreteSite, Nuisance, Program
from sumout.model.supports import Count, Finite, Implicit
from sumout.randomness import new_key, split, uniform

HALF_WIDTH = 2.0  # x starts uniformly in (−2, 2) on the unconstrained line, as in Stan and NumPyro
JITTER = 1.0  # around an initial value that the model gives, as in PyMC


def guess_x(rng: np.random.Generator, program: Program, count: int) -> np.ndarray:
    """So many initial values of x. By NumPy, as compiling JAX's generator takes a second.

    Where the model gives one, the first is that, and the others lie around it.
    """
    x, start = rng.uniform(-HALF_WIDTH, HALF_WIDTH, (count, program.num_x)), 0
    for name, site in program.x.items():
        if name in program.initial:
            around = x[:, start : start + site.size] * (JITTER / HALF_WIDTH)
            around[:1] = 0
            x[:, start : start + site.size] = program.initial[name].reshape(-1) + around
        start += site.size
    return x.astype(jnp.result_type(float))


def guess_z(rng: np.random.Generator, program: Program, count: int) -> dict[str, np.ndarray]:
    """So many initial values of z: any of its support, but what the model gives where it gives one."""
    guessed = {name: _guess_site(rng, site, program.data, count) for name, site in program.z.items()}
    given = {name: program.initial[name].astype(z.dtype) for name, z in guessed.items() if name in program.initial}
    return guessed | {name: np.repeat(value[None], count, axis=0) for name, value in given.items()}


def _guess_site(rng: np.random.Generator, site: DiscreteSite, data: Data, count: int) -> np.ndarray:
    if isinstance(site.support, Implicit):
        sample = jax.jit(jax.vmap(site.support.sample, in_axes=(0, None)))
        keys = split(new_key(int(rng.integers(2**63))), count * site.num_elements)
        return np.asarray(sample(keys, data)).reshape(count, *site.shape).astype(site.dtype)
    return np.stack([value_at(site, rng.uniform(size=site.num_elements), np) for _ in range(count)])


def draw_z(key: Array, program: Program, data: Data) -> Nuisance:
    """An initial value of z: any of its support."""
    keys = split(key, len(program.z))
    return {name: _draw_site(k, site, data) for k, (name, site) in zip(keys, program.z.items(), strict=True)}


def _draw_site(key: Array, site: DiscreteSite, data: Data) -> Array:
    support, size = site.support, site.num_elements
    if isinstance(support, Implicit):
        drawn = jax.vmap(support.sample, in_axes=(0, None))(split(key, size), data)
        return drawn.reshape(site.shape).astype(site.dtype)
    return value_at(site, uniform(key, (size,)), jnp)


def value_at(site: DiscreteSite, levels: Any, numpy: Any) -> Any:
    """The values of a finite or count site at levels from 0 to 1, one for each element, by NumPy or JAX's NumPy."""
    support = site.support
    if isinstance(support, Count):
        drawn = support.lower + numpy.exp2(8 * levels).astype(site.dtype) - 1
    else:
        assert isinstance(support, Finite)
        values, allowed = support.rows()
        num_allowed = numpy.asarray(allowed.sum(axis=1))
        which = numpy.minimum(numpy.floor(levels * num_allowed).astype(int), num_allowed - 1)
        drawn = numpy.take_along_axis(numpy.asarray(values), which[:, None], axis=1)
    return drawn.reshape(site.shape).astype(site.dtype)


def value_number(site: DiscreteSite, number: int) -> np.ndarray:
    """Every element of a finite site at its value of that number; at its last, where it has fewer."""
    assert isinstance(site.support, Finite)
    values, allowed = site.support.rows()
    which = np.minimum(number, allowed.sum(axis=1) - 1)
    return values[np.arange(len(values)), which].reshape(site.shape).astype(site.dtype)


def any_z(program: Program) -> Nuisance:
    """A value of every finite or count site, for functions that do not look at it."""
    sites = program.z.items()
    lowest = {n: np.full(s.shape, s.support.lower, s.dtype) for n, s in sites if isinstance(s.support, Count)}
    return _as_nuisance({name: lowest[name] if name in lowest else value_number(site, 0) for name, site in sites})


def _as_nuisance(z: Any) -> Nuisance:
    return as_jax(z)
