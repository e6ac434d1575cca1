"""How well chains mix: the fewest effective draws over many columns of numbers.

Of many columns only those in which chains and their halves differ most are judged.
"""

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

MOST_JUDGED = 50


def slowest(columns: np.ndarray) -> tuple[float, float]:
    """The fewest effective draws and the largest r_hat over the columns; NaN where none of them ever changes."""
    columns = columns[..., columns.std(axis=(0, 1)) > 0]
    judged = columns[..., np.argsort(-_disagreement(columns))[:MOST_JUDGED]]
    each = [judged[..., i] for i in range(judged.shape[-1])]
    with np.errstate(divide="ignore", invalid="ignore"):  # what never changes within a chain has an infinite r_hat
        ess = [float(effective_sample_size(column)) for column in each]
        r_hat = [float(split_gelman_rubin(column)) for column in each]
    return min(ess, default=np.nan), max(r_hat, default=np.nan)


def _disagreement(columns: np.ndarray) -> np.ndarray:
    """Variance between the means of half chains, as a part of the whole."""
    half = columns.shape[1] // 2
    means = np.concatenate([columns[:, :half].mean(axis=1), columns[:, half:].mean(axis=1)])
    return means.var(axis=0) / columns.var(axis=(0, 1))
