"""All that is compiled for a run of `sumout.sample`: made once for a program, a plan and a kernel, and kept with it."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import jax

from sumout.checks.check import examine
from sumout.checks.guard import Guard
from sumout.jaxpr.equations import without_collection
from sumout.kernels.kernel import Kernel
from sumout.kernels.registry import find_kernel, suit_kernel
from sumout.model.program import Nuisance, Program
from sumout.model.rolled import roll_up_like
from sumout.plan.count_ends import CountEnds
from sumout.plan.other_data import has_same_code, planned, serves
from sumout.plan.plan import Plan, check_overrides, plan_for
from sumout.plan.target import make_target
from sumout.randomness import Key
from sumout.results.data_tree import PostProcessing
from sumout.results.likelihood import build_likelihood
from sumout.run.count_tables import Watch
from sumout.run.loop import ALONE, SIDE_BY_SIDE, Loop, capacity_for, is_small
from sumout.run.placement import Placement, place
from sumout.run.row_starts import make_starts
from sumout.run.starts import Starts

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


@dataclass(frozen=True, eq=False)
class Preparation:
    """Makes the setups of one run: another one whenever tables of its counts become longer.

    Attributes:
        program: as the user gave it.
        kernel: what was asked for.
        overrides: of the plan.
        placement: of the data.
        chains: how many.
        log_likelihood: whether post-processing adds it.
        kept: the variables of the posterior; None for all.
    """

    program: Program
    kernel: Any
    overrides: Mapping[str, str] | None
    placement: Placement | None
    chains: int
    log_likelihood: bool
    kept: frozenset[str] | None

    def first(self) -> Setup:
        """The setup for the first tables; if they cannot turn out too short, all that it needs is being compiled."""
        with self.program.alone(), without_collection():
            while True:
                ready = self.build()
                if ready.watch is not None:
                    ready.starts.prepare(self.chains)
                    return ready
                self.begin(ready)
                # What was traced now may have asked about values: of the data that it was built for, which are others.
                if self.build() is ready:
                    return ready

    def build(self, ends: CountEnds | None = None) -> Setup:
        """The setup for tables of counts with these ends."""
        with self.program.alone(), without_collection():
            return set_up(self.program, self.kernel, self.overrides, ends, self.placement)

    def go_on(self, ready: Setup) -> PostProcessing:
        """The post-processing of the rest of a run; the loop is being compiled, all else once it is needed."""
        with self.program.alone(), without_collection():
            postprocess = ready.postprocessing(self.log_likelihood, self.kept)
            ready.loop_for(postprocess.recorded).prepare(ready.program, self.chains, ready.data)
            return postprocess

    def begin(self, ready: Setup) -> PostProcessing:
        """The post-processing of the run; all that it needs is being compiled."""
        with self.program.alone(), without_collection():
            postprocess = ready.postprocessing(self.log_likelihood, self.kept)
            ready.prepare(self.chains, postprocess)
            return postprocess
