"""Draws as NumPyro's own functions take them: a dict of arrays, by the names of the model's sites."""

from typing import TYPE_CHECKING

import numpy as np

from sumout.calls import public
from sumout.errors import OptionError

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr


@public
def to_numpyro(result: "xr.DataTree", *, group_by_chain: bool = False) -> dict[str, np.ndarray]:
    """The draws of a result as `MCMC.get_samples` of NumPyro would give them: x, deterministics and z, by name.

    They are what `numpyro.infer.Predictive` and `numpyro.infer.log_likelihood` take as posterior samples.

    Args:
        result: of `sumout.sample` or `sumout.load`.
        group_by_chain: keep the axis of chains, in front of that of draws; else the chains follow one another.

    Example:
        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> from numpyro.infer import Predictive
        >>> def mixture(y=None):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
        ...     with numpyro.plate("points", 3):
        ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
        ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
        >>> program = sumout.program(mixture, np.array([5.1, 0.2, 4.8]))
        >>> result = sumout.sample(program, draws=50, tune=50, chains=2)
        >>> predict = Predictive(mixture, posterior_samples=sumout.to_numpyro(result))
        >>> predict(jax.random.key(0))["y"].shape
        (100, 3)
    """
    posterior = getattr(result, "posterior", None)
    if posterior is None or not {"chain", "draw"} <= set(posterior.sizes):
        raise OptionError(
            f"to_numpyro: expected a result of sumout.sample, with a group 'posterior' of draws, got "
            f"{type(result).__name__}."
        )
    # Large sites are recorded in small types, which would overflow in a model's arithmetic.
    wide = {np.dtype(np.int8): np.int32, np.dtype(np.int16): np.int32}
    arrays = {
        str(name): variable.values.astype(wide.get(variable.dtype, variable.dtype), copy=False)
        for name, variable in posterior.data_vars.items()
    }
    return arrays if group_by_chain else {name: a.reshape(-1, *a.shape[2:]) for name, a in arrays.items()}
