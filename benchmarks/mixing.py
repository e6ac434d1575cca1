"""Did the plan take what mixes best? Effective draws a second of CPU time, by the plan's choice and by every other.

For each model z is summed out, drawn, and left to the plan; where the plan's own way is one of the two it is not run
twice. Effective draws are those of the worst coordinate of x, or of the worst site of z that is rarely neither of its
values. Compilation is left out: every run is made twice, and the second one counts.

    python -m benchmarks.mixing [model …]
"""

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table

import sumout
from sumout.errors import OptionError
from sumout.plan.plan import plan_for
from sumout.results.effective_draws import effective_draws, site_columns

RNG = np.random.default_rng
DRAWS = 3000  # of each chain, so that sampling takes longer than what is done once
RARE = 0.02  # of effective draws of indicators that are seldom on, or off, little is known
GOOD = 0.95  # of the effective draws a second of the best plan


def correlated(rows: int, columns: int, correlation: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A design whose neighbouring columns are correlated, and data of every third of them."""
    rng = RNG(seed)
    design = rng.normal(size=(rows, columns))
    for j in range(1, columns):
        design[:, j] = correlation * design[:, j - 1] + np.sqrt(1 - correlation**2) * design[:, j]
    effects = np.where(np.arange(columns) % 3 == 0, 0.5, 0.0)
    return design, design @ effects + rng.normal(size=rows)


def spike(design, y):
    """A spike and slab with a slab of unknown scale."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("columns", design.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(design @ (z * scale * beta), sigma), obs=y)


def continuous_spike(design, y):
    """The indicator in the prior of its coefficient only."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("columns", design.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        beta = numpyro.sample("beta", dist.Normal(0.0, jnp.where(z == 1, 1.0, 0.01)))
    numpyro.sample("y", dist.Normal(design @ beta, sigma), obs=y)


def logistic_spike(design, y):
    """No Gaussian conditional."""
    with numpyro.plate("columns", design.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Bernoulli(logits=design @ (z * beta)), obs=y)


def laplace_spike(design, y):
    """Nor here, by the prior."""
    with numpyro.plate("columns", design.shape[1]):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        beta = numpyro.sample("beta", dist.Laplace(0.0, 1.0))
    numpyro.sample("y", dist.Normal(design @ (z * beta), 1.0), obs=y)


def two_kinds_of_effects(y):
    """Random effects from two normals."""
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        theta = numpyro.sample("theta", dist.Normal(mu[z], tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def shifts(y):
    """Outliers, each with a shift of its own."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.1))
        shift = numpyro.sample("shift", dist.Normal(0.0, 5.0))
        numpyro.sample("y", dist.Normal(mu + z * shift, sigma), obs=y)


def mixture(y):
    """Two normals."""
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)


def robust(design, y):
    """A regression whose noise is of two sizes."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([design.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.1))
        numpyro.sample("y", dist.Normal(design @ beta, jnp.where(z == 1, 5.0, 1.0) * sigma), obs=y)


def shared_count(y):
    """A count that all data share, and that trades off with their mean."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    n = numpyro.sample("n", dist.Geometric(0.2))
    with numpyro.plate("points", len(y)):
        numpyro.sample("y", dist.Normal(mu + n, 1.0), obs=y)


def chain(y):
    """A hidden Markov model."""
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1))
    stay = numpyro.sample("stay", dist.Beta(8.0, 2.0))
    state = numpyro.sample("z_0", dist.Bernoulli(0.5))
    for t, value in enumerate(y):
        if t:
            state = numpyro.sample(f"z_{t}", dist.Bernoulli(jnp.where(state == 1, stay, 1 - stay)))
        numpyro.sample(f"y_{t}", dist.Normal(mu[state], 1.0), obs=value)


@dataclass(frozen=True)
class Case:
    """A model and its data."""

    model: Callable[..., None]
    data: tuple[Any, ...]


