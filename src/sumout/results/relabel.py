"""`sumout.relabel`: the components of a mixture in the order of one of their parameters, draw by draw."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.calls import public
from sumout.errors import OptionError
from sumout.results.label_switching import are_labels, renumber, reorder

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

UNNAMED = "_dim_"


@public
def relabel(result: "xr.DataTree", by: str, *, labels: Sequence[str] | None = None) -> "xr.DataTree":
    """Put the components of a mixture in the same order at all draws: that in which a variable of theirs ascends.

    The posterior of a mixture has a mode for every order of its components. With the components in one order chains can
    be compared, and their means have a meaning, as far as the variable tells the components apart.

    Args:
        result: from `sumout.sample`.
        by: a variable with one number for each component, such as the locations.
        labels: discrete variables whose values are numbers of components, to be renumbered. None for all categories
            with values from 0 to K − 1.

    Returns:
        The result with another `posterior`: all variables along the dimension of the components are reordered (or,
        where it has no name, along an unnamed dimension of that length), and the labels renumbered. Other groups are
        as they were.

    Example:
        >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
        >>> def mixture(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        ...     with numpyro.plate("points", len(y)):
        ...         z = numpyro.sample("z", dist.Categorical(np.ones(2) / 2))
        ...         numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
        >>> program = sumout.program(mixture, np.array([5.1, 0.2, 4.8]))
        >>> result = sumout.relabel(sumout.sample(program, draws=50, tune=50), by="mu", labels=["z"])
        >>> bool((result.posterior.mu[..., 0] <= result.posterior.mu[..., 1]).all())
        True
    """
    if "posterior" not in getattr(result, "children", ()):
        raise OptionError(f"relabel: expected a result of sumout.sample, got {type(result).__name__}.")
    posterior = result["posterior"].to_dataset()
    discrete = np.atleast_1d(posterior.attrs.get("discrete", [])).tolist()
    key = _key(posterior, by, discrete)
    dim, num = key.dims[2], key.shape[2]
    order = np.argsort(np.asarray(key.values), axis=-1, kind="stable")
    numbered = _labels(posterior, labels, discrete, num)
    changed = {}
    for name, values in posterior.data_vars.items():
        axes = [
            axis for axis in range(2, values.ndim) if _is_of_components(values.dims[axis], values.shape[axis], dim, num)
        ]
        array = np.asarray(values.values)
        if name in numbered:
            array = renumber(array, order).astype(array.dtype)
        if axes:
            array = reorder(array, order, axes)
        if axes or name in numbered:
            changed[name] = values.copy(data=array)
    made = result.copy()
    made["posterior"].dataset = posterior.assign(changed).assign_attrs(relabelled_by=by)
    return made


def _key(posterior: Any, by: str, discrete: list[str]) -> Any:
    vectors = [str(n) for n, v in posterior.data_vars.items() if v.ndim == 3 and n not in discrete]
    if by not in vectors:
        raise OptionError(
            f"relabel: by={by!r} should be a continuous variable with one number for each component, one of: "
            f"{', '.join(vectors) or 'there is none'}."
        )
    return posterior[by]


def _labels(posterior: Any, given: Sequence[str] | None, discrete: list[str], num: int) -> list[str]:
    """The discrete variables that are renumbered."""
    could = [name for name in discrete if are_labels(np.asarray(posterior[name].values), num)]
    if given is not None:
        for name in given:
            if name not in could:
                raise OptionError(f"relabel: '{name}' is no discrete variable with values from 0 to {num - 1}.")
        return list(given)
    categories = np.atleast_1d(posterior.attrs.get("categories", [])).tolist()
    unclear = [name for name in could if name not in categories]
    if unclear:
        raise OptionError(
            f"relabel: the values of '{unclear[0]}' may be numbers of components, or not: list in labels those that "
            f"are, as in labels=['{unclear[0]}']; labels=[] renumbers none."
        )
    return could


def _is_of_components(dim: Any, size: int, of: Any, num: int) -> bool:
    """Whether a dimension is that of the components: by its name, or where the user has given none by its length."""
    is_unnamed = UNNAMED in str(of) and UNNAMED in str(dim)
    return dim == of or (is_unnamed and size == num)
