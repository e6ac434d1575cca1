"""The one loop of the library: compiled chunks of draws with Python between them.

Warm-up and sampling run through the same compiled function, which has room for `capacity` draws whatever the size of a
chunk, and random numbers come from counters: so the draws do not depend on how they are cut into chunks, not even in
the last place. The layout of keys, with c the number of a chain:

    key → STEPPING → c → 2 t          step number t of the kernel
                         2 t + 1      adaptation after it, during warm-up
        → RECORDING → c → 2 n         draw number n: z for the record, where the kernel has no accept/reject step
                          2 n + 1     the part of z that the target has summed out
        → STARTING → c                the kernel's initial state

Chains run in groups: side by side in one compiled call, the groups in threads. How they are grouped depends on their
number and on the program only, so that draws do not depend on the number of cores. A step without a loop of its own is
compiled for one chain: there is less to trace and to compile, and its arrays are as long as the data in any case. So is
any step of a small program, where compiling takes longer than running. Where a step of a large program loops over what
is short, as over the levels of a sum or the sites of a sweep, a second chain beside the first costs little.

With each draw two things are computed for the record only: the gradient there, which the bias meter needs, and values
of what the target has summed out of z.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import Ahead, has_few_sites
from sumout.compile.policy import CHUNK_BYTES, CHUNK_DRAWS, MEDIUM_ARRAY
from sumout.compile.spread import mesh_of
from sumout.kernels.kernel import CHAINS, Kernel
from sumout.kernels.leapfrog import Point
from sumout.model.arguments import as_jax
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.target import Target
from sumout.randomness import Key, fold_in, later
from sumout.results.data_tree import Draws
from sumout.results.effective_draws import slowest
from sumout.run.processes import ONE_PROCESS, Processes
from sumout.run.progress import Progress
from sumout.store.backend import Checkpoint, join_chains, num_chains_of, split_chains
from sumout.threads import SECONDS_FOR_CHUNK, Stop, in_threads

ALONE, SIDE_BY_SIDE = 1, 2  # chains of one group at least
LONGEST = 1.0  # seconds that a chunk should take at most
LAST = ("log_density", "energy")  # of the steps of a draw the last one's are recorded
FEWEST_WARM = 50  # draws from which an efficiency can be estimated
STEPPING, RECORDING, STARTING = range(3)  # purposes of keys


@dataclass(frozen=True)
class Schedule:
    """How many draws to make.

    Attributes:
        draws: after the warm-up, those already made included.
        tune: draws of warm-up.
        steps: kernel steps for each draw; None leaves it to the kernel, once it is tuned.
        chunk: draws between two reports at most; fewer where they take long.
    """

    draws: int
    tune: int
    steps: int | None = None
    chunk: int | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Counters:
    """The numbers that a chunk depends on.

    Attributes:
        draw: number of its first draw, warm-up included.
        count: draws to make.
        t: number of its first kernel step.
        steps: kernel steps for each draw.
        warmup: kernel steps of the whole warm-up.
    """

    draw: Any
    count: Any
    t: Any
    steps: Any
    warmup: Any


NO_COUNTERS = Counters(*[np.asarray(0, np.int32)] * 5)


class Loop:
    """The compiled loop of a kernel that is bound to its target: compiled once, whatever is run through it.

    Args:
        kernel: bound to its target.
        capacity: draws that the compiled function has room for.
        group: chains that are compiled side by side, at least.
        recorded: the discrete sites that draws have, by name the type; None for all as they are.
    """

    def __init__(
        self, kernel: Kernel, capacity: int, group: int = SIDE_BY_SIDE, recorded: Mapping[str, Any] | None = None
    ):
        self.kernel, self.capacity, self.group = kernel, capacity, group
        self._init = Ahead(jax.vmap(kernel.init), times=1)
        self._advance = Ahead(_Chunk(kernel, capacity, recorded).advance)

    def start(self, key: Key, points: Point, z: Nuisance, steps: int | None = None) -> Checkpoint:
        """The checkpoint at which a run of all chains begins.

        Args:
            key: all randomness of the run.
            points: starts, each array with a leading axis of chains.
            z: likewise.
            steps: kernel steps for each draw; None leaves it to the kernel.
        """
        keys = _keys(key, STARTING, num_chains_of(points))
        groups = [self._init(*group) for group in split_chains((keys, points, z), self.group)]
        return Checkpoint(groups, 0, 0, steps or self.kernel.steps_untuned, [], 0.0)

    def prepare(self, program: Program, num_chains: int, data: Data = None) -> None:
        """Begin to compile for a run of so many chains; with data in another place than the program's, if given."""
        size = num_chains_of(split_chains(np.zeros(num_chains), self.group)[0])
        keys = [np.zeros((size, 2), np.uint32)] * 2
        data = program.data if data is None else data
        self._advance.prepare(*keys, self.shapes(program, size), data, NO_COUNTERS)
        self._init.prepare(*self._start_shapes(program, size))

    def shapes(self, program: Program, num_chains: int) -> Any:
        """Shapes and types of the states of so many chains."""
        return self._init.shapes(*self._start_shapes(program, num_chains))

    def _start_shapes(self, program: Program, num_chains: int) -> Any:
        """Shapes and types of the arguments of `init` for so many chains."""
        x, z, _ = program.abstract_arguments()
        value: Any = jax.ShapeDtypeStruct((), x.dtype)
        start = jax.ShapeDtypeStruct((2,), np.uint32), Point(x, value, x), z
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct((num_chains, *a.shape), a.dtype), start)

    def run(
        self,
        key: Key,
        checkpoint: Checkpoint,
        data: Data,
        schedule: Schedule,
        record: Callable[[Checkpoint, Draws], None],
        report: Callable[[Progress], None] = lambda progress: None,
        stop: Stop | None = None,
        num_good: Callable[[Draws], int] | None = None,
        processes: Processes = ONE_PROCESS,
        renew: Callable[[int], tuple[Data, int]] | None = None,
    ) -> bool:
        """Continue a run from a checkpoint, which is updated as the run goes on.

        Args:
            key: all randomness of the run.
            checkpoint: where the run stands.
            data: the program's data.
            schedule: how many draws to make.
            record: of a trace backend: given every chunk of draws, with the checkpoint after it.
            report: called after every chunk.
            stop: whether to stop: after the chunk that is running, or without it if it takes too long.
            num_good: how many draws of a chunk, from its first on, are as they should be.
            processes: that work on the run, this one among them.
            renew: the data for a draw of this number, and the number of the draw from which on they are others.

        Returns:
            Whether all draws were good; else the run ends before the first that is not, however draws are cut.
        """
        stop = stop or Stop()
        num = sum(map(num_chains_of, checkpoint.groups))
        keys = split_chains((_keys(key, STEPPING, num), _keys(key, RECORDING, num)), self.group)
        tune, total = schedule.tune, schedule.tune + schedule.draws
        warmup = tune * (schedule.steps or self.kernel.steps_untuned)
        # Threads may have other settings of JAX, its precision for one; arrays of JAX are what they are.
        checkpoint.groups, data = as_jax((split_chains(checkpoint.states, self.group), data))
        compiled = self._advance.compiled(*keys[0], checkpoint.groups[0], data, NO_COUNTERS)
        most = self.capacity if schedule.chunk is None else min(schedule.chunk, self.capacity)
        at_once = None if mesh_of(data) is None else 1
        # A chunk that others take part in must not be left behind.
        is_over = lambda: not processes.are_many and stop.is_overdue(SECONDS_FOR_CHUNK)  # noqa: E731
        pace = 1  # draws that are expected to take less than LONGEST
        until = tune + schedule.draws if renew is None else 0  # up to which draw the data serve

        def advance(group: tuple[tuple[Key, Key], Any, Counters]) -> tuple[Any, Draws]:
            """One group, by a chunk; its draws with axes (chain, draw)."""
            keys, states, counters = group
            states, made = compiled(*keys, states, data, counters)
            trim = lambda a: np.ascontiguousarray(np.asarray(a)[: int(counters.count)].swapaxes(0, 1))  # noqa: E731
            return states, jax.tree.map(trim, made)

        def advance_all(count: int) -> list[tuple[Any, Draws]]:
            """All groups, by so many draws; nothing if the run is to stop and that takes too long."""
            numbers = (checkpoint.done, count, checkpoint.t, checkpoint.steps, warmup)
            counters = Counters(*(np.asarray(number, np.int32) for number in numbers))
            groups = [(*group, counters) for group in zip(keys, checkpoint.groups, strict=True)]
            own = processes.own(groups)
            moved = in_threads(advance, own, at_once, is_over)
            return processes.gather(moved, len(groups)) if len(moved) == len(own) else []

        stop.is_deferred = True
        while checkpoint.done < total:
            is_warming_up = checkpoint.done < tune
            if renew is not None and checkpoint.done >= until:
                data, until = renew(checkpoint.done)
                data = as_jax(data)
            if checkpoint.done == tune and schedule.steps is None:
                before = checkpoint.steps
                efficiency = partial(_efficiency, checkpoint.warm)
                checkpoint.steps = self.kernel.steps_when_tuned(checkpoint.states, efficiency)
                pace = max(1, pace * before // checkpoint.steps)
            count = min(pace, most, until - checkpoint.done, (tune if is_warming_up else total) - checkpoint.done)
            count = processes.agree(count, stop.is_asked, checkpoint.groups)
            if not count:
                break
            begun = perf_counter()
            moved = advance_all(count)
            if not moved:
                break
            draws = join_chains([made for _, made in moved])
            good = count if num_good is None else num_good(draws)
            if good == 0:
                return False
            is_cut_short = good < count
            if is_cut_short:  # the same draws again, up to there
                count, moved = good, advance_all(good)
                if not moved:
                    break
                draws = join_chains([made for _, made in moved])
            checkpoint.groups = as_jax([states for states, _ in moved])
            seconds = perf_counter() - begun
            if not is_warming_up:
                checkpoint.warm = []
            if is_warming_up and schedule.steps is None:
                checkpoint.warm.append(np.concatenate([draws.x, draws.info.log_density[..., None]], axis=-1))
            checkpoint.done += count
            checkpoint.t += count * checkpoint.steps
            checkpoint.seconds += 0.0 if is_warming_up else seconds
            pace = max(1, min(4 * count, round(count * LONGEST / seconds)))
            record(checkpoint, draws)
            report(Progress(checkpoint.done, total, tune, draws))
            if is_cut_short:
                return False
        return True


def is_small(program: Program, target: Target) -> bool:
    """Whether compiling a step takes longer than running it, and Python around it longer than the step."""
    return has_few_sites(program) and target.largest(*program.abstract_arguments()) <= MEDIUM_ARRAY


def capacity_for(program: Program, recorded: Mapping[str, Any] | None = None) -> int:
    """How many draws the compiled function should have room for, with the discrete sites that are recorded."""
    x, z, _ = program.abstract_arguments()
    kept = z if recorded is None else {n: jax.ShapeDtypeStruct(z[n].shape, kind) for n, kind in recorded.items()}
    arrays = jax.tree.leaves((x, kept))
    size = sum(a.size * a.dtype.itemsize for a in arrays)
    return int(np.clip(CHUNK_BYTES // max(size, 1), 1, CHUNK_DRAWS))


def _keys(key: Key, purpose: int, num_chains: int) -> Key:
    """One for each chain, for that purpose."""
    return fold_in(fold_in(key, purpose), np.arange(num_chains))


def _efficiency(warm: list[np.ndarray]) -> float:
    """Effective draws per draw in the second half of the warm-up, of x and of its log density; 1 if unknown.

    Chains are judged one by one: that they are in different modes is not mended by more steps.
    """
    length = sum(piece.shape[1] for piece in warm)
    if length < 2 * FEWEST_WARM:
        return 1.0
    columns = np.concatenate(warm, axis=1)[:, length // 2 :]
    ess = [slowest(chain[None])[0] / len(chain) for chain in columns]
    return 1.0 if np.isnan(ess).all() else float(np.nanmean(ess))


class _Chunk:
    """The function that the loop compiles: a chunk of draws of some chains."""

    def __init__(self, kernel: Kernel, capacity: int, recorded: Mapping[str, Any] | None):
        assert isinstance(kernel.target, Target)
        self.kernel, self.target, self.capacity, self.recorded = kernel, kernel.target, capacity, recorded
        # Jitted, so that each is traced once, though it is also asked for its shapes.
        self._step, self._record = jax.jit(self._step_once), jax.jit(self._at_draw)

    def advance(
        self, keys: Array, keys_record: Array, states: Any, data: Data, counters: Counters
    ) -> tuple[Any, Draws]:
        """The states after the chunk, and its draws, with axes (draw, chain) and room for `capacity` of them."""
        is_alone = num_chains_of(keys) == 1
        draw = _alone(self._draw) if is_alone else jax.vmap(self._draw, (0, 0, 0, None, None), axis_name=CHAINS)
        shapes = jax.eval_shape(draw, keys, keys_record, states, data, counters)[1]
        # Draws come first and chains second, so that what a draw adds is contiguous.
        empty = jax.tree.map(lambda a: jnp.zeros((self.capacity, *a.shape), a.dtype), shapes)

        def one(i: Array, carry: tuple[Any, Draws]) -> tuple[Any, Draws]:
            states, kept = carry
            now = replace(counters, draw=counters.draw + i, t=counters.t + i * counters.steps)
            states, made = draw(keys, keys_record, states, data, now)
            return states, jax.tree.map(lambda a, row: jax.lax.dynamic_update_index_in_dim(a, row, i, 0), kept, made)

        return jax.lax.fori_loop(0, counters.count, one, (states, empty))

    def _draw(self, key: Array, key_record: Array, state: Any, data: Data, counters: Counters) -> tuple[Any, Draws]:
        """One draw of one chain: some steps of the kernel."""
        t, steps = counters.t, counters.steps
        info = jax.eval_shape(self._step, key, state, data, t, counters.warmup)[1]

        def one(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, gathered = carry
            state, info = self._step(key, state, data, t + i, counters.warmup)
            return state, jax.tree_util.tree_map_with_path(partial(_gather, steps), gathered, info)

        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), info)
        state, info = jax.lax.fori_loop(0, steps, one, (state, nothing))
        gradient, z = self._record(key_record, state, data, counters.draw)
        if self.recorded is not None:
            z = {name: z[name].astype(kind) for name, kind in self.recorded.items()}
        return state, Draws(state.x, z, gradient, info, counters.draw)

    def _step_once(self, key: Array, state: Any, data: Data, t: Array, warmup: Array) -> tuple[Any, Any]:
        key_step, key_adapt = later(key, 2 * t), later(key, 2 * t + 1)
        state, info = self.kernel.step(key_step, state, data, t)
        adapt = lambda: self.kernel.adapt(key_adapt, state, info, data, t, warmup)  # noqa: E731
        return jax.lax.cond(t < warmup, adapt, lambda: state), info

    def _at_draw(self, key: Array, state: Any, data: Data, number: Array) -> tuple[Array, Nuisance]:
        """The gradient at a draw, and all of z."""
        key_move, key_recover = later(key, 2 * number), later(key, 2 * number + 1)
        # Without an accept/reject step, z was drawn for another x than the one reported.
        z = state.z if self.kernel.is_exact else self.target.move(key_move, state.x, state.z, data)
        rows = self.target.subsample(key_move, data)  # where rows are drawn no z is
        return self.kernel.gradient(state, z, rows), self.target.recovered(key_recover, state.x, z, data)


def _alone(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A draw of one chain with an axis of chains of length 1, without the batching that `vmap` adds."""

    def draws(keys: Array, keys_record: Array, states: Any, *rest: Any) -> Any:
        one = jax.tree.map(lambda a: a[0], (keys, keys_record, states))
        return jax.tree.map(lambda a: a[None], draw(*one, *rest))

    return draws


def _gather(steps: Array, path: Any, gathered: Array, now: Array) -> Array:
    """One info for the steps of a draw: the last density, energy and count, any alarm, the mean of the rest."""
    if now.dtype == bool:
        return gathered | now
    if path[0].name in LAST or jnp.issubdtype(now.dtype, jnp.integer):
        return now
    return gathered + now / steps
