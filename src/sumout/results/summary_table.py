"""How the summary is shown: rounded, at full width wherever it is printed, with the values of discrete variables.

The numbers in the table are not rounded; only what is shown is. Of a deterministic with many elements one line is shown
for all, and of a long table the rows with the worst diagnostics.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from sumout.results.effective_draws import LEAST_RHAT

WHOLE = {"ess_bulk", "ess_tail"}
LEFT_OUT = {"ess_tail", "mcse_mean", "mcse_sd", "bias_error"}  # of the columns; the table has them
MOST_ROWS = 40
MOST_ELEMENTS = 12  # of a deterministic that are shown one by one
MOST_SITES = 6  # of a discrete variable, likewise
MOST_VALUES = 3  # of a category
FEW_EFFECTIVE = 400  # a row with as many is as bad as one with the largest r_hat that is harmless
VALUES = "values"  # in `attrs`: what to say of discrete variables, by name
NOTE = "note"  # likewise: a sentence below the table
VARIABLES, DETERMINISTIC = "variables", "deterministic"  # likewise: the variable of every row; those to be folded


class SummaryTable(pd.DataFrame):
    """A DataFrame of full precision that prints rounded and whole; parts of it are plain DataFrames."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return as_text(self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        header, rows, left = _cells(self)
        head = "".join(f"<th>{escape(name)}</th>" for name in header)
        body = "".join(
            f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
            for row in rows
        )
        note = f"<p>{escape(left)}</p>" if left else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def as_text(table: Any) -> str:
    """The summary in columns of text; where it is long, the rows with the worst r_hat or effective draws."""
    header, rows, left = _cells(table)
    lines = [header, *rows]
    has_words = bool(header) and header[-1] == VALUES
    widths = [max(len(row[j]) for row in lines) for j in range(len(header))]
    written = []
    for row in lines:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        cells[-1:] = [row[-1]] if has_words else cells[-1:]
        written.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return "\n".join([*written, *([left] if left else [])])


def _cells(table: Any) -> tuple[list[str], list[list[str]], str]:
    """Header and rows in words, and what is to be said below them."""
    columns = [name for name in table.columns if name not in LEFT_OUT]
    words: dict[str, str] = table.attrs.get(VALUES, {})
    together = folded(table)
    hidden = {i for rows in together.values() for i in rows}
    single = [i for i in range(len(table)) if i not in hidden]
    kept = set(sorted(single, key=list(badness(table)).index)[:MOST_ROWS]) if len(single) > MOST_ROWS else set(single)
    firsts = {rows[0]: name for name, rows in together.items()}
    made = []
    for i in range(len(table)):
        name = str(table.index[i])
        if i in firsts:
            made.append([*fold(table.iloc[together[firsts[i]]], firsts[i], columns), ""])
        elif i in kept:
            made.append([name, *(cell(column, table[column].iloc[i]) for column in columns), words.get(name, "")])
    header = ["", *map(str, columns), VALUES]
    if not words:
        header, made = header[:-1], [row[:-1] for row in made]
    num_left = len(single) - len(kept)
    left = f"{num_left:,} more rows; shown are those with the worst diagnostics." if num_left else ""
    return header, made, " ".join(filter(None, (left, table.attrs.get(NOTE, ""))))


def folded(table: Any) -> dict[str, list[int]]:
    """The rows of each deterministic that has many."""
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(table.attrs.get(VARIABLES, ())):
        if name in table.attrs.get(DETERMINISTIC, ()):
            rows.setdefault(name, []).append(i)
    return {name: numbers for name, numbers in rows.items() if len(numbers) > MOST_ELEMENTS}


def fold(rows: Any, name: str, columns: Sequence[str]) -> list[str]:
    """One line for many elements: the range of means, and the worst diagnostics."""
    cells = [f"{name} ({len(rows):,} elements)"]
    for column in columns:
        values = rows[column].to_numpy(float)
        values = values[np.isfinite(values)]
        if column == "mean" and len(values):
            cells.append(f"{cell(column, values.min())} to {cell(column, values.max())}")
        elif column in ("ess_bulk", "r_hat") and len(values):
            cells.append(cell(column, values.min() if column == "ess_bulk" else values.max()))
        else:
            cells.append("")
    return cells


def badness(summary: Any) -> np.ndarray:
    """The rows in order, those with the largest r_hat or the fewest effective draws first."""
    r_hat = np.nan_to_num(summary["r_hat"].to_numpy(float), nan=1.0, posinf=1e9) - 1
    ess = np.nan_to_num(summary["ess_bulk"].to_numpy(float), nan=np.inf)
    score = np.maximum(r_hat / (LEAST_RHAT - 1), FEW_EFFECTIVE / np.maximum(ess, 1.0))
    return np.argsort(-score, kind="stable")


def cell(column: str, value: Any) -> str:
    """A number of a column, rounded."""
    return f"{value:,.0f}" if column in WHOLE and np.isfinite(value) else number(value, column)


def number(value: Any, column: str = "") -> str:
    """A number as one would write it in a table."""
    value = float(value)
    if not np.isfinite(value):
        return "–" if np.isnan(value) else str(value)
    if column in ("r_hat", "bias_meter", "bias_error"):
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 10_000 and value < 1e9 else f"{value:.4g}"


def describe_values(values: np.ndarray, is_category: bool) -> str:
    """What is to be said of a discrete variable, axes (chain, draw, …), beside its mean and interval."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    num = flat.shape[1]
    if flat.dtype.kind not in "biuf" or not np.isfinite(flat).all():
        return ""
    means = flat.mean(axis=0)
    if ((flat == 0) | (flat == 1)).all() and not (is_category and num == 1 and flat.max() > 1):
        return f"P(1) = {_some(means, '.2f')}"
    if not is_category:
        return "" if num == 1 else f"means {_some(means, '.3g')}"
    if 1 < num <= MOST_SITES:
        return "; ".join(_top(flat[:, i], 1) for i in range(num))
    return _top(flat, MOST_VALUES) + (f" over {num:,} sites" if num > 1 else "")


def _some(numbers: np.ndarray, form: str) -> str:
    """All of a few numbers, or the range of many."""
    if len(numbers) <= MOST_SITES:
        return ", ".join(f"{value:{form}}" for value in numbers)
    return f"{numbers.min():{form}} to {numbers.max():{form}} over {len(numbers):,} sites"


def _top(values: np.ndarray, most: int) -> str:
    """The values drawn most often, with their shares."""
    found, times = np.unique(values, return_counts=True)
    order = np.argsort(-times, kind="stable")
    shown = [f"{found[i]}: {times[i] / values.size:.2f}" for i in order[:most]]
    return ", ".join(shown) + (", …" if len(found) > most > 1 else "")


def moments(values: np.ndarray, columns: Sequence[str]) -> dict[str, float]:
    """Mean, spread and interval of a discrete variable of one site, in the columns of the table."""
    flat = np.asarray(values, float).ravel()
    found = {"mean": float(flat.mean()), "sd": float(flat.std())}
    for column in columns:
        interval = re.fullmatch(r"\D*(\d+)_(lb|ub)", str(column))
        if interval:
            tail = (1 - int(interval[1]) / 100) / 2
            found[column] = float(np.quantile(flat, tail if interval[2] == "lb" else 1 - tail))
    return found
