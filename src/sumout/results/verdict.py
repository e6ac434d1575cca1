"""Whether the draws of a run can be trusted, in a line: what `sample` ends with.

It goes by the bounds of `sumout.summary`, which says more: what is bad here is bad there. Of many variables those are
judged in which chains and their halves differ most, so that it takes a tenth of a second.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sumout.adaptation.bias_meter import read_meters
from sumout.results.convergence import FEWEST_EFFECTIVE, FEWEST_OF_DENSITY
from sumout.results.effective_draws import fewest_effective, judge_agreement, judge_sites, slowest, worst_columns
from sumout.results.summary import run_warnings

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

FEWEST_DRAWS = 100  # of a chain; of fewer nothing is said
MOST_NUMBERS = 20_000_000  # of a variable that is looked at
MOST_COLUMNS = 30  # of continuous variables that are judged
MOST_SITES = 5  # columns of a discrete variable


@dataclass(frozen=True)
class Verdict:
    """Whether draws can be trusted.

    Attributes:
        words: in a line.
        is_bad: whether they should not be trusted; False where too few are there to say so.
    """

    words: str
    is_bad: bool


def judge(result: "xr.DataTree") -> Verdict:
    """Judge a run."""
    sizes = result["posterior"].sizes
    chains, draws = sizes["chain"], sizes["draw"]
    made = f"{chains} {'chain' if chains == 1 else 'chains'} of {draws:,} draws"
    if draws < FEWEST_DRAWS:
        return Verdict(f"{made}: too few to tell whether they can be trusted.", False)
    found = run_warnings(result, read_meters(result))
    if found:
        return _untrusted(found[0])
    r_hat, effective, reason = _mixing(result)
    if reason:
        return _untrusted(reason)
    return Verdict(
        f"{made}: r_hat up to {r_hat:.2f}, at least {effective:,.0f} effective draws, no divergences. Nothing speaks "
        "against them.",
        False,
    )


def _mixing(result: "xr.DataTree") -> tuple[float, float, str]:
    """The largest r_hat and the fewest effective draws, and what is wrong with how the chains mix, if anything is."""
    posterior = result["posterior"]
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    discrete = np.atleast_1d(posterior.attrs.get("discrete", [])).tolist()
    enough = FEWEST_EFFECTIVE * chains
    arrays = {str(name): np.asarray(v.values) for name, v in posterior.data_vars.items() if v.size <= MOST_NUMBERS}
    columns = [array.reshape(chains, draws, -1).astype(float) for n, array in arrays.items() if n not in discrete]
    lp = np.asarray(result["sample_stats"]["lp"].values, float)[..., None]
    together = np.concatenate([*columns, np.zeros((chains, draws, 0))], axis=-1)
    judged = worst_columns(together, MOST_COLUMNS)
    verdicts = [judge_agreement(column, together.shape[-1]) for column in judged] if chains > 1 else []
    sites = [judge_sites(arrays[n], enough, fewest_effective, MOST_SITES) for n in discrete if n in arrays]
    apart = [verdict.r_hat for verdict in (*verdicts,) if verdict.disagrees]
    apart += [site.r_hat for site in sites if site.num_apart]
    of_density, r_hat_of_density = slowest(lp)
    slow = [fewest_effective(column) for column in judged]
    least = min([*slow, of_density], default=np.nan)
    highest = max([r_hat_of_density, *(verdict.r_hat for verdict in verdicts)])
    if apart:
        return highest, least, f"the chains disagree (r_hat up to {max(apart):.2f})."
    slow = [*(value for value in slow if value < enough), *(site.effective for site in sites if site.num_slow)]
    if slow or of_density < FEWEST_OF_DENSITY * chains:
        worth = f"{min(slow):,.0f} independent ones or so, of {enough} wanted" if slow else f"{of_density:,.0f} by lp"
        return highest, least, f"they are worth only {worth}."
    return highest, least, ""


def _untrusted(reason: str) -> Verdict:
    return Verdict(f"these draws should not be trusted: {reason} sumout.summary(result) says more.", True)
