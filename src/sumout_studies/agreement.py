"""The studies in Stan: the programs of the paper's appendix, run by pystan, and how every scheme agrees with them.

Needs pystan (`pip install sumout[bench]`), which compiles each program for half a minute the first time.
"""

from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np

from sumout.errors import OptionError
from sumout_studies.evaluate import Evaluation
from sumout_studies.measure import MOST_MEAN_ERROR, MOST_SD_ERROR, Measurement
from sumout_studies.models import Study
from sumout_studies.tables import TITLES, Cell, Table

CHAINS, WARMUP, DRAWS = 4, 1000, 5000


@dataclass(frozen=True)
class Moments:
    """Posterior means and sds by Stan, and the effective draws they rest on, for each unconstrained coordinate."""

    mean: np.ndarray
    sd: np.ndarray
    ess: np.ndarray


Agreement = dict[str, Moments]


def check_stan() -> None:
    """Say how to get pystan where it is missing."""
    try:
        import stan  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise OptionError("studies: --stan needs pystan, which is not installed; pip install sumout[bench].") from error


def run_stan(study: Study, seed: int = 1) -> Moments:
    """NUTS by Stan on the study's Stan program."""
    import arviz_stats  # takes half a second to import
    import stan  # an extra # pyright: ignore[reportMissingImports]

    y = study.data().tolist()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # it says much, and errors are raised anyway
        posterior = stan.build(study.stan(), {"N": len(y), "y": y}, random_seed=seed)
        fit = posterior.sample(num_chains=CHAINS, num_warmup=WARMUP, num_samples=DRAWS)
    x = on_the_real_line(study, fit)
    ess = [float(arviz_stats.ess(x[..., i], chain_axis=0, draw_axis=1)) for i in range(x.shape[-1])]  # pyright: ignore
    return Moments(x.mean(axis=(0, 1)), x.std(axis=(0, 1)), np.array(ess))


def on_the_real_line(study: Study, fit: Any) -> np.ndarray:
    """Draws of Stan as `(chain, draw, coordinate)`, in the coordinates of the study."""
    if study.name == "survey":
        x = np.log(fit["theta"]) - np.log1p(-fit["theta"])
    elif study.name == "gmm":
        x = np.concatenate([fit["mu"], np.log(fit["sigma"])])
    else:
        x = fit["logits"].reshape(len(study.mean), -1)
    return study.in_order(x.reshape(len(x), -1, CHAINS).transpose(2, 1, 0))  # pystan's chains alternate


@dataclass(frozen=True)
class Comparison:
    """A scheme beside Stan.

    Attributes:
        difference: the largest of means, in sds.
        error: of that, by Monte Carlo.
        sd_ratio: the sd furthest from Stan's, over that.
        is_off: whether something is further off than chance explains.
    """

    difference: float
    error: float
    sd_ratio: float
    is_off: bool


def compare(one: Measurement, stan: Moments) -> Comparison:
    """The moments of a scheme with those of Stan."""
    difference = (one.draws.mean(axis=0) - stan.mean) / stan.sd
    error = np.sqrt(1 / stan.ess + np.array([each.error for each in one.mean_errors]) ** 2)
    ratio = one.draws.std(axis=0) / stan.sd
    i, j = int(np.argmax(np.abs(difference))), int(np.argmax(np.abs(np.log(ratio))))
    is_off = (np.abs(difference) > MOST_MEAN_ERROR + 3 * error) | (np.abs(ratio - 1) > MOST_SD_ERROR + 3 * error)
    return Comparison(float(difference[i]), float(error[i]), float(ratio[j]), bool(is_off.any()))


def agreement_to_json(evaluation: Evaluation, agreement: Agreement) -> dict[str, dict[str, Any]]:
    """All numbers, by study and scheme."""
    return {
        study.name: {name: vars(compare(one, agreement[study.name])) for name, one in evaluation.of(study).items()}
        for study in evaluation.studies
    }


def agreement_table(evaluation: Evaluation, agreement: Agreement) -> Table:
    """How far the moments of every scheme are from Stan's."""
    header = ("", "worst difference of means, sds", "worst sd / Stan's sd", "consistent with Stan")
    rows = []
    for study in evaluation.studies:
        for one in evaluation.of(study).values():
            found = compare(one, agreement[study.name])
            rows.append(
                (
                    Cell(f"{TITLES[study.name]}: {one.scheme.title}"),
                    Cell(f"{found.difference:.3f} ± {found.error:.3f}"),
                    Cell(f"{found.sd_ratio:.3f}"),
                    Cell("no" if found.is_off else "yes", is_off=found.is_off),
                )
            )
    note = (
        f"Stan's NUTS on the programs of the paper's appendix, put right: {CHAINS} chains of {DRAWS:,} draws. "
        f"Consistent: means within {MOST_MEAN_ERROR:g} sds and sds within {MOST_SD_ERROR:.0%}, but for chance."
    )
    return Table("Agreement with Stan", header, tuple(rows), note)
