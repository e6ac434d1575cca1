"""Sampling with minibatches: find the mode of all rows, run chains on batches of them, hold the draws against all rows.

The loop, the kernels, what they tune and the trace backends are those of every run. Chains move in u, with x = x̂ + S u
(`plan/minibatch_target.py`), and are recorded in x. z of rows is summed out and not drawn.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sumout.checks.check import check_plan
from sumout.checks.guard import Guard
from sumout.errors import ConvergenceWarning, ModelError, OptionError
from sumout.jaxpr.equations import without_collection
from sumout.kernels.delayed_acceptance import DelayedAcceptance
from sumout.kernels.hmc import HMC
from sumout.kernels.kernel import Kernel
from sumout.kernels.leapfrog import Point
from sumout.kernels.registry import find_kernel
from sumout.kernels.split_sghmc import SplitSGHMC
from sumout.kernels.stochastic_gradient import StochasticGradientKernel
from sumout.model.initial_values import any_z, guess_x, guess_z
from sumout.model.program import ContinuousSite, Program
from sumout.model.row_program import check_rows
from sumout.plan.minibatch_target import MinibatchTarget, RowData, make_minibatch_target
from sumout.plan.row_sums import RowSums, SumsOfPlates, make_row_sums
from sumout.plan.surrogate_target import make_surrogate_target
from sumout.randomness import Key, fold_in, generator, new_key, split
from sumout.results.data_tree import Draws, PostProcessing
from sumout.results.full_data_check import check_against_all, judge_exact
from sumout.run.loop import ALONE, Loop, Schedule, capacity_for
from sumout.run.mode_search import FullData, Mode, find_mode
from sumout.run.progress import progress_bar
from sumout.run.row_pool import HeldRows
from sumout.store.backend import Checkpoint, MemoryBackend, Run, TraceBackend
from sumout.store.folder import open_folder
from sumout.store.format import identify
from sumout.threads import attentive_jit, stoppable

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

HOLDING, CHOOSING = 3, 4  # purposes of keys, beside those of the loop
MOST_AT_ONCE = 1_000  # rows of a surrogate: few enough for the caches of a core, many enough to be worth a call
WIDER = 1.5  # times the Gaussian at the mode, from which chains start: over-dispersed, as r_hat wants them
NOTE = (
    "Discrete variables of the rows of '{plate}' were summed out of every minibatch and are not drawn; values of "
    "single rows, log likelihoods and the data are left out of the result. lp is relative to the mode's log density."
)


def choose_minibatch(program: Program, minibatch: Mapping[str, int] | None) -> dict[str, int] | None:
    """By plate the rows in a batch: as asked for, or as the model itself says; None for all rows."""
    if minibatch is None:
        if program.few is not None and all(plate.subsample_size is None for plate in program.plates.values()):
            program.refuse_on_disk()
        own = {name: plate.subsample_size for name, plate in program.plates.items() if plate.subsample_size is not None}
        minibatch = {name: size for name, size in own.items() if size < program.plates[name].size}
        if not minibatch:
            return None
    if not isinstance(minibatch, Mapping):
        raise OptionError(
            f'minibatch={minibatch!r}: expected a dict from the name of a plate to a number of rows, {{"n": 1000}}.'
        )
    if not minibatch:
        raise OptionError('minibatch={}: name a plate and how many of its rows make a batch, {"n": 1000}.')
    return dict(minibatch)


def choose_kernel(kernel: Any) -> StochasticGradientKernel | DelayedAcceptance:
    """The kernel: one for noisy gradients, or HMC on a surrogate, each draw of which is accepted by all rows."""
    chosen = find_kernel(SplitSGHMC() if kernel is None else kernel, None)
    if isinstance(chosen, HMC):
        return DelayedAcceptance(proposer=chosen)
    if not isinstance(chosen, StochasticGradientKernel):
        raise OptionError(
            f"kernel={kernel!r}: {type(chosen).__name__} accepts or rejects by the log density of all rows, which a "
            "minibatch does not know. Use SplitSGHMC (the default), SGHMC, SGNHT or SGLD; HMC for exact draws, at one "
            "pass over all rows each; or leave minibatch out."
        )
    return chosen


@dataclass(frozen=True, eq=False)
class Rows:
    """All that is compiled to sample a program by minibatches, whatever the seed.

    Attributes:
        sums: of some rows.
        full: passes over all rows.
        held: the rows that are in memory.
        kernel: bound to its target.
        loop: compiled for it.
    """

    sums: RowSums | SumsOfPlates
    full: FullData
    held: HeldRows
    kernel: Kernel
    loop: Loop

    def data(self, mode: Mode, has_control_variates: bool = True) -> RowData:
        """What gradients are computed from."""
        real = jnp.result_type(float)
        weight = float(has_control_variates)
        index = tuple(jnp.arange(one.rows.batch, dtype=jnp.int32) for one in self.sums.each)
        return RowData(
            self.held.some,
            index[0] if isinstance(self.sums, RowSums) else index,
            jnp.asarray(mode.x, real),
            jnp.asarray(mode.spread, real),
            jnp.asarray(weight * mode.pull, real),
            jnp.asarray(weight, real),
        )

    def prepared(self, key: Key, mode: Mode) -> RowData:
        """The data, with what the target works out once for a run."""
        assert isinstance(self.kernel.target, MinibatchTarget)
        return self.kernel.target.prepared(key, self.data(mode))

    def starts(self, key: Key, num_chains: int, data: RowData) -> Point:
        """Starts in u for all chains, with their densities where the kernel looks at these."""
        points, target = start_points(key, num_chains, self.sums.num_x), self.kernel.target
        if not self.kernel.is_exact or target is None:
            return points
        found = attentive_jit(lambda u, data: jax.lax.map(lambda u: target.value_and_gradient(u, {}, data), u))
        return Point(points.x, *found(points.x, data))

    def renewal(self, key: Key, data: RowData) -> Callable[[int], tuple[RowData, int]] | None:
        """What the loop takes other rows from, where they are on the disk; None where all are held."""

        def renewed(draw: int) -> tuple[RowData, int]:
            arrays, until = self.held.at_draw(key, draw)
            return RowData(**{**vars(data), "arrays": arrays}), until

        return renewed if self.held.is_renewed else None

    def program(self, data: RowData) -> Program:
        """A program of u, as far as the loop looks at it."""
        num = self.sums.num_x
        return Program({"u": ContinuousSite((num,), (num,), True)}, {}, data, _nothing, _nothing, name="minibatch")

    @property
    def result_program(self) -> Program:
        """Of what is recorded: x and the deterministics that belong to no row."""
        rows = self.sums.each[0].rows
        shared, z = rows.shared, any_z(rows.shared)
        first = jax.jit(rows.take)(self.held.some, jnp.arange(rows.batch, dtype=jnp.int32))
        kept = set.intersection(*(set(one.rows.kept) for one in self.sums.each))

        def constrain(x: Any, _: Any, data: Any) -> dict[str, jax.Array]:
            return {name: value for name, value in shared.constrain_named(x, z, data).items() if name in kept}

        plates = "', '".join(one.rows.plate for one in self.sums.each)
        return replace(
            shared, z={}, data=first, free=(), constrain_named=constrain,
            order=tuple(name for name in shared.order if name in kept),
            notes=(*shared.notes, NOTE.format(plate=plates)),
        )  # fmt: skip


def _nothing(*args: Any) -> Any:
    del args
    return jnp.zeros(())


def set_up_rows(program: Program, kernel: Any, minibatch: Mapping[str, int], plan: Mapping[str, str] | None) -> Rows:
    """What is compiled for a program and a kernel, the same object for the same of them."""
    chosen = choose_kernel(kernel)
    for plate, batch in minibatch.items():
        check_rows(program, plate, batch)
    # A gradient of several samples takes its rows in as many parts, whose differences tell its noise.
    is_exact = isinstance(chosen, DelayedAcceptance)
    if is_exact and program.few is not None:
        raise OptionError(
            f"kernel={kernel!r} with a minibatch of '{next(iter(minibatch))}', whose rows are on the disk: every draw "
            "would be a pass over all of them. Load them into memory, or use SplitSGHMC, the default."
        )
    parts = -(-max(minibatch.values()) // MOST_AT_ONCE) if is_exact else chosen.num_samples
    batches = {plate: max(1, batch // parts) for plate, batch in minibatch.items()}
    label = ("row sums", tuple(batches.items()), tuple(sorted((plan or {}).items())))
    sums, full, held = program.remember(label, lambda: _read(program, batches, plan))

    def make() -> Rows:
        bound = chosen.bind(make_surrogate_target(sums, parts) if is_exact else make_minibatch_target(sums))
        shape = Program({"u": ContinuousSite((sums.num_x,), (sums.num_x,))}, {}, {}, _nothing, _nothing)
        return Rows(sums, full, held, bound, Loop(bound, capacity_for(shape), ALONE))

    return program.remember((*label, chosen, parts), make)


def _read(
    program: Program, batches: Mapping[str, int], plan: Mapping[str, str] | None
) -> tuple[RowSums | SumsOfPlates, FullData, HeldRows]:
    if program.num_x == 0:
        raise ModelError(
            f"minibatch: '{program.name}' has no continuous variable, so there is no gradient to estimate."
        )
    sums = make_row_sums(program, batches, plan)
    rng = np.random.default_rng(0)
    for one in sums.each:
        check_plan(one.plan).raise_or_warn()
        read = one.plan.structure.program
        z = {name: value[0] for name, value in guess_z(rng, read, 1).items()}
        Guard(one.plan).compare(np.zeros(2, np.uint32), guess_x(rng, read, 1)[0], z)
    held = HeldRows(sums.each[0].rows)
    return sums, FullData(sums, held.some, held.pieces), held


def search(rows: Rows, key: Key) -> Mode:
    """The mode of all rows; warns where none is found."""
    mode = find_mode(rows.sums, rows.full, rows.held.some, key)
    if not mode.is_found:
        warnings.warn(
            f"no mode was found in {mode.passes} passes over the data: the log density still rises, so that control "
            "variates may not help. Check the priors, or sample without minibatch.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return mode


def start_points(key: Key, num_chains: int, num_x: int) -> Point:
    """Starts in u for all chains, wider than the posterior if that is Gaussian."""
    u: Any = WIDER * generator(key).standard_normal((num_chains, num_x)).astype(jnp.result_type(float))
    nothing: Any = np.zeros(num_chains, u.dtype)
    return Point(u, nothing, np.zeros_like(u))


def to_x(mode: Mode, draws: Draws) -> Draws:
    """Draws in x, with gradients in x, from those in u."""
    u, gradient = (np.asarray(a, np.float64) for a in (draws.x, draws.gradient))
    x = mode.x + _product(u, mode.spread.T)
    gradient = _product(gradient, np.linalg.inv(mode.spread))
    return replace(draws, x=x.astype(draws.x.dtype), gradient=gradient.astype(draws.gradient.dtype))


def _product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The product, column by column: that of a library differs in the last place by how many rows there are."""
    total = np.zeros_like(rows)
    for j, row in enumerate(matrix):
        total += rows[..., j : j + 1] * row
    return total


