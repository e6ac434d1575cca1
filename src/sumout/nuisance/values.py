"""The values of finite sites side by side, padded to the same number of them."""

from collections.abc import Sequence

import numpy as np

from sumout.reading.structure import Structure
from sumout.supports import Finite


def value_rows(structure: Structure, names: Sequence[str], num_values: int) -> tuple[np.ndarray, np.ndarray]:
    """The values of every element of some finite sites, `(n, K)`, and which of them count; fillers repeat the first."""
    parts = []
    for name in names:
        support = structure.program.z[name].support
        assert isinstance(support, Finite)
        values, allowed = support.rows()
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
