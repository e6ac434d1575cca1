"""The observed data where they have one or two dimensions, over what they may depend on, with what was replicated.

One dimension: over a covariate of the same length, or else over the index. Two: points of a plane, or a map. Points
have the colour of the most frequent value of a discrete variable of the same shape.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.reports.html import FAINT, INK, PALETTE, Html, Section, join, note, tag
from sumout.reports.svg import colour, one_plot, to_svg

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

MOST_ARRAYS = 6
MOST_POINTS = 2000
MOST_COVARIATES = 2  # over which the same data are drawn
MOST_COLOURS = len(PALETTE)
NUMBERS = "biuf"


def data_section(idata: "xr.DataTree", discrete: list[str], arguments: Mapping[str, Any]) -> Section | None:
    """Pictures of the data; None where there are none to draw.

    Args:
        idata: the run.
        discrete: names of the discrete variables.
        arguments: of the model, by name, among which covariates are looked for.
    """
    groups = idata.children
    if "observed_data" not in groups:
        return None
    observed = {str(name): _array(values) for name, values in idata["observed_data"].data_vars.items()}
    covariates = _covariates(idata, arguments, set(observed))
    drawn = {name: _figures(idata, name, y, discrete, covariates) for name, y in observed.items()}
    drawn = {name: figures for name, figures in drawn.items() if figures}
    if not drawn:
        return None
    words = "Points: the data. Grey: the middle 90% of data replicated from the posterior."
    has_series = any(observed[name].ndim == 1 for name in drawn)
    pieces = [note(words)] if "posterior_predictive" in groups and has_series else []
    for name in list(drawn)[:MOST_ARRAYS]:
        pieces += drawn[name]
    left = [name for name in observed if name not in list(drawn)[:MOST_ARRAYS]]
    if left:
        pieces.append(note(f"Not drawn: {', '.join(left)}."))
    return Section("Data", join(pieces))


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.values)


def _covariates(idata: "xr.DataTree", arguments: Mapping[str, Any], observed: set[str]) -> dict[str, np.ndarray]:
    """What the data may depend on: constant data and arguments of one dimension."""
    found = {}
    if "constant_data" in idata.children:
        found = {str(name): _array(values) for name, values in idata["constant_data"].data_vars.items()}
    found |= {name: np.asarray(value) for name, value in arguments.items() if name not in observed}
    numbers = {name: x for name, x in found.items() if x.ndim == 1 and x.dtype.kind in "iuf"}
    return {name: x for name, x in numbers.items() if np.isfinite(x).all() and len(np.unique(x)) > 2}


def _figures(
    idata: "xr.DataTree", name: str, y: np.ndarray, discrete: list[str], covariates: Mapping[str, np.ndarray]
) -> list[Html]:
    if y.dtype.kind not in NUMBERS or y.size < 2 or not np.isfinite(y.astype(float)).any():
        return []
    labels, colours = _colours(idata, y, discrete)
    if y.ndim == 1:
        return [
            _framed(name, f"over {over}", _series(y, x, _band(idata, name, y.shape), colours, name), labels)
            for over, x in _abscissae(idata, name, y, covariates)
        ]
    if y.ndim == 2 and y.shape[1] == 2:
        return [_framed(name, f"{len(y):,} points of a plane", _plane(y, colours, name), labels)]
    if y.ndim == 2:
        return [_framed(name, " × ".join(map(str, y.shape)), _map(y, name), None)]
    return []


def _framed(name: str, words: str, drawn: Html, labels: Html | None) -> Html:
    key = [] if labels is None else [labels]
    caption = tag("figcaption", tag("b", name), tag("span", words))
    return tag("figure", caption, *key, tag("div", drawn, class_="wide scroll"))


def _abscissae(
    idata: "xr.DataTree", name: str, y: np.ndarray, covariates: Mapping[str, np.ndarray]
) -> list[tuple[str, np.ndarray]]:
    """What the data are drawn over: covariates, by name, or the index."""
    fitting = [(other, x) for other, x in covariates.items() if x.shape == y.shape and not np.array_equal(x, y)]
    if fitting:
        return fitting[:MOST_COVARIATES]
    (dim,) = idata["observed_data"][name].dims
    labels = np.asarray(idata["observed_data"][name][str(dim)].values)
    is_number = labels.dtype.kind in "iuf"
    return [("index", labels if is_number else np.arange(len(y)))]


def _band(idata: "xr.DataTree", name: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """The middle 90% of the replicated data, `(2, n)`."""
    if "posterior_predictive" not in idata.children or name not in idata["posterior_predictive"]:
        return None
    replicated = _array(idata["posterior_predictive"][name])
    if replicated.shape[2:] != shape:
        return None
    return np.quantile(replicated.astype(float), [0.05, 0.95], axis=(0, 1))


def _colours(idata: "xr.DataTree", y: np.ndarray, discrete: list[str]) -> tuple[Html | None, np.ndarray | None]:
    """The most frequent value of the first discrete variable with a value for each datum, and a key to it."""
    for name in discrete:
        draws = np.asarray(idata["posterior"][name].values)
        if draws.ndim != 3 or draws.shape[2:] != y.shape[:1]:
            continue
        values = np.unique(draws)
        if not 1 < len(values) <= MOST_COLOURS:
            continue
        often = np.argmax([(draws == value).mean(axis=(0, 1)) for value in values], axis=0)
        chips = [
            tag("span", tag("i", "●", style=f"color:{colour(k)}"), f"{name} = {value}")
            for k, value in enumerate(values)
        ]
        return tag("div", *chips, class_="key"), often
    return None, None


def _scatter(axes: Any, x: np.ndarray, y: np.ndarray, colours: np.ndarray | None) -> None:
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
    look = {"linestyle": "", "marker": "o", "markersize": float(np.clip(60 / np.sqrt(len(kept)), 1.5, 4.0))}
    for k in [None] if colours is None else np.unique(colours[kept]):
        chosen = kept if colours is None or k is None else kept[colours[kept] == k]
        axes.plot(x[chosen], y[chosen], color=INK if k is None else colour(int(k)), markeredgewidth=0, **look)


def _series(y: np.ndarray, x: np.ndarray, band: np.ndarray | None, colours: np.ndarray | None, name: str) -> Html:
    figure, axes = one_plot(7.0, 2.6, left=0.65)
    if band is not None:
        width = float(np.clip(250 / len(x), 0.8, 5.0))
        kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
        axes.vlines(x[kept], *band[:, kept], color=FAINT, linewidth=width, alpha=0.7)
    _scatter(axes, x, y.astype(float), colours)
    return to_svg(figure, f"The data {name}")


def _plane(y: np.ndarray, colours: np.ndarray | None, name: str) -> Html:
    figure, axes = one_plot(7.0, 4.0, left=0.65)
    _scatter(axes, y[:, 0].astype(float), y[:, 1].astype(float), colours)
    return to_svg(figure, f"The data {name}")


def _map(y: np.ndarray, name: str) -> Html:
    ratio = y.shape[0] / y.shape[1]
    figure, axes = one_plot(7.0, float(np.clip(6.2 * ratio, 0.8, 4.0)) + 0.4, left=0.65)
    aspect = "equal" if 0.2 < ratio < 5 else "auto"
    shown = axes.imshow(y.astype(float), cmap="viridis", interpolation="none", aspect=aspect)
    figure.colorbar(shown, ax=axes, fraction=0.03, pad=0.02)
    axes.locator_params(integer=True)
    return to_svg(figure, f"The data {name}")
