"""`sumout.summary`: posterior means and spreads, diagnostics, and warnings in words where they look bad."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.adaptation.bias_meter import TOLERANCE, Meter, read_meters, worst_excess
from sumout.calls import public
from sumout.errors import OptionError, SamplingWarning
from sumout.results.convergence import FEWEST_OF_DENSITY, Mixing, mixing_warnings
from sumout.results.data_tree import LIKELIHOOD
from sumout.results.effective_draws import slowest

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

LEAST_ACCEPTANCE = 0.4  # below, the step size was not tuned: kernels aim at .8 or more
RUN_STATS = ("acceptance_rate", "step_size", "noise_share", "diverging")
MOST_SHOWN = 3  # draws of a chain, and chains
FEWEST_DRAWS = 20  # of a chain that is judged
LEAST_MOVEMENT = 0.02  # share of draws that differ from the one before; below, a chain is stuck
LARGEST_GAP = 5.0  # nats, and standard deviations of the log density, by which a chain may be below the best


@public
def summary(idata: "xr.DataTree", var_names: Sequence[str] | None = None) -> Any:
    """Means, spreads and diagnostics of a run, as a pandas DataFrame; warns where the run should not be trusted.

    Beside ArviZ's columns stand `bias_meter`, which is 1 where the draws are as wide as the posterior, and about the
    factor by which their variance is too large where they are not, and `bias_error`, its Monte-Carlo error. Where a
    variable has other coordinates on the real line than the user sees (a simplex), all its rows show the one that is
    furthest off.

    Below the continuous variables come `lp`, the log density of the draws, and a row for each discrete variable with
    the fewest effective draws and the largest r_hat over its sites; if it is one number, also its mean and interval.
    `attrs` of the table hold the mean acceptance rate, step size and noise share and the number of divergences, as far
    as the kernel knows them.

    It prints rounded and at full width, with long deterministics folded into a line and the probabilities of discrete
    values beside them; the numbers in it are not rounded.

    Args:
        idata: from `sumout.sample`.
        var_names: variables to show; by default all continuous ones, `lp` and the discrete ones.

    Example:
        >>> import jax.numpy as jnp, sumout
        >>> from numpyro.distributions import Normal, constraints
        >>> def shifted(x, z, data):
        ...     return Normal(z["shift"], 1.0).log_prob(x["x"])
        >>> program = sumout.density(shifted, x={"x": (constraints.real, ())}, z={"shift": sumout.finite(2)})
        >>> table = sumout.summary(sumout.sample(program, draws=2000))
        >>> list(table.index), "bias_meter" in table.columns
        (['x', 'lp', 'shift'], True)
    """
    found = examine(idata, var_names)
    for words in found.warnings:
        warnings.warn(words, SamplingWarning, stacklevel=3)
    return found.table


@dataclass(frozen=True, eq=False)
class Summary:
    """What `summary` shows.

    Attributes:
        table: a pandas DataFrame.
        warnings: in plain words, why the run should not be trusted.
        is_off: which cells of the table are out of the bounds that the warnings go by.
    """

    table: Any
    warnings: list[str]
    is_off: np.ndarray


def examine(idata: "xr.DataTree", var_names: Sequence[str] | None = None) -> Summary:
    """The table of `summary`, its warnings, and the cells they are about."""
    posterior = idata["posterior"]
    discrete = np.atleast_1d(posterior.attrs.get("discrete", [])).tolist()
    known = [str(name) for name in posterior.data_vars]
    for name in var_names or ():
        if name not in known:
            raise OptionError(f"summary: there is no variable '{name}'; the variables are {', '.join(known)}.")
    shown = list(var_names) if var_names is not None else [name for name in known if name not in discrete]
    meters = read_meters(idata)
    table = _continuous(idata, shown, meters)
    mixing = Mixing.read(idata, table, shown, discrete)
    if var_names is None:
        for name, numbers in _below(idata, mixing).items():
            table.loc[name] = numbers
    stats = idata["sample_stats"].to_dataset()
    table = _with_values(idata, table, shown, discrete)
    table.attrs.update({name: float(stats[name].values.mean()) for name in RUN_STATS if name in stats})
    if "diverging" in stats:
        table.attrs["diverging"] = int(stats["diverging"].values.sum())
    return Summary(table, _warnings(idata, meters, mixing), _is_off(table, meters, mixing))


def _continuous(idata: "xr.DataTree", shown: list[str], meters: dict[str, Meter]) -> Any:
    """ArviZ's table with the meters beside it."""
    import arviz_stats  # takes half a second to import
    import pandas as pd

    if not shown:
        return pd.DataFrame(
            columns=["mean", "sd", "ess_bulk", "ess_tail", "r_hat", "bias_meter", "bias_error"], dtype=float
        )
    with np.errstate(invalid="ignore", divide="ignore"):  # a deterministic may be constant
        table = arviz_stats.summary(idata, var_names=shown, round_to="none")  # pyright: ignore[reportArgumentType]
    columns = [np.zeros((0, 2))]
    for name in shown:
        shape = idata["posterior"][name].shape[2:]
        columns.append(_of_rows(meters.get(name), shape))
    table["bias_meter"], table["bias_error"] = np.concatenate(columns).T
    return table


