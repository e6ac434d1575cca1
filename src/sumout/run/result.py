"""From the collected draws to an `xarray.DataTree` in ArviZ's schema."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array

from sumout.program import Data, Nuisance, Program
from sumout.run.loop import Record

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

STAT_NAMES = {"log_density": "lp"}
BATCH = 64  # draws looked at together


class EachDraw:
    """A function `(x, z, data)`, compiled to be computed at every draw of a run."""

    def __init__(self, fn: Callable[[Array, Nuisance, Data], Any]):
        self._run = jax.jit(lambda flat, data: jax.lax.map(lambda xz: fn(xz[0], xz[1], data), flat, batch_size=BATCH))

    def __call__(self, x: Any, z: Any, data: Data) -> Any:
        """Arrays have axes (chain, draw) in front, given and returned."""
        chains, draws = x.shape[:2]
        flat = jax.tree.map(lambda a: np.reshape(a, (chains * draws, *a.shape[2:])), (x, z))
        return jax.tree.map(lambda a: np.asarray(a).reshape(chains, draws, *a.shape[1:]), self._run(flat, data))


def build_result(
    program: Program,
    record: Record,
    tuned: Mapping[str, Array],
    constrain: EachDraw,
    likelihood: EachDraw | str,
    attrs: Mapping[str, Any],
) -> "xr.DataTree":
    """Name, shape and label the draws: x and deterministics as the user knows them, z in its support values.

    Args:
        program: whose draws they are.
        record: the draws.
        tuned: what the warm-up has learnt, for each chain.
        constrain: names x and the deterministics.
        likelihood: of every datum, or in words why there is none.
        attrs: what to note of the run.
    """
    from arviz_base import from_dict  # takes half a second to import

    posterior = constrain(record.x, record.z, program.data)
    posterior.update({name: np.asarray(value) for name, value in record.z.items()})
    stats = {STAT_NAMES.get(name, name): np.asarray(value) for name, value in vars(record.info).items()}
    groups: dict[str, Any] = {
        "posterior": posterior,
        "unconstrained_posterior": _by_name(program, record.x),
        "unconstrained_gradient": _by_name(program, record.gradient),
        "sample_stats": stats,
    }
    if isinstance(likelihood, EachDraw):
        groups["log_likelihood"] = likelihood(record.x, record.z, program.data)
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


def _by_name(program: Program, x: np.ndarray) -> dict[str, np.ndarray]:
    named, start = {}, 0
    for name, site in program.x.items():
        named[name] = x[..., start : start + site.size].reshape(*x.shape[:2], *site.unconstrained_shape)
        start += site.size
    return named
