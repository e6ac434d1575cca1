"""`sumout.sample`: from a program to draws from its posterior."""

import copy
import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import jax

from sumout.calls import public
from sumout.checks.check import check_plan, examine
from sumout.checks.guard import Guard
from sumout.errors import OptionError, UntrustedWarning
from sumout.jaxpr.equations import without_collection
from sumout.kernels.kernel import Kernel
from sumout.kernels.registry import find_kernel, suit_kernel
from sumout.model.front_ends import as_program
from sumout.model.program import Nuisance, Program
from sumout.model.rolled import roll_up_like
from sumout.plan.count_ends import CountEnds, ends_at
from sumout.plan.other_data import code_of, has_same_code, planned, serves
from sumout.plan.plan import Plan, check_overrides, plan_for
from sumout.plan.target import make_target
from sumout.randomness import Key, as_seed, new_key, split
from sumout.results.data_tree import PostProcessing
from sumout.results.kept import choose_kept
from sumout.results.likelihood import build_likelihood
from sumout.results.verdict import judge
from sumout.run.bars import is_notebook, is_watched
from sumout.run.count_tables import Watch, grown, settle
from sumout.run.loop import ALONE, SIDE_BY_SIDE, Loop, Schedule, capacity_for, is_small
from sumout.run.minibatch import Request, choose_minibatch, sample_rows
from sumout.run.placement import Placement, choose_placement, place, processes_of
from sumout.run.progress import progress_bar
from sumout.run.row_starts import make_starts
from sumout.run.starts import Starts
from sumout.store.backend import MemoryBackend, Run, TraceBackend
from sumout.store.folder import open_folder
from sumout.store.format import identify
from sumout.store.shared_folder import open_shared_folder
from sumout.threads import stoppable

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

T = TypeVar("T")


class Setup:
    """All that is compiled to sample from a program with a plan and a kernel, whatever the seed and number of draws.

    It is kept with the program, so that a second run starts at once.
    """

    def __init__(self, plan: Plan, kernel: Kernel, apart: Collection[str] = (), placement: Placement | None = None):
        self.plan, self.kernel, self.apart, self.placement = plan, kernel, tuple(apart), placement
        self.program = plan.structure.program
        self.data = place(placement, self.program)
        self._target = target = self._kept("target", lambda: make_target(plan))
        make = lambda: make_starts(Starts(self.program, target, self.data))  # noqa: E731
        self.starts = self._kept(("starts", placement), make)
        is_alone = is_small(self.program, target) or target.is_loop_free(*self.program.abstract_arguments())
        self._group = ALONE if is_alone else SIDE_BY_SIDE
        self._loops: dict[Any, Loop] = {}
        self._guard = self._kept("guard", lambda: Guard(plan))
        self._first = self

    def of(self, program: Program) -> "Setup":
        """The same of a program with the same code and other data; what is compiled is shared."""
        first = self._first
        other = copy.copy(first)
        other.program = roll_up_like(first.program, program, self.apart)
        structure = copy.copy(first.plan.structure)
        object.__setattr__(structure, "program", other.program)
        other.plan = copy.copy(first.plan)
        object.__setattr__(other.plan, "structure", structure)
        other.data = place(first.placement, other.program)
        other.starts, other._guard = first.starts.of(other.program, other.data), first._guard.of(other.plan)
        other._kept("examination", lambda: examine(first.plan).of(other.plan))
        return other

    def loop_for(self, recorded: Mapping[str, Any]) -> Loop:
        """That records some of z, by name in these types."""
        label = tuple(sorted((name, str(kind)) for name, kind in recorded.items()))
        if label not in self._loops:
            capacity = capacity_for(self.program, recorded)
            self._loops[label] = Loop(self.kernel.bind(self._target), capacity, self._group, recorded)
        return self._loops[label]

    def postprocessing(self, log_likelihood: bool, kept: frozenset[str] | None = None) -> PostProcessing:
        """Of the draws, with the log likelihood of every datum if that is wanted, and the variables that are kept."""
        label = ("postprocessing", log_likelihood, kept)
        if self is not self._first:
            first = self._first.postprocessing(log_likelihood, kept)
            return self._kept(label, lambda: first.of(self.program))
        likelihood = (
            self._kept("likelihood", lambda: build_likelihood(self.plan)) if log_likelihood else "not asked for"
        )
        neglected = None if self.plan.ends is None else self.plan.neglected
        return self._kept(label, lambda: PostProcessing(self.program, likelihood, neglected, kept))

    @cached_property
    def watch(self) -> Watch | None:
        """On what sums over counts leave out; None where nothing is cut."""
        return None if self.plan.ends is None else self._kept("watch", lambda: Watch(self.plan))

    def prepare(self, chains: int, postprocess: PostProcessing) -> None:
        """Begin to compile what a run of so many chains needs, in the background; what it waits for longest first."""
        if not self._target.is_marginalised:  # then the ascents to starts take longest
            self.starts.prepare(chains)
        self.loop_for(postprocess.recorded).prepare(self.program, chains, self.data)
        examine(self.plan).prepare()
        self._guard.prepare()
        self.starts.prepare(chains)
        postprocess.prepare()

    def guard(self, key: Key, x: jax.Array, z: Nuisance) -> None:
        """Compare the reading with the program at a point, the first time it is run with this plan."""
        self._kept("guarded", lambda: self._guard.compare(key, x, z))

    def _kept(self, name: Any, make: Callable[[], T]) -> T:
        """Made once for the program and the plan, whatever the kernel."""
        return self.program.remember((name, id(self.plan)), make)


