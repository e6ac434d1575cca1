"""Scores: the runs of one sampler on one model together, and whether their answer is right.

Means must be within 0.1 sd of the reference and sds within 5 %, but for what Monte-Carlo error explains, that of the
reference included; and chains must agree (R̂). A result that is not right does not count.

    cold seconds to 1,000 effective draws = (cold − warm) + 1,000 / (effective draws / warm):

import, compilation and warm-up once, then as many draws as it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from benchmarks.model import find_model
from benchmarks.references import Reference
from benchmarks.runs import DONE, Record
from benchmarks.samplers.names import BY_HAND, SAMPLERS
from benchmarks.summary import Summary
from sumout.adaptation.bias_meter import FALSE_ALARMS
from sumout_studies.measure import MOST_MEAN_ERROR, MOST_SD_ERROR

MOST_RHAT = 1.1
ENOUGH = 1_000  # effective draws
RIGHT, WRONG, APART, UNKNOWN = "right", "wrong", "chains apart", "no reference"


def pool(summaries: Sequence[Summary]) -> Summary:
    """One summary for several runs of the same: effective draws add up."""
    if len(summaries) == 1:
        return summaries[0]
    mean = np.array([one.mean for one in summaries])
    centre = mean.mean(axis=0)
    variance = (np.array([one.sd for one in summaries]) ** 2 + (mean - centre) ** 2).mean(axis=0)
    return Summary(
        summaries[0].elements,
        centre.tolist(),
        np.sqrt(variance).tolist(),
        np.mean([one.kurtosis for one in summaries], axis=0).tolist(),
        np.sum([one.ess for one in summaries], axis=0).tolist(),
        np.max([one.rhat for one in summaries], axis=0).tolist(),
    )


@dataclass(frozen=True, eq=False)
class Score:
    """What the runs of one sampler on one model came to.

    Attributes:
        model: its name.
        sampler: its name.
        variant: how it ran.
        records: its runs.
        reference: the posterior; None if there is none yet.
    """

    model: str
    sampler: str
    variant: str
    records: Sequence[Record]
    reference: Reference | None

    @property
    def kind(self) -> str:
        """Whether z was left in, all of it, or summed out beforehand."""
        is_reduced = self.sampler in find_model(self.model).partly_summed
        return BY_HAND if is_reduced else SAMPLERS[self.sampler].kind

    @cached_property
    def done(self) -> list[Record]:
        """The runs with a result."""
        return [record for record in self.records if record.status == DONE]

    @cached_property
    def summary(self) -> Summary | None:
        """Of all of them."""
        return pool([record.summary for record in self.done if record.summary]) if self.done else None

    @property
    def cold(self) -> float | None:
        """Seconds from the start of the process to the result: the median."""
        return float(np.median([record.cold for record in self.done])) if self.done else None

    @property
    def warm(self) -> float | None:
        """Seconds for the draws after the warm-up: the median."""
        known = [record.warm for record in self.done if record.warm is not None]
        return float(np.median(known)) if known else None

    @property
    def ess(self) -> float | None:
        """Effective draws of a run: the mean."""
        return float(np.mean([record.summary.fewest for record in self.done if record.summary])) if self.done else None

    @property
    def rhat(self) -> float | None:
        """The worst over all runs."""
        return self.summary.worst_rhat if self.summary else None

    @property
    def rate(self) -> float | None:
        """Effective draws a second, warm."""
        return self.ess / self.warm if self.ess is not None and self.warm else None

    @property
    def cold_rate(self) -> float | None:
        """Effective draws a second from the start of the process."""
        return self.ess / self.cold if self.ess is not None and self.cold else None

    @property
    def seconds_to_enough(self) -> float | None:
        """Cold seconds to 1,000 effective draws."""
        if not self.rate or self.cold is None or self.warm is None:
            return None
        return max(0.0, self.cold - self.warm) + ENOUGH / self.rate

    @cached_property
    def mean_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each element, in sds of the reference, and their Monte-Carlo errors."""
        found, exact = self.summary, self.reference
        assert found and exact
        assert found.elements == exact.elements, f"{self.model}: the reference is of another model"
        sd = np.array(exact.sd)
        error = (np.array(found.sd) / sd) ** 2 / np.array(found.ess)[:, 0] + np.array(exact.mean_error) ** 2
        return (np.array(found.mean) - np.array(exact.mean)) / sd, np.sqrt(error)

    @cached_property
    def sd_ratios(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each element, and their Monte-Carlo errors."""
        found, exact = self.summary, self.reference
        assert found and exact
        ratio = np.array(found.sd) / np.array(exact.sd)
        error = (np.array(found.kurtosis) - 1) / 4 / np.array(found.ess)[:, 2] + np.array(exact.sd_error) ** 2
        return ratio, ratio * np.sqrt(error)

    @property
    def worst_mean_error(self) -> float | None:
        """The largest in size."""
        return float(np.abs(self.mean_errors[0]).max()) if self.done and self.reference else None

    @property
    def worst_sd_ratio(self) -> float | None:
        """The one furthest from 1."""
        if not self.done or not self.reference:
            return None
        ratio = np.maximum(self.sd_ratios[0], 1e-12)
        return float(ratio[np.abs(np.log(ratio)).argmax()])

    @cached_property
    def verdict(self) -> str | None:
        """Whether the answer is right; None where there is none."""
        if not self.summary:
            return None
        if not self.reference:
            return UNKNOWN
        shift, shift_error = self.mean_errors
        ratio, ratio_error = self.sd_ratios
        beyond = [*(np.abs(shift) - MOST_MEAN_ERROR) / shift_error, *(np.abs(ratio - 1) - MOST_SD_ERROR) / ratio_error]
        bound = NormalDist().inv_cdf(1 - FALSE_ALARMS / (2 * len(beyond)))
        if not max(beyond) <= bound:  # nor if it is not a number: something never moved
            return WRONG
        return APART if self.summary.worst_rhat > MOST_RHAT else RIGHT

    @property
    def counts(self) -> bool:
        """Whether it is right, and its speed known."""
        return self.verdict == RIGHT and self.rate is not None

    @property
    def trouble(self) -> str:
        """What the runs without a result say."""
        said = [f"{record.status}: {record.message}" for record in self.records if record.status != DONE]
        return said[0] if said else ""


def better(scores: Sequence[Score]) -> Score:
    """Of the variants of one sampler: right before wrong, then the faster."""
    return max(scores, key=lambda one: (one.counts, bool(one.done), one.rate or 0.0))
