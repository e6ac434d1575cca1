"""What the commands print: the plan in one line, the summary as a table of text."""

import sys
from typing import TYPE_CHECKING, Any

from sumout.kernels.kernel import Kernel
from sumout.plan.plan import Plan
from sumout.reports.report import WHOLE, badness, number
from sumout.results.summary import examine

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_NAMES = 4
MOST_ROWS = 40
METHODS = {
    "sum": "summed out",
    "joint": "drawn jointly",
    "gibbs": "drawn by Gibbs",
    "forward": "drawn forward",
    "metropolis": "drawn by Metropolis",
    "prior": "drawn by proposals from its sampler",
}
LEFT_OUT = {"ess_tail", "mcse_mean", "mcse_sd", "bias_error"}  # the page has them


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


def as_text(table: Any) -> str:
    """The summary in columns of text; where it is long, the rows with the worst r_hat or effective draws."""
    kept = sorted(badness(table)[:MOST_ROWS])
    columns = [name for name in table.columns if name not in LEFT_OUT]
    rows = [["", *map(str, columns)]]
    for i in kept:
        rows.append([str(table.index[i]), *(_cell(name, table[name].iloc[i]) for name in columns)])
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    if len(kept) < len(table):
        lines.append(f"{len(table) - len(kept):,} more rows; shown are those with the worst diagnostics.")
    return "\n".join(line.rstrip() for line in lines)


def _cell(column: str, value: Any) -> str:
    return f"{value:,.0f}" if column in WHOLE and value == value else number(value, column)


def _list(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MOST_NAMES])} and {more} more"
