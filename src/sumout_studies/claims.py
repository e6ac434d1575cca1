"""What the paper says of its four schemes, put to the test: counted as it counts, and counted without bias.

Without bias, effective draws of a scheme count only if its means and sds are within bounds of the exact posterior:
draws from another distribution are not draws from this one, however many they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sumout_studies.measure import Measurement
from sumout_studies.schemes import SCHEMES

PAPERS = tuple(name for name, scheme in SCHEMES.items() if not scheme.is_ours)
OURS = tuple(name for name, scheme in SCHEMES.items() if scheme.is_ours)

ByScheme = Mapping[str, Measurement]


@dataclass(frozen=True)
class Verdict:
    """What was found for one claim on one study.

    Attributes:
        found: in numbers.
        holds: counted as the paper counts.
        holds_without_bias: counted without bias; None where the claim is about time alone.
    """

    found: str
    holds: bool
    holds_without_bias: bool | None


@dataclass(frozen=True)
class Claim:
    """A claim of the paper's section 4 and how it is judged."""

    words: str
    judge: Callable[[ByScheme], Verdict]


def _fewer_seconds(by_scheme: ByScheme) -> Verdict:
    seconds = {name: by_scheme[name].seconds[0] for name in PAPERS}
    ratio = seconds["hmc"] / seconds["sghmc-1"]
    fastest = min(seconds, key=seconds.__getitem__)
    found = f"HMC takes {ratio:.2g} times as long; the fastest is {SCHEMES[fastest].title}"
    return Verdict(found, ratio >= 2.5 and fastest == "sghmc-1", None)


def _ten_samples(by_scheme: ByScheme) -> Verdict:
    ratio = by_scheme["sghmc-10"].seconds[0] / by_scheme["sghmc-1"].seconds[0]
    return Verdict(f"{ratio:.1f} times", ratio >= 5, None)


def _nearly_as_many(by_scheme: ByScheme) -> Verdict:
    one, hmc = by_scheme["sghmc-1"], by_scheme["hmc"]
    ratio = one.ess[0] / hmc.ess[0]
    return Verdict(_ratio(ratio, one), ratio >= 0.8, ratio >= 0.8 and not one.is_biased)


def _turns_mix_worse(by_scheme: ByScheme) -> Verdict:
    turns, hmc = by_scheme["mh-hmc"], by_scheme["hmc"]
    ratio = turns.ess[0] / hmc.ess[0]
    fewer = ratio <= 0.7
    return Verdict(_ratio(ratio, turns), fewer, fewer and not hmc.is_biased)


def _most_a_second(by_scheme: ByScheme) -> Verdict:
    one, hmc = by_scheme["sghmc-1"], by_scheme["hmc"]
    ratio = one.rate / hmc.rate
    best = max(PAPERS, key=lambda name: by_scheme[name].rate)
    holds = ratio >= 2 and best == "sghmc-1"
    found = f"{_ratio(ratio, one)}; the most has {SCHEMES[best].title}"
    return Verdict(found, holds, holds and not one.is_biased)


def _all_agree(by_scheme: ByScheme) -> Verdict:
    off = [SCHEMES[name].title for name in PAPERS if by_scheme[name].is_biased]
    agrees = not off
    return Verdict("all within bounds" if agrees else f"off: {'; '.join(off)}", agrees, agrees)


def _ratio(ratio: float, measured: Measurement) -> str:
    return f"{ratio:.2g} times HMC's" + (", of a biased distribution" if measured.is_biased else "")


CLAIMS = (
    Claim("sgHMC with one sample takes the shortest time, HMC 2.5 to 4.5 times as long.", _fewer_seconds),
    Claim("Ten samples in a gradient take almost ten times as long.", _ten_samples),
    Claim("sgHMC with one sample has nearly as many effective draws as HMC (80 % or more).", _nearly_as_many),
    Claim("MH+HMC has fewer effective draws than HMC, by 30 % or more (by 30 to 60 % in the paper).", _turns_mix_worse),
    Claim("sgHMC with one sample has the most effective draws a second, 2 to 4 times those of HMC.", _most_a_second),
    Claim("The posteriors of all schemes are consistent with that of the marginalised program.", _all_agree),
)  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """One of our schemes on one study: is it within bounds, and how far ahead of each of the paper's?

    Attributes:
        is_biased: whether its bias is out of bounds.
        ahead: effective draws a second without bias over those of each of the paper's schemes; infinite where those
            are biased and count for nothing.
    """

    is_biased: bool
    ahead: dict[str, float]

    @property
    def is_first(self) -> bool:
        """Within bounds, and ahead of all of the paper's schemes."""
        return not self.is_biased and all(ratio > 1 for ratio in self.ahead.values())


def stand(by_scheme: ByScheme) -> dict[str, Standing]:
    """How each of our schemes stands."""
    found = {}
    for name in OURS:
        if name in by_scheme:
            ours = by_scheme[name].rate
            rates = {other: by_scheme[other].unbiased_rate for other in PAPERS if other in by_scheme}
            ahead = {other: float("inf") if rate is None else ours / rate for other, rate in rates.items()}
            found[name] = Standing(by_scheme[name].is_biased, ahead)
    return found


def judge(by_scheme: ByScheme) -> dict[Claim, Verdict]:
    """The verdict on every claim; none if not all of the paper's schemes were run."""
    return {claim: claim.judge(by_scheme) for claim in CLAIMS} if all(name in by_scheme for name in PAPERS) else {}
