"""What the commands print: the plan in one line, the summary as a table of text."""

import sys
from typing import TYPE_CHECKING

from sumout.kernels.kernel import Kernel
from sumout.plan.plan import Plan
from sumout.results.summary import examine
from sumout.results.summary_table import as_text

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_NAMES = 4
METHODS = {
    "sum": "summed out",
    "joint": "drawn jointly",
    "gibbs": "drawn by Gibbs",
    "forward": "drawn forward",
    "metropolis": "drawn by Metropolis",
    "prior": "drawn by proposals from its sampler",
}


def one_line(plan: Plan, kernel: Kernel) -> str:
    """The plan, in short."""
    by_method: dict[str, list[str]] = {}
    for name, choices in plan.choices.items():
        for choice in choices:
            shown = name if len(choices) == 1 else f"{choice.num_sites} of {name}"
            by_method.setdefault(METHODS[choice.method], []).append(shown)
    parts = [f"{_list(names)} {words}" for words, names in by_method.items()]
    return f"{plan.structure.program.name}: {'; '.join(parts)}; kernel {type(kernel).__name__}."


def show_summary(result: "xr.DataTree", *, quiet: bool) -> None:
    """Print the table, and its warnings on stderr."""
    found = examine(result)
    if not quiet:
        print(as_text(found.table))
    for words in found.warnings:
        print(f"Warning: {words}", file=sys.stderr)


def _list(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MOST_NAMES])} and {more} more"
