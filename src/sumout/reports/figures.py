"""The plots of the page: draws of a coordinate, probabilities of discrete values, replicated data."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sumout.reports.html import FAINT, INK, PALETTE, Html
from sumout.reports.svg import colour, one_plot, to_svg

if TYPE_CHECKING:  # an extra
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


MOST_CHAINS = 16  # drawn separately
MOST_POINTS = 4000  # in the traces of one coordinate, over all chains
MOST_POINTS_OF_CHAIN = 500
MOST_COLUMNS = 1000  # of a heat map
MOST_LABELS = 12
REPLICATES = 50
DENSITY_POINTS = 128
RANK_BINS = 20
SMALL = (3.4, 1.9)


def density_plot(draws: np.ndarray, name: str) -> Html:
    """A density for each chain; `draws` have axes (chain, draw)."""
    figure, axes = one_plot(*SMALL, left=0.15)
    for number, chain in enumerate(draws[:MOST_CHAINS]):
        curve = density_curve(chain)
        if curve is None:
            axes.axvline(chain[np.isfinite(chain)][0] if np.isfinite(chain).any() else 0.0, color=colour(number))
        else:
            axes.plot(*curve, color=colour(number), linewidth=1.1)
    axes.set_yticks([])
    axes.set_ylim(bottom=0)
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_title("density")
    return to_svg(figure, f"Density of {name} for each chain")


def trace_plot(draws: np.ndarray, name: str) -> Html:
    """The draws in the order they were made, some of them left out where they are many."""
    figure, axes = one_plot(*SMALL)
    shown = draws[:MOST_CHAINS]
    most = min(MOST_POINTS_OF_CHAIN, MOST_POINTS // len(shown))
    kept = _spaced(draws.shape[1], most)
    for number, chain in enumerate(shown):
        axes.plot(kept, chain[kept], color=colour(number), linewidth=0.5, alpha=0.8)
    axes.set_xlim(0, max(draws.shape[1] - 1, 1))
    axes.locator_params(nbins=5)
    axes.set_title("trace")
    return to_svg(figure, f"Trace of {name} for each chain")


def rank_plot(draws: np.ndarray, name: str) -> Html:
    """How often ranks of each chain among all draws fall into bins, as a multiple of what they should."""
    from scipy.stats import rankdata  # takes most of a second to import

    figure, axes = one_plot(*SMALL)
    bins = min(RANK_BINS, draws.shape[1])
    edges = np.linspace(0, 1, bins + 1)
    ranks = (rankdata(draws.ravel()) - 0.5).reshape(draws.shape) / draws.size
    expected = draws.shape[1] / bins
    error = np.sqrt(expected * (1 - 1 / bins)) / expected
    axes.axhspan(1 - 2 * error, 1 + 2 * error, color=FAINT, alpha=0.4, linewidth=0)
    heights = [np.histogram(chain, edges)[0] / expected for chain in ranks[:MOST_CHAINS]]
    for number, height in enumerate(heights):
        axes.stairs(height, edges, color=colour(number), linewidth=1.0, baseline=None)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(2.0, 1.05 * float(np.max(heights))))
    axes.set_xticks([0, 0.5, 1], ["lowest", "", "highest"])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    axes.locator_params(axis="y", nbins=4)
    axes.set_title("ranks")
    return to_svg(figure, f"Histogram of the ranks of {name} for each chain")


def bars(probabilities: np.ndarray, labels: list[str], name: str) -> Html:
    """Probabilities of the values of one site."""
    figure, axes = one_plot(*SMALL)
    axes.bar(range(len(labels)), probabilities, color=PALETTE[0], width=0.7)
    _label(axes, "x", labels)
    axes.set_ylim(0, 1)
    return to_svg(figure, f"Probabilities of the values of {name}")


def heat_map(
    probabilities: np.ndarray, labels: list[str], likely: np.ndarray | None, is_joined: bool, name: str
) -> Html:
    """Probabilities `(element, value)` of an array of sites; the most probable value as a line, or as dots."""
    num, num_values = probabilities.shape
    figure, axes = one_plot(7.0, 0.75 + min(0.26 * max(num_values, 2), 4.0), left=0.55)
    width = -(-num // MOST_COLUMNS)  # elements in one column
    starts = np.arange(0, num, width)
    columns = np.add.reduceat(probabilities, starts, axis=0) / np.diff([*starts, num])[:, None]
    extent = (-0.5, num - 0.5, -0.5, num_values - 0.5)
    shade = {"cmap": _shades(), "vmin": 0, "vmax": 1, "interpolation": "none", "aspect": "auto"}
    axes.imshow(columns.T, origin="lower", extent=extent, **shade)
    if likely is not None and num <= MOST_COLUMNS:
        dots: dict[str, Any] = {"linestyle": "", "marker": "."}
        look = {"drawstyle": "steps-mid", "linewidth": 1.2} if is_joined else dots
        axes.plot(likely, color=INK, markersize=min(4.0, 300 / num), **look)
    axes.locator_params(axis="x", integer=True)
    _label(axes, "y", labels)
    return to_svg(figure, f"Probabilities of the values of every element of {name}")


def field_map(probabilities: np.ndarray, title: str, name: str) -> Html:
    """One number between 0 and 1 for every element of a two-dimensional array."""
    rows, columns = probabilities.shape
    height = float(np.clip(3.0 * rows / columns, 0.8, 4.5))
    figure, axes = one_plot(3.6, height + 0.6)
    shade = {"cmap": _shades(), "vmin": 0, "vmax": 1, "interpolation": "none", "aspect": "auto"}
    strides = -(-rows // MOST_COLUMNS), -(-columns // MOST_COLUMNS)
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes.imshow(probabilities[:: strides[0], :: strides[1]], extent=extent, **shade)
    axes.locator_params(nbins=6, integer=True)
    axes.set_title(title)
    return to_svg(figure, f"{title} for every element of {name}")


def histogram(draws: np.ndarray, name: str) -> Html:
    """How often values were drawn that are too many for bars."""
    figure, axes = one_plot(*SMALL)
    axes.hist(draws.ravel(), bins=40, color=PALETTE[0], weights=np.full(draws.size, 1 / draws.size))
    axes.locator_params(nbins=5)
    return to_svg(figure, f"Frequencies of the values of {name}")


def band(draws: np.ndarray, name: str) -> Html:
    """Median and the middle 90% of every element; `draws` have axes (draw, element)."""
    kept = _spaced(draws.shape[1], MOST_COLUMNS)
    low, middle, high = np.quantile(draws[:, kept], [0.05, 0.5, 0.95], axis=0)
    figure, axes = one_plot(7.0, 2.2, left=0.55)
    axes.fill_between(kept, low, high, step="mid", color=PALETTE[0], alpha=0.3, linewidth=0)
    axes.plot(kept, middle, drawstyle="steps-mid", color=PALETTE[0], linewidth=1.1)
    axes.locator_params(axis="x", integer=True)
    return to_svg(figure, f"Median and the middle 90 percent of every element of {name}")


def predictive_plot(replicated: np.ndarray, observed: np.ndarray, name: str) -> Html:
    """Replicated data `(draw, datum)` under the observed ones: densities, or shares up to a value for whole numbers."""
    figure, axes = one_plot(7.0, 2.6, left=0.75)
    is_smooth = observed.dtype.kind == "f" and len(np.unique(observed)) > MOST_LABELS
    curves = [density_curve(data) if is_smooth else _shares(data) for data in (*replicated, observed)]
    style: dict[str, Any] = {} if is_smooth else {"drawstyle": "steps-post"}
    for curve in curves[:-1]:
        if curve is not None:
            axes.plot(*curve, color=PALETTE[0], alpha=0.25, linewidth=0.8, **style)
    if curves[-1] is not None:
        axes.plot(*curves[-1], color=INK, linewidth=1.8, **style)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("density" if is_smooth else "share up to here")
    return to_svg(figure, f"Observed {name} and replicates")


def pick_replicates(replicated: np.ndarray) -> np.ndarray:
    """Some of the replicated data sets, evenly spaced over all chains."""
    flat = replicated.reshape(replicated.shape[0] * replicated.shape[1], -1)
    return flat[_spaced(len(flat), REPLICATES)]


def density_curve(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A smooth density that ends where the values end; None where they do not vary."""
    from arviz_stats.base import array_stats  # takes half a second to import

    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    if len(values) < 2 or np.ptp(values) <= 1e-12 * np.abs(values).max():
        return None
    grid, height, _ = array_stats.kde(values, grid_len=512)
    kept = _spaced(len(grid), DENSITY_POINTS)
    grid, height = np.asarray(grid)[kept], np.asarray(height)[kept]
    return (grid, height) if np.isfinite(height).all() else None


def _shares(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    values = np.asarray(values, float)
    found, times = np.unique(values[np.isfinite(values)], return_counts=True)
    if not len(found):
        return None
    return np.concatenate([found[:1], found]), np.concatenate([[0.0], np.cumsum(times) / times.sum()])


def _spaced(num: int, most: int) -> np.ndarray:
    """At most so many of the numbers 0 to num − 1, evenly spaced."""
    return np.unique(np.linspace(0, num - 1, min(num, most)).astype(int))


def _shades() -> "Colormap":
    """From nothing to full colour, so that it suits light and dark."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    return LinearSegmentedColormap.from_list("shades", [to_rgba(PALETTE[0], 0.0), to_rgba(PALETTE[0], 1.0)])


def _label(axes: "Axes", axis: str, labels: list[str]) -> None:
    """Name the values along an axis, some of them where they are many."""
    kept = _spaced(len(labels), MOST_LABELS)
    place = axes.set_xticks if axis == "x" else axes.set_yticks
    place(kept, [labels[i] for i in kept.tolist()])
