"""With defaults only, on the paper's models and on mixed programs whose posterior is known: is the answer right?

z is drawn, though it could be summed out, for that is the harder way; `test_posteriors.py` judges the default plan.
HMC, the default, and GHMC, which are exact, must come within 0.1 sd of every mean and 5 % of every sd with at least 400
effective draws (the fewest of bulk, tail and squares) and r_hat below 1.01; the splitting scheme within 0.15 sd, 7 %.
`summary` warns where a run is not to be trusted, and a warning is an error here, so that the bias meter is judged too.

With 2,000 effective draws the error of a mean is 0.022 sd and that of an sd 1.6 % or more: bounds of 0.1 sd and 5 % are
3 to 4 standard errors away. Tails of the survey and of the mixture are long, and states of the Markov model mix
slowly: they get ten times the draws. Seeds are fixed. `make test` runs a part of the table, `make calibrate` all of it.
"""

import warnings

import arviz_stats
import numpy as np
import pytest

import sumout
from sumout.errors import UntrustedWarning
from sumout_studies.models import STUDIES

from known_moments import KNOWN_MOMENTS, KnownMoments

LIMITS = {None: (0.1, 0.05), "ghmc": (0.1, 0.05), "split_sghmc": (0.15, 0.07)}
DRAWS = {"survey": 10_000, "mixture": 10_000, "hmm": 10_000}
QUICK = {(None, "two_chains")}


def judges():
    """All programs with known moments; the three of the paper with z drawn in the best way there is."""
    for name, study in STUDIES.items():
        yield name, KnownMoments(study.program, study.mean, study.sd, dict.fromkeys(study.z, "draw"))
    yield from KNOWN_MOMENTS.items()


JUDGES = dict(judges())
CASES = [
    pytest.param(kernel, name, marks=() if (kernel, name) in QUICK else pytest.mark.calibration)
    for kernel in LIMITS
    for name in JUDGES
]


def coordinates(program, result):
    """All draws of x on the real line, `(chain, draw, coordinate)`."""
    x = [result["unconstrained_posterior"][name].values for name in program.x]
    return np.concatenate([a.reshape(*a.shape[:2], -1) for a in x], axis=-1)


def in_order(x):
    """Two components with means and log sds: the one with the lower mean first, as in the stored truth."""
    return np.where(x[..., :1] > x[..., 1:2], x[..., [1, 0, 3, 2]], x)


def effective(column):
    """The fewest effective draws of the column, its tails and its squares."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    squares = (column - column.mean()) ** 2
    tail = arviz_stats.ess(column, method="tail", prob=(0.05, 0.95), **axes)
    return min(arviz_stats.ess(column, **axes), tail, arviz_stats.ess(squares, **axes))


@pytest.mark.parametrize(("kernel", "name"), CASES)
def test_defaults(kernel, name):
    judge = JUDGES[name]
    program = judge.make()
    with warnings.catch_warnings():
        if name != "gmm":  # its labels can be swapped, and chains rightly disagree about them
            warnings.simplefilter("error", UntrustedWarning)  # which the other tests, with few draws, let pass
        result = sumout.sample(program, kernel, plan=judge.plan, log_likelihood=False, draws=DRAWS.get(name, 1000))
    x = coordinates(program, result)
    if name == "gmm":
        x = in_order(x)
    else:
        sumout.summary(result)
    most_error, most_off = LIMITS[kernel]
    assert np.max(np.abs(x.mean(axis=(0, 1)) - judge.mean) / judge.sd) < most_error
    assert np.max(np.abs(x.std(axis=(0, 1)) / judge.sd - 1)) < most_off
    columns = [x[..., i] for i in range(x.shape[-1])]
    assert max(arviz_stats.rhat(column, chain_axis=0, draw_axis=1) for column in columns) < 1.01
    assert min(effective(column) for column in columns) >= 400
