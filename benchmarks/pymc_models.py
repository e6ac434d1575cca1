"""PyMC models with z left in: effective draws a second of sumout, of `pm.sample`, and of z summed out by pymc_extras.

    python -m benchmarks.pymc_models [model …]

One run: each model is sampled by sumout, by `pm.sample` with z in (its compound step), and, where pymc_extras can
marginalise it, by `pm.sample` and nutpie on the marginalised model. What counts is the smallest effective number of
draws among the continuous parameters, in two ways: by the second of a first call, from a PyMC model to its draws, with
all that is compiled on the way, which is what one waits for; and by the second of sampling, warm-up and draws, with
everything compiled before: of sumout and nutpie, which take a second or less, the shortest of some runs.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.simplefilter("ignore")

import arviz as az  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import nutpie  # noqa: E402
import pymc as pm  # noqa: E402
from pymc_extras.distributions import DiscreteMarkovChain  # noqa: E402
from pymc_extras.model.marginal.marginal_model import marginalize  # noqa: E402

import sumout  # noqa: E402
from benchmarks.measured import write_rows  # noqa: E402

DRAWS, TUNE, CHAINS, CORES = 1000, 1000, 4, 2
REPEATS = 5  # of runs with everything compiled
RNG = np.random.default_rng(1)


def mixture() -> tuple[pm.Model, list[str]]:
    z = RNG.uniform(size=200) < 0.4
    y = np.where(z, 2.0, -1.0) + 0.7 * RNG.normal(size=200)
    with pm.Model() as model:
        share = pm.Beta("share", 2, 2)
        mu = pm.Normal("mu", [-1, 1], 2, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        z = pm.Bernoulli("z", share, shape=200)
        pm.Normal("y", mu[z], sigma, observed=y)
    return model, ["z"]


def occupancy() -> tuple[pm.Model, list[str]]:
    there = RNG.uniform(size=150) < 0.6
    seen = (RNG.uniform(size=(150, 4)) < 0.3) & there[:, None]
    with pm.Model() as model:
        psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", 1, 1)
        z = pm.Bernoulli("z", psi, shape=150)
        pm.Bernoulli("y", z[:, None] * p, observed=seen.astype(int))
    return model, ["z"]


def switch_point() -> tuple[pm.Model, list[str]]:
    counts = np.concatenate([RNG.poisson(3.0, 40), RNG.poisson(1.0, 70)])
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", 0, 109)
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        pm.Poisson("y", pm.math.switch(switch >= np.arange(110), early, late), observed=counts)
    return model, ["switch"]


def hidden_markov() -> tuple[pm.Model, list[str]]:
    states = np.cumsum(RNG.uniform(size=150) < 0.1) % 2
    y = np.where(states, 1.5, -1.5) + RNG.normal(size=150)
    with pm.Model() as model:
        transitions = pm.Dirichlet("transitions", [[8, 2], [2, 8]])
        z = DiscreteMarkovChain("z", P=transitions, init_dist=pm.Categorical.dist(p=[0.5, 0.5]), shape=(150,))
        mu = pm.Normal("mu", [-1, 1], 1, shape=2)
        pm.Normal("y", mu[z], 1.0, observed=y)
    return model, ["z"]


def raters() -> tuple[pm.Model, list[str]]:
    true = RNG.integers(0, 2, 60)
    ratings = np.where(RNG.uniform(size=(60, 5)) < 0.8, true[:, None], 1 - true[:, None])
    with pm.Model() as model:
        share = pm.Beta("share", 2, 2)
        right = pm.Beta("right", [[2, 8]] * 5, [[8, 2]] * 5, shape=(5, 2))
        z = pm.Bernoulli("z", share, shape=60)
        pm.Bernoulli("y", right[np.arange(5), z[:, None]], observed=ratings)
    return model, ["z"]


def large_mixture() -> tuple[pm.Model, list[str]]:
    """Of three lines, five thousand points."""
    size = 5_000
    x, z = RNG.uniform(-1, 1, size), RNG.integers(0, 3, size)
    y = np.array([-2.0, 0.5, 2.0])[z] + np.array([1.0, 0.0, -1.5])[z] * x + 0.4 * RNG.normal(size=size)
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.full(3, 2.0))
        level = pm.Normal("level", [-2, 0, 2], 1, shape=3)
        slope = pm.Normal("slope", 0, 2, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        z = pm.Categorical("z", share, shape=size)
        pm.Normal("y", level[z] + slope[z] * x, sigma, observed=y)
    return model, ["z"]


def long_chain() -> tuple[pm.Model, list[str]]:
    """A hidden Markov model of three states and two thousand steps."""
    size = 2_000
    states = np.cumsum(RNG.uniform(size=size) < 0.1) % 3
    y = np.array([-2.0, 0.0, 2.0])[states] + RNG.normal(size=size)
    with pm.Model() as model:
        transitions = pm.Dirichlet("transitions", np.eye(3) * 7 + 1)
        z = DiscreteMarkovChain("z", P=transitions, init_dist=pm.Categorical.dist(p=[1 / 3] * 3), shape=(size,))
        mu = pm.Normal("mu", [-2, 0, 2], 1, shape=3)
        pm.Normal("y", mu[z], 1.0, observed=y)
    return model, ["z"]


MODELS: dict[str, Callable[[], tuple[pm.Model, list[str]]]] = {
    made.__name__: made for made in (mixture, occupancy, switch_point, hidden_markov, raters, large_mixture, long_chain)
}


def smallest_ess(posterior: Any, names: list[str]) -> float:
    return float(min(az.ess(posterior[name].transpose("chain", "draw", ...).values.reshape(
        posterior.sizes["chain"], posterior.sizes["draw"], -1)[..., i])
        for name in names for i in range(int(np.prod(posterior[name].shape[2:])))))  # fmt: skip


class Run(NamedTuple):
    """One way's effective draws, the seconds of its first call, and those of sampling alone."""

    ess: float
    first: float
    sampling: float


