"""How many values the sites have, and the values of finite ones side by side, as many of each."""

from collections.abc import Sequence

import numpy as np

from sumout.reading.structure import Structure
from sumout.supports import Finite


def num_values(structure: Structure) -> np.ndarray:
    """For each site how many values it has; 0 where they are not finitely many."""
    counts = np.zeros(structure.num_sites, np.int64)
    for name, numbers in structure.site_numbers.items():
        support = structure.program.z[name].support
        counts[numbers] = support.num_values if isinstance(support, Finite) else 0
    return counts


def value_rows(structure: Structure, names: Sequence[str], num_values: int) -> tuple[np.ndarray, np.ndarray]:
    """The first K values of every element of some finite sites, `(n, K)`, and which count; fillers repeat the first."""
    parts = []
    for name in names:
        support = structure.program.z[name].support
        assert isinstance(support, Finite)
        values, allowed = (rows[:, :num_values] for rows in support.rows())
        missing = num_values - values.shape[1]
        fillers = np.broadcast_to(values[:, :1], (len(values), missing))
        parts.append(
            (np.concatenate([values, fillers], axis=1), np.pad(allowed, ((0, 0), (0, missing)), constant_values=False))
        )
    values, allowed = zip(*parts, strict=True)
    return np.concatenate(values), np.concatenate(allowed)


def as_columns(rows: np.ndarray) -> np.ndarray:
    """`(n, K)` as `(K, n)`, or as `(K, 1)` where all rows are the same."""
    columns = np.ascontiguousarray(rows.T)
    return columns[:, :1] if (columns == columns[:, :1]).all() else columns
