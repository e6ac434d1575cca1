"""What to look at of a discrete variable to see how well it mixes.

A discrete value is no number, so the question is whether a site has a value: one column of zeros and ones for each
value that was drawn. Of a count, or where the values are many, the value itself is looked at.
"""

import numpy as np

MOST_VALUES = 8  # columns for one site


def site_columns(z: np.ndarray) -> np.ndarray:
    """Columns of a discrete variable with axes (chain, draw, …): `(chain, draw, column)`."""
    flat = z.reshape(*z.shape[:2], -1)
    values = np.unique(flat)
    if len(values) == 2 or len(values) > MOST_VALUES:
        return flat.astype(float)
    return np.concatenate([(flat == value).astype(float) for value in values], axis=-1)
