"""`sumout.sample`: from a program to draws from its posterior."""

import json
import os
import sys
import warnings
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import jax

from sumout.calls import public
from sumout.checks.check import check_plan
from sumout.errors import OptionError, UntrustedWarning
from sumout.kernels.kernel import Kernel
from sumout.model.front_ends import as_program
from sumout.model.program import Program
from sumout.plan.count_ends import ends_at
from sumout.plan.other_data import code_of
from sumout.randomness import as_seed, new_key, split
from sumout.results.kept import choose_kept
from sumout.results.verdict import judge
from sumout.run.bars import is_notebook, is_watched
from sumout.run.count_tables import grown, settle
from sumout.run.loop import Schedule
from sumout.run.minibatch import Request, choose_minibatch, sample_rows
from sumout.run.placement import choose_placement, processes_of
from sumout.run.processes import Processes
from sumout.run.progress import progress_bar
from sumout.run.setup import Preparation, Setup
from sumout.store.backend import MemoryBackend, Run, TraceBackend
from sumout.store.folder import open_folder
from sumout.store.format import identify
from sumout.store.shared_folder import open_shared_folder
from sumout.threads import stoppable

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


@public
def sample(
    program: Program | Any = None,
    kernel: Kernel | str | None = None,
    *,
    draws: int = 1000,
    tune: int = 1000,
    steps: int | None = None,
    chains: int = 4,
    seed: int | jax.Array = 0,
    progress: bool | None = None,
    plan: Mapping[str, str] | None = None,
    log_likelihood: bool = True,
    store: str | os.PathLike[str] | None = None,
    chunk: int | None = None,
    minibatch: Mapping[str, int] | None = None,
    keep: Collection[str] | Mapping[str, bool] | None = None,
    mesh: jax.sharding.Mesh | None = None,
    shard: Mapping[str, str | tuple[str, ...]] | None = None,
) -> "xr.DataTree":
    """Draw from the posterior of x and z.

    Args:
        program: from `sumout.program` or `sumout.density`; or a PyMC model, which can be left out inside its context.
        kernel: an object such as `sumout.SGHMC(step_size=0.05)`, its name, or None for the default: HMC, with a move
            on z before every trajectory where some of z is drawn.
        draws: draws to keep from each chain.
        tune: draws of warm-up before them, not kept.
        steps: steps of the kernel between draws (of HMC and NUTS a step is a trajectory); None leaves it to the kernel.
        chains: number of chains.
        seed: fixes all randomness, a number or one of JAX's keys; the same seed gives the same draws.
        progress: show a progress bar; None shows it in terminals and notebooks only.
        plan: what to do with a discrete site, by name: "sum" it out; "draw" it, in the best way there is; or draw it in
            a certain way: "joint", "gibbs", "metropolis" or "prior". By default sums are taken where they are cheap;
            `sumout.explain` says which.
        log_likelihood: add the group `log_likelihood`.
        store: a folder to write the draws to as they are made. If the same run is there already, finished or not, it is
            resumed, and the draws are those that it would have made uninterrupted; `draws` may be larger than
            before. The result then stays on the disk until it is looked at; `sumout.load` reads it again.
        chunk: draws computed between two reports of progress; None for as many as take a second. Does not change the
            draws.
        minibatch: rows of a plate (of a PyMC model: a dimension), or of several, from which a gradient is estimated, as
            in `{"n": 1000}`, for data of so many rows that a gradient of all takes long; None for all rows, or for what
            `subsample_size` of a NumPyro plate says. Discrete variables of rows are summed out and not drawn. The
            kernel must be one without accept/reject, `SplitSGHMC` by default; or `HMC`, whose draws are exact, as each
            is accepted or rejected by all rows. docs/minibatches.md has the rest.
        keep: names of the variables that the posterior is to have, as in `("mu", "sigma")`, or what to leave out, as in
            `{"z": False}`; None for all. What is not kept takes no memory. x on the real line is always there.
        mesh: devices, of this process or of several (`jax.distributed`), in each of which the same call is made with
            the same data; each has the whole result, and process 0 writes `store`. docs/several_machines.md has the
            rest.
        shard: for a plate the axis of the mesh over whose devices its rows are spread, as in `{"n": "data"}`; also a
            dimension of a PyMC model, or an array of data, for its first axis. None spreads chains over processes.

    Returns:
        A DataTree in ArviZ's schema: `posterior` holds x, deterministics and every z in its support values;
        `sample_stats` what the kernel reports; `tuned` what its warm-up has tuned; `observed_data` the data;
        `unconstrained_posterior` x on the real line and `unconstrained_gradient` the gradient there, for the bias meter
        of `sumout.summary`; `log_likelihood` log p(y_i | x, y_−i) of every datum with its z summed out, as
        leave-one-out cross-validation wants; where z is drawn, given the draws of the z of the others. Of that, or why
        the group is missing, `posterior.attrs["log_likelihood"]` tells. After Ctrl-C or SIGTERM it holds what was drawn
        until then, and `posterior.attrs["complete"]` is 0; that takes a few seconds at most, for which draws still
        being made, or not post-processed by then, are left out. If there is none yet, KeyboardInterrupt is raised; with
        `store` the same call resumes the run later. A second signal ends it at once, without a result.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
        >>> program = sumout.program(mixture, np.array([5.1, 0.2, 4.8]))
        >>> result = sumout.sample(program, draws=50, tune=50, chains=2)
        >>> dict(result.posterior.z.sizes)
        {'chain': 2, 'draw': 50, 'points': 3}
    """
    seed = as_seed(seed)
    program = as_program(program)
    at_least_one = {"steps": 1 if steps is None else steps, "chunk": 1 if chunk is None else chunk}
    _check_options(program, draws=draws, tune=tune, chains=chains, seed=seed, **at_least_one)
    chosen = choose_minibatch(program, minibatch)
    placement = choose_placement(program, mesh, shard)
    if chosen is not None and placement is not None:
        raise OptionError(
            f"sample: mesh with a minibatch of {', '.join(chosen)}: a gradient of few rows gains nothing from several "
            "devices. Leave mesh out, or use all rows, minibatch={}."
        )
    if chosen is not None:
        asked = Request(chosen, kernel, draws, tune, steps, chains, int(seed), progress, plan, store, chunk)
        if keep is not None:
            raise OptionError("sample: keep has no meaning with minibatches, which record x only: leave it out.")
        result = sample_rows(program, asked)
        _conclude(result, progress)
        return result
    preparation = Preparation(
        program, kernel, plan, placement, chains, log_likelihood, choose_kept(program, keep)
    )  # fmt: skip
    result = _sample_all(preparation, Schedule(draws, tune, steps, chunk), int(seed), progress, store)
    if processes_of(placement).is_first:
        _conclude(result, progress)
    return result


