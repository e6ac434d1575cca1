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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.infer.mcmc import MCMCKernel

from sumout.checks.check import check_plan
from sumout.checks.guard import Guard
from sumout.checks.not_finite import explain_no_start
from sumout.errors import OptionError, StartError
from sumout.kernels.kernel import CHAINS, Kernel
from sumout.model.arguments import is_array
from sumout.model.numpyro import program as numpyro_program
from sumout.model.program import Data, Program
from sumout.randomness import as_words, fold_in, new_key
from sumout.run.starts import RESTARTS
from sumout.run.steps import Steps, StepsState, steps
from sumout.threads import attentively

MOST_BUILT = 8  # programs that a kernel keeps, the latest first
RECORD = "sumout.record"  # beside the sites: what draws what is summed out


@partial(jax.tree_util.register_dataclass, data_fields=["key"], meta_fields=["built"])
@dataclass(frozen=True)
class Record:
    """What a draw is completed with: a key, and the functions of the program."""

    key: Array
    built: "Built"


class KernelState(NamedTuple):
    """The state of a chain, as NumPyro's users know it.

    Attributes:
        i: steps so far, warm-up included.
        z: x on the real line and the discrete sites, by name, and a `Record`.
        chain: the state as `sumout.steps` has it.
        info: of the last step.
        warmup: draws of the warm-up.
        checksum: of the data.
        rng_key: of the steps to come.
    """

    i: Array
    z: dict[str, Any]
    chain: StepsState
    info: Any
    warmup: Array
    checksum: Array
    rng_key: Array

    @property
    def potential_energy(self) -> Array:
        """Minus the log density, with all that is summed out."""
        return -self.info.log_density

    @property
    def accept_prob(self) -> Array:
        """The acceptance probability of the last step; 1 of a kernel that accepts always."""
        return getattr(self.info, "acceptance_rate", jnp.ones_like(self.info.log_density))

    @property
    def diverging(self) -> Array:
        """Whether the last step diverged."""
        return self.info.diverging

    @property
    def adapt_state(self) -> Any:
        """What was tuned: `step_size` and `scale`."""
        return self.chain.chain.tuning


@dataclass(frozen=True, eq=False)
class Built:
    """What is built for some arguments of a model; equal only to itself.

    Attributes:
        steps: the kernel, bound to the program.
        by_value: of the arguments that are built in, their values by path.
    """

    steps: Steps
    by_value: Mapping[str, Any]

    @property
    def program(self) -> Program:
        """The program."""
        return self.steps.program

    def fits(self, args: tuple, kwargs: Mapping[str, Any]) -> bool:
        """Whether other arguments can be had by other values of free data alone."""
        try:
            data, rest = self.sort_out(args, kwargs)
        except (OptionError, TypeError):
            return False
        old = self.program.data
        same_form = all(jnp.shape(a) == jnp.shape(old[n]) and _dtype(a) == _dtype(old[n]) for n, a in data.items())
        return same_form and all(_is_equal(value, self.by_value[name]) for name, value in rest.items())

    def sort_out(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Free data, and what is built in, by name."""
        if self.program.arguments_as_data is None:
            return {}, {}
        data, rest = self.program.arguments_as_data(*args, **kwargs)
        free = self.program.free
        fixed = {name: value for name, value in data.items() if name not in free}
        return {name: value for name, value in data.items() if name in free}, {**rest, **fixed}

    def data(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[Data, Array | np.ndarray, Any]:
        """The program's data with those of a call, their checksum, and whether what is built in is as it was."""
        free, rest = self.sort_out(args, kwargs)
        is_same: Any = True
        for name, value in rest.items():
            if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
                is_same = is_same & jnp.array_equal(jnp.asarray(value), jnp.asarray(self.by_value[name]))
            elif not _is_equal(value, self.by_value[name]):
                raise OptionError(
                    f"the state of the chain is for another value of the argument '{name}', from which the structure "
                    "of the model follows: run without post_warmup_state."
                )
        return {**self.program.data, **free}, _checksum(free), is_same


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
        built = self._build(model_args, model_kwargs or {}, isinstance(rng_key, jax.core.Tracer))
        data, checksum, _ = built.data(model_args, model_kwargs or {})
        is_several = jnp.ndim(rng_key) == (1 if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else 2)
        x = None if init_params is None else _flatten(built.program, init_params, is_several)

        def start(key: Array, x: Array | None) -> tuple[KernelState, Array]:
            key_start, key_later = jax.random.split(key)
            chain, height = built.steps.start(as_words(key_start), x, data)
            shapes = jax.eval_shape(built.steps.step, as_words(key_start), chain)[1]
            info = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
            counts = jnp.zeros((), jnp.int32), jnp.asarray(num_warmup, jnp.int32)
            z = _named(built, chain)
            return KernelState(counts[0], z, chain, info, counts[1], jnp.asarray(checksum), key_later), height

        state, height = jax.vmap(start)(rng_key, x) if is_several else start(rng_key, x)
        if not isinstance(height, jax.core.Tracer):
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
        z = _named(built, chain)
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
            program = self.model
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


def _named(built: Built, chain: StepsState) -> dict[str, Any]:
    """The sites of a state by name, x on the real line; arrays may have an axis of chains in front."""
    named, start, x = {}, 0, chain.x
    for name, site in built.program.x.items():
        named[name] = x[..., start : start + site.size].reshape(*x.shape[:-1], *site.unconstrained_shape)
        start += site.size
    return {**named, **chain.z, RECORD: Record(chain.key, built)}


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


def _dtype(value: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(jnp.result_type(value))


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two arguments are the same, by value if they have one that can be compared."""
    if one is other:
        return True
    if is_array(one) and is_array(other):
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # whatever an object of the user's raises, it is not known to be the same
        return False


def _checksum(data: Mapping[str, Any]) -> Array | np.ndarray:
    """A number for the values of some arrays: by NumPy, or by JAX where they are traced."""
    total = np.uint32(len(data))
    with np.errstate(over="ignore"):
        for name in sorted(data):
            is_traced = isinstance(data[name], jax.core.Tracer)
            words = _words(jnp.asarray(data[name])) if is_traced else _words(_canonical(data[name]))
            mixed = _mix(words + GOLDEN * (jnp if is_traced else np).arange(words.size, dtype=np.uint32))
            total = _mix(total * GOLDEN + mixed.sum(dtype=np.uint32))
    return total


GOLDEN = np.uint32(0x9E3779B9)


def _canonical(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def _words(array: Any) -> Any:
    """The bits of an array in words of 32."""
    flat, is_numpy = array.reshape(-1), isinstance(array, np.ndarray)
    if flat.dtype.kind == "c":
        return _words((np if is_numpy else jnp).concatenate([flat.real, flat.imag]))
    if flat.dtype.itemsize < 4:
        return flat.astype(np.float32).view(np.uint32) if is_numpy else _words(flat.astype(np.float32))
    return flat.view(np.uint32) if is_numpy else jax.lax.bitcast_convert_type(flat, np.uint32).reshape(-1)


def _mix(words: Any) -> Any:
    """The finaliser of MurmurHash3: every bit of a word depends on all of them."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ (words >> np.uint32(shift))) * np.uint32(factor)
    return words ^ (words >> np.uint32(16))


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