def _outliers() -> np.ndarray:
    y = RNG(5).normal(size=30)
    y[::7] += 6
    return y


def _two_groups(num: int, apart: float) -> np.ndarray:
    rng = RNG(4)
    return rng.normal(size=num) + apart * ((rng.uniform(size=num) < 0.4) - 0.5)


CASES = {
    "spike and slab, 8": Case(spike, correlated(60, 8, 0.7, 0)),
    "spike and slab, 50": Case(spike, correlated(120, 50, 0.7, 1)),
    "spike and slab, 3": Case(spike, correlated(40, 3, 0.5, 2)),
    "continuous spike, 8": Case(continuous_spike, correlated(60, 8, 0.7, 0)),
    "continuous spike, 50": Case(continuous_spike, correlated(120, 50, 0.7, 1)),
    "logistic spike, 6": Case(logistic_spike, (lambda d: (d[0], (d[1] > 0).astype(int)))(correlated(80, 6, 0.5, 3))),
    "Laplace slab, 6": Case(laplace_spike, correlated(60, 6, 0.5, 4)),
    "two kinds of effects": Case(two_kinds_of_effects, (_two_groups(40, 4.0),)),
    "shifts": Case(shifts, (_outliers(),)),
    "mixture": Case(mixture, (_two_groups(100, 3.0),)),
    "robust regression": Case(robust, correlated(80, 4, 0.5, 8)),
    "count of 30 data": Case(shared_count, (5 + RNG(10).normal(size=30),)),
    "count of 3 data": Case(shared_count, (5 + RNG(11).normal(size=3),)),
    "hidden Markov": Case(chain, (RNG(9).normal(size=40) + 2 * (np.arange(40) % 20 > 10) - 1,)),
}  # fmt: skip


def measure(case: Case, plan: dict[str, str] | None) -> tuple[float, float]:
    """Effective draws of what mixes worst, and CPU seconds, of a run that compiles nothing."""
    program = sumout.program(case.model, *case.data)
    spent, result = 0.0, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(2):
            begin = time.process_time()
            result = sumout.sample(program, draws=DRAWS, seed=seed, plan=plan, progress=False, log_likelihood=False)
            spent = time.process_time() - begin
    assert result is not None
    posterior = {name: np.asarray(value) for name, value in result["posterior"].data_vars.items()}
    columns = []
    for name, value in posterior.items():
        if name in program.z:
            found = site_columns(value)
            columns += [column for column in np.moveaxis(found, -1, 0) if RARE < column.mean() < 1 - RARE]
        else:
            columns += list(np.moveaxis(value.reshape(*value.shape[:2], -1), -1, 0))
    return min(effective_draws(np.asarray(column, float)) for column in columns), spent


def main(names: list[str]) -> None:
    """Measure and show."""
    console = Console(width=140)
    header = ("model", "summed: ess", "ess/s", "drawn: ess", "ess/s", "by the plan: ess", "ess/s", "took the best")
    table = Table(*header, title="Effective draws of what mixes worst, of 12,000, and by second of CPU time")
    for name in names or CASES:
        case = CASES[name]
        program = sumout.program(case.model, *case.data)
        sites, rows = list(program.z), []
        for plan in (dict.fromkeys(sites, "sum"), dict.fromkeys(sites, "draw"), None):
            try:
                plan_for(program, plan)
            except OptionError:
                rows.append((np.nan, np.nan))
                continue
            rows.append(measure(case, plan))
            console.print(name, plan if plan is None else next(iter(plan.values())), *np.round(rows[-1], 2))
        speeds = [ess / seconds for ess, seconds in rows]
        is_best = speeds[2] >= GOOD * np.nanmax(speeds[:2])
        cells = [f"{cell:,.0f}" for (ess, _), speed in zip(rows, speeds, strict=True) for cell in (ess, speed)]
        table.add_row(name, *cells, "yes" if is_best else "no")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