def _of_rows(meter: Meter | None, shape: tuple[int, ...]) -> np.ndarray:
    """Meter and error for every row of a variable."""
    size = int(np.prod(shape))
    if meter is None or meter.value.size == 0:
        return np.full((size, 2), np.nan)
    both = np.stack([meter.value.ravel(), meter.error.ravel()], axis=1)
    if meter.value.shape == shape:
        return both
    return np.tile(both[np.argmax(meter.excess)], (size, 1))


def _below(idata: "xr.DataTree", mixing: Mixing) -> dict[str, dict[str, float]]:
    """Rows for the log density and for the discrete variables."""
    lp = np.asarray(idata["sample_stats"]["lp"].values, float)
    ess, r_hat = slowest(lp[..., None])
    rows = {name: {"ess_bulk": sites.effective, "r_hat": sites.r_hat} for name, sites in mixing.sites.items()}
    return {"lp": {"mean": float(lp.mean()), "sd": float(lp.std()), "ess_bulk": ess, "r_hat": r_hat}, **rows}


def _with_values(idata: "xr.DataTree", table: Any, shown: list[str], discrete: list[str]) -> Any:
    """The table with means and intervals of single discrete variables, and what is shown beside or in place of rows."""
    from sumout.results.summary_table import (
        DETERMINISTIC,
        NOTE,
        VALUES,
        VARIABLES,
        SummaryTable,
        describe_values,
        moments,
    )

    posterior = idata["posterior"]
    categories = np.atleast_1d(posterior.attrs.get("categories", [])).tolist()
    words = {}
    for name in (name for name in discrete if name in table.index and name not in shown):
        values = np.asarray(posterior[name].values)
        words[name] = describe_values(values, name in categories)
        if values.ndim == 2 and values.dtype.kind in "biuf" and name not in categories:
            for column, value in moments(values, list(table.columns)).items():
                table.loc[name, column] = value
    sampled = idata["unconstrained_posterior"].data_vars if "unconstrained_posterior" in idata.children else ()
    rows = [name for name in shown for _ in range(int(np.prod(posterior[name].shape[2:])))]
    found = SummaryTable(table)
    found.attrs[VALUES] = {name: said for name, said in words.items() if said}
    found.attrs[VARIABLES] = rows
    found.attrs[DETERMINISTIC] = [name for name in shown if name not in sampled]
    if LIKELIHOOD in idata.children and LIKELIHOOD in posterior.attrs:
        found.attrs[NOTE] = f"The group log_likelihood is {posterior.attrs[LIKELIHOOD]}."
    return found


