"""What a run says about itself."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.errors import OptionError

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_RHAT = 1.01


class SamplingWarning(UserWarning):
    """A run whose draws should not be trusted as they are."""


class ConvergenceWarning(UserWarning):
    """A maximum that may not be one."""


def summary(idata: "xr.DataTree", var_names: Sequence[str] | None = None) -> Any:
    """Means, spreads and diagnostics of a run, as a pandas DataFrame; warns where the run should not be trusted.

    Args:
        idata: from `sumout.sample`.
        var_names: variables to show; by default all continuous ones.

    Example:
        >>> import jax.numpy as jnp, sumout
        >>> from numpyro.distributions import Normal, constraints
        >>> def shifted(x, z, data):
        ...     return Normal(z["shift"], 1.0).log_prob(x["x"])
        >>> program = sumout.density(shifted, x={"x": (constraints.real, ())}, z={"shift": sumout.finite(2)})
        >>> table = sumout.summary(sumout.sample(program, draws=2000))
        >>> list(table.index), "ess_bulk" in table.columns
        (['x'], True)
    """
    import arviz_stats  # takes half a second to import

    posterior = idata["posterior"]
    discrete = np.atleast_1d(posterior.attrs.get("discrete", [])).tolist()
    known = [str(name) for name in posterior.data_vars]
    for name in var_names or ():
        if name not in known:
            raise OptionError(f"summary: there is no variable '{name}'; the variables are {', '.join(known)}.")
    shown = list(var_names) if var_names is not None else [name for name in known if name not in discrete] or known
    table = arviz_stats.summary(idata, var_names=shown, round_to="none")  # pyright: ignore[reportArgumentType]
    for words in _complaints(idata, table):
        warnings.warn(words, SamplingWarning, stacklevel=2)
    return table


def _complaints(idata: "xr.DataTree", table: Any) -> list[str]:
    found = []
    stats = idata["sample_stats"].to_dataset()
    diverging = int(stats["diverging"].values.sum()) if "diverging" in stats else 0
    if diverging:
        found.append(f"{diverging} draws diverged (energy or gradient out of bounds): try a smaller step size.")
    if "is_noise_too_large" in stats and bool(stats["is_noise_too_large"].values.any()):
        found.append(
            "the gradient noise exceeds what the friction can absorb, so the draws are over-dispersed: use a smaller "
            "step_size, more friction, or more samples in a gradient (num_samples)."
        )
    if idata["posterior"].sizes["chain"] > 1:
        apart = [str(name) for name, value in table["r_hat"].items() if value > MOST_RHAT]
        if apart:
            found.append(
                f"chains disagree about {', '.join(apart[:5])}{' and others' if len(apart) > 5 else ''} "
                f"(r_hat up to {table['r_hat'].max():.2f}): run longer, or look whether they sit in different modes."
            )
    return found
