"""A result as an `InferenceData` of ArviZ before 1.0, which PyMC 5 takes and returns."""

from typing import TYPE_CHECKING, Any

from sumout.calls import public
from sumout.errors import OptionError

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

OURS = ("unconstrained_gradient", "tuned")  # groups that ArviZ does not know


@public
def to_inference_data(result: "xr.DataTree") -> Any:
    """The draws of a run as an `arviz.InferenceData`, for PyMC 5 and ArviZ before 1.0.

    Later ones take the result of `sumout.sample` as it is.

    Args:
        result: from `sumout.sample` or `sumout.load`.

    Returns:
        An InferenceData of all groups but those that only sumout knows, `tuned` and `unconstrained_gradient`.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("ignore")  # ArviZ announces its next release
        >>> import pymc as pm, sumout
        >>> with pm.Model() as model:
        ...     theta = pm.Beta("theta", 1, 1)
        ...     coin = pm.Bernoulli("coin", 0.5, shape=4)
        ...     y = pm.Bernoulli("y", pm.math.switch(coin, theta, 0.5), observed=[1, 0, 1, 1])
        >>> result = sumout.sample(model, draws=50, tune=50, chains=2)
        >>> idata = sumout.to_inference_data(result)
        >>> list(idata.posterior.data_vars), idata.posterior.coin.shape
        (['theta', 'coin'], (2, 50, 4))
    """
    children = getattr(result, "children", None)
    if not children or "posterior" not in children:
        raise OptionError(
            f"to_inference_data: expected a result of sumout.sample, got {type(result).__name__} without a posterior."
        )
    try:
        from arviz import InferenceData
    except ImportError as error:
        raise OptionError(
            "to_inference_data: the installed ArviZ has no InferenceData (or there is none installed). ArviZ from 1.0 "
            "on, and PyMC from 6 on, take the result as it is."
        ) from error
    groups = {name: group.to_dataset() for name, group in children.items() if name not in OURS}
    return InferenceData(**groups)
