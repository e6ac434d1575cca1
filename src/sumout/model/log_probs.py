"""Log densities of NumPyro's distributions, traced once for all sites of equal distributions.

A model written as a loop has as many sites as points. To trace the density of one takes milliseconds; to call a
function that is traced already takes a tenth of that.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from numpyro.distributions import Distribution


def log_prob_of(site: dict) -> Array:
    """The log density of the value of a site; equal distributions are traced once."""
    fn, value = site["fn"], site["value"]
    if site.get("intermediates"):
        return fn.log_prob(value, site["intermediates"])
    return _once(_log_prob, fn, value, lambda: fn.log_prob(value))


def is_in_support(site: dict) -> Any:
    """Whether the value of a site is in the support of its distribution, likewise."""
    fn, value = site["fn"], site["value"]
    return _once(_is_inside, fn, value, lambda: fn.support(value))


def _once(traced: Callable[[Any, Any], Any], fn: Any, value: Any, plainly: Callable[[], Any]) -> Any:
    """By the function that is traced once if that can be; where it fails, so may the other, and says why."""
    if _is_plain(fn):
        with suppress(Exception):
            return traced(_InOrder(fn), value)
    return plainly()


@jax.jit
def _log_prob(ordered: "_InOrder", value: Any) -> Any:
    return _by_default(ordered.fn).log_prob(value)


@jax.jit
def _is_inside(ordered: "_InOrder", value: Any) -> Any:
    return _by_default(ordered.fn).support(value)


@jax.tree_util.register_pytree_node_class
class _InOrder:
    """A distribution whose arrays come in the order of their names.

    NumPyro's own order is that of a set, another one in every process: what is traced in several must be the same.
    """

    def __init__(self, fn: Any):
        self.fn = fn

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The arrays, and what else there is."""
        values, rest = self.fn.tree_flatten()
        if type(self.fn).tree_flatten is not Distribution.tree_flatten:
            return values, (type(self.fn), rest, None)
        order = tuple(np.argsort(type(self.fn).gather_pytree_data_fields()).tolist())
        ordered = [values[i] for i in order]
        inner = tuple(_InOrder(value) if isinstance(value, Distribution) else value for value in ordered)
        return inner, (type(self.fn), rest, order)

    @classmethod
    def tree_unflatten(cls, known: Any, values: tuple[Any, ...]) -> "_InOrder":
        """The distribution again."""
        kind, rest, order = known
        plain = [value.fn if isinstance(value, _InOrder) else value for value in values]
        placed = plain if order is None else [plain[order.index(i)] for i in range(len(plain))]
        return cls(kind.tree_unflatten(rest, tuple(placed)))


def _by_default(fn: Any) -> Any:
    """A distribution as it was before JAX took it apart and put None where the default of validation counts."""
    for one in _all_within(fn):
        vars(one).pop("_validate_args", None)
    return fn


def _is_plain(fn: Any) -> bool:
    """Whether a distribution is all in its arrays and shapes, as NumPyro's own are, and validated by default."""
    each = list(_all_within(fn))
    is_own = all(type(one).__module__.startswith("numpyro.distributions") for one in each)
    return is_own and not any("_validate_args" in vars(one) for one in each)


def _all_within(fn: Any) -> Iterator[Any]:
    """A distribution and those it is made of."""
    yield fn
    for value in vars(fn).values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Distribution):
                yield from _all_within(part)
