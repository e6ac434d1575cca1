"""`sumout.numpyro_kernel`: a kernel for `numpyro.infer.MCMC`, which runs the chains, collects and post-processes.

NumPyro hands the arguments of the model to every function. Where they are constants to it, so they are here; with
`MCMC(…, jit_model_args=True)` they are traced. What a state was built for, the program and the kernel bound to it, is
part of the state's type, not of its value (`Built`): NumPyro compiles its loop once for all states of a type. Arguments
of the same shapes give the same `Built` as long as only free data differ (`plan/free_data.py`); then nothing is
compiled anew under `jit_model_args`. All others give a new one, and NumPyro compiles for it.

The state remembers a checksum of the data it was computed with. Where a warm restart goes on with other data, the log
density and gradient that it holds are computed anew. Should arguments change that cannot, as they are built in, the
chain is lost on purpose: its draws are NaN.

What is summed out of z is drawn in `postprocess_fn`, for the draws that are kept; warm-up does not pay for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpyro.infer.mcmc import MCMCKernel

from sumout.checks.check import check_plan
from sumout.checks.guard import Guard
from sumout.checks.not_finite import explain_no_start
from sumout.errors import OptionError, StartError
from sumout.kernels.kernel import CHAINS, Kernel
from sumout.model.numpyro import program as numpyro_program
from sumout.model.program import Data, Program
from sumout.randomness import as_words, fold_in, new_key
from sumout.run.numpyro_state import RECORD, Built, KernelState, named_sites
from sumout.run.starts import RESTARTS
from sumout.run.steps import StepsState, steps
from sumout.threads import attentively

MOST_BUILT = 8  # programs that a kernel keeps, the latest first


class NumPyroKernel(MCMCKernel):
    """A kernel of sumout's for `numpyro.infer.MCMC`; made by `sumout.numpyro_kernel`.

    Attributes:
        model: the NumPyro model, or a program.
    """

    sample_field = "z"  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    default_fields = ("z", "diverging")  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(self, model: Any, kernel: Any, plan: Mapping[str, str] | None, num_steps: int | None):
        self.model, self._kernel, self._plan, self._num_steps = model, kernel, plan, num_steps
        self._built: list[Built] = []
        self._sample_fn = self.sample  # or NumPyro would initialise a chain anew that goes on

    def init(
        self, rng_key: Any, num_warmup: int, init_params: Any, model_args: tuple, model_kwargs: Mapping[str, Any]
    ) -> KernelState:
        """The state of a chain at its start, or of several, for as many keys."""
        built = self._build(model_args, model_kwargs or {}, isinstance(rng_key, Tracer))
        data, checksum, _ = built.data(model_args, model_kwargs or {})
        is_several = jnp.ndim(rng_key) == (1 if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else 2)
        x = None if init_params is None else _flatten(built.program, init_params, is_several)

        def start(key: Array, x: Array | None) -> tuple[KernelState, Array]:
            key_start, key_later = jax.random.split(key)
            chain, height = built.steps.start(as_words(key_start), x, data)
            shapes = jax.eval_shape(built.steps.step, as_words(key_start), chain)[1]
            info = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
            counts = jnp.zeros((), jnp.int32), jnp.asarray(num_warmup, jnp.int32)
            z = named_sites(built, chain)
            return KernelState(counts[0], z, chain, info, counts[1], jnp.asarray(checksum), key_later), height

        state, height = jax.vmap(start)(rng_key, x) if is_several else start(rng_key, x)
        if not isinstance(height, Tracer):
            self._check(built, data, state, height)
        return state

    def sample(self, state: KernelState, model_args: tuple, model_kwargs: Mapping[str, Any]) -> KernelState:
        """The next draw."""
        built = state.z[RECORD].built
        data, checksum, is_same = built.data(model_args, model_kwargs or {})
        is_several = state.i.ndim == 1
        refresh = lambda chain: built.steps.refreshed(chain, data)  # noqa: E731
        has_changed = jnp.any(state.checksum != checksum)
        chain = jax.lax.cond(
            has_changed, jax.vmap(refresh) if is_several else refresh, lambda chain: chain, state.chain
        )
        # Numbers that all chains share stay shared, so that what is done in warm-up only is not done after it.
        i, warmup = (state.i[0], state.warmup[0]) if is_several else (state.i, state.warmup)
        advance = partial(self._advance, built, data, i, warmup)
        if is_several:
            advance = jax.vmap(advance, axis_name=CHAINS)
        chain, info, key = advance(chain, state.rng_key)
        z = named_sites(built, chain)
        if is_same is not True:
            z = {name: _lost(is_same, value) for name, value in z.items()}
        checksum = jnp.broadcast_to(jnp.asarray(checksum), state.checksum.shape)
        return KernelState(state.i + 1, z, chain, info, state.warmup, checksum, key)

    def _advance(
        self, built: Built, data: Data, i: Array, warmup: Array, chain: StepsState, rng_key: Array
    ) -> tuple[StepsState, Any, Array]:
        """One chain by one draw: its state, the info of its last step, the key of the draws to come."""
        key_now, key_later = jax.random.split(rng_key)
        key, num = as_words(key_now), self._steps_per_draw(built)

        def one(j: Any, chain: StepsState) -> tuple[StepsState, Any]:
            t = i * num + j
            return built.steps.adapted_step(fold_in(key, j), replace(chain, t=t), data, t, warmup * num)

        last = num - 1
        if num > 1:
            before = lambda j, chain: one(jnp.asarray(j, jnp.int32), chain)[0]  # noqa: E731
            chain = jax.lax.fori_loop(0, last, before, replace(chain, t=i * num))
        chain, info = one(jnp.asarray(last, jnp.int32), chain)
        return chain, info, key_later

    def postprocess_fn(self, model_args: tuple, model_kwargs: Mapping[str, Any]) -> Callable[[Any], dict[str, Array]]:
        """From the sites of a state to a draw: x, deterministics and z as the model has them."""

        def postprocess(sites: dict[str, Any]) -> dict[str, Array]:
            record = sites[RECORD]
            built = record.built
            data, _, _ = built.data(model_args, model_kwargs or {})
            program = built.program
            x = jnp.concatenate([jnp.zeros(0), *(sites[name].ravel() for name in program.x)])
            return built.steps.draw_at(record.key, x, {name: sites[name] for name in program.z}, data)

        return postprocess

    def get_diagnostics_str(self, state: KernelState) -> str:
        """For the progress bar."""
        return f"step size {float(state.adapt_state.step_size):.2e}. acc. prob={float(state.accept_prob):.2f}"

    def _steps_per_draw(self, built: Built) -> int:
        return self._num_steps or built.steps.kernel.steps_untuned

    def _build(self, args: tuple, kwargs: Mapping[str, Any], is_traced: bool) -> Built:
        """What was built for such arguments, or is now."""
        for built in self._built:
            if built.fits(args, kwargs):
                return built
        # A thread has no trace of its own: where NumPyro traces this for several devices, what is built stays concrete.
        built = attentively(self._build_new, args, kwargs) if is_traced else self._build_new(args, kwargs)
        self._built = [built, *self._built][:MOST_BUILT]
        return built

    def _build_new(self, args: tuple, kwargs: Mapping[str, Any]) -> Built:
        if isinstance(self.model, Program):
            if args or kwargs:
                raise OptionError("numpyro_kernel: a program has its data already; call MCMC.run with a key only.")
            program = replace(self.model, arguments_as_data=None)
        else:
            program = numpyro_program(self.model, *args, **kwargs)
        made = steps(program, self._kernel, self._plan)
        check_plan(made.plan).raise_or_warn()
        built = Built(made, {})
        return replace(built, by_value=built.sort_out(args, kwargs)[1])

    def _check(self, built: Built, data: Data, state: KernelState, height: Array) -> None:
        """Refuse starts of no density; compare the reading with the program, the first time."""
        program, target = replace(built.program, data=data), built.steps.target
        x, z = jax.tree.map(lambda a: np.asarray(a), (state.chain.x, state.chain.z))
        if jnp.ndim(height) == 0:
            x, z = jax.tree.map(lambda a: a[None], (x, z))
        lost = np.flatnonzero(~np.isfinite(np.atleast_1d(height)))
        if len(lost):
            points, those = jax.tree.map(lambda a: a[lost], (x, z))
            raise StartError(explain_no_start(program, target.log_density, points, those, f"{RESTARTS} restarts"))
        first = jax.tree.map(lambda a: a[0], (x, z))
        built.program.remember(
            ("guarded", id(built.steps.plan)), lambda: Guard(built.steps.plan).compare(new_key(0), *first)
        )


def _flatten(program: Program, named: Any, is_several: bool) -> Array:
    """Initial values on the real line, by name, as flat vectors."""
    missing = [name for name in program.x if not isinstance(named, Mapping) or name not in named]
    if missing:
        raise OptionError(
            f"init_params: expected values on the real line by the names of the continuous sites; {', '.join(missing)} "
            "is missing."
        )
    lead = 1 if is_several else 0
    arrays = [jnp.asarray(named[name], float) for name in program.x]
    flat = [a.reshape(*a.shape[:lead], -1) for a in arrays]
    return jnp.concatenate(flat, axis=-1) if flat else jnp.zeros(0)


def _lost(is_same: Any, value: Any) -> Any:
    """NaN where what is built in has changed."""
    is_real = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)
    return jnp.where(is_same, value, jnp.nan) if is_real else value


def numpyro_kernel(
    model: Any,
    kernel: Kernel | str | None = None,
    plan: Mapping[str, str] | None = None,
    *,
    num_steps: int | None = None,
) -> NumPyroKernel:
    """A kernel for NumPyro's own `MCMC`, which leaves the discrete sites of a model in, and sums them out.

    Args:
        model: a NumPyro model, unmodified, or a program.
        kernel: as for `sumout.sample`; step size and scale are tuned in NumPyro's warm-up.
        plan: as for `sumout.sample`.
        num_steps: steps of the kernel for each draw; None for one trajectory, or ten steps of a kernel that has none.
            To keep fewer draws, `thinning` of `MCMC` serves as well.

    Returns:
        An `MCMCKernel`. `get_samples` has x, deterministics and every z. Fields of its states: `potential_energy`,
        `accept_prob`, `diverging`, `adapt_state.step_size`, `adapt_state.scale`, and `info` with all that the kernel
        reports. With `MCMC(…, jit_model_args=True)` new data of the same shapes compile nothing anew.

    Example:
        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> from numpyro.infer import MCMC
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
        >>> mcmc = MCMC(sumout.numpyro_kernel(mixture), num_warmup=100, num_samples=100, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), np.array([5.1, 0.2, 4.8]))
        >>> {name: draws.shape for name, draws in mcmc.get_samples().items()}
        {'mu': (100,), 'z': (100, 3)}
    """
    if not callable(model) and not isinstance(model, Program):
        raise OptionError(f"numpyro_kernel: expected a NumPyro model or a Program, got {type(model).__name__}.")
    if num_steps is not None and (isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1):
        raise OptionError(f"numpyro_kernel: num_steps={num_steps!r} must be a whole number of at least 1, or None.")
    return NumPyroKernel(model, kernel, plan, num_steps)
