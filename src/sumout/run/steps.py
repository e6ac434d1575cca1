"""`sumout.steps`: the kernel of a program as pure functions, for loops of one's own.

    state = init(key)        state, info = step(key, state)        values = constrain(state)

in the manner of BlackJAX: no loop, no host code, so that they can be jitted, vmapped over chains, scanned over, and
handed to whatever runs such functions. `tune` is a warm-up of one chain, the one that `sumout.sample` runs: its step
size and scale are part of the state that it returns. The law of the draws is that of `sumout.sample`; the draws are
not the same, as keys come from the caller.

A step draws a key for what is summed out of z, which the state keeps: so `constrain` needs none, and gives the same
values whenever it is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from sumout.calls import public
from sumout.checks.not_finite import explain_no_start
from sumout.errors import OptionError, StartError
from sumout.kernels.kernel import Kernel
from sumout.kernels.leapfrog import Point
from sumout.kernels.registry import find_kernel, suit_kernel
from sumout.model.initial_values import draw_z
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.free_data import fill_in_data, free_data
from sumout.plan.plan import Plan, plan_for
from sumout.plan.target import Target, make_target
from sumout.randomness import as_words, fold_in, split
from sumout.run.starts import RESTARTS
from sumout.run.traced_starts import find_start, settle

TUNING_DRAWS = 1000  # of a warm-up of the usual length


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepsState:
    """Where a chain is.

    Attributes:
        chain: the kernel's own state, with `x`, `z` and `tuning`.
        t: number of the next step.
        key: for the part of z that is summed out.
    """

    chain: Any
    t: Array
    key: Array

    @property
    def x(self) -> Array:
        """The position on the real line, flat."""
        return self.chain.x

    @property
    def z(self) -> Nuisance:
        """The discrete variables; of those that are summed out, any value."""
        return self.chain.z

    @property
    def step_size(self) -> Array:
        """The step size, in units of the scale."""
        return self.chain.tuning.step_size

    @property
    def scale(self) -> Array:
        """The scale of x, one number for each coordinate or a matrix."""
        return self.chain.tuning.scale


@dataclass(frozen=True, eq=False)
class Steps:
    """A kernel bound to a program; made by `sumout.steps`.

    Attributes:
        program: with as many of its data free to change as can be (`program.free`).
        plan: what is done with z.
        kernel: bound to the target of the plan.
    """

    program: Program
    plan: Plan
    kernel: Kernel

    @property
    def target(self) -> Target:
        """Log density, gradient and moves."""
        assert isinstance(self.kernel.target, Target)
        return self.kernel.target

    def init(self, key: Array, x: Any = None, *, data: Mapping[str, Any] | None = None) -> StepsState:
        """The state of a chain at its start.

        Args:
            key: one of JAX's keys.
            x: where to start, on the real line, flat; None to search for a start by short ascents.
            data: arrays that take the place of the program's, by name.
        """
        values = self._data(data)
        if x is not None and np.shape(x) != (self.program.num_x,):
            raise OptionError(f"init: x has the shape {np.shape(x)}; the program has {self.program.num_x} coordinates.")
        state, height = self.start(as_words(key), x if x is None else jnp.asarray(x, float), values)
        if not isinstance(height, Tracer) and not np.isfinite(height):
            points, z = jax.tree.map(lambda a: np.asarray(a)[None], (state.x, state.z))
            tried = f"{RESTARTS} restarts" if x is None else "the x given"
            raise StartError(
                explain_no_start(replace(self.program, data=values), self.target.log_density, points, z, tried)
            )
        return state

    def step(self, key: Array, state: StepsState, data: Mapping[str, Any] | None = None) -> tuple[StepsState, Any]:
        """One step of the kernel: the new state, and its info.

        Args:
            key: one of JAX's keys.
            state: of the chain.
            data: arrays that take the place of the program's, by name; the same as for the step before, or `refresh`.
        """
        return self._step(as_words(key), state, self._data(data))

    def constrain(self, state: StepsState, data: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """The draw that a state stands for: x, deterministics and z as the user knows them, by name.

        Args:
            state: of the chain.
            data: as for the step.
        """
        return self.draw_at(state.key, state.x, state.z, self._data(data))

    def refresh(self, state: StepsState, data: Mapping[str, Any] | None = None) -> StepsState:
        """The state of a chain that goes on with other data: what it holds of the density is computed anew."""
        return self.refreshed(state, self._data(data))

    def with_tuning(self, state: StepsState, step_size: Any = None, scale: Any = None) -> StepsState:
        """The state with a step size or a scale by hand.

        Args:
            state: of the chain.
            step_size: in units of the scale.
            scale: about the standard deviation of every coordinate of x on the real line; of a dense one, the Cholesky
                factor of the covariance.
        """
        tuning = state.chain.tuning
        if scale is not None:
            scale = jnp.broadcast_to(jnp.asarray(scale, tuning.scale.dtype), tuning.scale.shape)
            tuning = replace(tuning, scale=scale, is_learnt=jnp.array(True))
        if step_size is not None:
            log_step = jnp.log(jnp.asarray(step_size, tuning.search.log_step.dtype))
            tuning = replace(tuning, search=replace(tuning.search, log_step=log_step, log_average=log_step).settle())
        return replace(state, chain=replace(state.chain, tuning=tuning))

    def _data(self, data: Mapping[str, Any] | None) -> Data:
        return fill_in_data(self.program, data)

    # Jitted, so that each is traced once however often a loop or a transformation calls it.

    @cached_property
    def start(self) -> Any:
        """The state at a start, or at x, and the log density there: `(key, x or None, data) -> state, log density`."""

        def init(key: Array, x: Array | None, data: Data) -> tuple[StepsState, Array]:
            key_start, key_init, key_z, key_draw = split(key, 4)
            if x is None:
                point, z = find_start(self.program, self.target, key_start, data)
            else:
                point, z = settle(self.target, key_start, x, draw_z(key_z, self.program, data), data)
            state = StepsState(self.kernel.init(key_init, point, z), jnp.zeros((), jnp.int32), key_draw)
            return state, point.log_density

        return jax.jit(init)

    @cached_property
    def _step(self) -> Any:
        def step(key: Array, state: StepsState, data: Data) -> tuple[StepsState, Any]:
            key_step, key_draw = split(key)
            chain, info = self.kernel.step(key_step, state.chain, data, state.t)
            return StepsState(chain, state.t + 1, key_draw), info

        return jax.jit(step)

    @cached_property
    def adapted_step(self) -> Any:
        """Step t of a warm-up of so many steps, or after it: `(key, state, data, t, length) -> state, info`."""

        def step(key: Array, state: StepsState, data: Data, t: Array, length: Array) -> tuple[StepsState, Any]:
            key_step, key_adapt = split(key)
            state, info = self._step(key_step, state, data)
            adapt = lambda: self.kernel.adapt(key_adapt, state.chain, info, data, t, length)  # noqa: E731
            return replace(state, chain=jax.lax.cond(t < length, adapt, lambda: state.chain)), info

        return jax.jit(step)

    @cached_property
    def _tune(self) -> Any:
        def tune(key: Array, state: StepsState, data: Data, length: Array) -> StepsState:
            def one(i: Array, state: StepsState) -> StepsState:
                return self.adapted_step(fold_in(key, i), state, data, i.astype(jnp.int32), length)[0]

            return jax.lax.fori_loop(0, length, one, state)

        return jax.jit(tune)

    @cached_property
    def draw_at(self) -> Any:
        """The draw at x and z, completed by what is summed out: `(key, x, z, data) -> values by name`."""

        def draw(key: Array, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
            key_move, key_recover, key_forward = split(key, 3)
            if not self.kernel.is_exact:  # then z was drawn for another x than the one reported
                z = self.target.move(key_move, x, z, data)
            z = self.target.recovered(key_recover, x, z, data)
            z = self.program.draw_forward(key_forward, x, z, data)
            return {**self.program.constrain(x, z, data), **z}

        return jax.jit(draw)

    @cached_property
    def refreshed(self) -> Any:
        """The state with the density of other data: `(state, data) -> state`."""

        def refresh(state: StepsState, data: Data) -> StepsState:
            if not hasattr(state.chain, "point"):
                return state
            point = Point.at(self.target, state.x, state.z, data)
            return replace(state, chain=replace(state.chain, point=point))

        return jax.jit(refresh)


@public
def steps(program: Program, kernel: Kernel | str | None = None, plan: Mapping[str, str] | None = None) -> Steps:
    """The kernel of a program as pure functions `init`, `step` and `constrain`, for a loop of one's own.

    Args:
        program: from `sumout.program` or `sumout.density`.
        kernel: as for `sumout.sample`. One with a step size is ready as it is; else `sumout.tune` tunes it.
        plan: as for `sumout.sample`.

    Returns:
        An object with `init(key) -> state`, `step(key, state) -> (state, info)` and `constrain(state) -> values by
        name`. All are pure: they can be jitted, vmapped and scanned over. Each takes other `data` by name, as in
        `program.data`, as far as the structure does not follow from their values.

    Example:
        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
        >>> steps = sumout.steps(sumout.program(mixture, np.array([5.1, 0.2, 4.8])))
        >>> state = sumout.tune(steps, jax.random.key(0), num_steps=200)
        >>> def one(state, key):
        ...     state, info = steps.step(key, state)
        ...     return state, steps.constrain(state)
        >>> state, draws = jax.lax.scan(one, state, jax.random.split(jax.random.key(1), 100))
        >>> draws["mu"].shape, draws["z"].shape
        ((100,), (100, 3))
    """
    if not isinstance(program, Program):
        raise OptionError(
            f"steps: expected a Program from sumout.program or sumout.density, got {type(program).__name__}."
        )
    plan = suit_kernel(kernel, program, plan, NOT_CUT)
    freed = free_data(program, plan)
    made = plan_for(freed, plan, NOT_CUT)
    chosen = find_kernel(kernel, made)
    label = ("steps", id(made), chosen)
    return freed.remember(label, lambda: Steps(freed, made, chosen.bind(make_target(made))))


@public
def tune(
    steps: Steps,
    key: Array,
    num_steps: int | None = None,
    *,
    state: StepsState | None = None,
    data: Mapping[str, Any] | None = None,
) -> StepsState:
    """A warm-up of one chain, as that of `sumout.sample`: step size and scale are tuned to its target.

    It can be jitted, and vmapped over keys for several chains.

    Args:
        steps: from `sumout.steps`.
        key: one of JAX's keys.
        num_steps: steps of the kernel; None for as many as the 1,000 draws of the usual warm-up take.
        state: where to begin; None for `steps.init`.
        data: arrays that take the place of the program's, by name.

    Returns:
        The state after the warm-up, with the tuned step size and scale in it.

    Example:
        >>> import jax, jax.numpy as jnp, sumout
        >>> from numpyro.distributions import constraints
        >>> program = sumout.density(lambda x, z, data: -8 * x["a"] ** 2, x={"a": (constraints.real, ())}, z={})
        >>> state = sumout.tune(sumout.steps(program), jax.random.key(0))
        >>> bool(0.15 < state.scale[0] < 0.4)  # exact: 0.25
        True
    """
    if not isinstance(steps, Steps):
        raise OptionError(f"tune: expected what sumout.steps returns, got {type(steps).__name__}.")
    length = TUNING_DRAWS * steps.kernel.steps_untuned if num_steps is None else num_steps
    if isinstance(length, bool) or not isinstance(length, Integral) or length < 1:
        raise OptionError(f"tune: num_steps={num_steps!r} must be a whole number of at least 1, or None.")
    key_init, key_run = split(as_words(key))
    started = steps.init(key_init, data=data) if state is None else state
    return steps._tune(key_run, started, fill_in_data(steps.program, data), jnp.asarray(length, jnp.int32))
