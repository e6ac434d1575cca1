"""Draw how the discrete sites of some models of the gallery meet: `python docs/draw_structures.py`."""

from pathlib import Path

from sumout.reports.graph_drawing import drawing
from sumout.reports.html import INK, PAPER, VARIABLES
from sumout.reports.svg import house_style
from sumout.structure.structure import read

HERE = Path(__file__).parent
# Smaller than in the gallery, where they would be too many to draw; and legible on white and on black.
SMALLER = {
    "mixture": {"[100, 200]": "[10, 10]"},
    "hidden_markov": {"COUNTS.split()": "COUNTS.split()[:16]"},
    "factorial_markov": {"(100, 3)": "(14, 3)"},
    "potts": {"SIZE, CLASSES, COUPLING = 24": "SIZE, CLASSES, COUPLING = 9"},
    "spike_and_slab": {"[30]": "[14]", "(60, 30)": "(60, 14)"},
}
INKS = {VARIABLES[INK]: "#808890", VARIABLES[PAPER]: "#ffffff"}


def draw(name: str) -> None:
    source = (HERE / f"gallery/{name}.py").read_text(encoding="utf-8").split("print(")[0]
    for size, smaller in SMALLER[name].items():
        assert size in source, name
        source = source.replace(size, smaller)
    scope = {"__name__": name}
    exec(source, scope)
    with house_style():
        svg = str(drawing(read(scope["program"])))
    for variable, colour in INKS.items():
        svg = svg.replace(variable, colour)
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" ', 1)
    (HERE / f"structures/{name}.svg").write_text(svg.replace(" href=", " xlink:href="), encoding="utf-8")


if __name__ == "__main__":
    for name in SMALLER:
        draw(name)
