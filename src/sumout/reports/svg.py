"""matplotlib figures as inline SVG: text stays text, colours follow the page, the same figure gives the same letters.

Only numbers and words of our own are drawn. What a user names things stands beside the figures, in HTML.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from sumout.errors import OptionError
from sumout.reports.html import FAINT, INK, PALETTE, VARIABLES, Html

if TYPE_CHECKING:  # an extra
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sumout",
    "svg.image_inline": True,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "figure.facecolor": "none",
    "font.size": 9,
    "grid.color": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "path.simplify_threshold": 0.3,
}


def check_matplotlib() -> None:
    """Say how to get matplotlib where it is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise OptionError(
            "report: plots need matplotlib, which is not installed; pip install sumout[plots]."
        ) from error


@contextmanager
def house_style() -> Iterator[None]:
    """Our settings instead of the user's, for as long as figures are drawn."""
    import matplotlib.style

    with matplotlib.style.context(["default", SETTINGS]):
        yield


def one_plot(width: float, height: float, left: float = 0.45, bottom: float = 0.35) -> "tuple[Figure, Axes]":
    """A figure with one plot; sizes and margins in inches."""
    from matplotlib.figure import Figure

    figure = Figure((width, height))
    box = (left / width, bottom / height, (width - left - 0.15) / width, (height - bottom - 0.25) / height)
    return figure, figure.add_axes(box)


def colour(number: int) -> str:
    """The colour of a chain, or of a class of sites."""
    return PALETTE[number % len(PALETTE)]


def to_svg(figure: "Figure", label: str) -> Html:
    """The figure as an element of the page; `label` is read out to those who cannot see it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    root = ElementTree.fromstring(text[text.index("<svg") :])
    prefix = "f" + sha256(text.encode()).hexdigest()[:10]
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    for parent in root.iter():
        for child in [child for child in parent if child.tag.endswith("}style")]:
            parent.remove(child)  # it would hold for the whole page
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(key): _rewrite(value, prefix) for key, value in element.attrib.items()}
        name = element.get("id")
        element.attrib.clear()
        element.attrib.update({key: value for key, value in attributes.items() if key not in ("id", "version")})
        if name in used:
            element.set("id", f"{prefix}-{name}")
    for key in ("width", "height"):
        root.attrib.pop(key)
    root.set("role", "img")
    root.set("aria-label", label)
    return Html(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    """A name without its namespace, which HTML neither needs nor knows."""
    return name.rpartition("}")[2]


def _rewrite(value: str, prefix: str) -> str:
    """References made unique on the page, colours of ink and paper turned into variables, paths on one line."""
    if value.startswith("data:"):
        return value.replace("\n", "")
    value = re.sub(r"^#|url\(#", lambda match: f"{match.group()}{prefix}-", value)
    for drawn, variable in VARIABLES.items():
        value = value.replace(drawn, variable)
    return " ".join(value.split())
