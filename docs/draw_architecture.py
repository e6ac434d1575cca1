"""`python docs/draw_architecture.py` draws docs/architecture.png: the packages, and what one hands to the next."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

INK, PAPER, SHADE, ACCENT = "#1f2933", "#ffffff", "#eef2f6", "#2b6cb0"
WIDTH, HEIGHT = 2.0, 0.92
# Name, what it does, column, row from the top; the walk goes down the middle column.
BOXES = {
    "model": ("what the user wrote\nas one log density", 1, 0),
    "structure": ("factors, scopes,\nfactor graph", 1, 1),
    "plan": ("sum or draw each site;\nthe target", 1, 2),
    "kernels": ("one step of a chain", 1, 3),
    "run": ("starts, loop", 1, 4),
    "results": ("DataTree, summary,\nmarginals", 1, 5),
    "jaxpr": ("program analysis,\nnothing Bayesian", 0, 1),
    "tables": ("tables of factors", 0, 2),
    "adaptation": ("step size, scale,\nbias meter", 0, 3),
    "store": ("trace backends:\nmemory, folder", 0, 4),
    "eliminate": ("exact sums by\nvariable elimination", 2, 1),
    "patterns": ("change points,\nquadratic forms", 2, 2),
    "moves": ("Gibbs, Metropolis,\nsweeps", 2, 3),
    "checks": ("what is wrong with\na model", 2, 4),
    "compile": ("policy, ahead of time,\none piece; used by all", 3, 2),
    "optimize": ("modes of p(x|y)", 3, 5),
    "reports": ("explain, page", 2, 5),
    "cli": ("sumout run, explain,\nreport", 0, 5),
}
WALK = [
    ("model", "structure", "Program"),
    ("structure", "plan", "Structure"),
    ("plan", "kernels", "Plan → Target"),
    ("kernels", "run", "state, info"),
    ("run", "results", "draws of x and z"),
]
USES = [
    ("structure", "jaxpr"),
    ("plan", "tables"),
    ("plan", "eliminate"),
    ("plan", "patterns"),
    ("plan", "moves"),
    ("kernels", "adaptation"),
    ("run", "store"),
    ("run", "checks"),
]


def centre(name: str) -> tuple[float, float]:
    _, column, row = BOXES[name]
    return 3.0 * column, -1.6 * row


def draw_box(axes: plt.Axes, name: str, is_walk: bool) -> None:
    x, y = centre(name)
    edge, width = (ACCENT, 1.8) if is_walk else (INK, 0.8)
    corner = x - WIDTH / 2, y - HEIGHT / 2
    style = "round,pad=0.02,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, style, fc=SHADE, ec=edge, lw=width, zorder=2))
    axes.text(x, y + 0.26, name, ha="center", va="center", weight="bold", size=10, color=INK, zorder=3)
    axes.text(x, y - 0.14, BOXES[name][0], ha="center", va="center", size=7.5, color=INK, zorder=3)


def draw_use(axes: plt.Axes, user: str, used: str) -> None:
    (x, y), (x_used, y_used) = centre(user), centre(used)
    side = 1 if x_used > x else -1
    ends = (x_used - side * WIDTH / 2, y_used), (x + side * WIDTH / 2, y)
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 0.7, "linestyle": (0, (4, 2)), "shrinkA": 2, "shrinkB": 2}
    axes.annotate("", ends[0], ends[1], arrowprops=arrow, zorder=1)


def main() -> None:
    figure, axes = plt.subplots(figsize=(10.5, 8.2), facecolor=PAPER)
    on_walk = {name for start, end, _ in WALK for name in (start, end)}
    for name in BOXES:
        draw_box(axes, name, name in on_walk)
    for start, end, handed in WALK:
        (x, y), (_, y_end) = centre(start), centre(end)
        arrow = {"arrowstyle": "-|>", "color": ACCENT, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, y_end + HEIGHT / 2), (x, y - HEIGHT / 2), arrowprops=arrow)
        axes.text(x + 0.1, (y + y_end) / 2, handed, ha="left", va="center", size=8, color=ACCENT)
    for user, used in USES:
        draw_use(axes, user, used)
    x, y = centre("model")
    axes.text(x - 1.25, y, "NumPyro model or\nJAX log density  →", ha="right", va="center", size=9, color=INK)
    axes.text(x + 1.25, y, "solid: what is handed on\ndashed: what is used", va="center", size=8, color=INK)
    axes.set(xlim=(-1.2, 10.2), ylim=(-8.7, 0.7), aspect="equal")
    axes.axis("off")
    figure.savefig(Path(__file__).with_name("architecture.png"), dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
