"""`sumout.marginals`: what a run says about z, from the exact conditionals given x instead of from draws of z.

    P(z_i = k | y) = E_{x|y} P(z_i = k | x, y)        averaged over the draws of x, each term exact.

Sites that cannot be summed out are averaged given the other sites as drawn: P(z_i = k | x, z_{−i}, y).
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.calls import public
from sumout.eliminate.state_summation import StateSummation
from sumout.eliminate.summation import Summation
from sumout.errors import OptionError
from sumout.model.front_ends import as_program
from sumout.model.initial_values import any_z
from sumout.model.program import Data, Nuisance, Program
from sumout.model.supports import Finite
from sumout.plan.count_ends import ends_at
from sumout.plan.plan import Plan, plan_for
from sumout.tables.blocks import num_values
from sumout.threads import attentive_jit

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_CANDIDATES = 64  # draws of x whose most probable z is a candidate for the joint mode
MOST_JUDGES = 512  # draws of x over which the probability of a candidate is averaged


@public
def marginals(program: Program | Any, idata: "xr.DataTree", *, plan: Mapping[str, str] | None = None) -> "xr.Dataset":
    """The probabilities of the values of every discrete site, and the most probable joint values.

    Args:
        program: the one that was sampled from, or the PyMC model. Where z was not kept and all of it can be summed out,
            also one of the same model with some of its rows, or new ones: so many rows are done in chunks.
        idata: from `sumout.sample`.
        plan: what to do with a discrete site, by name, as for `sumout.sample`; by default as for the program without
            overrides, whatever the plan of the run was. Sites that are drawn are averaged given the others as drawn.

    Returns:
        A Dataset. For each site with finitely many values an array of probabilities under its name, with a last
        dimension `<name>_value`. Where all sites can be summed out also `<name>_mode`, the most probable joint z: the
        candidates are the most probable z given each of up to 64 draws of x (on a chain: the Viterbi path), and the one
        with the highest p(z|y), averaged over up to 512 draws of x, is taken.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(5, 1))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
        >>> program = sumout.program(mixture, np.array([5.1, 0.2, 4.8]))
        >>> found = sumout.marginals(program, sumout.sample(program, draws=100, tune=100, chains=2))
        >>> dict(found.z.sizes), found.z_mode.values.tolist()
        ({'points': 3, 'z_value': 2}, [1, 0, 1])
    """
    import xarray as xr  # takes half a second to import

    program = as_program(program)
    program = program.source or program
    x, z = _draws(program, idata)
    known = json.loads(idata["posterior"].attrs.get("count_ends", "{}"))
    drawn = [name for name, method in (plan or {}).items() if method in ("draw", "metropolis")]
    ends = ends_at(program, {name: end for name, end in known.items() if name not in drawn})
    chosen = plan_for(program, plan, ends)
    program = program if chosen.ends is None else chosen.ends.cut
    rolled = chosen.structure.program
    missing = [name for name in program.z if name not in z]
    if missing and (not chosen.sums_all or program.forward):
        raise OptionError(
            f"marginals: the result has no '{missing[0]}', and without its draws only what is summed out can be told: "
            "keep it (keep= of sumout.sample)."
        )
    packed = {} if missing else rolled.packs.pack(z, lambda rows: np.stack(rows, axis=1))
    table = np.asarray(attentive_jit(partial(_mean_probabilities, chosen))(x, packed, program.data))
    arrays = {}
    numbers = chosen.structure.user_site_numbers
    for name in program.z:
        support = program.z[name].support
        if isinstance(support, Finite):
            rows = np.full((program.z[name].num_elements, support.num_values), np.nan)
            if name in numbers:  # others are known by sums with other sites
                rows = table[numbers[name], : support.num_values]
            unknown = np.isnan(rows).any(axis=1)
            if unknown.any() and name not in z:
                continue
            if unknown.any():
                rows[unknown] = frequencies(support, z[name])[unknown]
            rows = rows.reshape(*support.shape, support.num_values)
            coords = {f"{name}_value": support.values} if support.values.ndim == 1 else {}
            arrays[name] = xr.DataArray(rows, dims=(*_dims(program, name), f"{name}_value"), coords=coords)
            if support.values.ndim > 1:
                values = np.where(support.rows()[1], support.values, support.values[:, :1])
                arrays[f"{name}_values"] = (arrays[name].dims, values.reshape(rows.shape))
    if chosen.sums_all and chosen.summation is not None:
        mode = rolled.packs.unpack(_most_probable(chosen.summation, rolled, x))
        summed = [name for name in program.z if name not in program.forward]
        arrays.update({f"{name}_mode": (_dims(program, name), np.asarray(mode[name])) for name in summed})
    return xr.Dataset(arrays)


def _draws(program: Program, idata: "xr.DataTree") -> tuple[Array, dict[str, np.ndarray]]:
    """All draws in one row: x on the real line, flat, and what of z the result has."""
    if not isinstance(program, Program):
        raise OptionError(f"marginals: expected a Program, got {type(program).__name__}.")
    groups = [getattr(idata, "children", {}).get(name, {}) for name in ("unconstrained_posterior", "posterior")]
    for group, names in zip(groups, (program.x, program.z), strict=True):
        for name in names:
            if name not in group and group is groups[0]:
                raise OptionError(f"marginals: the result has no '{name}'; it should come from sumout.sample(program).")

    def flat(group: Any, name: str) -> np.ndarray:
        values = group[name].values
        return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])

    num_draws = int(idata["posterior"].sizes["chain"] * idata["posterior"].sizes["draw"])
    columns = [flat(groups[0], name).reshape(num_draws, -1) for name in program.x]
    x = jnp.asarray(np.concatenate([np.zeros((num_draws, 0)), *columns], axis=1), jnp.result_type(float))
    known = {name: site for name, site in program.z.items() if name in groups[1]}
    z = {name: np.asarray(flat(groups[1], name), site.dtype) for name, site in known.items()}
    if x.shape[1] != program.num_x or any(z[name].shape[1:] != site.shape for name, site in known.items()):
        raise OptionError("marginals: the shapes of the result do not fit the program; was it another one?")
    return x, z


def _dims(program: Program, name: str) -> tuple[str, ...]:
    site = program.z[name]
    return program.dims.get(name, tuple(f"{name}_dim_{i}" for i in range(len(site.shape))))


def _mean_probabilities(plan: Plan, x: Array, z: Nuisance, data: Data) -> Array:
    """The conditional probabilities of all sites, `(sites, K)`, averaged over the draws; NaN without a table."""
    summed = any_z(plan.structure.program)  # of which there may be no draws

    def add(total: Array, draw: tuple[Array, Nuisance]) -> tuple[Array, None]:
        return total + probabilities(plan, draw[0], {**summed, **draw[1]}, data), None

    shape = jax.eval_shape(lambda x: probabilities(plan, x, summed, data), x[0])
    total, _ = jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), (x, z))
    return total / len(x)


def probabilities(plan: Plan, x: Array, z: Nuisance, data: Data) -> Array:
    """Probabilities of the values of every site, `(sites, K)`: given x and, where z is drawn, given the other sites.

    NaN where a site has no table. Sites that are summed out or drawn jointly are given only x and the sites outside.
    """
    most = int(num_values(plan.structure).max(initial=1))
    found = jnp.full((plan.structure.num_sites, most), jnp.nan)
    for move in (plan.recover, *plan.moves):
        for sites, rows in move.probabilities(x, z, data):
            found = found.at[sites].set(jnp.pad(rows, ((0, 0), (0, most - rows.shape[1]))))
    return found


def frequencies(support: Finite, drawn: Array | np.ndarray) -> np.ndarray:
    """How often each value was drawn, for each element."""
    values, allowed = support.rows()
    columns = np.asarray(drawn).reshape(len(drawn), -1).T
    values = values.astype(columns.dtype)  # in single precision .1 was drawn as another number
    counts = np.zeros(values.shape)
    for i, (row, column) in enumerate(zip(values, columns, strict=True)):
        found, times = np.unique(column, return_counts=True)
        counts[i, np.argmax(row[:, None] == found, axis=0)] = times
    return np.where(allowed, counts / len(drawn), 0.0)


def _most_probable(summation: Summation | StateSummation, program: Program, x: Array) -> Nuisance:
    """Of the most probable z given some draws of x, the one with the highest probability over all of them."""
    one, data = any_z(program), program.data  # all is summed out: its value does not matter

    def spaced(most: int) -> Array:
        return x[np.unique(np.linspace(0, len(x) - 1, most).astype(int))]

    @attentive_jit
    def judge(candidates: Array, judges: Array, data: Data) -> tuple[Nuisance, Array]:
        modes = jax.lax.map(lambda x: summation.most_probable(x, one, data), candidates)

        def log_probabilities(x: Array) -> Array:
            total = summation.log_density(x, one, data)
            return jax.lax.map(lambda z: program.log_density(x, z, data) - total, modes)

        return modes, jax.nn.logsumexp(jax.lax.map(log_probabilities, judges), axis=0)

    modes, scores = judge(spaced(MOST_CANDIDATES), spaced(MOST_JUDGES), data)
    return jax.tree.map(lambda a: a[int(jnp.argmax(scores))], modes)
