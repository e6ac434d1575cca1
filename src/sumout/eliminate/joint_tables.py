"""Tables over all joint values of a small component, whose sites are one cell.

Where most sites of a component meet, its table has an entry for each of the J = K^m joint values of its m sites,

    w(z) = Σ_i s_i(z_i) + Σ_{i<j} t_ij(z_i, z_j) + Σ factors of more sites.

Factors of more sites are evaluated at all joint values along one axis: z is a constant there, and what follows from it
alone is computed when the program is simplified. The others are known from K or K² evaluations. To add up m²/2 arrays
along different axes one by one would be most of what there is to compile. With O(a) the indicators of the values of
some sites, in a row, and S and T the terms above in such rows and columns, they are products of small matrices instead:
for z = (a, b), the first and the second half of the sites,

    O(a)·S + O(b)·S + O(a)·T O(a) + O(b)·T O(b) + O(a)·T O(b).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.eliminate.settings import Setting, digits
from sumout.model.program import Data, Nuisance
from sumout.structure.structure import Structure
from sumout.tables.factor_sums import Sums


def add_terms(single: Float[Array, "m K C"], pairs: Float[Array, "m m K K C"] | None) -> Float[Array, "J C"]:
    """The sums of terms of one site and of two, at all joint values of m sites; the last site varies fastest.

    Args:
        single: for each site and each of its values.
        pairs: for each pair of sites, the first before the second, and each pair of their values; None for no pairs.
    """
    terms = [single] if pairs is None else [single, pairs]
    is_impossible = [term == -jnp.inf for term in terms]  # zero times this would be no number
    finite = _add(*(jnp.where(mask, 0.0, term) for mask, term in zip(is_impossible, terms, strict=True)))
    counts = _add(*(mask.astype(single.dtype) for mask in is_impossible))
    return jnp.where(counts > 0, -jnp.inf, finite)


def _add(single: Float[Array, "m K C"], pairs: Float[Array, "m m K K C"] | None = None) -> Float[Array, "J C"]:
    """The same of finite terms."""
    size, num_values, columns = single.shape
    halves = (0, (size + 1) // 2), ((size + 1) // 2, size)
    indicators = [jnp.asarray(_indicators(high - low, num_values, single.dtype)) for low, high in halves]
    own = [one @ single[low:high].reshape(-1, columns) for one, (low, high) in zip(indicators, halves, strict=True)]
    if pairs is None:
        table = own[0][:, None] + own[1]
        return table.reshape(-1, columns)
    by_indicator = pairs.transpose(0, 2, 1, 3, 4)

    def given(i: int, j: int) -> Float[Array, "J n C"]:
        """For each joint value of half i, and each indicator of half j, what the pairs between them add."""
        rows = by_indicator[slice(*halves[i]), :, slice(*halves[j])]
        rows = rows.reshape(indicators[i].shape[1], -1)
        return (indicators[i] @ rows).reshape(-1, indicators[j].shape[1], columns)

    own = [total + (given(i, i) * indicators[i][..., None]).sum(axis=1) for i, total in enumerate(own)]
    between = given(0, 1).swapaxes(0, 1)
    across = (indicators[1] @ between.reshape(len(between), -1)).reshape(-1, *between.shape[1:])
    return (own[0][:, None] + own[1] + across.swapaxes(0, 1)).reshape(-1, columns)


def _indicators(size: int, num_values: int, dtype: np.dtype) -> np.ndarray:
    """For all joint values of some sites the indicators of each site's values, `(J, size · K)`."""
    return np.eye(num_values, dtype=dtype)[digits(size, num_values)].reshape(num_values**size, -1)


@dataclass(frozen=True, eq=False)
class JointRound:
    """Evaluations of the factors at all joint values of the sites of whole components, each one cell.

    Attributes:
        structure: the reading.
        group: the number of the buckets.
        sums: sums of factors over the cells.
        settings: the joint values of the sites.
    """

    structure: Structure
    group: int
    sums: Sums
    settings: Mapping[str, Setting]

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated."""
        return len(next(iter(self.settings.values())).values)

    def table(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "J cells"]:
        """The sums at all joint values."""
        placed = {name: setting.place_each(z[name]) for name, setting in self.settings.items()}

        def at(placed: Nuisance) -> Array:
            return self.sums(self.structure.live_factors(x, {**z, **placed}, data))

        return jax.vmap(at)(placed)
