"""Where chains start: several short ascents for each chain, the best one followed.

Each try draws x and z at random, lets z settle, and climbs: Adam on log p(x, y) or, where z is drawn, on log p(x, z, y)
with z moved after every step. The try that ends highest wins, so that a minor mode does not trap a chain when one of
its tries has found a better one. Climbs are short: they are to find the right hill, not the spike of infinite density
that, say, a mixture has where a component collapses onto a point.

A chain does not start at the top, which would be the same for all. It starts where the winning climb first came within
num_x nats of where it ended. In a Gaussian a draw is ½ num_x below the top on average, so these starts lie √2 times as
far out as draws do, each where its own climb came in: chains remain over-dispersed, as r_hat wants them.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.errors import StartError
from sumout.gradient import Target
from sumout.program import Data, Nuisance, Program
from sumout.reading.structure import QUICK_COMPILE
from sumout.supports import Count, Finite, Implicit

TRIES = 8
SETTLING_SWEEPS = 10
CLIMBING_STEPS = 100
CLIMBING_RATE = 0.5  # at first, then less and less; Adam moves each coordinate by about as much in a step
HALF_WIDTH = 2.0  # x starts uniformly in (−2, 2) on the unconstrained line, as in Stan and NumPyro


@partial(jax.tree_util.register_dataclass, data_fields=["x", "z", "log_density", "gradient", "memory"], meta_fields=[])
@dataclass(frozen=True)
class _Climber:
    """A point on a climb; where it is not sound the log density is −inf and the gradient zero."""

    x: Array
    z: Nuisance
    log_density: Array
    gradient: Array
    memory: Any  # Adam's


def draw_x(key: Array, program: Program) -> Array:
    """A rough start for x."""
    return jax.random.uniform(key, (program.num_x,), minval=-HALF_WIDTH, maxval=HALF_WIDTH)


def draw_z(key: Array, program: Program, data: Data) -> Nuisance:
    """A rough start for z: any value of its support."""
    keys = jax.random.split(key, len(program.z))
    return {name: _draw_site(k, site, data) for k, (name, site) in zip(keys, program.z.items(), strict=True)}


def _draw_site(key, site, data):
    support, size = site.support, site.num_elements
    if isinstance(support, Implicit):
        drawn = jax.vmap(support.sample, in_axes=(0, None))(jax.random.split(key, size), data)
    elif isinstance(support, Count):
        drawn = support.lower + jnp.exp2(8 * jax.random.uniform(key, (size,))).astype(site.dtype) - 1
    else:
        assert isinstance(support, Finite)
        values, allowed = support.rows()
        num_allowed = jnp.asarray(allowed.sum(axis=1))
        which = jnp.floor(jax.random.uniform(key, (size,)) * num_allowed).astype(int)
        drawn = jnp.take_along_axis(jnp.asarray(values), jnp.minimum(which, num_allowed - 1)[:, None], axis=1)
    return drawn.reshape(site.shape).astype(site.dtype)


def find_starts(program: Program, target: Target, key: Array, num_chains: int) -> tuple[Array, Nuisance]:
    """For each chain a point `(x, z)` of finite density and gradient, with a leading axis of chains."""

    @partial(jax.jit, compiler_options=QUICK_COMPILE)
    def climb(keys: Array, data: Data, enough: Array) -> _Climber:
        return jax.vmap(partial(_climb, program, target), in_axes=(0, None, 0))(keys, data, enough)

    chains = []
    for c in range(num_chains):
        keys = jax.random.split(jax.random.fold_in(key, c), TRIES)
        tops = climb(keys, program.data, jnp.full(TRIES, jnp.inf)).log_density
        best = int(jnp.argmax(tops))
        # The same climbs again, the best one stopped on its way and the others at once.
        enough = jnp.full(TRIES, -jnp.inf).at[best].set(tops[best] - program.num_x)
        found = climb(jnp.copy(keys), program.data, enough)
        chains.append(jax.tree.map(lambda a, best=best: a[best], (found.x, found.z, found.log_density)))
    x, z, log_density = jax.tree.map(lambda *rows: jnp.stack(rows), *chains)
    if not np.isfinite(np.asarray(log_density)).all():
        lost = int(np.flatnonzero(~np.isfinite(np.asarray(log_density)))[0])
        raise StartError(_describe_failure(program, target, x[lost], jax.tree.map(lambda a: a[lost], z)))
    return x, z


def _climb(program: Program, target: Target, key: Array, data: Data, enough: Array | float) -> _Climber:
    """From a random point up, until the log density is `enough` or the steps are used up."""
    import optax  # takes a tenth of a second to import

    adam = optax.adam(optax.cosine_decay_schedule(CLIMBING_RATE, CLIMBING_STEPS))
    key_x, key_z, key_settle, key_climb = jax.random.split(key, 4)

    def arrive(x: Array, z: Nuisance, memory: Any) -> _Climber:
        log_density, gradient = jax.value_and_grad(target.log_density)(x, z, data)
        sound = jnp.isfinite(log_density) & jnp.all(jnp.isfinite(gradient))
        return _Climber(x, z, jnp.where(sound, log_density, -jnp.inf), jnp.where(sound, gradient, 0), memory)

    def step(numbered: tuple[Array, _Climber]) -> tuple[Array, _Climber]:
        i, old = numbered
        uphill, memory = adam.update(-old.gradient, old.memory)
        x = jnp.asarray(optax.apply_updates(old.x, uphill))
        new = arrive(x, target.move(jax.random.fold_in(key_climb, i), x, old.z, data), memory)
        stay = jnp.isfinite(old.log_density) & ~jnp.isfinite(new.log_density)
        return i + 1, jax.tree.map(lambda a, b: jnp.where(stay, a, b), old, new)

    def is_climbing(numbered: tuple[Array, _Climber]) -> Array:
        i, climber = numbered
        return (i < CLIMBING_STEPS) & (climber.log_density < enough)

    def settle(i: Array, z: Nuisance) -> Nuisance:
        return target.move(jax.random.fold_in(key_settle, i), x, z, data)

    x = draw_x(key_x, program)
    z = jax.lax.fori_loop(0, SETTLING_SWEEPS, settle, draw_z(key_z, program, data))
    return jax.lax.while_loop(is_climbing, step, (jnp.zeros((), int), arrive(x, z, adam.init(x))))[1]


def _describe_failure(program: Program, target: Target, x: Array, z: Nuisance) -> str:
    """Say what is not finite, as closely as can be told."""
    log_density, gradient = jax.value_and_grad(target.log_density)(x, z, program.data)
    lines = [f"no start with a finite log density was found for '{program.name}' in {TRIES} tries a chain."]
    if not math.isfinite(log_density):
        lines.append(f"At the last one the log density is {float(log_density)}.")
    named = program.unravel(gradient)
    broken = [name for name, g in named.items() if not np.isfinite(np.asarray(g)).all()]
    if broken:
        lines.append(f"Its gradient is not finite in {', '.join(broken)}.")
    values = program.constrain(x, z, program.data)
    shown = [
        f"{name} = {np.array2string(np.asarray(v), precision=3, threshold=4)}"
        for name, v in [*values.items(), *z.items()]
    ]
    lines.append("There: " + "; ".join(shown[:8]) + ".")
    for name, array in program.data.items():
        if np.isnan(np.asarray(array, float)).any():
            lines.append(f"The data '{name or 'data'}' contain NaN; remove them or mask them in the model.")
    lines.append("Check that the data lie in the support of their distributions and that priors are not degenerate.")
    return " ".join(lines)