def _is_off(table: Any, meters: dict[str, Meter], mixing: Mixing) -> np.ndarray:
    """Cells of r_hat beyond what chance explains, of too few effective draws, and of a bias beyond its error."""
    rows = list(map(str, table.index))
    bad = {name: bool(sites.num_apart or sites.num_slow) for name, sites in mixing.sites.items()}
    apart = {*mixing.apart, *(name for name, sites in mixing.sites.items() if sites.num_apart)}
    fewest = {name: mixing.enough if is_bad else 0 for name, is_bad in bad.items()}
    fewest["lp"] = FEWEST_OF_DENSITY * mixing.num_chains
    is_off = np.zeros(table.shape, bool)
    for j, column in enumerate(table.columns):
        values = table[column].to_numpy(float)
        if column == "r_hat":
            is_off[:, j] = [row in apart for row in rows]
        elif column in ("ess_bulk", "ess_tail"):
            is_off[:, j] = values < [fewest.get(row, mixing.enough) for row in rows]
        elif column == "bias_meter":
            error = table["bias_error"].to_numpy(float)
            is_off[:, j] = np.abs(values - 1) - TOLERANCE > worst_excess(meters) * error
    return is_off


def _warnings(idata: "xr.DataTree", meters: dict[str, Meter], mixing: Mixing) -> list[str]:
    return run_warnings(idata, meters) + mixing_warnings(idata, mixing)


def run_warnings(idata: "xr.DataTree", meters: dict[str, Meter]) -> list[str]:
    """In plain words why the run should not be trusted, however well its draws mix."""
    found = chain_warnings(idata)
    stats = idata["sample_stats"].to_dataset()
    if "is_noise_too_large" in stats and bool(stats["is_noise_too_large"].values.any()):
        found.append(
            "the gradient noise exceeds what the friction can absorb, so the draws are over-dispersed: use a smaller "
            "step_size, more friction, or more samples in a gradient (num_samples)."
        )
    acceptance = float(stats["acceptance_rate"].values.mean()) if "acceptance_rate" in stats else 1.0
    if acceptance < LEAST_ACCEPTANCE:
        found.append(
            f"only {acceptance:.0%} of the proposals were accepted: warm up longer (tune), or give a smaller step_size."
        )
    return found + _bias(meters, bool(idata["posterior"].attrs.get("exact_kernel", 0)))


def _bias(meters: dict[str, Meter], is_exact: bool) -> list[str]:
    """Of coordinates whose bias meter leaves the tolerated interval by more than its error.

    The meter takes the density for one without jumps. An exact kernel is not biased once it has converged.
    """
    limit = worst_excess(meters)
    off = {name: meter for name, meter in meters.items() if (meter.excess > limit).any()}
    if not off:
        return []
    worst = max(off.values(), key=lambda meter: meter.excess.max())
    i = np.unravel_index(np.argmax(worst.excess), worst.excess.shape)
    value, error = worst.value[i], worst.error[i]
    direction = "wider" if value > 1 else "narrower"
    measured = (
        f"a bias meter of {value:.2f} ± {error:.2f} where {1 - TOLERANCE:.2f} to {1 + TOLERANCE:.2f} is tolerated"
    )
    if is_exact:
        return [
            f"{_list(off)}: {measured}, though the kernel is exact. Either the density jumps (a uniform distribution "
            "that ends at a parameter, a step or a floor of x), where the meter does not hold and the draws may be "
            "right; or the chains have not seen all of the posterior: compare with a run that is several times longer."
        ]
    return [
        f"the draws of {_list(off)} are biased: {direction} than the posterior, with {measured}. Use a smaller "
        "step_size, or an exact kernel such as GHMC."
    ]


