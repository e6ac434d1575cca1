"""The plots of the page about the studies."""

import numpy as np

from sumout.reports.figures import SMALL, density_curve
from sumout.reports.html import FAINT, INK, Html, join, tag
from sumout.reports.svg import colour, one_plot, to_svg
from sumout_studies.measure import Measurement
from sumout_studies.schemes import SCHEMES

SHOWN = 500  # draws of a trace
COLOURS = {name: colour(number) for number, name in enumerate(SCHEMES)}


def key(measurements: dict[str, Measurement]) -> Html:
    """Which colour stands for which scheme."""
    chips = [
        tag("span", tag("i", "●", style=f"color:{COLOURS[name]}"), one.scheme.title)
        for name, one in measurements.items()
    ]
    return tag("div", tag("span", tag("i", "▬"), "exact"), *chips, class_="key")


def densities(measurements: dict[str, Measurement]) -> Html:
    """The posterior density of every coordinate: exact, and by each scheme."""
    first = next(iter(measurements.values()))
    exact = first.study.exact
    plots = []
    is_alone = len(exact.coordinates) == 1
    for i, name in enumerate(exact.coordinates):
        figure, axes = one_plot(*((7.0, 2.8) if is_alone else SMALL), left=0.15)
        axes.plot(exact.grid[i], exact.density[i], color=INK, linewidth=3, alpha=0.35)
        for scheme, one in measurements.items():
            curve = density_curve(one.draws[:, i])
            if curve is not None:
                axes.plot(*curve, color=COLOURS[scheme], linewidth=1)
        axes.set_xlim(exact.grid[i][0], exact.grid[i][-1])
        axes.set_ylim(bottom=0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=5)
        axes.set_title(name)
        plots.append(to_svg(figure, f"Posterior density of {name}, exact and by each scheme"))
    return tag("div", *plots, class_="wide scroll" if is_alone else "trio")


def traces(measurements: dict[str, Measurement]) -> Html:
    """The first draws of the first chain of each scheme, of the coordinate on which it does worst."""
    plots = []
    for scheme, one in measurements.items():
        outcome = one.outcomes[0]
        i = int(np.argmin(outcome.each_ess.min(axis=1)))
        mean, sd = one.study.mean[i], one.study.sd[i]
        figure, axes = one_plot(*SMALL)
        axes.axhspan(mean - 2 * sd, mean + 2 * sd, color=FAINT, alpha=0.3, linewidth=0)
        axes.plot(outcome.x[0, :SHOWN, i], color=COLOURS[scheme], linewidth=0.6)
        axes.set_xlim(0, min(SHOWN, outcome.x.shape[1]) - 1)
        axes.locator_params(nbins=5)
        axes.set_title(f"{one.scheme.title}: {one.study.exact.coordinates[i]}")
        plots.append(to_svg(figure, f"Trace of {one.scheme.title}"))
    return tag("div", *plots, class_="trio")


def rates(measurements: dict[str, Measurement]) -> Html:
    """Effective draws a second of each scheme as bars; faint where they are draws of another distribution."""
    figure, axes = one_plot(7.0, 0.6 + 0.27 * len(measurements), left=1.7, bottom=0.3)
    names = [one.scheme.title for one in measurements.values()]
    longest = max(one.rate for one in measurements.values())
    for row, (scheme, one) in enumerate(measurements.items()):
        axes.barh(row, one.rate, color=COLOURS[scheme], height=0.7, alpha=0.25 if one.is_biased else 1.0)
        words = f"{one.rate:,.0f}" + (", biased" if one.is_biased else "")
        axes.text(one.rate + 0.01 * longest, row, words, va="center", size=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * longest)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=6)
    return tag("div", to_svg(figure, "Effective draws a second of each scheme"), class_="wide scroll")


def searches(searched: dict[str, dict[float, float]], titles: dict[str, str]) -> Html:
    """Bulk ESS of HMC on the marginal by step size, one plot for each study."""
    plots = []
    for name, found in searched.items():
        figure, axes = one_plot(*SMALL, left=0.6)
        axes.plot(list(found), list(found.values()), "o-", color=COLOURS["hmc"], markersize=3, linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks(list(found), [f"{step:.2g}" for step in found], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="y", nbins=4)
        axes.set_title(titles[name])
        plots.append(to_svg(figure, f"Effective draws of HMC by step size, {titles[name]}"))
    return join([tag("div", *plots, class_="trio")])
