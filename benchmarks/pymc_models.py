"""PyMC models with z left in: effective draws a second of sumout, of `pm.sample`, and of z summed out by pymc_extras.

    python benchmarks/pymc_models.py [model …]

One run: each model is sampled by sumout, by `pm.sample` with z in (its compound step), and, where pymc_extras can
marginalise it, by `pm.sample` and nutpie on the marginalised model. What counts is the smallest effective number of
draws among the continuous parameters, by the second of sampling: warm-up and draws, compiling left out for all, as it
is done before the clock starts or, for `pm.sample`, not counted by its own clock.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

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

DRAWS, TUNE, CHAINS, CORES = 1000, 1000, 4, 2
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


MODELS: dict[str, Callable[[], tuple[pm.Model, list[str]]]] = {
    made.__name__: made for made in (mixture, occupancy, switch_point, hidden_markov, raters)
}


def smallest_ess(posterior: Any, names: list[str]) -> float:
    return float(min(az.ess(posterior[name].transpose("chain", "draw", ...).values.reshape(
        posterior.sizes["chain"], posterior.sizes["draw"], -1)[..., i])
        for name in names for i in range(int(np.prod(posterior[name].shape[2:])))))  # fmt: skip


def by_sumout(model: pm.Model, names: list[str]) -> tuple[float, float]:
    program = sumout.program(model)
    sumout.sample(program, draws=10, tune=10, chains=CHAINS, seed=1, log_likelihood=False)  # compiles
    start = time.perf_counter()
    result = sumout.sample(program, draws=DRAWS, tune=TUNE, chains=CHAINS, log_likelihood=False)
    return smallest_ess(result.posterior.to_dataset(), names), time.perf_counter() - start


def by_pymc(model: pm.Model, names: list[str]) -> tuple[float, float]:
    with model:
        trace = pm.sample(
            DRAWS, tune=TUNE, chains=CHAINS, cores=CORES, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    return smallest_ess(trace.posterior, names), float(trace.posterior.attrs["sampling_time"])


def by_nutpie(model: pm.Model, names: list[str]) -> tuple[float, float]:
    compiled = nutpie.compile_pymc_model(model)
    start = time.perf_counter()
    trace = nutpie.sample(compiled, draws=DRAWS, tune=TUNE, chains=CHAINS, cores=CORES, seed=1, progress_bar=False)
    return smallest_ess(trace.posterior, names), time.perf_counter() - start


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    print(f"{'model':15s}{'sampler':28s}{'ESS':>8s}{'seconds':>9s}{'ESS/s':>10s}{'sumout is':>12s}", flush=True)
    for name in sys.argv[1:] or MODELS:
        model, discrete = MODELS[name]()
        names = [rv.name for rv in model.free_RVs if rv.name not in discrete]
        ways: dict[str, Callable[[], tuple[float, float]]] = {
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
        ours = 0.0
        for way, run in ways.items():
            try:
                ess, seconds = run()
            except Exception as error:
                print(
                    f"{name:15s}{way:28s} fails: {type(error).__name__}: {str(error).splitlines()[0][:60]}", flush=True
                )
                continue
            rate = ess / seconds
            ours = ours or rate
            print(f"{name:15s}{way:28s}{ess:8.0f}{seconds:9.2f}{rate:10.1f}{ours / rate:11.1f}×", flush=True)


if __name__ == "__main__":
    main()
