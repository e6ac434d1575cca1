"""A drawing of the graph of the discrete sites: a node for each site, an edge for each pair of neighbours.

Arrays are laid out by index, a long row folded back and forth, where most neighbours come to lie side by side; else all
nodes are placed by springs, or on a circle where nearly all are neighbours.
"""

import numpy as np
import rustworkx

from sumout.reports.html import INK, PALETTE, PAPER, Html, join, note, tag
from sumout.reports.svg import colour, one_plot, to_svg
from sumout.structure.structure import Structure

MOST_NODES = 400  # that are drawn
MOST_EDGES = 4000
ROW = 40  # nodes in a row of an array of one dimension
MOST_LONG = 0.3  # share of the neighbours that may lie apart
LARGEST_NODE = 0.55  # of the distance to the next
POINTS = 72  # of an inch
DENSE = 0.5  # share of all pairs that are neighbours
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}


def network(structure: Structure) -> Html:
    """The picture with its key, or a sentence where there are too many sites."""
    num = structure.num_sites
    if num > MOST_NODES or structure.num_edges > MOST_EDGES:
        return note(
            f"The {num:,} discrete sites with {structure.num_edges:,} pairs of neighbours are too many to draw "
            f"(at most {MOST_NODES} sites and {MOST_EDGES:,} pairs are)."
        )
    return tag("figure", tag("div", drawing(structure), class_="wide scroll"), _key(structure))


def drawing(structure: Structure) -> Html:
    """The picture alone."""
    caption = f"{structure.num_sites} discrete sites, {structure.num_edges} pairs of neighbours"
    return _draw(structure, place(structure), caption)


def place(structure: Structure) -> np.ndarray:
    """Where every site is drawn, `(sites, 2)`."""
    places = _by_index(structure)
    edges, num = structure.edges, structure.num_sites
    if not len(edges):
        return places
    steps = np.abs(places[edges[:, 0]] - places[edges[:, 1]]).max(axis=1)
    if np.mean(steps > 1.01) <= MOST_LONG:
        return places
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(num))
    graph.extend_from_edge_list([(int(a), int(b)) for a, b in edges])
    is_dense = len(edges) > DENSE * num * (num - 1) / 2
    found = rustworkx.circular_layout(graph) if is_dense else rustworkx.spring_layout(graph, seed=0, num_iter=200)
    return np.array([found[i] for i in range(num)], float)


def _by_index(structure: Structure) -> np.ndarray:
    """Arrays below each other, each laid out by index."""
    blocks, top = [], 0.0
    for site in structure.program.z.values():
        shape = site.support.shape
        if len(shape) == 2 and shape[1] <= 2 * ROW:
            rows, columns = (a.ravel() for a in np.indices(shape))
        else:
            order = np.arange(site.num_elements)
            rows, columns = order // ROW, order % ROW
            columns = np.where(rows % 2, ROW - 1 - columns, columns)
        blocks.append(np.stack([columns, top - rows], axis=1).astype(float))
        top -= rows.max(initial=0) + 1.0
    return np.concatenate([np.zeros((0, 2)), *blocks])


def _draw(structure: Structure, places: np.ndarray, caption: str) -> Html:
    from matplotlib.patches import FancyArrowPatch

    spans = np.ptp(places, axis=0) if len(places) else np.zeros(2)
    is_by_index = bool(np.allclose(places, np.round(places)))
    height = float(np.clip(6.7 * (spans[1] + 1.4) / (spans[0] + 1.4), 0.3, 4.5)) if is_by_index else 4.0
    figure, axes = one_plot(7.0, height + 0.35, left=0.1, bottom=0.1)
    size = float(np.clip(90 / np.sqrt(max(len(places), 1)), 4.0, 9.0))
    if is_by_index and structure.num_edges:  # so that the lines between neighbours are seen
        size = min(size, LARGEST_NODE * 6.8 * POINTS / (spans[0] + 1.4))
    straight = {"color": INK, "linewidth": 0.9, "alpha": 0.6, "zorder": 1}
    for a, b in structure.edges:
        ends = places[[a, b]]
        is_long = is_by_index and np.abs(ends[0] - ends[1]).max() > 1.01
        if is_long:  # it would run through the nodes between
            bend = {"connectionstyle": "arc3,rad=0.3", "arrowstyle": "-", "shrinkA": 0, "shrinkB": 0}
            axes.add_patch(FancyArrowPatch(tuple(ends[0]), tuple(ends[1]), **bend, **straight))
        else:
            axes.plot(*ends.T, **straight)
    for (_, numbers), marker in zip(structure.site_numbers.items(), _markers(structure), strict=True):
        for number in np.unique(structure.colours[numbers]):
            chosen = places[numbers[structure.colours[numbers] == number]]
            look = {"markeredgecolor": PAPER, "markeredgewidth": 0.6, "markersize": size, "zorder": 2}
            axes.plot(*chosen.T, linestyle="", marker=marker, color=colour(int(number)), **look)
    margin = 0.7 if is_by_index else 0.05 * max(float(spans.max(initial=0)), 1e-3)
    low, high = places.min(axis=0, initial=np.inf) - margin, places.max(axis=0, initial=-np.inf) + margin
    if len(places):
        axes.set_xlim(low[0], high[0])
        axes.set_ylim(low[1], high[1])
    axes.set_axis_off()
    if is_by_index:
        axes.set_aspect("equal", adjustable="box")
    return to_svg(figure, caption)


def _markers(structure: Structure) -> list[str]:
    shapes = list(MARKERS)
    return [shapes[i % len(shapes)] for i in range(len(structure.site_numbers))]


def _key(structure: Structure) -> Html:
    """What shapes and colours mean."""
    pieces = []
    if len(structure.site_numbers) > 1:
        for name, marker in zip(structure.site_numbers, _markers(structure), strict=True):
            pieces.append(tag("span", tag("i", MARKERS[marker]), name))
    sizes = np.bincount(structure.colours)
    for number, size in enumerate(sizes[: len(PALETTE)]):
        chip = tag("i", "●", style=f"color:{colour(number)}")
        pieces.append(tag("span", chip, f"colour {number + 1}: {size} {'site' if size == 1 else 'sites'}"))
    if len(sizes) > len(PALETTE):
        pieces.append(tag("span", f"and {len(sizes) - len(PALETTE)} more colours, drawn in the same {len(PALETTE)}"))
    words = "Sites of one colour share no factor, so that they can be drawn at once."
    return join([tag("div", *pieces, class_="key"), note(words)])
