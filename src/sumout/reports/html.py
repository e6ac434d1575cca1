"""HTML: escaping, elements, and the page around the sections.

Text is escaped wherever it meets HTML; only what is already `Html` is let through as it stands. So nothing that a user
names a variable can become part of the page's code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

# Legible on white and on black. Chains and colour classes take them in this order.
PALETTE = ("#3b7dc4", "#d9822b", "#2e9e6b", "#c2519a", "#8a6fd1", "#a8912a", "#2f9db0", "#cf4f4f")

# What figures are drawn in; the page replaces these by its own variables, so that they follow light and dark.
INK, FAINT, PAPER = "#010101", "#020202", "#030303"
VARIABLES = {INK: "var(--ink)", FAINT: "var(--line)", PAPER: "var(--paper)"}

CSS = """
:root { color-scheme: light dark; --paper: #fdfdfc; --ink: #24292f; --quiet: #667079; --line: #d5d9dd;
  --panel: #f4f5f6; --accent: #3b7dc4; --alarm: #9c3d12; --alarm-panel: #fdf1e6; --fine: #2a7d55; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #dfe3e7; --quiet: #97a1ab; --line: #3a4149;
  --panel: #1d2126; --accent: #6ea8e3; --alarm: #f2a46f; --alarm-panel: #33241a; --fine: #6cc79b; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 1.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; letter-spacing: -0.01em; margin: 3rem 0 1rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 0.4rem; overflow-wrap: anywhere; }
p { margin: 0.5rem 0; max-width: 46rem; }
.kicker { color: var(--quiet); font-size: 0.85rem; letter-spacing: 0.03em; margin: 0 0 0.25rem; }
.note { color: var(--quiet); font-size: 0.875rem; }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin-top: 1.5rem; font-size: 0.9rem; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
.alarm, .fine { border-left: 3px solid var(--alarm); background: var(--alarm-panel); border-radius: 0 6px 6px 0;
  padding: 0.75rem 1rem; margin: 1rem 0; }
.alarm strong { color: var(--alarm); }
.alarm ul { margin: 0.35rem 0 0; padding-left: 1.1rem; }
.alarm li { margin: 0.3rem 0; max-width: 46rem; overflow-wrap: anywhere; }
.fine { border-color: var(--fine); background: var(--panel); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 0.9rem 1.5rem; margin: 1rem 0; }
dt { color: var(--quiet); font-size: 0.8rem; }
dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
code, pre { font: 0.85rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--panel); border-radius: 6px; padding: 1rem; margin: 1rem 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { color: var(--quiet); font-weight: 500; white-space: normal; vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0.5rem; position: sticky; left: 0; background: var(--paper);
  max-width: 16rem; overflow: hidden; text-overflow: ellipsis; }
tbody th { font-weight: 600; white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
td.words { white-space: normal; text-align: left; min-width: 11rem; vertical-align: top; }
td small, th small { display: block; color: var(--quiet); font-weight: 400; }
tr:has(.off) th { color: var(--alarm); }
.off { background: var(--alarm-panel); color: var(--alarm); font-weight: 600; }
figure { margin: 1.5rem 0; }
figcaption { font-size: 0.9rem; margin-bottom: 0.35rem; }
figcaption b { overflow-wrap: anywhere; }
figcaption span { color: var(--quiet); margin-left: 0.6rem; font-size: 0.82rem; }
.trio { display: grid; grid-template-columns: repeat(auto-fill, minmax(14.5rem, 1fr)); gap: 0.25rem 0.75rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif !important; }
.wide svg { min-width: 34rem; max-width: 52rem; }
.small svg { max-width: 22rem; }
.key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; margin: 0.5rem 0; font-size: 0.82rem; color: var(--quiet); }
.key i { font-style: normal; margin-right: 0.3rem; }
.ramp { display: inline-block; width: 5rem; height: 0.6rem; margin: 0 0.4rem; border: 1px solid var(--line);
  background: linear-gradient(to right, transparent, #3b7dc4); }
@media (max-width: 40rem) { main { padding: 1.5rem 1rem 3rem; } h1 { font-size: 1.6rem; } h2 { margin-top: 2.25rem; } }
@media print { nav { display: none; } figure { break-inside: avoid; } }
"""


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
