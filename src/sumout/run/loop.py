"""The one loop of the library: compiled chunks of draws with Python between them.

Warm-up and sampling run through the same compiled function. Every step takes its random numbers from a counter,

    key of step t = key of the chain + 2 t, and + 2 t + 1 for what warm-up learns from it,

and the compiled function has room for as many draws whatever the size of a chunk. So the draws do not depend on how
they are cut into chunks, not even in the last place. Chains run in groups: side by side in one compiled call, the
groups in threads. How they are grouped does not depend on the machine.

With each draw two things are computed for the record only, with a key of the chain that is for nothing else: the
gradient at the draw, which the bias meter needs, and values of what the target has summed out of z.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import Ahead, has_few_sites
from sumout.compile.policy import CHUNK_BYTES, CHUNK_DRAWS, MEDIUM_ARRAY
from sumout.kernels.kernel import CHAINS, Kernel
from sumout.kernels.leapfrog import Point
from sumout.model.arguments import as_jax
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.target import Target
from sumout.randomness import Key, fold_in, later
from sumout.results.effective_draws import slowest
from sumout.results.record import Keep, Place, Progress, Record, join, num_chains_of, part
from sumout.threads import FOR_CHUNKS, Stop, in_threads

# Chains in groups: side by side in one compiled call, the groups in threads.
#
# How chains are grouped depends on their number and on the program only, so that draws do not depend on the number of
# cores. A step that runs straight through, without a loop of its own, is compiled for one chain: there is less to
# trace and to compile, and its arrays are as long as the data in any case. So is any step of a small program, where
# compiling takes longer than running. Where a step of a large one loops over what is short, as over the levels of a
# sum or the sites of a sweep, a second chain beside the first costs little.

ALONE, SIDE_BY_SIDE = 1, 2  # chains of one group at least


def is_small(program: Program, target: Target) -> bool:
    """Whether a step takes so little that it is compiled for longer than it runs, and Python around it longer still."""
    return has_few_sites(program) and target.largest(*program.abstract_arguments()) <= MEDIUM_ARRAY


LONGEST = 1.0  # seconds that a chunk should take at most
FEWEST_WARM = 50  # draws of warm-up from which their efficiency can be told
STEPPING, RECORDING, BEGINNING = range(3)  # what a chain has a key for


class Loop:
    """The compiled loop of a kernel that is bound to its target: compiled once, whatever is run through it.

    Args:
        kernel: bound to its target.
        capacity: draws that the compiled function has room for.
        group: chains that are compiled side by side, at least.
    """

    def __init__(self, kernel: Kernel, capacity: int, group: int = SIDE_BY_SIDE):
        self.kernel, self.capacity, self.group = kernel, capacity, group
        self._begin = Ahead(jax.vmap(kernel.init), times=1)
        self._advance = Ahead(_advance(kernel, capacity))

    def start(self, key: Key, points: Point, z: Nuisance, steps: int | None = None) -> Place:
        """Where a run of all chains begins.

        Args:
            key: all randomness of the run.
            points: starts, each array with a leading axis of chains.
            z: likewise.
            steps: kernel steps for each draw; None leaves it to the kernel.
        """
        keys = _keys(key, BEGINNING, num_chains_of(points))
        groups = [self._begin(*group) for group in part((keys, points, z), self.group)]
        return Place(groups, 0, 0, steps or self.kernel.steps_untuned, [], 0.0)

    def prepare(self, program: Program, num_chains: int) -> None:
        """Begin to compile for a run of so many chains."""
        size = num_chains_of(part(np.zeros(num_chains), self.group)[0])
        keys, numbers = [np.zeros((size, 2), np.uint32)] * 2, [_number(0)] * 5
        self._advance.prepare(*keys, self.shapes(program, size), program.data, *numbers)
        self._begin.prepare(*self._beginning(program, size))

    def shapes(self, program: Program, num_chains: int) -> Any:
        """Shapes and types of the states of so many chains."""
        return self._begin.shapes(*self._beginning(program, num_chains))

    def _beginning(self, program: Program, num_chains: int) -> Any:
        """Shapes and types of what the states of so many chains are made from."""
        x, z, _ = program.abstract_arguments()
        value: Any = jax.ShapeDtypeStruct((), x.dtype)
        start = jax.ShapeDtypeStruct((2,), np.uint32), Point(x, value, x), z
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct((num_chains, *a.shape), a.dtype), start)

    def run(
        self,
        key: Key,
        place: Place,
        data: Data,
        *,
        draws: int,
        tune: int,
        steps: int | None = None,
        chunk: int | None = None,
        keep: Keep,
        report: Callable[[Progress], None] = lambda progress: None,
        stop: Stop | None = None,
    ) -> None:
        """Move a run on from where it stands; `place` tells afterwards how far it has come.

        Args:
            key: all randomness of the run.
            place: where it stands; changed as it moves on.
            data: the program's data.
            draws: draws to make after the warm-up, those already made included.
            tune: draws of warm-up.
            steps: kernel steps for each draw; None leaves it to the kernel, once it is tuned.
            chunk: draws between two reports at most; fewer where they take long.
            keep: given every chunk of records, and the place after it.
            report: called after every chunk.
            stop: whether it is to stop: after the chunk that is running, or without it if it takes too long.
        """
        stop = stop or Stop()
        num = sum(map(num_chains_of, place.groups))
        keys = part((_keys(key, STEPPING, num), _keys(key, RECORDING, num)), self.group)
        place.groups = part(place.states, self.group)
        total = tune + draws
        length = tune * (steps or self.kernel.steps_untuned)
        # Threads may have other settings of JAX, its precision for one; arrays of JAX are what they are.
        place.groups, data = as_jax((place.groups, data))
        compiled = self._advance.compiled(*keys[0], place.groups[0], data, *[_number(0)] * 5)
        most = self.capacity if chunk is None else min(chunk, self.capacity)
        pace = 1  # draws that should not take too long

        def advance(group: tuple[tuple[Key, Key], Any, list[np.ndarray]]) -> tuple[Any, Record]:
            """One group, by a chunk."""
            keys, states, numbers = group
            states, made = compiled(*keys, states, data, *numbers)
            count = int(numbers[1])
            return states, jax.tree.map(lambda a: np.ascontiguousarray(np.asarray(a)[:count].swapaxes(0, 1)), made)

        stop.is_deferred = True
        while place.done < total and not stop.is_asked:
            is_warming_up = place.done < tune
            if place.done == tune and steps is None:
                before = place.steps
                place.steps = self.kernel.steps_when_tuned(place.states, partial(_efficiency, place.warm))
                pace = max(1, pace * before // place.steps)
                place.warm = []
            count = min(pace, most, (tune if is_warming_up else total) - place.done)
            numbers = list(map(_number, (place.done, count, place.t, place.steps, length)))
            each = [(*group, numbers) for group in zip(keys, place.groups, strict=True)]
            begun = perf_counter()
            moved = in_threads(advance, each, is_over=lambda: stop.is_overdue(FOR_CHUNKS))
            if len(moved) < len(each):
                break
            place.groups, records = [states for states, _ in moved], join([made for _, made in moved])
            seconds = perf_counter() - begun
            if is_warming_up and steps is None:
                place.warm.append(np.concatenate([records.x, records.info.log_density[..., None]], axis=-1))
            place.done += count
            place.t += count * place.steps
            place.seconds += 0.0 if is_warming_up else seconds
            pace = max(1, min(4 * count, round(count * LONGEST / seconds)))
            keep(place, records)
            report(Progress(place.done, total, tune, records))


def capacity_for(program: Program) -> int:
    """How many draws the compiled function should have room for."""
    arrays = jax.tree.leaves(program.abstract_arguments()[:2])
    size = sum(a.size * a.dtype.itemsize for a in arrays)
    return int(np.clip(CHUNK_BYTES // max(size, 1), 1, CHUNK_DRAWS))


def _keys(key: Key, purpose: int, num_chains: int) -> Key:
    """Of each chain, for that purpose."""
    return fold_in(fold_in(key, purpose), np.arange(num_chains))


def _number(number: int) -> np.ndarray:
    return np.asarray(number, np.int32)


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
    """A chunk of some chains: `count` draws of `steps` steps from draw number `first`, step number `t`.

    The records have axes (draw, chain), with room for `capacity` draws.
    """
    target = kernel.target
    assert isinstance(target, Target)

    @jax.jit  # traced once, though it is used for its shapes, too
    def step(key: Array, state: Any, data: Data, t: Array, length: Array) -> tuple[Any, Any]:
        key_step, key_adapt = later(key, 2 * t), later(key, 2 * t + 1)
        state, info = kernel.step(key_step, state, data, t)
        adapted = jax.lax.cond(t < length, lambda: kernel.adapt(key_adapt, state, info, data, t, length), lambda: state)
        return adapted, info

    @jax.jit
    def record(key: Array, state: Any, data: Data, number: Array) -> tuple[Array, Nuisance]:
        """The gradient at a draw, and all of z."""
        key_move, key_recover = later(key, 2 * number), later(key, 2 * number + 1)
        # Without an accept/reject step, z was drawn for another x than the one reported.
        z = state.z if kernel.is_exact else target.move(key_move, state.x, state.z, data)
        return kernel.gradient(state, z, data), target.recovered(key_recover, state.x, z, data)

    def draw(
        key: Array, key_record: Array, state: Any, data: Data, number: Array, t: Array, steps: Array, length: Array
    ) -> tuple[Any, Record]:
        infos = jax.eval_shape(step, key, state, data, t, length)[1]

        def one(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, told = carry
            state, info = step(key, state, data, t + i, length)
            return state, jax.tree_util.tree_map_with_path(partial(_gather, steps), told, info)

        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), infos)
        state, told = jax.lax.fori_loop(0, steps, one, (state, nothing))
        gradient, z = record(key_record, state, data, number)
        return state, Record(state.x, z, gradient, told, number)

    def advance(
        keys: Array, keys_record: Array, states: Any, data: Data,
        first: Array, count: Array, t: Array, steps: Array, length: Array,
    ) -> tuple[Any, Record]:  # fmt: skip
        is_alone = num_chains_of(keys) == 1
        draws = _alone(draw) if is_alone else jax.vmap(draw, in_axes=(0, 0, 0, *(None,) * 5), axis_name=CHAINS)
        shapes = jax.eval_shape(draws, keys, keys_record, states, data, first, t, steps, length)[1]
        # Draws come first and chains second, so that what a draw adds lies together.
        empty = jax.tree.map(lambda a: jnp.zeros((capacity, *a.shape), a.dtype), shapes)

        def one(i: Array, carry: tuple[Any, Record]) -> tuple[Any, Record]:
            states, kept = carry
            states, made = draws(keys, keys_record, states, data, first + i, t + i * steps, steps, length)
            return states, jax.tree.map(lambda a, row: jax.lax.dynamic_update_index_in_dim(a, row, i, 0), kept, made)

        return jax.lax.fori_loop(0, count, one, (states, empty))

    return advance


def _alone(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A draw of one chain as if there were more: without the names and batches of axes that these take."""

    def draws(keys: Array, keys_record: Array, states: Any, *rest: Any) -> Any:
        one = jax.tree.map(lambda a: a[0], (keys, keys_record, states))
        return jax.tree.map(lambda a: a[None], draw(*one, *rest))

    return draws


def _gather(steps: Array, path: Any, told: Array, now: Array) -> Array:
    """One report for the steps of a draw: the last density and count, any alarm, the mean of the rest."""
    if now.dtype == bool:
        return told | now
    if path[0].name == "log_density" or jnp.issubdtype(now.dtype, jnp.integer):
        return now
    return told + now / steps