def set_up(
    program: Program,
    kernel: Any,
    overrides: Mapping[str, str] | None,
    ends: CountEnds | None = None,
    placement: Placement | None = None,
) -> Setup:
    """The setup for a kernel, overrides of the plan, ends of counts and a placement; the same object for the same.

    Where what was built for the same model with other data serves, it is that, with these data.
    """
    overrides = suit_kernel(kernel, program, overrides, ends)
    if ends is not None:
        return _build(program, kernel, overrides, plan_for(program, overrides, ends), placement)
    overrides = check_overrides(program, overrides)
    label = ("built for", tuple(sorted(overrides.items())))
    first = program.remember(label, lambda: _find_first(program, overrides))
    # Asked again, as more may have been asked about the values of the other's data since.
    if first is not program and serves(planned(first, overrides), program, overrides, build_likelihood):
        made = _build(first, kernel, overrides, planned(first, overrides), placement)
        return program.remember(("setup", id(made)), lambda: made.of(program))
    return _build(program, kernel, overrides, planned(program, overrides), placement)


def _build(
    program: Program, kernel: Any, overrides: Mapping[str, str] | None, plan: Plan, placement: Placement | None
) -> Setup:
    chosen = find_kernel(kernel, plan)
    program.kin.add(program)
    label = ("setup", id(plan), chosen, placement)
    return plan.structure.program.remember(label, lambda: Setup(plan, chosen, overrides or (), placement))


def _find_first(program: Program, overrides: Mapping[str, str] | None) -> Program:
    """The program of the same model for which all was built that this one needs; itself if there is none."""
    for other in program.kin.programs:
        if other is program:
            break
        if has_same_code(other, program) and serves(planned(other, overrides), program, overrides, build_likelihood):
            return other
    return program


