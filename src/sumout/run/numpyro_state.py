"""The states of `sumout.numpyro_kernel`, and what they were built for.

A state's type says which program it is of (`Built`), its value which data it was computed with (`checksum`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from sumout.errors import OptionError
from sumout.model.arguments import is_array
from sumout.model.program import Data, Program
from sumout.run.steps import Steps, StepsState

RECORD = "sumout.record"  # beside the sites: what draws what is summed out
GOLDEN = np.uint32(0x9E3779B9)  # 2³² divided by the golden ratio, which spreads neighbours


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

    def data(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[Data, Any, Any]:
        """The program's data with those of a call, their checksum, and whether what is built in is as it was."""
        free, rest = self.sort_out(args, kwargs)
        is_same: Any = True
        for name, value in rest.items():
            if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
                is_same = is_same & jnp.array_equal(jnp.asarray(value), jnp.asarray(self.by_value[name]))
            elif not _is_equal(value, self.by_value[name]):
                raise OptionError(
                    f"the state of the chain is for another value of the argument '{name}', from which the structure "
                    "of the model follows: run without post_warmup_state."
                )
        return {**self.program.data, **free}, _checksum(free), is_same


def named_sites(built: Built, chain: StepsState) -> dict[str, Any]:
    """The sites of a state by name, x on the real line; arrays may have an axis of chains in front."""
    named, start, x = {}, 0, chain.x
    for name, site in built.program.x.items():
        named[name] = x[..., start : start + site.size].reshape(*x.shape[:-1], *site.unconstrained_shape)
        start += site.size
    return {**named, **chain.z, RECORD: Record(chain.key, built)}


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


def _checksum(data: Mapping[str, Any]) -> Any:
    """A number for the values of some arrays: by NumPy, or by JAX where they are traced."""
    total: Any = np.uint32(len(data))
    with np.errstate(over="ignore"):
        for name in sorted(data):
            is_traced = isinstance(data[name], Tracer)
            words = _words(jnp.asarray(data[name])) if is_traced else _words(_canonical(data[name]))
            mixed = _mix(words + GOLDEN * (jnp if is_traced else np).arange(words.size, dtype=np.uint32))
            total = _mix(total * GOLDEN + mixed.sum(dtype=np.uint32))
    return total


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