@dataclass(frozen=True)
class InX:
    """What a kernel has tuned in u, told in x.

    Attributes:
        kernel: that moves u.
        mode: from u to x.
    """

    kernel: Kernel
    mode: Mode

    def tuned(self, states: Any) -> dict[str, Any]:
        """By name; deviations and variances of every coordinate of x."""
        found, spread = dict(self.kernel.tuned(states)), self.mode.spread
        found["scale"] = np.sqrt(np.asarray(found["scale"], np.float64) ** 2 @ (spread**2).T)
        if "gradient_noise" in found:
            found["gradient_noise"] = np.asarray(found["gradient_noise"], np.float64) @ np.linalg.inv(spread) ** 2
        return found


def postprocessing(rows: Rows) -> PostProcessing:
    """Of draws of x."""
    return PostProcessing(rows.result_program, "minibatches do not know the log likelihood of every datum")


def conclude(rows: Rows, result: "xr.DataTree", program: Program) -> None:
    """Hold the draws against all rows, and note what is found in the attributes of the posterior."""
    found = result["unconstrained_posterior"].to_dataset()
    columns = [np.asarray(found[name].values, np.float64) for name in program.x]
    x = np.concatenate([column.reshape(*column.shape[:2], -1) for column in columns], axis=-1)
    names = PostProcessing(rows.result_program, "").coordinates
    check = check_against_all(x, lambda points: rows.full.at(points)[1], rows.sums.size, names)
    if rows.kernel.is_exact:
        rate = float(np.mean(result["sample_stats"].to_dataset()["acceptance_rate_all_rows"].values))
        check = judge_exact(check, rate, rows.sums.size)
    result["posterior"].attrs.update({"full_data_check": check.words, "full_data_check_holds": int(check.holds)})


