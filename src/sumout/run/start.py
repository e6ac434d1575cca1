"""Where chains start: several cheap tries for each chain, the best kept."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.errors import StartError
from sumout.plan import Plan
from sumout.program import Data, Nuisance, Program
from sumout.reading.structure import QUICK_COMPILE
from sumout.supports import Count, Finite, Implicit

TRIES = 8
SETTLING_SWEEPS = 10
HALF_WIDTH = 2.0  # x starts uniformly in (−2, 2) on the unconstrained line, as in Stan and NumPyro


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


def find_starts(plan: Plan, key: Array, num_chains: int) -> tuple[Array, Nuisance]:
    """For each chain a point `(x, z)` of finite density and gradient, with a leading axis of chains."""
    program = plan.structure.program

    def attempt(key: Array, data: Data) -> tuple[Array, Nuisance, Array]:
        key_x, key_z, key_sweep = jax.random.split(key, 3)
        x = draw_x(key_x, program)
        z = draw_z(key_z, program, data)

        def settle(i: Array, z: Nuisance) -> Nuisance:
            return plan.sweep(jax.random.fold_in(key_sweep, i), x, z, data)

        z = jax.lax.fori_loop(0, SETTLING_SWEEPS, settle, z)
        log_density, gradient = jax.value_and_grad(program.log_density)(x, z, data)
        sound = jnp.isfinite(log_density) & jnp.all(jnp.isfinite(gradient))
        return x, z, jnp.where(sound, log_density, -jnp.inf)

    @partial(jax.jit, compiler_options=QUICK_COMPILE)
    def best_of(keys: Array, data: Data) -> tuple[Array, Nuisance, Array]:
        x, z, log_density = jax.vmap(attempt, in_axes=(0, None))(keys, data)
        best = jnp.argmax(log_density)
        return x[best], jax.tree.map(lambda a: a[best], z), log_density[best]

    chains = [best_of(jax.random.split(jax.random.fold_in(key, c), TRIES), program.data) for c in range(num_chains)]
    x, z, log_density = jax.tree.map(lambda *rows: jnp.stack(rows), *chains)
    if not np.isfinite(np.asarray(log_density)).all():
        lost = int(np.flatnonzero(~np.isfinite(np.asarray(log_density)))[0])
        raise StartError(_describe_failure(plan, x[lost], jax.tree.map(lambda a: a[lost], z)))
    return x, z


def _describe_failure(plan: Plan, x: Array, z: Nuisance) -> str:
    """Say what is not finite, as closely as can be told."""
    program = plan.structure.program
    log_density, gradient = jax.value_and_grad(program.log_density)(x, z, program.data)
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
