"""The picture of the benchmark: effective draws a second and cold seconds, sumout beside the best of its peers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.model import find_model
from benchmarks.samplers.names import BY_HAND, LEFT_IN, OURS
from benchmarks.tables import Line, is_good

KINDS = {OURS: ("sumout, z left in", "#0b6e4f", "o"), LEFT_IN: ("best peer, z left in", "#c8553d", "s"),
         BY_HAND: ("best peer, z summed out by hand or on request", "#3d5a80", "D")}  # fmt: skip


def best_line(kind: str, lines: Iterable[Line], quantity: str) -> Line | None:
    """The best right sampler of a kind: with the highest rate, or the fewest seconds."""
    right = [line for line in lines if line.kind == kind and is_good(line) and getattr(line, quantity)]
    best = max if quantity == "rate" else min
    return best(right, key=lambda line: getattr(line, quantity), default=None)


def draw_picture(paths: list[Path], lines: Mapping[str, Sequence[Line]]) -> None:
    """Two panels with a line for each model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = list(lines)
    figure, panels = plt.subplots(1, 2, figsize=(10, 1.6 + 0.4 * len(models)), sharey=True, layout="constrained")
    quantities = (
        ("effective draws a second, warm", "rate"),
        ("cold seconds to 1,000 effective draws", "seconds_to_enough"),
    )
    for panel, (label, name) in zip(panels, quantities, strict=True):
        for kind, (title, colour, marker) in KINDS.items():
            best = {row: best_line(kind, lines[model], name) for row, model in enumerate(models)}
            known = {row: getattr(line, name) for row, line in best.items() if line is not None}
            panel.scatter(list(known.values()), list(known), 45, colour, marker, label=title)
        panel.set_xscale("log")
        panel.set_xlabel(label)
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(models)), [find_model(model).title for model in models])
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)
