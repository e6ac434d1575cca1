"""The one loop of the library: compiled chunks of draws with Python between them.

Warm-up and sampling run through the same compiled function. Every step takes its random numbers from a counter,

    key of step t = fold_in(key of the chain, t),

so that the draws do not depend on how they are cut into chunks. What the target has summed out of z is drawn once for
each draw, for the record only; its keys are counted apart, from fold_in(key of the chain, RECOVERY).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.gradient import Target
from sumout.kernels.kernel import Kernel
from sumout.program import Data, Nuisance

CHUNK = 100
RECOVERY = 2**32 - 1  # a number that no step reaches


@partial(jax.tree_util.register_dataclass, data_fields=["x", "z", "info"], meta_fields=[])
@dataclass(frozen=True)
class Record:
    """What is kept of a draw; with axes (chain, draw) once collected."""

    x: Any
    z: Any
    info: Any


@dataclass(frozen=True)
class Progress:
    """How far a run is: draws done (warm-up included) and the latest chunk of records."""

    done: int
    total: int
    tune: int
    latest: Record


def run_chains(
    kernel: Kernel,
    key: Array,
    x: Array,
    z: Nuisance,
    data: Data,
    *,
    draws: int,
    tune: int,
    steps: int,
    chunk: int = CHUNK,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Record, Any]:
    """Run all chains from their starts; return the draws after warm-up and the last states.

    Args:
        kernel: bound to its target.
        key: all randomness of the run.
        x: starts, `(chains, num_x)`.
        z: starts, each array with a leading axis of chains.
        data: the program's data.
        draws: draws to keep.
        tune: draws of warm-up before them.
        steps: kernel steps for each draw.
        chunk: draws in a chunk.
        report: called after every chunk.
    """
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(x.shape[0]))
    states = jax.vmap(kernel.init)(x, z)
    advance = jax.jit(jax.vmap(_advance(kernel, steps, chunk), in_axes=(0, 0, None, None, None, None)))
    kept: list[Record] = []
    done, total = 0, tune + draws
    while done < total:
        count = min(chunk, (tune if done < tune else total) - done)
        states, records = advance(keys, states, data, done, count, tune)
        records = jax.tree.map(lambda a, count=count: np.asarray(a)[:, :count], records)
        if done >= tune:
            kept.append(records)
        done += count
        report(Progress(done, total, tune, records))
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept), states


def _advance(kernel: Kernel, steps: int, capacity: int) -> Callable[..., tuple[Any, Record]]:
    """One chain's chunk: `count` draws from draw number `first` on, in buffers of fixed size."""
    target = kernel.target
    assert isinstance(target, Target)

    def step(key: Array, state: Any, data: Data, t: Array, length: Array) -> tuple[Any, Any]:
        key_step, key_adapt = jax.random.split(jax.random.fold_in(key, t))
        state, info = kernel.step(key_step, state, data)
        adapted = jax.lax.cond(t < length, lambda: kernel.adapt(key_adapt, state, info, data, t, length), lambda: state)
        return adapted, info

    def draw(key: Array, state: Any, data: Data, number: Array, tune: Array) -> tuple[Any, Record]:
        def one(state: Any, i: Array) -> tuple[Any, Any]:
            return step(key, state, data, number * steps + i, tune * steps)

        state, infos = jax.lax.scan(one, state, jnp.arange(steps))
        key_recover = jax.random.fold_in(jax.random.fold_in(key, RECOVERY), number)
        z = target.recover(key_recover, state.x, state.z, data)
        return state, Record(state.x, z, _collapse(infos))

    def advance(key: Array, state: Any, data: Data, first: Array, count: Array, tune: Array) -> tuple[Any, Record]:
        shapes = jax.eval_shape(draw, key, state, data, first, tune)[1]
        empty = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), shapes)

        def one(i: Array, carry: tuple[Any, Record]) -> tuple[Any, Record]:
            state, kept = carry
            state, record = draw(key, state, data, first + i, tune)
            return state, jax.tree.map(lambda a, row: a.at[i].set(row), kept, record)

        return jax.lax.fori_loop(0, count, one, (state, empty))

    return advance


def _collapse(infos: Any) -> Any:
    """One report for the steps of a draw: the last density, any alarm, the mean of the rest."""

    def collapse(path: Any, values: Array) -> Array:
        if path[0].name == "log_density" or len(values) == 1:
            return values[-1]
        return values.any() if values.dtype == bool else values.mean(axis=0)

    return jax.tree_util.tree_map_with_path(collapse, infos)
