"""Ecology's models on published data: sumout with z left in, sumout on a marginal by hand, and JAGS with z left in.

Each form runs in a process of its own, 4 chains of 1,000 draws after 1,000 of warm-up. Cold seconds run from the start
of the process; effective draws a second are the fewest of any parameter, over a whole second run, or over JAGS's draws
alone. Means are compared, in posterior standard deviations. Without JAGS (Debian's package `jags`) its columns are
left out.

    python -m benchmarks.ecology [--only cjs n_mixture]
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.jags import Jags, is_there
from benchmarks.measured import write_rows

NAMES = "site_occupancy cjs multistate dynamic_occupancy n_mixture".split()
FORMS = ("left_in", "by_hand", "jags")
ENOUGH = 1000  # effective draws


@dataclass(frozen=True)
class Outcome:
    """Of one form: seconds of a cold run, the fewest effective draws a second, and mean and sd of each parameter."""

    cold: float
    rate: float
    effective: float
    mean: list[float]
    sd: list[float]

    @property
    def until_enough(self) -> float:
        """Cold seconds until there are enough effective draws."""
        return self.cold + max(ENOUGH - self.effective, 0) / self.rate


def judge(draws: dict[str, np.ndarray], cold: float, seconds: float) -> Outcome:
    """From draws by parameter, `(chain, draw, …)`."""
    from numpyro.diagnostics import effective_sample_size

    columns = np.concatenate([value.reshape(*value.shape[:2], -1) for value in draws.values()], axis=-1)
    least = float(np.min(effective_sample_size(columns)))
    mean, sd = columns.mean(axis=(0, 1)), columns.std(axis=(0, 1))
    return Outcome(cold, least / seconds, least, mean.tolist(), sd.tolist())


def run_here(name: str, form: str) -> Outcome:
    """One form, in this process."""
    start = time.perf_counter()
    from benchmarks.ecology_models import MODELS

    model = MODELS[name]()
    if form == "jags":
        jags = Jags(model.bugs, model.bugs_data, model.parameters, model.starts)
        run, warmup = jags.run(), jags.run(draws=0)
        return judge(run.draws, run.seconds, max(run.seconds - warmup.seconds, 1e-3))
    import sumout

    warnings.simplefilter("ignore")
    program = sumout.program(getattr(model, form), *model.data)
    sumout.sample(program, progress=False)
    cold = time.perf_counter() - start
    start = time.perf_counter()
    result = sumout.sample(program, progress=False, seed=1)
    seconds = time.perf_counter() - start
    return judge({name: np.asarray(result["posterior"][name].values) for name in model.parameters}, cold, seconds)


def run_apart(name: str, form: str) -> Outcome:
    """One form, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.ecology", "--form", form, "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def apart(one: Outcome, other: Outcome) -> float:
    """The largest difference of two posterior means, in standard deviations."""
    return float(np.max(np.abs(np.subtract(one.mean, other.mean)) / np.array(other.sd)))


def measure(name: str, forms: list[str]) -> list[dict[str, Any]]:
    """Of a model, a row for each form."""
    found = {form: run_apart(name, form) for form in forms}
    ours = found["left_in"]
    return [
        {
            "model": name,
            "form": form,
            "cold": round(one.cold, 2),
            "until_enough": round(one.until_enough, 2),
            "rate": round(one.rate, 1),
            "apart": round(apart(ours, one), 4),
        }
        for form, one in found.items()
    ]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--form", choices=FORMS, help="run one form here, and print what was found")
    options = parser.parse_args()
    if options.form:
        print(json.dumps(vars(run_here(options.only[0], options.form))))
        return
    console = Console(width=120)
    if not is_there():
        console.print("JAGS is not installed (apt-get install jags): left out.")
    forms = [form for form in FORMS if form != "jags" or is_there()]
    table = Table("model", "form", "cold, s", f"to {ENOUGH:,}, s", "effective a s", "ours / this", "means apart, sd")
    rows = []
    for name in options.only:
        found = measure(name, forms)
        rows += found
        for row in found:
            rate, ratio = row["rate"], found[0]["rate"] / row["rate"]
            times = (f"{row[key]:.1f}" for key in ("cold", "until_enough"))
            table.add_row(name, row["form"], *times, f"{rate:,.0f}", f"{ratio:.2f}", f"{row['apart']:.3f}")
    console.print(table)
    write_rows("ecology", rows)


if __name__ == "__main__":
    main()
