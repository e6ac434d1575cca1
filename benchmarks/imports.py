"""`python -m benchmarks.imports`: how long imports take, in fresh processes that take turns.

`import sumout` makes programs; what samples from them is imported when it is first asked for, which is the last row.
"""

import subprocess
import sys

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.bytecode import write_bytecode

REPEATS = 10
STATEMENTS = ("import numpyro", "import sumout", "import sumout; sumout.sample")
CLOCK = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def seconds(statement: str) -> float:
    said = subprocess.run([sys.executable, "-c", CLOCK.format(statement)], capture_output=True, text=True, check=True)
    return float(said.stdout)


def main() -> None:
    console = Console()
    write_bytecode()
    for statement in STATEMENTS:
        seconds(statement)  # so that files are at hand
    each = [[seconds(s) for s in STATEMENTS] for _ in track(range(REPEATS), "imports", console=console, transient=True)]
    medians = np.median(each, axis=0)
    table = Table("statement", "median, s", "over numpyro's", title=f"Imports, {REPEATS} fresh processes each")
    for statement, median in zip(STATEMENTS, medians, strict=True):
        table.add_row(statement, f"{median:.3f}", f"{median / medians[0]:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