def shortest(attempt: Callable[[], Any]) -> float:
    """Seconds of the run that was disturbed least."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        attempt()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def by_sumout(model: pm.Model, names: list[str]) -> Run:
    start = time.perf_counter()
    program = sumout.program(model)
    result = sumout.sample(program, draws=DRAWS, tune=TUNE, chains=CHAINS, log_likelihood=False)
    first = time.perf_counter() - start
    options: dict[str, Any] = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS, "seed": 1, "log_likelihood": False}
    return Run(
        smallest_ess(result.posterior.to_dataset(), names), first, shortest(lambda: sumout.sample(program, **options))
    )


def by_pymc(model: pm.Model, names: list[str]) -> Run:
    start = time.perf_counter()
    with model:
        trace = pm.sample(
            DRAWS, tune=TUNE, chains=CHAINS, cores=CORES, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    whole = time.perf_counter() - start
    return Run(smallest_ess(trace.posterior, names), whole, float(trace.posterior.attrs["sampling_time"]))


def by_nutpie(model: pm.Model, names: list[str]) -> Run:
    start = time.perf_counter()
    compiled = nutpie.compile_pymc_model(model)
    options = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS, "cores": CORES, "seed": 1, "progress_bar": False}
    trace = nutpie.sample(compiled, **options)
    first = time.perf_counter() - start
    return Run(smallest_ess(trace.posterior, names), first, shortest(lambda: nutpie.sample(compiled, **options)))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(f"{'':51s}{'a first call':^32s}{'sampling alone':^32s}")
    each = f"{'seconds':>10s}{'ESS/s':>10s}{'sumout is':>12s}"
    print(f"{'model':15s}{'sampler':28s}{'ESS':>8s}{each}{each}", flush=True)
    rows = []
    for name in sys.argv[1:] or MODELS:
        model, discrete = MODELS[name]()
        names = [rv.name for rv in model.free_RVs if rv.name not in discrete]
        ways: dict[str, Callable[[], Run]] = {
            "sumout": lambda model=model, names=names: by_sumout(model, names),
            "pm.sample, z in": lambda model=model, names=names: by_pymc(model, names),
        }
        try:
            without = marginalize(model, discrete)
        except NotImplementedError as error:
            print(f"{name:15s}pymc_extras cannot marginalise it: {error}")
        else:
            ways["marginalize + pm.sample"] = lambda without=without, names=names: by_pymc(without, names)
            ways["marginalize + nutpie"] = lambda without=without, names=names: by_nutpie(without, names)
        ours: list[float] = []
        for way, attempt in ways.items():
            try:
                run = attempt()
            except Exception as error:
                said = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
                print(f"{name:15s}{way:28s} fails: {said}", flush=True)
                continue
            rates = [run.ess / run.first, run.ess / run.sampling]
            ours = ours or rates
            rows.append(
                {"model": name, "sampler": way, **{key: round(value, 3) for key, value in run._asdict().items()}}
            )
            columns = "".join(
                f"{seconds:10.2f}{rate:10.1f}{mine / rate:11.1f}×"
                for seconds, rate, mine in zip(run[1:], rates, ours, strict=True)
            )
            print(f"{name:15s}{way:28s}{run.ess:8.0f}{columns}", flush=True)
        write_rows("pymc_models", rows)


if __name__ == "__main__":
    main()
