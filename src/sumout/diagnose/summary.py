"""`sumout.summary`: means, spreads and what can be said about whether to trust them."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.adapt.mixing import slowest
from sumout.diagnose.agreement import Mixing, complain_of_mixing
from sumout.diagnose.bias import TOLERANCE, Meter, read_meters, worst_excess
from sumout.diagnose.chains import complain_of_chains
from sumout.diagnose.mixing import LEAST_RHAT
from sumout.errors import OptionError, SamplingWarning

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_RHAT = LEAST_RHAT
LEAST_ACCEPTANCE = 0.4
RUN_STATS = ("acceptance_rate", "step_size", "noise_share", "diverging")


def summary(idata: "xr.DataTree", var_names: Sequence[str] | None = None) -> Any:
    """Means, spreads and diagnostics of a run, as a pandas DataFrame; warns where the run should not be trusted.

    Beside ArviZ's columns stand `bias_meter`, which is 1 where the draws are as wide as the posterior, and about the
    factor by which their variance is too large where they are not, and `bias_error`, its Monte-Carlo error. Where a
    variable has other coordinates on the real line than the user sees (a simplex), all its rows show the one that is
    furthest off.

    Below the continuous variables come `lp`, the log density of the draws, and a row for each discrete variable with
    the fewest effective draws and the largest r_hat over its sites. `attrs` of the table hold the mean acceptance rate,
    step size and noise share and the number of divergences, as far as the kernel knows them.

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
    table, complaints = examine(idata, var_names)
    for words in complaints:
        warnings.warn(words, SamplingWarning, stacklevel=2)
    return table


def examine(idata: "xr.DataTree", var_names: Sequence[str] | None = None) -> tuple[Any, list[str]]:
    """The table of `summary`, and in plain words why the run should not be trusted."""
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
    table.attrs.update({name: float(stats[name].values.mean()) for name in RUN_STATS if name in stats})
    if "diverging" in stats:
        table.attrs["diverging"] = int(stats["diverging"].values.sum())
    return table, _complaints(idata, table, meters, mixing)


def _continuous(idata: "xr.DataTree", shown: list[str], meters: dict[str, Meter]) -> Any:
    """ArviZ's table with the meters beside it."""
    import arviz_stats  # takes half a second to import
    import pandas as pd

    if not shown:
        return pd.DataFrame(
            columns=["mean", "sd", "ess_bulk", "ess_tail", "r_hat", "bias_meter", "bias_error"], dtype=float
        )
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


def _complaints(idata: "xr.DataTree", table: Any, meters: dict[str, Meter], mixing: Mixing) -> list[str]:
    found = complain_of_chains(idata)
    stats = idata["sample_stats"].to_dataset()
    if "is_noise_too_large" in stats and bool(stats["is_noise_too_large"].values.any()):
        found.append(
            "the gradient noise exceeds what the friction can absorb, so the draws are over-dispersed: use a smaller "
            "step_size, more friction, or more samples in a gradient (num_samples)."
        )
    if table.attrs.get("acceptance_rate", 1.0) < LEAST_ACCEPTANCE:
        found.append(
            f"only {table.attrs['acceptance_rate']:.0%} of the proposals were accepted: warm up longer (tune), or "
            "give a smaller step_size."
        )
    found += _bias(meters)
    return found + complain_of_mixing(idata, mixing)


def _bias(meters: dict[str, Meter]) -> list[str]:
    """Complain of coordinates whose meter leaves the interval by more than its error."""
    limit = worst_excess(meters)
    off = {name: meter for name, meter in meters.items() if (meter.excess > limit).any()}
    if not off:
        return []
    worst = max(off.values(), key=lambda meter: meter.excess.max())
    i = np.unravel_index(np.argmax(worst.excess), worst.excess.shape)
    value, error = worst.value[i], worst.error[i]
    direction = "wider" if value > 1 else "narrower"
    return [
        f"the draws of {_list(off)} are biased: {direction} than the posterior, with a bias meter of {value:.2f} ± "
        f"{error:.2f} where {1 - TOLERANCE:.2f} to {1 + TOLERANCE:.2f} is tolerated. Use a smaller step_size, or an "
        "exact kernel such as GHMC."
    ]


def _list(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