def _sample_all(
    preparation: Preparation, schedule: Schedule, seed: int, progress: bool | None, store: Any
) -> "xr.DataTree":
    """Draw by a density of all rows."""
    processes, chains = processes_of(preparation.placement), preparation.chains
    shown = progress if processes.is_first else False
    with processes.ending_together(), stoppable() as stop, progress_bar(shown, chains) as report:
        report.phase("reading the model")
        _compare(processes, preparation, (schedule, seed, str(store)))
        key_start, key_guard, key_run, key_process = split(new_key(seed), 4)
        ready, found = preparation.first(), None
        report.phase("compiling")
        check_plan(ready.plan).raise_or_warn()
        if ready.watch is not None:
            ready, found = settle(ready, preparation.build, key_start, chains)
        options = {
            "kernel": repr(ready.kernel), "seed": seed, "tune": schedule.tune,
            "plan": json.dumps(dict(preparation.overrides or {})), "drawn": ready.plan.drawn,
            "exact_kernel": int(ready.kernel.is_exact),
        }  # fmt: skip
        run = Run(ready.kernel, preparation.begin(ready), options, schedule.draws, key_process, stop)
        with _open(store, preparation, ready.program, schedule, run, processes) as backend:
            loop = ready.loop_for(run.postprocess.recorded)
            checkpoint = backend.resume(loop.shapes(ready.program, chains))
            if checkpoint is None:
                report.phase("looking for starts")
                points, z = ready.starts.find(key_start, chains, processes) if found is None else found
                ready.guard(key_guard, points.x[0], jax.tree.map(lambda a: a[0], z))
                checkpoint = loop.start(key_run, points, z, schedule.steps)
            elif checkpoint.upper:
                longer = preparation.build(ends_at(preparation.program, checkpoint.upper))
                ready = _go_on_with(longer, preparation, backend)
            report.phase("compiling")

            def draw_with(ready: Setup) -> bool:
                """Go on from the checkpoint; False where tables of counts turn out too short."""
                checkpoint.upper = ready.program.upper
                loop, record = ready.loop_for(backend.run.postprocess.recorded), backend.record
                given = key_run, checkpoint, ready.data, schedule, record, report, stop, ready.watch, processes
                return loop.run(*given)

            while not draw_with(ready):
                assert ready.watch is not None
                longer = grown(ready, preparation.build, ready.watch.outside)
                ready = _go_on_with(longer, preparation, backend)
            return backend.result(checkpoint)


