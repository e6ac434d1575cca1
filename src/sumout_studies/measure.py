"""One scheme on one study: how many effective draws in how many seconds, and how far from the exact posterior."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.adaptation.bias_meter import FALSE_ALARMS, Meter, read_meter
from sumout.errors import UntrustedWarning
from sumout.kernels.kernel import Kernel
from sumout.model.program import Program
from sumout.run.sample import sample
from sumout_studies.models import Study
from sumout_studies.schemes import Scheme

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_MEAN_ERROR = 0.1  # in posterior sds
MOST_SD_ERROR = 0.05  # relative to the posterior sd
REFERENCE = 10_000  # draws that effective draws and seconds are quoted for
CHAINS = 4


@dataclass(frozen=True)
class Deviation:
    """How far something is from where it should be, and the Monte-Carlo error of that."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run.

    Attributes:
        x: draws of the unconstrained coordinates, `(chain, draw, coordinate)`, of the mixture with labels in order.
        seconds: for the draws, warm-up and compilation not counted.
        steps: kernel steps between draws.
        meter: the bias meter of each coordinate.
    """

    x: np.ndarray
    seconds: float
    steps: int
    meter: Meter

    @property
    def num_draws(self) -> int:
        """Over all chains."""
        return self.x.shape[0] * self.x.shape[1]

    @cached_property
    def each_ess(self) -> np.ndarray:
        """Effective draws `(coordinate, 3)`: bulk, tail, squares."""
        import arviz_stats  # takes half a second to import

        axes = {"chain_axis": 0, "draw_axis": 1}
        rows = []
        for i in range(self.x.shape[-1]):
            column = np.asarray(self.x[..., i], float)
            squares = (column - column.mean()) ** 2
            tail = arviz_stats.ess(column, method="tail", prob=(0.05, 0.95), **axes)  # pyright: ignore
            rows.append([arviz_stats.ess(column, **axes), tail, arviz_stats.ess(squares, **axes)])  # pyright: ignore
        return np.asarray(rows, float)

    @property
    def ess(self) -> float:
        """The fewest effective draws over coordinates of bulk, tail and squares, for `REFERENCE` draws."""
        return float(self.each_ess.min()) * REFERENCE / self.num_draws

    @property
    def time(self) -> float:
        """Seconds for `REFERENCE` draws."""
        return self.seconds * REFERENCE / self.num_draws


@dataclass(frozen=True, eq=False)
class Measurement:
    """Some runs of one scheme on one study."""

    study: Study
    scheme: Scheme
    outcomes: Sequence[Outcome]

    @property
    def ess(self) -> tuple[float, float]:
        """Mean and sd over runs of the effective draws."""
        return _mean_and_sd([outcome.ess for outcome in self.outcomes])

    @property
    def seconds(self) -> tuple[float, float]:
        """Mean and sd over runs of the time."""
        return _mean_and_sd([outcome.time for outcome in self.outcomes])

    @property
    def rate(self) -> float:
        """Effective draws a second: as in the paper's Table 3, the one mean over the other."""
        return self.ess[0] / self.seconds[0]

    @property
    def unbiased_rate(self) -> float | None:
        """Effective draws a second of a scheme whose bias is within bounds; None of another."""
        return None if self.is_biased else self.rate

    @cached_property
    def draws(self) -> np.ndarray:
        """All draws of all runs, `(draw, coordinate)`."""
        return np.concatenate([outcome.x.reshape(-1, outcome.x.shape[-1]) for outcome in self.outcomes]).astype(float)

    @cached_property
    def mean_errors(self) -> list[Deviation]:
        """Of each coordinate, in posterior sds."""
        sd = np.asarray(self.study.sd)
        off = (self.draws.mean(axis=0) - np.asarray(self.study.mean)) / sd
        error = self.draws.std(axis=0) / sd / np.sqrt(self._total_ess[:, 0])
        return [Deviation(*pair) for pair in zip(off.tolist(), error.tolist(), strict=True)]

    @cached_property
    def sd_ratios(self) -> list[Deviation]:
        """Sampled over exact sd of each coordinate."""
        ratio = self.draws.std(axis=0) / np.asarray(self.study.sd)
        scaled = (self.draws - self.draws.mean(axis=0)) / self.draws.std(axis=0)
        kurtosis = (scaled**4).mean(axis=0)
        error = ratio * np.sqrt((kurtosis - 1) / 4 / self._total_ess[:, 2])
        return [Deviation(*pair) for pair in zip(ratio.tolist(), error.tolist(), strict=True)]

    @property
    def mean_error(self) -> Deviation:
        """The largest in size."""
        return max(self.mean_errors, key=lambda one: abs(one.value))

    @property
    def sd_ratio(self) -> Deviation:
        """The one furthest from 1."""
        return max(self.sd_ratios, key=lambda one: abs(np.log(one.value)))

    @property
    def meter(self) -> Deviation:
        """The bias meter furthest from 1, averaged over runs."""
        value = np.mean([outcome.meter.value for outcome in self.outcomes], axis=0)
        squares = np.mean([outcome.meter.error**2 for outcome in self.outcomes], axis=0)
        worst = int(np.argmax(np.abs(value - 1)))
        return Deviation(float(value[worst]), float(np.sqrt(squares[worst] / len(self.outcomes))))

    @property
    def is_biased(self) -> bool:
        """Whether some mean or sd is out of bounds, by more than its Monte-Carlo error explains."""
        beyond = [(abs(one.value) - MOST_MEAN_ERROR) / one.error for one in self.mean_errors]
        beyond += [(abs(one.value - 1) - MOST_SD_ERROR) / one.error for one in self.sd_ratios]
        return max(beyond) > NormalDist().inv_cdf(1 - FALSE_ALARMS / (2 * len(beyond)))

    @property
    def _total_ess(self) -> np.ndarray:
        return np.sum([outcome.each_ess for outcome in self.outcomes], axis=0)


def _mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def sample_untrusted(program: Program, kernel: Kernel, **options: Any) -> "xr.DataTree":
    """Draws without a warning that they should not be trusted: how far they can be is what is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustedWarning)
        return sample(program, kernel, progress=False, log_likelihood=False, **options)


def run_once(
    study: Study, scheme: Scheme, program: Program, step_size: float, *, draws: int, tune: int, seed: int
) -> Outcome:
    """One run of so many draws of each chain."""
    result = sample_untrusted(
        program,
        scheme.kernel(step_size),
        draws=draws,
        tune=tune,
        steps=scheme.steps,
        chains=CHAINS,
        seed=seed,
        plan=scheme.plan(program),
    )
    attrs = result["posterior"].attrs
    x, gradient = (
        coordinates(program, result, group) for group in ("unconstrained_posterior", "unconstrained_gradient")
    )
    ordered = study.in_order(x)
    return Outcome(ordered, attrs["sampling_time"], attrs["steps"], read_meter(ordered, study.in_order(x, gradient)))


def coordinates(program: Program, result: "xr.DataTree", group: str) -> np.ndarray:
    """All draws on the real line, `(chain, draw, coordinate)`."""
    x = [np.asarray(result[group][name].values) for name in program.x]
    return np.concatenate([a.reshape(*a.shape[:2], -1) for a in x], axis=-1)
