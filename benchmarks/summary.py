"""What is kept of the draws of a run: moments, effective draws and R̂ of every element of every parameter."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.model import Draws


@dataclass(frozen=True)
class Summary:
    """Numbers for each element, in one order.

    Attributes:
        elements: names, such as `mu[0]`.
        mean: of the draws.
        sd: of the draws.
        kurtosis: fourth central moment over the square of the second, for the error of the sd.
        ess: effective draws `(element, 3)`: bulk, tail, squares.
        rhat: R̂.
    """

    elements: list[str]
    mean: list[float]
    sd: list[float]
    kurtosis: list[float]
    ess: list[list[float]]
    rhat: list[float]

    @property
    def fewest(self) -> float:
        """Effective draws over all elements, of bulk, tail and squares; none if some element never moved."""
        return float(np.nan_to_num(np.array(self.ess), nan=0.0).min())

    @property
    def worst_rhat(self) -> float:
        """The largest, infinite if some element never moved."""
        return float(np.nan_to_num(np.array(self.rhat), nan=np.inf).max())

    def to_json(self) -> dict[str, Any]:
        """As numbers and names."""
        return asdict(self)


def flatten(draws: Draws) -> tuple[list[str], np.ndarray]:
    """Names of all elements, and their draws `(chain, draw, element)`."""
    names, columns = [], []
    for name, values in draws.items():
        values = np.asarray(values, float)
        shape = values.shape[2:]
        names += [f"{name}[{', '.join(map(str, index))}]" if shape else name for index in np.ndindex(shape)]
        columns.append(values.reshape(*values.shape[:2], -1))
    return names, np.concatenate(columns, axis=-1)


def summarise(draws: Draws) -> Summary:
    """The numbers for these draws."""
    import arviz_stats  # takes half a second to import

    from sumout_studies.measure import Outcome  # loads JAX

    names, x = flatten(draws)
    all_draws = x.reshape(-1, x.shape[-1])
    mean, sd = all_draws.mean(axis=0), all_draws.std(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = (((all_draws - mean) / sd) ** 4).mean(axis=0)
        ess = Outcome(x, seconds=0.0, steps=1, meter=None).each_ess
        rhat = [float(arviz_stats.rhat(x[..., i], chain_axis=0, draw_axis=1)) for i in range(x.shape[-1])]
    return Summary(names, mean.tolist(), sd.tolist(), kurtosis.tolist(), ess.tolist(), rhat)