def _prepare(
    make: Callable[[], Setup], chains: int, log_likelihood: bool, kept: frozenset[str] | None
) -> tuple[Setup, PostProcessing]:
    """The setup of a run, with all that it needs being compiled."""
    while True:
        ready = make()
        postprocess = ready.postprocessing(log_likelihood, kept)
        ready.prepare(chains, postprocess)
        # What was traced now may have asked about values: of the data that it was built for, which are others.
        if make() is ready:
            return ready, postprocess


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
        minibatch: rows of a plate from which a gradient is estimated, as in `{"n": 1000}`, for data of so many rows
            that a gradient of all takes long; None for all rows, or for what `subsample_size` of a NumPyro plate says.
            Discrete variables of rows are summed out and not drawn. The kernel must be one without accept/reject;
            `SplitSGHMC` is the default. docs/minibatches.md has the rest.
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
    user_program = program = as_program(program)
    at_least_one = {"steps": 1 if steps is None else steps, "chunk": 1 if chunk is None else chunk}
    _check_options(program, draws=draws, tune=tune, chains=chains, seed=seed, **at_least_one)
    chosen = choose_minibatch(program, minibatch)
    placement = choose_placement(program, mesh, shard)
    processes = processes_of(placement)
    if chosen is not None and placement is not None:
        raise OptionError(
            f"sample: mesh with a minibatch of plate '{chosen[0]}': a gradient of few rows gains nothing from several "
            "devices. Leave mesh out, or use all rows, minibatch={}."
        )
    if chosen is not None:
        asked = Request(*chosen, kernel, draws, tune, steps, chains, int(seed), progress, plan, store, chunk)
        if keep is not None:
            raise OptionError("sample: keep has no meaning with minibatches, which record x only: leave it out.")
        result = sample_rows(program, asked)
        _conclude(result, progress)
        return result
    kept = choose_kept(program, keep)
    shown = progress if processes.is_first else False
    with processes.ending_together(), stoppable() as stop, progress_bar(shown, chains) as report:
        report.phase("reading the model")
        asked_for = (kernel, draws, tune, steps, chains, seed, plan, log_likelihood, chunk, keep, shard, str(store))
        if processes.are_many:
            processes.compare({"the model": code_of(program), "the data": program.data, "the options": asked_for})
        key_start, key_guard, key_run, key_process = split(new_key(seed), 4)

        def build(ends: CountEnds | None = None) -> Setup:
            with user_program.alone(), without_collection():
                return set_up(user_program, kernel, plan, ends, placement)

        def begin(ready: Setup) -> PostProcessing:
            with user_program.alone(), without_collection():
                postprocess = ready.postprocessing(log_likelihood, kept)
                ready.prepare(chains, postprocess)
                return postprocess

        ready, found = build(), None
        if ready.watch is not None:
            ready.starts.prepare(chains)
        else:
            with user_program.alone(), without_collection():
                ready, postprocess = _prepare(build, chains, log_likelihood, kept)
        report.phase("compiling")
        check_plan(ready.plan).raise_or_warn()
        if ready.watch is not None:
            ready, found = settle(ready, build, key_start, chains)
            postprocess = begin(ready)
        program = ready.program
        options = {
            "kernel": repr(ready.kernel), "seed": seed, "tune": tune,
            "plan": json.dumps(dict(plan or {})), "drawn": ready.plan.drawn, "exact_kernel": int(ready.kernel.is_exact),
        }  # fmt: skip
        run = Run(ready.kernel, postprocess, options, draws, key_process, stop)
        if store is None:
            opened: AbstractContextManager[TraceBackend] = nullcontext(MemoryBackend(run))
        else:
            made_for = {"chains": chains, "steps": steps, "log_likelihood": log_likelihood}
            made_for |= {} if kept is None else {"keep": sorted(kept)}
            identity = identify(program, options | made_for)
            if processes.are_many:
                opened = open_shared_folder(store, identity, run, processes)
            else:
                opened = open_folder(store, identity, run)
        with opened as backend:
            loop = ready.loop_for(postprocess.recorded)
            checkpoint = backend.resume(loop.shapes(program, chains))
            if checkpoint is None:
                report.phase("looking for starts")
                points, z = ready.starts.find(key_start, chains, processes) if found is None else found
                ready.guard(key_guard, points.x[0], jax.tree.map(lambda a: a[0], z))
                checkpoint = loop.start(key_run, points, z, steps)
            elif checkpoint.upper:
                ready = build(ends_at(user_program, checkpoint.upper))
                postprocess = begin(ready)
            report.phase("compiling")
            schedule = Schedule(draws, tune, steps, chunk)
            checkpoint.upper = ready.program.upper
            run_on = (key_run, checkpoint, ready.data, schedule, backend.record, report, stop)
            while not ready.loop_for(postprocess.recorded).run(*run_on, ready.watch, processes):
                assert ready.watch is not None
                ready = grown(ready, build, ready.watch.outside)
                checkpoint.upper = ready.program.upper
                postprocess = begin(ready)
                backend.run = replace(backend.run, postprocess=postprocess)
            result = backend.result(checkpoint)
    if processes.is_first:
        _conclude(result, progress)
    return result


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
