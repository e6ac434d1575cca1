"""Ascent with exact gradients, all z summed out: L-BFGS (Liu and Nocedal 1989), from each start until it stands still.

Gradients have no Monte-Carlo error, but they do have round-off. It is measured: by how much does the gradient vary when
x is shaken by a few units in its last place?
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.ascent.ends import Ends, lengths
from sumout.background import attentive_jit
from sumout.compiling.ahead import QUICK_COMPILE
from sumout.program import Data, Nuisance

CHUNK = 50
PATIENCE = 10  # steps without any gain
LOSS = 1e-6  # of the log density, as in optax's line search
TOLERANCE = 1e-3  # nats
BEYOND = 1e10  # on the real line; no mode is looked for so far out
SHAKES = 8
SHAKEN_BY = 4  # units in the last place
MOST_ROUND_OFF = 0.5  # nats; where round-off is larger the density is a spike too narrow for the type of x


def ascend_exactly(
    log_density: Callable[[Array, Data], Array],
    x: Array,
    z: Nuisance,
    data: Data,
    *,
    steps: int,
    compiler_options: dict[str, Any] | None,
    report: Callable[[int, str], None],
) -> Ends:
    """From every row of x to the top above it, by at most so many steps."""
    import optax  # takes a tenth of a second to import

    search = optax.lbfgs()

    def advance(state: Any, data: Data, count: Array) -> Any:
        def descend(x: Array) -> Array:  # optax goes downhill
            return -log_density(x, data)

        def step(carry: tuple[Array, Any]) -> tuple[Array, Any]:
            i, (x, memory, idle) = carry
            value, gradient = optax.value_and_grad_from_state(descend)(x, state=memory)
            update, moved_on = search.update(gradient, memory, x, value=value, grad=gradient, value_fn=descend)
            new, reached = x + update, optax.tree.get(moved_on, "value")
            slope = optax.tree.get(moved_on, "grad")
            is_sound = jnp.isfinite(reached) & jnp.isfinite(new).all() & jnp.isfinite(slope).all()
            # Within round-off a step may seem to lose. One that really loses is taken back, and what L-BFGS has learnt
            # of the curvature is forgotten.
            is_taken = is_sound & (reached <= value + LOSS * jnp.abs(value))
            state = jax.tree.map(lambda a, b: jnp.where(is_taken, a, b), (new, moved_on), (x, search.init(x)))
            is_flat = (jnp.abs(slope) * jnp.maximum(1.0, jnp.abs(new))).max() <= jnp.finfo(x.dtype).eps ** 0.5
            idle = jnp.where(is_taken, jnp.where(reached < value, 0, idle + 1), idle + PATIENCE // 2)
            return i + 1, (*state, jnp.where(is_taken & is_flat, PATIENCE, idle))

        return jax.lax.while_loop(
            lambda carry: (carry[0] < count) & (carry[1][2] < PATIENCE), step, (jnp.array(0), state)
        )[1]

    @partial(attentive_jit, compiler_options=compiler_options)
    def advance_all(states: Any, data: Data, count: Array) -> Any:
        return jax.lax.map(lambda state: advance(state, data, count), states)

    states = (x, jax.vmap(search.init)(x), jnp.zeros(len(x), int))
    done = 0
    while done < steps and bool((states[2] < PATIENCE).any()):
        count = min(CHUNK, steps - done)
        states = advance_all(states, data, count)
        done += count
        report(done, f"{int((states[2] >= PATIENCE).sum())} of {len(x)} stand still")
    return _judge(log_density, states[0], z, data)


def _judge(log_density: Callable[[Array, Data], Array], x: Array, z: Nuisance, data: Data) -> Ends:
    """Look at the gradient at the ends, and at how it varies within the precision of x."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (SHAKES, x.shape[1]))

    @partial(attentive_jit, compiler_options=QUICK_COMPILE)
    def look(x: Array, data: Data) -> tuple[Array, Array, Array]:
        def one(x: Array) -> tuple[Array, Array, Array]:
            unit = SHAKEN_BY * jnp.finfo(x.dtype).eps * jnp.maximum(1.0, jnp.abs(x))
            values, gradients = jax.lax.map(
                lambda sign: jax.value_and_grad(log_density)(x + sign * unit, data),
                jnp.concatenate([jnp.zeros((1, len(x))), jnp.asarray(signs)]).astype(x.dtype),
            )
            return values[0], gradients[0], gradients.std(axis=0)

        return jax.lax.map(one, x)

    values, gradient, error = (np.asarray(part) for part in look(x, data))
    ends = np.asarray(x)
    allowed = TOLERANCE + np.minimum(5 * error * lengths(ends), MOST_ROUND_OFF)
    is_settled = (np.abs(gradient) * lengths(ends) <= allowed) & (np.abs(ends) < BEYOND)
    return Ends(ends, z, values, gradient, ~is_settled, np.zeros(len(ends)))
