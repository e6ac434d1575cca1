"""What values a nuisance variable may take: a finite list, the counts, or whatever its sampler returns.

A support is part of the model, not of the algorithm: it says which values exist, never how they are drawn.
Values are the user's own (3..7, True/False, 0.5/1.5), never indices.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sumout.errors import ModelError, OptionError

MOST_VALUES = 100_000  # of a listed support; above, a variable is treated as a count


@dataclass(frozen=True, eq=False)
class Finite:
    """A finite list of values for every element of an array.

    Attributes:
        values: `(K,)` where all elements share their values, else `(size, K)`, a row for each element.
        allowed: `None`, or booleans like `values`: False marks the filler of a row with fewer than K values.
        shape: shape of the array of such variables.
    """

    values: np.ndarray
    shape: tuple[int, ...] = ()
    allowed: np.ndarray | None = None

    @property
    def num_values(self) -> int:
        """The number of values K an element can take (the largest, where they differ)."""
        return self.values.shape[-1]

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.values.dtype

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The values and the allowed flags, `(size, K)` each, of all elements."""
        values = np.broadcast_to(np.atleast_2d(self.values), (int(np.prod(self.shape)), self.num_values))
        return values, np.ones(values.shape, bool) if self.allowed is None else self.allowed

    def __str__(self) -> str:
        if self.values.ndim > 1:
            return f"{{{self.values.min()}, …, {self.values.max()}}}, up to {self.num_values} of them each"
        shown = [str(v) for v in self.values.tolist()]
        if len(shown) > 6:
            shown = [*shown[:3], "…", shown[-1]]
        return "{" + ", ".join(shown) + "}"


@dataclass(frozen=True)
class Count:
    """The integers from `lower` upwards, unbounded."""

    shape: tuple[int, ...] = ()
    lower: int = 0

    @property
    def dtype(self) -> np.dtype:
        """Counts are integers."""
        return np.dtype(int)

    def __str__(self) -> str:
        return f"{{{self.lower}, {self.lower + 1}, {self.lower + 2}, …}}"


@dataclass(frozen=True)
class Implicit:
    """A variable of which only a sampler is known: p(z|y) can be drawn from but not evaluated.

    Attributes:
        sample: `(key, data) -> one element`.
        shape: how many independent elements there are.
        event_shape: shape of one element.
        dtype: type of one element.
    """

    sample: Callable[[Any, Any], Any]
    shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return "known by its sampler"


Support = Finite | Count | Implicit


def whole_numbers(name: str, shape: tuple[int, ...], lower: np.ndarray | None, upper: np.ndarray | None) -> Support:
    """The whole numbers between two ends, element by element where they differ.

    Args:
        name: of the site.
        shape: of the site.
        lower: the lower ends, one for each element; None where they depend on another latent.
        upper: the upper ends likewise; None also where there is none.
    """
    if lower is None:
        raise ModelError(
            f"the lower end of the support of discrete site '{name}' depends on another latent site; "
            "shift the variable so that its support starts at a fixed value."
        )
    if upper is None or lower.size == 0 or (upper - lower).max() >= MOST_VALUES:
        # An upper end that moves with another latent is kept by the density, which is zero beyond it.
        if lower.size and lower.min() != lower.max():
            raise ModelError(f"discrete site '{name}': the lower end of an infinite support differs between elements.")
        return Count(shape, int(lower.min()) if lower.size else 0)
    return _interval(shape, lower.astype(int), upper.astype(int))


def _interval(shape: tuple[int, ...], lower: np.ndarray, upper: np.ndarray) -> Finite:
    """The integers from `lower` to `upper`, element by element where they differ."""
    steps = np.arange((upper - lower).max() + 1)
    if (lower == lower.min()).all() and (upper == upper.max()).all():
        return Finite(lower.min() + steps, shape)
    values = lower.reshape(-1, 1) + steps
    allowed = values <= upper.reshape(-1, 1)
    return Finite(np.where(allowed, values, lower.reshape(-1, 1)), shape, allowed)