def _options_of(rows: Rows, mode: Mode, minibatch: Mapping[str, int]) -> dict[str, Any]:
    """What of the options the result notes."""
    return {
        "minibatch": json.dumps(dict(minibatch)), "rows": rows.sums.size,
        "log_density_at_mode": mode.log_density, "passes_to_mode": mode.passes,
    }  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What a run of minibatches is asked for, as by `sumout.sample`."""

    minibatch: Mapping[str, int]
    kernel: Any
    draws: int
    tune: int
    steps: int | None
    chains: int
    seed: int
    progress: bool | None
    plan: Mapping[str, str] | None
    store: Any
    chunk: int | None


def sample_rows(program: Program, asked: Request) -> "xr.DataTree":
    """Draw from the posterior of x by minibatches."""
    with stoppable() as stop, progress_bar(asked.progress, asked.chains) as report:
        report.phase("reading the model")
        key_mode, key_start, key_run, key_process = split(new_key(asked.seed), 4)
        key_rows, key_chosen = fold_in(key_run, HOLDING), fold_in(key_run, CHOOSING)
        with program.alone(), without_collection():
            rows = set_up_rows(program, asked.kernel, asked.minibatch, asked.plan)
        report.phase("looking for the mode")
        mode = search(rows, key_mode)
        report.phase("compiling")
        inner = rows.program(rows.prepared(key_chosen, mode))
        rows.loop.prepare(inner, asked.chains)
        options = {
            "kernel": repr(rows.kernel), "seed": asked.seed, "tune": asked.tune,
            "plan": json.dumps(dict(asked.plan or {})), "drawn": [],
            "exact_kernel": int(rows.kernel.is_exact), **_options_of(rows, mode, asked.minibatch),
        }  # fmt: skip
        postprocess = postprocessing(rows)
        postprocess.prepare()
        run = Run(InX(rows.kernel, mode), postprocess, options, asked.draws, key_process, stop)  # pyright: ignore
        if asked.store is None:
            opened: AbstractContextManager[TraceBackend] = nullcontext(MemoryBackend(run))
        else:
            identity = identify(program, options | {"chains": asked.chains, "steps": asked.steps})
            opened = open_folder(asked.store, identity, run)
        with opened as backend:
            checkpoint = backend.resume(rows.loop.shapes(inner, asked.chains))
            if checkpoint is None:
                points = rows.starts(key_start, asked.chains, inner.data)
                checkpoint = rows.loop.start(key_run, points, {}, asked.steps)
            schedule = Schedule(asked.draws, asked.tune, asked.steps, asked.chunk)

            def record(checkpoint: Checkpoint, draws: Draws) -> None:
                backend.record(checkpoint, to_x(mode, draws))

            renew = rows.renewal(key_rows, inner.data)
            rows.loop.run(key_run, checkpoint, inner.data, schedule, record, report, stop, renew=renew)
            result = backend.result(checkpoint)
    conclude(rows, result, program)
    return result
