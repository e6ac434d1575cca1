"""Reference posteriors: `python -m benchmarks.references MODEL…` makes those of the models named, or of all.

Mean and sd of every element of every parameter, from long exact runs that owe nothing to sumout: NumPyro's NUTS on the
form that is summed out by hand, in double precision, or the samplers of `exact_gibbs.py` where there is no such form.
The three models of the paper have theirs by quadrature (`exact_posteriors.py`). Each comes with its Monte-Carlo error,
which must be below `MOST_ERROR`, and with the largest differences from a long run of sumout.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.model import NAMES, Draws, Model, find_model
from benchmarks.models.studies import STUDIES
from benchmarks.summary import Summary, flatten, summarise

STORE = Path(__file__).parent / "references"
MOST_ERROR = 0.02  # of a mean or an sd, in sds
CHAINS = 4
DRAWS = {"coal": 20_000, "factorial": 4_000, "gmm_large": 2_500, "hmm_large": 2_000, "lda": 4_000}
STRETCHED = ("factorial", "gmm_large", "hmm_large")  # posteriors with strong correlations of few parameters
WARMUP = 1_000
GIBBS = {"chains": 16, "sweeps": 20_000, "warmup": 2_000}
QUADRATURE = ("survey", "gmm", "hmm")


@dataclass(frozen=True)
class Reference:
    """What is known of a posterior, for each element in one order.

    Attributes:
        elements: names.
        mean: posterior means.
        sd: posterior sds.
        mean_error: Monte-Carlo error of each mean, in sds.
        sd_error: Monte-Carlo error of each sd, relative.
        source: where the numbers come from.
        compared: how they agree with another run.
    """

    elements: list[str]
    mean: list[float]
    sd: list[float]
    mean_error: list[float]
    sd_error: list[float]
    source: str
    compared: str


def load_reference(name: str) -> Reference:
    """The stored reference of a model."""
    return Reference(**json.loads((STORE / f"{name}.json").read_text()))


def from_quadrature(model: Model) -> Reference:
    """The exact posterior that comes with the studies."""
    exact = json.loads((STUDIES / "data" / "exact.json").read_text())[model.name]
    shapes = {"theta": (), "mu": (2,), "sigma": (2,), "logits": (3, 3)}
    names, _ = flatten(model.scored({name: np.ones((1, 1, *shapes[name])) / 2 for name in model.parameters}))
    none = [0.0] * len(names)
    source = "quadrature, benchmarks/exact_posteriors.py"
    return Reference(names, exact["mean"], exact["sd"], none, none, source, "Stan's long runs, tests/unit")


def run_nuts(model: Model) -> Draws:
    """NumPyro's NUTS on the form that is summed out by hand."""
    import jax
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(
        NUTS(model.numpyro().by_hand, dense_mass=model.name in STRETCHED), num_warmup=WARMUP,
        num_samples=DRAWS[model.name], num_chains=CHAINS, chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(1), **model.data())
    samples = mcmc.get_samples(group_by_chain=True)
    return {name: np.asarray(samples[name]) for name in model.parameters}


def run_gibbs(model: Model) -> Draws:
    """The sampler written for the model."""
    from benchmarks import exact_gibbs

    found = getattr(exact_gibbs, f"sample_{model.name}")(model.data(), **GIBBS, seed=1)
    return {name: np.asarray(value) for name, value in found.items()}


def run_sumout(model: Model, draws: int) -> Draws:
    """A long run of sumout, to compare with."""
    import sumout

    program = sumout.program(model.numpyro().left_in, **model.data())
    posterior = sumout.sample(program, draws=draws, progress=False, log_likelihood=False, seed=1).posterior
    return {name: posterior[name].values for name in model.parameters}


def errors(summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """Monte-Carlo errors of means, in sds, and of sds, relative."""
    ess = np.array(summary.ess)
    return ess[:, 0] ** -0.5, np.sqrt((np.array(summary.kurtosis) - 1) / 4 / ess[:, 2])


def compare(summary: Summary, other: Summary) -> str:
    """The largest differences between two runs, in words."""
    sd = np.array(summary.sd)
    shift = np.abs(np.array(other.mean) - np.array(summary.mean)) / sd
    ratio = np.array(other.sd) / sd
    worst = ratio[np.abs(np.log(ratio)).argmax()]
    error = max(one.max() for one in errors(other))
    return (
        f"a run of sumout with {other.fewest:,.0f} effective draws: means within {shift.max():.3f} sd, the sd furthest "
        f"off {worst:.3f} times as large; Monte-Carlo error of that run up to {error:.3f}"
    )


def store(model: Model, reference: Reference) -> None:
    """Write it down."""
    (STORE / f"{model.name}.json").write_text(json.dumps(asdict(reference), ensure_ascii=False) + "\n")


def make_reference(model: Model, draws: int) -> None:
    """Run what it takes, and store it; then compare it, if so many draws of sumout are wanted."""
    if model.name in QUADRATURE:
        store(model, from_quadrature(model))
        return
    start = time.perf_counter()
    by_nuts = model.name in DRAWS
    summary = summarise(model.scored(run_nuts(model) if by_nuts else run_gibbs(model)))
    seconds = time.perf_counter() - start
    what = "NumPyro NUTS on the form summed out by hand" if by_nuts else "Gibbs sampler of benchmarks/exact_gibbs.py"
    source = f"{what}, double precision: {summary.fewest:,.0f} effective draws, R̂ {summary.worst_rhat:.4f}"
    mean_error, sd_error = errors(summary)
    print(f"{model.name}: {source}, {seconds:.0f} s; errors {mean_error.max():.4f}, {sd_error.max():.4f}", flush=True)
    if max(mean_error.max(), sd_error.max()) > MOST_ERROR:
        raise SystemExit(f"{model.name}: not stored, the Monte-Carlo error must be below {MOST_ERROR}: draw more.")
    columns = [summary.mean, summary.sd, mean_error.tolist(), sd_error.tolist()]
    short = [[float(f"{value:.7g}") for value in column] for column in columns]
    store(model, Reference(summary.elements, *short, source, "nothing yet"))
    if draws:
        compared = compare(summary, summarise(model.scored(run_sumout(model, draws))))
        print(f"{model.name}: {compared}", flush=True)
        store(model, Reference(summary.elements, *short, source, compared))


def main() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--compare", type=int, default=5_000, help="draws of each chain of sumout to compare with")
    options = parser.parse_args()
    for name in options.models or NAMES:
        make_reference(find_model(name), options.compare)


if __name__ == "__main__":
    main()
