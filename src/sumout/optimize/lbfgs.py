"""Ascent with exact gradients, all z summed out: L-BFGS (Liu and Nocedal 1989), from each start until it converges.

An ascent has converged where the gradient is zero. How small is small: g_i max(1, |x_i|) is what the log density would
gain, in nats, if coordinate i moved on by 1 or by its own size, whichever is more. That is large also where the density
rises ever more slowly but for ever, as log x does. Gradients have no Monte-Carlo error, but they do have round-off. It
is measured: by how much does the gradient vary when x is perturbed by a few units in its last place?
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sumout.compile.ahead import QUICK_COMPILE
from sumout.model.program import Data, Nuisance
from sumout.threads import attentive_jit

CHUNK = 50  # steps between reports
PATIENCE = 10  # steps without any gain
LOSS = 1e-6  # of the log density, as in optax's line search
TOLERANCE = 1e-3  # nats that a step along a coordinate may still gain
BEYOND = 1e10  # on the real line; no mode is looked for so far out
PERTURBATIONS = 8
PERTURBED_BY = 4  # units in the last place
MOST_ROUND_OFF = 0.5  # nats; where round-off is larger the density is a spike too narrow for the type of x


@dataclass(frozen=True)
class Optima:
    """Where several ascents ended, one row for each.

    Attributes:
        x: where they ended.
        z: the last z there.
        log_density: of the optima; only differences mean anything where z is drawn.
        gradient: at the optima; averaged over draws of z where it is drawn.
        is_unconverged: for each coordinate whether the density still rises, or x still moves, along it.
        log_density_error: standard error of `log_density`.
    """

    x: Float[np.ndarray, "starts num_x"]
    z: Nuisance
    log_density: Float[np.ndarray, " starts"]
    gradient: Float[np.ndarray, "starts num_x"]
    is_unconverged: Bool[np.ndarray, "starts num_x"]
    log_density_error: Float[np.ndarray, " starts"]

    @property
    def is_converged(self) -> Bool[np.ndarray, " starts"]:
        """Which of the ascents converged."""
        return ~self.is_unconverged.any(axis=1) & np.isfinite(self.log_density)

    @property
    def gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """By how much each end is below the best, and the standard error of that."""
        error = np.hypot(self.log_density_error, self.log_density_error[self.best])
        error[self.best] = 0.0
        return self.log_density[self.best] - self.log_density, error

    @property
    def best(self) -> int:
        """The highest that has converged; where none has, the highest."""
        candidates = self.is_converged if self.is_converged.any() else np.isfinite(self.log_density)
        return int(np.argmax(np.where(candidates, self.log_density, -np.inf)))


def lengths(x: np.ndarray) -> np.ndarray:
    """What counts as one step along each coordinate: 1, or its own size."""
    return np.maximum(1.0, np.abs(x))


def ascend_exactly(
    log_density: Callable[[Array, Data], Array],
    x: Array,
    z: Nuisance,
    data: Data,
    *,
    steps: int,
    compiler_options: dict[str, Any] | None,
    report: Callable[[int, str], None],
) -> Optima:
    """From every row of x to the mode above it, by at most so many steps."""
    import optax  # takes a tenth of a second to import

    search = optax.lbfgs()

    def advance(state: Any, data: Data, count: Array) -> Any:
        def descend(x: Array) -> Array:  # optax goes downhill
            return -log_density(x, data)

        def step(carry: tuple[Array, Any]) -> tuple[Array, Any]:
            i, (x, memory, stalled) = carry
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
            stalled = jnp.where(is_taken, jnp.where(reached < value, 0, stalled + 1), stalled + PATIENCE // 2)
            return i + 1, (*state, jnp.where(is_taken & is_flat, PATIENCE, stalled))

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
        report(done, f"{int((states[2] >= PATIENCE).sum())} of {len(x)} have converged")
    return _judge(log_density, states[0], z, data)


def _judge(log_density: Callable[[Array, Data], Array], x: Array, z: Nuisance, data: Data) -> Optima:
    """Judge the gradients where the ascents ended by how they vary within the precision of x."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (PERTURBATIONS, x.shape[1]))

    @partial(attentive_jit, compiler_options=QUICK_COMPILE)
    def look(x: Array, data: Data) -> tuple[Array, Array, Array]:
        def one(x: Array) -> tuple[Array, Array, Array]:
            unit = PERTURBED_BY * jnp.finfo(x.dtype).eps * jnp.maximum(1.0, jnp.abs(x))
            values, gradients = jax.lax.map(
                lambda sign: jax.value_and_grad(log_density)(x + sign * unit, data),
                jnp.concatenate([jnp.zeros((1, len(x))), jnp.asarray(signs)]).astype(x.dtype),
            )
            return values[0], gradients[0], gradients.std(axis=0)

        return jax.lax.map(one, x)

    values, gradient, error = (np.asarray(part) for part in look(x, data))
    ended = np.asarray(x)
    allowed = TOLERANCE + np.minimum(5 * error * lengths(ended), MOST_ROUND_OFF)
    is_converged = (np.abs(gradient) * lengths(ended) <= allowed) & (np.abs(ended) < BEYOND)
    return Optima(ended, z, values, gradient, ~is_converged, np.zeros(len(ended)))