def _go_on_with(ready: Setup, preparation: Preparation, backend: TraceBackend) -> Setup:
    """Another setup, for the draws that a backend gets from now on."""
    backend.run = replace(backend.run, postprocess=preparation.go_on(ready))
    return ready


def _compare(processes: Processes, preparation: Preparation, others: tuple[Any, ...]) -> None:
    """See that all processes of a run were asked for the same."""
    if not processes.are_many:
        return
    program, placement, kept = preparation.program, preparation.placement, preparation.kept
    asked_for = (
        preparation.kernel, preparation.overrides, preparation.chains, preparation.log_likelihood,
        None if kept is None else sorted(kept), None if placement is None else placement.rows, *others,
    )  # fmt: skip
    processes.compare({"the model": code_of(program), "the data": program.data, "the options": asked_for})


def _open(
    store: Any, preparation: Preparation, program: Program, schedule: Schedule, run: Run, processes: Processes
) -> AbstractContextManager[TraceBackend]:
    """Where draws go: memory, or a folder."""
    if store is None:
        return nullcontext(MemoryBackend(run))
    kept = preparation.kept
    made_for = {
        "chains": preparation.chains, "steps": schedule.steps, "log_likelihood": preparation.log_likelihood,
    }  # fmt: skip
    made_for |= {} if kept is None else {"keep": sorted(kept)}
    identity = identify(program, dict(run.attrs) | made_for)
    if processes.are_many:
        return open_shared_folder(store, identity, run, processes)
    return open_folder(store, identity, run)


def _conclude(result: "xr.DataTree", progress: bool | None) -> None:
    """Say in a line whether the draws can be trusted, to whoever is watching; warn if they cannot."""
    verdict = judge(result)
    if verdict.is_bad:
        warnings.warn(verdict.words, UntrustedWarning, stacklevel=4)
    elif is_watched(progress):
        print(verdict.words, file=sys.stdout if is_notebook() else sys.stderr)  # a notebook shows stderr as trouble


def _check_options(program: Any, **numbers: Any) -> None:
    if not isinstance(program, Program):
        raise OptionError(
            f"sample: expected a Program, got {type(program).__name__}; make one with sumout.program(model, *args) "
            "from a NumPyro model or sumout.density(log_density, x=…, z=…) from a function."
        )
    least = {"tune": 0, "seed": 0}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least.get(name, 1):
            raise OptionError(f"sample: {name}={value!r} must be a whole number of at least {least.get(name, 1)}.")
