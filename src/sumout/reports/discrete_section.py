"""Probabilities of the values of z: exact where the program is at hand, else frequencies of the draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sumout.errors import OptionError
from sumout.plan.plan import Plan
from sumout.reports.figures import band, bars, field_map, heat_map, histogram
from sumout.reports.html import Html, Section, join, note, tag
from sumout.results.marginals import marginals
from sumout.structure.structure import Structure

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_VARIABLES = 12
MOST_VALUES = 40  # of a variable; of more the draws are summarised
MOST_FIELDS = 6  # maps of an array of two dimensions, one for each value


@dataclass(frozen=True, eq=False)
class Chances:
    """Probabilities of the values of one variable.

    Attributes:
        table: the probabilities, values along the last axis.
        labels: the values.
        likely: for each element which value is the most probable.
        is_joint: whether the most probable values are those of all z together.
    """

    table: np.ndarray
    labels: list[str]
    likely: np.ndarray
    is_joint: bool


def discrete_section(
    idata: "xr.DataTree", names: list[str], plan: Plan | None, overrides: Mapping[str, str]
) -> Section | None:
    """Probabilities of the values of every discrete variable, by the run's plan and the overrides it was made with."""
    if not names:
        return None
    structure = None if plan is None else plan.structure
    exact = {} if structure is None else _exact(structure, idata, overrides)
    pieces = []
    for name in names[:MOST_VARIABLES]:
        draws = np.asarray(idata["posterior"][name].values)
        chances = exact.get(name) or _frequencies(draws)
        drawn = _from_draws(draws, name) if chances is None else _figure(chances, _is_joined(structure, name), name)
        shape = " × ".join(map(str, draws.shape[2:])) or "one site"
        source = "exact" if name in exact else "frequencies of the draws"
        pieces.append(tag("figure", tag("figcaption", tag("b", name), tag("span", f"{shape} · {source}")), drawn))
    if len(names) > MOST_VARIABLES:
        pieces.append(note(f"Not drawn: {', '.join(names[MOST_VARIABLES:])}."))
    words = (
        "Exact: averages, over the draws of x, of the exact probabilities given x (and given the other sites, where "
        "they cannot be summed out)."
        if exact
        else "How often each value was drawn."
    )
    if plan is None:
        words += " Give report the program as well for probabilities without the noise of the draws."
    ramp = tag("p", "probability 0", tag("span", class_="ramp"), "1", class_="note")
    return Section("Discrete variables", join([note(words), ramp, *pieces]))


def _exact(structure: Structure, idata: "xr.DataTree", overrides: Mapping[str, str]) -> dict[str, Chances]:
    program = structure.program.source or structure.program
    try:
        found = marginals(program, idata, plan=overrides)
    except OptionError as error:
        raise OptionError(str(error).replace("marginals:", "report:", 1)) from error
    chances = {}
    for name in program.z:
        if name in found and found[name].shape[-1] <= MOST_VALUES:
            chances[name] = of_site(found, name)
    return chances


def of_site(found: "xr.Dataset", name: str) -> Chances:
    """What `sumout.marginals` says about one variable."""
    table = np.asarray(found[name].values)
    likely = table.argmax(axis=-1)
    if f"{name}_values" in found:  # each element has values of its own
        return Chances(table, [f"{k + 1}." for k in range(table.shape[-1])], likely, False)
    values = np.asarray(found[name][f"{name}_value"].values)
    is_joint = f"{name}_mode" in found
    if is_joint:
        likely = (np.asarray(found[f"{name}_mode"].values)[..., None] == values).argmax(axis=-1)
    return Chances(table, _labels(values), likely, is_joint)


def _frequencies(draws: np.ndarray) -> Chances | None:
    """From draws alone; None where the values are too many."""
    values = np.unique(draws)
    if len(values) > MOST_VALUES:
        return None
    table = np.stack([(draws == value).mean(axis=(0, 1)) for value in values], axis=-1)
    return Chances(table, _labels(values), table.argmax(axis=-1), False)


def _labels(values: np.ndarray) -> list[str]:
    return [f"{v:g}" if values.dtype.kind in "iuf" else str(v) for v in values.tolist()]


def _is_joined(structure: Structure | None, name: str) -> bool:
    """Whether elements of the array are neighbours of each other."""
    if structure is None:
        return False
    numbers = structure.user_site_numbers.get(name, np.zeros(0, int))
    return bool(np.isin(structure.edges, numbers).all(axis=1).any())


def _figure(chances: Chances, is_joined: bool, name: str) -> Html:
    table = chances.table
    if table.ndim == 1:
        return tag("div", bars(table, chances.labels, name), class_="small")
    if table.ndim == 3:
        return _fields(chances, name)
    rows = table.reshape(-1, table.shape[-1])
    line = "line" if is_joined else "dots"
    most = "the most probable values of all z together" if chances.is_joint else "the most probable value of each"
    order = "" if table.ndim == 2 else ", elements in the order of their indices"
    drawn = heat_map(rows, chances.labels, chances.likely.ravel(), is_joined, name)
    return join([tag("div", drawn, class_="wide scroll"), note(f"Values over index{order}; {line}: {most}.")])


def _fields(chances: Chances, name: str) -> Html:
    """A map for each value; of two values one map says all."""
    table, labels = chances.table, chances.labels
    kept = [1] if len(labels) == 2 else sorted(np.argsort(-table.mean(axis=(0, 1)), kind="stable")[:MOST_FIELDS])
    maps = [field_map(table[..., k], f"probability of {labels[k]}", name) for k in kept]
    left = len(labels) - len(kept)
    rest = [note(f"{left} less probable values are not drawn.")] if left and len(labels) > 2 else []
    return join([tag("div", *maps, class_="small" if len(maps) == 1 else "trio"), *rest])


def _from_draws(draws: np.ndarray, name: str) -> Html:
    """A summary of draws with too many values to show each."""
    flat = np.asarray(draws, float).reshape(draws.shape[0] * draws.shape[1], -1)
    if flat.shape[1] == 1:
        return tag("div", histogram(flat, name), class_="small")
    words = "Median and the middle 90% of the draws of every element: there are too many values to show each."
    return join([tag("div", band(flat, name), class_="wide scroll"), note(words)])
