"""Log densities of NumPyro's distributions, traced once for all sites of equal distributions.

A model written as a loop has as many sites as points. To trace the density of one takes milliseconds; to call a
function that is traced already takes a tenth of that.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jax
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
            return traced(fn, value)
    return plainly()


@jax.jit
def _log_prob(fn: Any, value: Any) -> Any:
    return _by_default(fn).log_prob(value)


@jax.jit
def _is_inside(fn: Any, value: Any) -> Any:
    return _by_default(fn).support(value)


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
