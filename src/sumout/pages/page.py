"""HTML: escaping, elements, and the page around the sections.

Text is escaped wherever it meets HTML; only what is already `Html` is let through as it stands. So nothing that a user
names a variable can become part of the page's code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from sumout.pages.style import CSS


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    title: str
    body: Html

    @property
    def anchor(self) -> str:
        """Where links to the section point."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def tag(name: str, *content: str, **attributes: str) -> Html:
    """An element; `class_` and `aria_label` stand for the attributes `class` and `aria-label`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def join(content: Iterable[str]) -> Html:
    """Pieces one after the other, escaped where they are not HTML."""
    return Html("".join(piece if isinstance(piece, Html) else escape(str(piece)) for piece in content))


def table(header: Sequence[str], rows: Iterable[Sequence[Html]]) -> Html:
    """A table that scrolls sideways where it is wider than the page; the cells are elements."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header)))
    body = tag("tbody", *(tag("tr", *cells) for cells in rows))
    return tag("div", tag("table", head, body), class_="scroll")


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Names with what is to be said of them."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def note(*content: str) -> Html:
    """A remark in smaller type."""
    return tag("p", *content, class_="note")


def assemble(kicker: str, title: str, lead: Html, sections: Sequence[Section]) -> str:
    """The whole page: a line above the title, the title, a lead, and the sections with links to them."""
    links = tag("nav", *(tag("a", section.title, href=f"#{section.anchor}") for section in sections))
    bodies = (
        tag("section", tag("h2", section.title), section.body, id=section.anchor, class_="part") for section in sections
    )
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", f"{title} · sumout"),
        tag("style", Html(CSS)),
    )
    header = tag("header", tag("p", f"sumout · {kicker}", class_="kicker"), tag("h1", title))
    page = tag("html", head, tag("body", tag("main", header, lead, links, *bodies)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"