def finite(values: int | Sequence | np.ndarray, shape: int | tuple[int, ...] = ()) -> Finite:
    """A nuisance variable with finitely many values.

    Args:
        values: the values themselves, or their number k for 0, 1, …, k − 1.
        shape: shape of the array of such variables; `()` for a single one.

    Example:
        >>> import sumout
        >>> print(sumout.finite(3, shape=(10,)), sumout.finite([-1, 1]))
        {0, 1, 2} {-1, 1}
    """
    listed = np.arange(values) if isinstance(values, int | np.integer) else np.array(values)
    if listed.dtype.kind not in "biuf" or not np.isfinite(listed).all():
        raise OptionError(f"finite({values!r}): the values must be numbers or booleans, none infinite or NaN.")
    if listed.ndim != 1 or listed.size == 0:
        raise OptionError(
            f"finite({values!r}): expected a number of values (at least 1) or a flat list of them, "
            f"got an array of shape {listed.shape}."
        )
    if len(np.unique(listed)) != listed.size:
        raise OptionError(f"finite({values!r}): a value occurs twice; list each value once.")
    return Finite(listed, as_shape(shape))


def count(shape: int | tuple[int, ...] = (), lower: int = 0) -> Count:
    """An unbounded nuisance variable, with the values `lower`, `lower` + 1, ….

    Args:
        shape: shape of the array of such variables; `()` for a single one.
        lower: the smallest value.

    Example:
        >>> import sumout
        >>> print(sumout.count(shape=(5,)))
        {0, 1, 2, …}
    """
    if isinstance(lower, bool) or not isinstance(lower, Integral):
        raise OptionError(f"count: lower={lower!r} must be a whole number.")
    return Count(as_shape(shape), int(lower))


def implicit(sampler: Callable[..., Any], shape: int | tuple[int, ...] = ()) -> "ImplicitSpec":
    """A nuisance variable of which only a sampler is known.

    The log density of the program is then that of x (and y) *given* z; the law of z itself enters through the
    sampler alone and need not have a density.

    Args:
        sampler: `sampler(key)` or `sampler(key, data)` returns one element, a scalar or an array.
        shape: the number of independent elements; z has this shape followed by the shape of one element.

    Example:
        >>> import jax, sumout
        >>> coins = sumout.implicit(lambda key: jax.random.bernoulli(key), shape=(60,))
        >>> print(coins.shape)
        (60,)
    """
    if not callable(sampler):
        raise OptionError(f"implicit({sampler!r}): the sampler must be a function of a JAX key.")
    positional = [
        p
        for p in inspect.signature(sampler).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if len(positional) not in (1, 2):
        raise OptionError(
            f"implicit: the sampler takes {len(positional)} arguments; it should take (key) or (key, data)."
        )
    return ImplicitSpec(sampler, len(positional) == 2, as_shape(shape))


@dataclass(frozen=True)
class ImplicitSpec:
    """An implicit variable as the user specifies it; shape and type of an element depend on the data."""

    sampler: Callable[..., Any]
    takes_data: bool
    shape: tuple[int, ...]

    def resolve(self, data: Any) -> Implicit:
        """Find out shape and type of one element by tracing the sampler at these data."""

        def sample(key, data):
            return jnp.asarray(self.sampler(key, data) if self.takes_data else self.sampler(key))

        one = jax.eval_shape(lambda key: sample(key, data), jax.random.key(0))
        return Implicit(sample, self.shape, one.shape, np.dtype(one.dtype))


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple, whether it was given as a number or a sequence."""
    sizes = (shape,) if isinstance(shape, Integral) else tuple(shape) if isinstance(shape, tuple | list) else None
    if sizes is None or not all(isinstance(n, Integral) and int(n) >= 0 for n in sizes):
        raise OptionError(f"shape={shape!r}: expected a whole number or a tuple of them, none negative.")
    return tuple(int(n) for n in sizes)
