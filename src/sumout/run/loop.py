"""The one loop of the library: compiled chunks of draws with Python between them.

Warm-up and sampling run through the same compiled function. Every step takes its random numbers from a counter,

    key of step t = fold_in(key of the chain, t),

and the compiled function has room for as many draws whatever the size of a chunk. So the draws do not depend on how
they are cut into chunks, not even in the last place. With each draw two things are computed for the record only, with
keys counted apart, from fold_in(key of the chain, RECORDING): the gradient at the draw, which the bias meter needs, and
values of what the target has summed out of z.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.adapt.mixing import slowest
from sumout.gradient import Target
from sumout.kernels.kernel import CHAINS, Kernel
from sumout.program import Data, Nuisance
from sumout.randomness import fold_in, split

CHUNK = 100  # draws that the compiled function has room for
LONGEST = 1.0  # seconds that a chunk should take at most
FEWEST_WARM = 50  # draws of warm-up from which their efficiency can be told
RECORDING, BEGINNING = np.uint32(2**32 - 1), np.uint32(2**32 - 2)  # numbers that no step reaches


@partial(jax.tree_util.register_dataclass, data_fields=["x", "z", "gradient", "info"], meta_fields=[])
@dataclass(frozen=True)
class Record:
    """What is kept of a draw; with axes (chain, draw) once collected.

    Attributes:
        x: unconstrained.
        z: all of it.
        gradient: of the target's log density at x, with a z that suits x.
        info: what the kernel said of the steps.
    """

    x: Any
    z: Any
    gradient: Any
    info: Any


@dataclass(frozen=True)
class Progress:
    """How far a run is: draws done (warm-up included) and the latest chunk of records."""

    done: int
    total: int
    tune: int
    latest: Record


@dataclass(frozen=True)
class Run:
    """Draws after warm-up.

    Attributes:
        record: the draws.
        states: the last states.
        steps: how many steps of the kernel made a draw.
        seconds: that the draws took.
        is_complete: whether there are as many as were asked for.
    """

    record: Record
    states: Any
    steps: int
    seconds: float
    is_complete: bool


class Loop:
    """The compiled loop of a kernel that is bound to its target: compiled once, whatever is run through it."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._begin = jax.jit(jax.vmap(kernel.init))
        self._advance = jax.jit(jax.vmap(_advance(kernel, CHUNK), in_axes=(0, 0, *(None,) * 6), axis_name=CHAINS))

    def run(
        self,
        key: Array,
        x: Array,
        z: Nuisance,
        data: Data,
        *,
        draws: int,
        tune: int,
        steps: int | None = None,
        chunk: int = CHUNK,
        report: Callable[[Progress], None] = lambda progress: None,
        is_asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> Run:
        """Run all chains from their starts.

        Args:
            key: all randomness of the run.
            x: starts, `(chains, num_x)`.
            z: starts, each array with a leading axis of chains.
            data: the program's data.
            draws: draws to keep.
            tune: draws of warm-up before them.
            steps: kernel steps for each draw; None leaves it to the kernel, once it is tuned.
            chunk: draws between two reports, at most CHUNK; fewer where they take long.
            report: called after every chunk.
            is_asked_to_stop: asked after every chunk.

        Raises:
            KeyboardInterrupt: asked to stop before the first draw.
        """
        keys = jax.vmap(fold_in, in_axes=(None, 0))(key, jnp.arange(x.shape[0]))
        states = self._begin(jax.vmap(fold_in, in_axes=(0, None))(keys, BEGINNING), x, z)
        kept: list[Record] = []
        warm: list[np.ndarray] = []
        done, total = 0, tune + draws
        num_steps = steps or self.kernel.steps_untuned
        length = tune * num_steps
        t = 0
        states, _ = self._advance(keys, states, data, 0, 0, 0, num_steps, length)  # compiles, before the clock starts
        begun = last = perf_counter()
        pace = 1  # draws that should not take too long
        while done < total and not is_asked_to_stop():
            if done == tune:
                pace *= num_steps
                num_steps = steps or self.kernel.steps_when_tuned(states, _efficiency(warm))
                pace = max(1, pace // num_steps)
                begun = last = perf_counter()
            count = min(pace, chunk, CHUNK, (tune if done < tune else total) - done)
            states, records = self._advance(keys, states, data, done, count, t, num_steps, length)
            records = jax.tree.map(lambda a, count=count: np.asarray(a)[:, :count], records)
            if done >= tune:
                kept.append(records)
            elif steps is None:
                warm.append(np.concatenate([records.x, records.info.log_density[..., None]], axis=-1))
            done += count
            t += count * num_steps
            report(Progress(done, total, tune, records))
            now = perf_counter()
            pace = max(1, min(4 * count, round(count * LONGEST / (now - last))))
            last = now
        if not kept:
            raise KeyboardInterrupt("asked to stop during warm-up: there is no draw yet.")
        record = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)
        return Run(record, states, num_steps, perf_counter() - begun, done == total)


def _efficiency(warm: list[np.ndarray]) -> float:
    """Effective draws for each draw in the second half of the warm-up, of x and of its log density; 1 if unknown.

    Chains are judged one by one: that they sit in different modes is not mended by more steps.
    """
    length = sum(part.shape[1] for part in warm)
    if length < 2 * FEWEST_WARM:
        return 1.0
    columns = np.concatenate(warm, axis=1)[:, length // 2 :]
    ess = [slowest(chain[None])[0] / len(chain) for chain in columns]
    return 1.0 if np.isnan(ess).all() else float(np.nanmean(ess))


def _advance(kernel: Kernel, capacity: int) -> Callable[..., tuple[Any, Record]]:
    """One chain's chunk: `count` draws of `steps` steps from draw number `first`, step number `t`, in fixed buffers."""
    target = kernel.target
    assert isinstance(target, Target)

    def step(key: Array, state: Any, data: Data, t: Array, length: Array) -> tuple[Any, Any]:
        key_step, key_adapt = split(fold_in(key, t))
        state, info = kernel.step(key_step, state, data, t)
        adapted = jax.lax.cond(t < length, lambda: kernel.adapt(key_adapt, state, info, data, t, length), lambda: state)
        return adapted, info

    def record(key: Array, state: Any, data: Data, number: Array) -> tuple[Array, Nuisance]:
        """The gradient at a draw, and all of z."""
        key_move, key_recover = split(fold_in(fold_in(key, RECORDING), number))
        # Without an accept/reject step, z was drawn for another x than the one reported.
        z = state.z if kernel.is_exact else target.move(key_move, state.x, state.z, data)
        gradient = jax.grad(target.log_density)(state.x, z, data)
        return gradient, target.recover(key_recover, state.x, z, data)

    def draw(
        key: Array, state: Any, data: Data, number: Array, t: Array, steps: Array, length: Array
    ) -> tuple[Any, Record]:
        infos = jax.eval_shape(step, key, state, data, t, length)[1]

        def one(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, told = carry
            state, info = step(key, state, data, t + i, length)
            return state, jax.tree_util.tree_map_with_path(partial(_gather, steps), told, info)

        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), infos)
        state, told = jax.lax.fori_loop(0, steps, one, (state, nothing))
        gradient, z = record(key, state, data, number)
        return state, Record(state.x, z, gradient, told)

    def advance(
        key: Array, state: Any, data: Data, first: Array, count: Array, t: Array, steps: Array, length: Array
    ) -> tuple[Any, Record]:
        shapes = jax.eval_shape(draw, key, state, data, first, t, steps, length)[1]
        empty = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), shapes)

        def one(i: Array, carry: tuple[Any, Record]) -> tuple[Any, Record]:
            state, kept = carry
            state, made = draw(key, state, data, first + i, t + i * steps, steps, length)
            return state, jax.tree.map(lambda a, row: a.at[i].set(row), kept, made)

        return jax.lax.fori_loop(0, count, one, (state, empty))

    return advance


def _gather(steps: Array, path: Any, told: Array, now: Array) -> Array:
    """One report for the steps of a draw: the last density and count, any alarm, the mean of the rest."""
    if now.dtype == bool:
        return told | now
    if path[0].name == "log_density" or jnp.issubdtype(now.dtype, jnp.integer):
        return now
    return told + now / steps
