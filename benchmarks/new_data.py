"""Seconds of a first run, of a run with other data of the same shapes, and of that without what was compiled before.

A simulation study, or a model that is fitted anew each day: `sumout.program` and `sumout.sample` with its defaults, all
in one process. The last column makes the model's function anew, so that nothing compiled is found.

    python -m benchmarks.new_data [--only mixture]
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table

import sumout
from benchmarks.gradients import dawid_skene, occupancy


def mixture() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Two normals."""
    rng = np.random.default_rng(1)

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)

    return model, (np.where(rng.uniform(size=100) < 0.4, 2.0, -1.0) + rng.normal(size=100),)


def zero_inflated() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A Poisson regression with more zeros than it explains."""
    rng = np.random.default_rng(2)
    covariate = rng.normal(size=200)

    def model(covariate, y):
        present = numpyro.sample("present", dist.Beta(1, 1))
        a, b = numpyro.sample("coefficients", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(present))
            numpyro.sample("y", dist.Poisson(jnp.exp(a + b * covariate) * z), obs=y)

    return model, (covariate, rng.poisson(np.exp(0.5 + 0.3 * covariate) * (rng.uniform(size=200) < 0.6)))


def of_gradients(make: Callable[[int], Any]) -> Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]:
    """A case of `benchmarks/gradients.py`."""

    def case() -> tuple[Callable[..., Any], tuple[Any, ...]]:
        made = make(1)
        return made.model, made.data

    return case


CASES = {
    "mixture": mixture,
    "zero-inflated": zero_inflated,
    "occupancy": of_gradients(occupancy),
    "dawid-skene": of_gradients(dawid_skene),
}


def timed(model: Callable[..., Any], data: tuple[Any, ...]) -> float:
    """Seconds from data to result."""
    start = time.perf_counter()
    sumout.sample(sumout.program(model, *data), progress=False)
    return time.perf_counter() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    warnings.simplefilter("ignore")
    table = Table("model", "first run", "new data", "newer data", "compilations", "new data, nothing kept")
    for name in parser.parse_args().only:
        model, data = CASES[name]()
        first = timed(model, data)
        before = len(compiled)
        others = [timed(model, (*data[:-1], np.roll(np.asarray(data[-1]), i, axis=0))) for i in (1, 2)]
        count = len(compiled) - before
        fresh = timed(CASES[name]()[0], (*data[:-1], np.roll(np.asarray(data[-1]), 1, axis=0)))
        table.add_row(name, f"{first:.2f}", *(f"{seconds:.2f}" for seconds in others), str(count), f"{fresh:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
