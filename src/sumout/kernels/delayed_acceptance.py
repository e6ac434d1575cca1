"""Draws of a surrogate, accepted or rejected by the density itself (surrogate transition, Liu 2001, section 9.4.3).

    1. some trajectories of HMC that leave π* invariant lead from x to x'
    2. x' is accepted with probability min(1, π(x') π*(x) / (π(x) π*(x')))

HMC with a fresh momentum for each trajectory is reversible, and so is the same kernel several times over: from x it
proposes x' π*(x') / π*(x) times as often as from x' x. So π is left invariant exactly, however bad π* is; with a bad
one most draws are rejected. Here π* comes from some rows (`plan/surrogate_target.py`), π from all: one pass over them
for each draw.

Warm-up runs on π* alone, without such passes. Where there is none, π judges from the first draw on.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sumout.kernels.hmc import HMC
from sumout.kernels.kernel import Kernel
from sumout.kernels.leapfrog import Point
from sumout.kernels.metropolis_adjusted import Info as ProposalInfo
from sumout.kernels.metropolis_adjusted import State as ProposalState
from sumout.model.program import Nuisance
from sumout.plan.surrogate_target import SurrogateData, SurrogateTarget
from sumout.plan.target import Target
from sumout.randomness import fold_in, split, uniform

TRAJECTORIES = 3  # between two passes over all rows: after these x has about forgotten where it began


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """The state of the proposer, and how π and π* differ there.

    Attributes:
        proposal: of the proposer.
        gap: log π − log π* at x; NaN where that is not known.
        is_warming_up: whether draws are those of π*.
    """

    proposal: ProposalState
    gap: Float[Array, ""]
    is_warming_up: Bool[Array, ""]

    @property
    def x(self) -> Float[Array, " num_x"]:
        """The position."""
        return self.proposal.x

    @property
    def z(self) -> Nuisance:
        """The z of the proposer."""
        return self.proposal.z

    @property
    def tuning(self) -> Any:
        """What the proposer has tuned."""
        return self.proposal.tuning


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Info(ProposalInfo):
    """What a draw has to report, beside what the proposer's last trajectory does.

    Attributes:
        acceptance_rate_all_rows: acceptance probability by the density of all rows; 1 in warm-up.
    """

    acceptance_rate_all_rows: Float[Array, ""]


@dataclass(frozen=True)
class DelayedAcceptance(Kernel):
    """HMC on a surrogate, accepted by all rows.

    Attributes:
        proposer: what moves x.
    """

    name = "delayed_acceptance"
    is_exact = True
    proposer: HMC = field(default_factory=HMC)

    def bind(self, target: Target) -> "DelayedAcceptance":
        """The kernel for one target, a surrogate's."""
        return replace(self, target=target, proposer=self.proposer.bind(target))

    @property
    def steps_untuned(self) -> int:
        """A pass over all rows makes a draw."""
        return 1

    def tuned(self, states: Any) -> dict[str, Any]:
        """What the proposer has tuned."""
        return self.proposer.tuned(states)

    def init(self, key: Array, start: Point, z: Nuisance) -> State:
        """A chain at its start, untuned."""
        gap = jnp.full_like(start.log_density, jnp.nan)
        return State(self.proposer.init(key, start, z), gap, jnp.array(False))

    def step(self, key: Array, state: State, data: SurrogateData, t: Array) -> tuple[State, Info]:
        """Some trajectories on the surrogate; in warm-up one, which is always accepted."""
        key_way, key_level = split(key)

        def one(i: Array, now: tuple[ProposalState, ProposalInfo]) -> tuple[ProposalState, ProposalInfo]:
            return self.proposer.step(fold_in(key_way, i), now[0], data, t)

        shapes = jax.eval_shape(self.proposer.step, key_way, state.proposal, data, t)[1]
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        num = jnp.where(state.is_warming_up, 1, TRAJECTORIES)
        reached, info = jax.lax.fori_loop(0, num, one, (state.proposal, nothing))

        def warm_up() -> tuple[State, Array]:
            return State(reached, jnp.full_like(state.gap, jnp.nan), state.is_warming_up), jnp.ones_like(state.gap)

        level = uniform(key_level, (1,), state.x.dtype)[0]
        moved, rate = jax.lax.cond(state.is_warming_up, warm_up, lambda: self._judge(level, state, reached, data))
        log_density = moved.proposal.point.log_density + jnp.where(jnp.isnan(moved.gap), 0.0, moved.gap)
        return moved, Info(**{**vars(info), "log_density": log_density}, acceptance_rate_all_rows=rate)

    def _judge(self, level: Array, state: State, reached: ProposalState, data: SurrogateData) -> tuple[State, Array]:
        """Accept or reject by all rows; the acceptance probability."""

        def gap_at(point: Point) -> Array:
            assert isinstance(self.target, SurrogateTarget)
            return self.target.of_all(point.x, data) - point.log_density

        before = jax.lax.cond(jnp.isnan(state.gap), lambda: gap_at(state.proposal.point), lambda: state.gap)
        after = gap_at(reached.point)
        change = jnp.where(jnp.isfinite(after), after - before, -jnp.inf)
        rate = jnp.exp(jnp.minimum(change, 0.0))
        is_accepted = level < rate
        point = jax.tree.map(lambda a, b: jnp.where(is_accepted, a, b), reached.point, state.proposal.point)
        gap = jnp.where(is_accepted, after, before)
        return State(replace(state.proposal, point=point), gap, state.is_warming_up), rate

    def gradient(self, state: State, z: Nuisance, data: SurrogateData) -> Array:
        """Of the log density of all rows, estimated from the batch in the data: right on average."""
        del z
        assert isinstance(self.target, SurrogateTarget)
        return self.target.estimate(state.x, data)

    def adapt(self, key: Array, state: State, info: Any, data: SurrogateData, t: Array, length: Array) -> State:
        """What the proposer learns on the surrogate."""
        proposal = self.proposer.adapt(key, state.proposal, info, data, t, length)
        return replace(state, proposal=proposal, is_warming_up=t + 1 < length)
