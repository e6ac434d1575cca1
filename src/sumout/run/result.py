"""From the collected draws to an `xarray.DataTree` in ArviZ's schema."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.likelihood import Likelihood
from sumout.program import Data, Nuisance, Program
from sumout.run.loop import Record

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

STAT_NAMES = {"log_density": "lp"}


BATCH = 64  # draws looked at together


def build_result(
    program: Program,
    record: Record,
    tuned: Mapping[str, Array],
    likelihood: Likelihood | str,
    attrs: Mapping[str, Any],
) -> "xr.DataTree":
    """Name, shape and label the draws: x and deterministics as the user knows them, z in its support values.

    Args:
        program: whose draws they are.
        record: the draws.
        tuned: what the warm-up has learnt, for each chain.
        likelihood: of every datum, or in words why there is none.
        attrs: what to note of the run.
    """
    from arviz_base import from_dict  # takes half a second to import

    named = jax.jit(jax.vmap(jax.vmap(program.constrain, in_axes=(0, 0, None)), in_axes=(0, 0, None)))
    posterior = {name: np.asarray(value) for name, value in named(record.x, record.z, program.data).items()}
    posterior.update({name: np.asarray(value) for name, value in record.z.items()})
    stats = {STAT_NAMES.get(name, name): np.asarray(value) for name, value in vars(record.info).items()}
    groups: dict[str, Any] = {
        "posterior": posterior,
        "unconstrained_posterior": _by_name(program, record.x),
        "unconstrained_gradient": _by_name(program, record.gradient),
        "sample_stats": stats,
    }
    if isinstance(likelihood, Likelihood):
        groups["log_likelihood"] = each_draw(likelihood, record.x, record.z, program.data)
    else:
        attrs = {**attrs, "log_likelihood": f"left out: {likelihood}"}
    if program.observed:
        groups["observed_data"] = dict(program.observed)
    dims = {name: list(dims) for name, dims in program.dims.items()}
    tree = from_dict(groups, dims=dims)
    if tuned:
        tree["tuned"] = _tuned(program, tuned)
    tree["posterior"].attrs.update(attrs, discrete=list(program.z))
    return tree


def _tuned(program: Program, tuned: Mapping[str, Array]) -> "xr.DataTree":
    """One number for each chain, or one for each chain and coordinate of x on the real line."""
    import xarray as xr

    names = [
        name if not site.unconstrained_shape else f"{name}[{', '.join(map(str, index))}]"
        for name, site in program.x.items()
        for index in np.ndindex(site.unconstrained_shape)
    ]
    dims = ("chain", "coordinate", "other_coordinate")
    arrays = {name: (dims[: np.ndim(value)], np.asarray(value)) for name, value in tuned.items()}
    return xr.DataTree(xr.Dataset(arrays, coords={"coordinate": names}))


def _by_name(program: Program, x: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in jax.vmap(jax.vmap(program.unravel))(x).items()}


def each_draw(fn: Callable[[Array, Nuisance, Data], Any], x: Any, z: Any, data: Data) -> Any:
    """`fn(x, z, data)` at every draw; arrays have axes (chain, draw) in front."""
    chains, draws = x.shape[:2]
    flat = jax.tree.map(lambda a: jnp.reshape(a, (chains * draws, *a.shape[2:])), (x, z))
    run = jax.jit(lambda flat, data: jax.lax.map(lambda xz: fn(xz[0], xz[1], data), flat, batch_size=BATCH))
    return jax.tree.map(lambda a: np.asarray(a).reshape(chains, draws, *a.shape[1:]), run(flat, data))
