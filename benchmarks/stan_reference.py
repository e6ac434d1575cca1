"""Posterior moments of the three case studies by Stan, a reference that owes nothing to sumout.

The Stan programs (`studies/stan/*.stan` in the package) follow the listings in the paper's appendix, with their errors
put right, so that they are the models of `sumout_studies.models` with the discrete variables summed out by hand. That
they are is checked: at random points the two log densities may differ by a constant only. NUTS runs long enough that
the Monte Carlo error of each mean is below a hundredth of the posterior sd, and the moments go to `stan.json` beside
the studies' data, with a table that compares them with the moments stored in the studies. They are those of the
unconstrained parameters in the order of `Study.mean`: logit θ; μ and log σ; logits. The components of the mixture may
swap their labels, so each draw is sorted by μ first. Needs pystan (extra `bench`) and some ten minutes on two cores.
"""

import json
from importlib.metadata import version
from pathlib import Path

import arviz_stats
import jax
import numpy as np
import stan
from numpyro.distributions import biject_to
from rich.console import Console
from rich.table import Table

from sumout_studies.agreement import CHAINS, on_the_real_line
from sumout_studies.models import STUDIES

HERE = Path(__file__).parent
STORE = HERE.parent / "src" / "sumout" / "studies" / "data" / "stan.json"
SEED = 1
WARMUP = 2_000
DRAWS = {"survey": 200_000, "gmm": 100_000, "hmm": 100_000}  # of each chain; logit θ has a long tail, its sd needs more
ERROR = 0.01  # of a mean, in posterior sds


def build(study):
    y = study.data().tolist()
    return stan.build(study.stan(), {"N": len(y), "y": y}, random_seed=SEED)


def log_density(study, flat):
    """The density marginalised by hand, of the unconstrained parameters."""
    x, log_det, start = {}, 0.0, 0
    for name, (constraint, shape) in study.x.items():
        size = int(np.prod(shape))
        part = flat[start : start + size].reshape(shape)
        transform = biject_to(constraint)
        x[name] = transform(part)
        log_det += transform.log_abs_det_jacobian(part, x[name]).sum()
        start += size
    return study.marginal(x, study.data()) + log_det


def check(study, posterior):
    """The two must speak of the same model, or their moments cannot be compared."""
    points = np.random.default_rng(0).normal(scale=2, size=(10, len(study.mean)))
    ours = np.array([log_density(study, jax.numpy.asarray(point)) for point in points])
    theirs = np.array([posterior.log_prob(point.tolist()) for point in points])
    np.testing.assert_allclose(theirs, ours + (theirs[0] - ours[0]), rtol=1e-9)


def sample(study, posterior):
    return posterior.sample(num_chains=CHAINS, num_warmup=WARMUP, num_samples=DRAWS[study.name])


def moments(study, fit):
    x = on_the_real_line(study, fit)
    each = np.moveaxis(x, -1, 0)
    return {
        "mean": x.mean(axis=(0, 1)).round(6).tolist(),
        "sd": x.std(axis=(0, 1), ddof=1).round(6).tolist(),
        "ess": round(min(float(arviz_stats.ess(one, method="mean")) for one in each)),
        "rhat": round(max(float(arviz_stats.rhat(one)) for one in each), 4),
        "divergences": int(fit["divergent__"].sum()),
        "draws": x.shape[0] * x.shape[1],
    }


def compare(found):
    columns = ("study", "draws", "ESS", "R-hat", "divergences", "worst |mean − exact| / sd", "worst sd / exact")
    table = Table(*columns, title="Stan against the exact posterior")
    for name, study in STUDIES.items():
        one = found[name]
        shift = np.abs(np.subtract(one["mean"], study.mean) / study.sd).max()
        ratios = np.divide(one["sd"], study.sd)
        worst = ratios[np.abs(np.log(ratios)).argmax()]
        counts = (f"{one['draws']:,}", f"{one['ess']:,}", f"{one['rhat']:.4f}", str(one["divergences"]))
        table.add_row(name, *counts, f"{shift:.4f}", f"{worst:.4f}")
    Console().print(table)


def main():
    jax.config.update("jax_enable_x64", True)
    posteriors = {name: build(study) for name, study in STUDIES.items()}
    # All of Stan's work first: it forks, and JAX must not have started its threads by then.
    fits = {name: sample(study, posteriors[name]) for name, study in STUDIES.items()}
    for name, study in STUDIES.items():
        check(study, posteriors[name])
    found = {name: moments(study, fits[name]) for name, study in STUDIES.items()}
    compare(found)
    short = [name for name, one in found.items() if one["ess"] < ERROR**-2]
    if short:
        raise SystemExit(f"Nothing is stored: the effective sample size is below {ERROR**-2:,.0f} for {short}.")
    STORE.write_text(json.dumps({"pystan": version("pystan"), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
