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
from sumout.program import Data, Nuisance, Program
from sumout.randomness import fold_in, new_key, split

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


@dataclass
class Place:
    """Where a run stands: with the program and the options, all that the draws to come depend on.

    Attributes:
        states: of all chains.
        done: draws so far, warm-up included.
        t: steps of the kernel so far.
        steps: of the kernel for each draw, at present.
        warm: x and its log density at the draws of the warm-up, `(chain, draw, column)`, where the number of steps will
            depend on them; in pieces.
        seconds: that the draws after the warm-up took.
    """

    states: Any
    done: int
    t: int
    steps: int
    warm: list[np.ndarray]
    seconds: float


@dataclass(frozen=True)
class Progress:
    """How far a run is: draws done (warm-up included) and the latest chunk of records."""

    done: int
    total: int
    tune: int
    latest: Record


Keep = Callable[[Place, Record], None]


class Loop:
    """The compiled loop of a kernel that is bound to its target: compiled once, whatever is run through it."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._begin = jax.jit(jax.vmap(kernel.init, in_axes=(0, 0, 0, None)))
        self._advance = jax.jit(jax.vmap(_advance(kernel, CHUNK), in_axes=(0, 0, *(None,) * 6), axis_name=CHAINS))

    def start(self, key: Array, x: Array, z: Nuisance, data: Data, steps: int | None = None) -> Place:
        """Where a run of all chains begins.

        Args:
            key: all randomness of the run.
            x: starts, `(chains, num_x)`.
            z: starts, each array with a leading axis of chains.
            data: the program's data.
            steps: kernel steps for each draw; None leaves it to the kernel.
        """
        states = self._begin(jax.vmap(fold_in, in_axes=(0, None))(_keys(key, len(x)), BEGINNING), x, z, data)
        return Place(states, 0, 0, steps or self.kernel.steps_untuned, [], 0.0)

    def shapes(self, program: Program, num_chains: int) -> Any:
        """Shapes and types of the states of so many chains."""
        x, z, data = program.abstract_arguments()
        arguments = (jax.eval_shape(new_key, 0), x, z)
        chains = jax.tree.map(lambda a: jax.ShapeDtypeStruct((num_chains, *a.shape), a.dtype), arguments)
        return jax.eval_shape(self._begin, *chains, data)

    def run(
        self,
        key: Array,
        place: Place,
        data: Data,
        *,
        draws: int,
        tune: int,
        steps: int | None = None,
        chunk: int = CHUNK,
        keep: Keep,
        report: Callable[[Progress], None] = lambda progress: None,
        is_asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Move a run on from where it stands; `place` tells afterwards how far it has come.

        Args:
            key: all randomness of the run.
            place: where it stands; changed as it moves on.
            data: the program's data.
            draws: draws to make after the warm-up, those already made included.
            tune: draws of warm-up.
            steps: kernel steps for each draw; None leaves it to the kernel, once it is tuned.
            chunk: draws between two reports, at most CHUNK; fewer where they take long.
            keep: given every chunk of records, and the place after it.
            report: called after every chunk.
            is_asked_to_stop: asked after every chunk.
        """
        keys = _keys(key, len(jax.tree.leaves(place.states)[0]))
        total = tune + draws
        length = tune * (steps or self.kernel.steps_untuned)
        # Compiles, before the clock starts.
        place.states, _ = self._advance(keys, place.states, data, 0, 0, 0, place.steps, length)
        last = perf_counter()
        pace = 1  # draws that should not take too long
        while place.done < total and not is_asked_to_stop():
            is_warming_up = place.done < tune
            if place.done == tune and steps is None:
                before = place.steps
                place.steps = self.kernel.steps_when_tuned(place.states, partial(_efficiency, place.warm))
                pace = max(1, pace * before // place.steps)
                place.warm = []
            count = min(pace, chunk, CHUNK, (tune if is_warming_up else total) - place.done)
            place.states, made = self._advance(
                keys, place.states, data, place.done, count, place.t, place.steps, length
            )
            records = jax.tree.map(lambda a, count=count: np.asarray(a)[:, :count], made)
            if is_warming_up and steps is None:
                place.warm.append(np.concatenate([records.x, records.info.log_density[..., None]], axis=-1))
            place.done += count
            place.t += count * place.steps
            now = perf_counter()
            place.seconds += 0.0 if is_warming_up else now - last
            pace = max(1, min(4 * count, round(count * LONGEST / (now - last))))
            keep(place, records)
            report(Progress(place.done, total, tune, records))
            last = perf_counter()


class Memory:
    """Keeps the records of the draws after the warm-up."""

    def __init__(self, tune: int):
        self.tune = tune
        self._parts: list[Record] = []

    def __call__(self, place: Place, records: Record) -> None:
        """Keep them, unless they are of the warm-up."""
        if place.done > self.tune:
            self._parts.append(records)

    def record(self) -> Record | None:
        """All of them; None if there are none."""
        if not self._parts:
            return None
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *self._parts)


def _keys(key: Array, num_chains: int) -> Array:
    """The key of each chain."""
    return jax.vmap(fold_in, in_axes=(None, 0))(key, jnp.arange(num_chains))


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

    @jax.jit  # traced once, though it is used for its shapes, too
    def step(key: Array, state: Any, data: Data, t: Array, length: Array) -> tuple[Any, Any]:
        key_step, key_adapt = split(fold_in(key, t))
        state, info = kernel.step(key_step, state, data, t)
        adapted = jax.lax.cond(t < length, lambda: kernel.adapt(key_adapt, state, info, data, t, length), lambda: state)
        return adapted, info

    @jax.jit
    def record(key: Array, state: Any, data: Data, number: Array) -> tuple[Array, Nuisance]:
        """The gradient at a draw, and all of z."""
        key_move, key_recover = split(fold_in(fold_in(key, RECORDING), number))
        # Without an accept/reject step, z was drawn for another x than the one reported.
        z = state.z if kernel.is_exact else target.move(key_move, state.x, state.z, data)
        return kernel.gradient(state, z, data), target.recover(key_recover, state.x, z, data)

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