def _list(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")


def chain_warnings(idata: "xr.DataTree") -> list[str]:
    """In plain words which chains, and which of their draws, should not be trusted."""
    return [*_against_all_rows(idata), *_divergences(idata), *_not_finite(idata), *_stuck(idata), *_lost(idata)]


def _against_all_rows(idata: "xr.DataTree") -> list[str]:
    """What a run of minibatches has found when its draws were held against all rows, if they did not stand it."""
    attrs = idata["posterior"].attrs
    return [] if attrs.get("full_data_check_holds", 1) else [str(attrs["full_data_check"])]


def _divergences(idata: "xr.DataTree") -> list[str]:
    stats = idata["sample_stats"].to_dataset()
    if "diverging" not in stats or not stats["diverging"].values.any():
        return []
    where = np.asarray(stats["diverging"].values, bool)
    return [
        f"{where.sum()} draws diverged (energy or gradient out of bounds): {locate(where)}. Try a smaller step size, "
        "and look at the values there."
    ]


def _not_finite(idata: "xr.DataTree") -> list[str]:
    """Draws at which a value, the gradient or the log density is NaN or infinite."""
    broken = ~np.isfinite(np.asarray(idata["sample_stats"]["lp"].values, float))
    for group in ("unconstrained_posterior", "unconstrained_gradient"):
        broken = broken | ~np.isfinite(_flat(idata, group)).all(axis=-1)
    if not broken.any():
        return []
    return [
        f"at {broken.sum()} draws the log density, its gradient or a value is not finite: {locate(broken)}. Run "
        "sumout.check on the program, or keep chains away by a narrower prior or support."
    ]


def _stuck(idata: "xr.DataTree") -> list[str]:
    """Chains whose continuous variables hardly ever change."""
    x = _flat(idata, "unconstrained_posterior")
    if x.shape[-1] == 0 or x.shape[1] < FEWEST_DRAWS:
        return []
    moved = (np.diff(x, axis=1) != 0).any(axis=-1).mean(axis=1)
    stuck = np.flatnonzero(moved < LEAST_MOVEMENT)
    if not len(stuck):
        return []
    return [
        f"{_chains(stuck)} stuck: of the draws there, at most {moved[stuck].max():.0%} differ from the one before. Try "
        "another seed, a longer warm-up (tune) or a smaller step_size."
    ]


def _lost(idata: "xr.DataTree") -> list[str]:
    """Chains whose log density stays far below that of the best chain."""
    lp = np.asarray(idata["sample_stats"]["lp"].values, float)
    if len(lp) < 2 or lp.shape[1] < FEWEST_DRAWS or not np.isfinite(lp).any(axis=1).all():
        return []
    lp = np.where(np.isfinite(lp), lp, np.nan)
    low, middle, high = np.nanquantile(lp, [0.05, 0.5, 0.95], axis=1)
    best = int(np.argmax(middle))
    gap = LARGEST_GAP * max(1.0, float(np.nanstd(lp[best])))
    lost = np.flatnonzero((high < low[best]) & (middle < middle[best] - gap))
    if not len(lost):
        return []
    return [
        f"{_chains(lost)} lost: the log density there is around {middle[lost].max():.1f}, in chain {best} around "
        f"{middle[best]:.1f}. It may be in a minor mode or not have converged: try another seed or a longer "
        "warm-up (tune), and do not pool its draws with the others."
    ]


def locate(where: np.ndarray) -> str:
    """Marked draws, axes (chain, draw), as in "chain 0 (draws 3, 17, 18 and 4 more), chain 2 (draw 5)"."""
    chains = np.flatnonzero(where.any(axis=1))
    listed = []
    for chain in chains[:MOST_SHOWN].tolist():
        draws = np.flatnonzero(where[chain])
        more = f" and {len(draws) - MOST_SHOWN} more" if len(draws) > MOST_SHOWN else ""
        shown = ", ".join(map(str, draws[:MOST_SHOWN].tolist()))
        listed.append(f"chain {chain} (draw{'s' if len(draws) > 1 else ''} {shown}{more})")
    return ", ".join(listed) + (f" and {len(chains) - MOST_SHOWN} more chains" if len(chains) > MOST_SHOWN else "")


def _chains(numbers: np.ndarray) -> str:
    listed = ", ".join(map(str, numbers.tolist()))
    return f"chain {listed} is" if len(numbers) == 1 else f"chains {listed} are"


def _flat(idata: "xr.DataTree", group: str) -> np.ndarray:
    """All variables of a group side by side, `(chain, draw, coordinate)`."""
    sizes = idata["posterior"].sizes
    parts = [np.zeros((sizes["chain"], sizes["draw"], 0))]
    if group in idata.children:
        parts += [np.asarray(v.values).reshape(*v.shape[:2], -1) for v in idata[group].to_dataset().data_vars.values()]
    return np.concatenate(parts, axis=-1)
