"""Whether the draws of a run can be trusted, in a line: what `sample` ends with.

It looks at the chains, at x on the real line and at the log density, quickly; `sumout.summary` looks at every variable
and says what to do.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sumout.results.convergence import FEWEST_OF_DENSITY
from sumout.results.effective_draws import judge_agreement, slowest, worst_columns
from sumout.results.summary import chain_warnings

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

FEWEST_DRAWS = 100  # of a chain; of fewer nothing is said
MOST_NUMBERS = 20_000_000  # of x that are looked at


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
    stats = result["sample_stats"]
    variables = result["unconstrained_posterior"].to_dataset().data_vars.values()
    columns = [np.asarray(stats["lp"].values, float)[..., None]]
    if sum(variable.size for variable in variables) <= MOST_NUMBERS:
        columns += [np.asarray(v.values, float).reshape(chains, draws, -1) for v in variables]
    found = chain_warnings(result)
    if found:
        return Verdict(_untrusted(found[0]), True)
    joined = np.concatenate(columns, axis=-1)
    effective, r_hat = slowest(joined)
    numbers = f"r_hat up to {r_hat:.2f}, at least {effective:,.0f} effective draws"
    if chains > 1:
        worst = [judge_agreement(column, joined.shape[-1]) for column in worst_columns(joined)]
        if any(verdict.disagrees for verdict in worst):
            return Verdict(_untrusted(f"the chains disagree (r_hat up to {max(v.r_hat for v in worst):.2f})."), True)
    if effective < FEWEST_OF_DENSITY * chains:
        return Verdict(_untrusted(f"they are worth only {effective:,.0f} independent ones or so."), True)
    return Verdict(f"{made}: {numbers}, no divergences. Nothing speaks against them.", False)


def _untrusted(reason: str) -> str:
    return f"these draws should not be trusted: {reason} sumout.summary(result) says more."
