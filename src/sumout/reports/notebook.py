"""How notebooks show programs, plans, kernels and explanations: tables, and the structure drawn.

Colours follow the page around, light or dark. Without matplotlib, or where a program cannot be read, the picture is
missing and the rest is shown.
"""

import inspect
from contextlib import suppress
from dataclasses import fields
from functools import singledispatch
from typing import Any

from sumout.errors import SumoutError
from sumout.kernels.kernel import Kernel
from sumout.model.program import Program, describe_program
from sumout.plan.plan import METHODS, Plan
from sumout.reports.explain import Explanation
from sumout.reports.graph_drawing import MOST_NODES, network
from sumout.reports.html import Html, join, table, tag
from sumout.reports.svg import check_matplotlib, house_style
from sumout.structure.structure import Structure, read

STYLE = "--ink: currentColor; --line: #8a929a; --paper: transparent; max-width: 44em; overflow-x: auto"
TEXT = "white-space: pre-wrap; background: none"


def as_html(thing: Any) -> str:
    """What a notebook is to show."""
    return tag("div", _content(thing), style=STYLE)


@singledispatch
def _content(thing: Any) -> Html:
    return tag("pre", repr(thing), style=TEXT)


@_content.register
def _(program: Program) -> Html:
    words = tag("pre", "\n".join(describe_program(program)), style=TEXT)
    if not 0 < program.num_z <= MOST_NODES:  # reading takes time, and what is larger is not drawn
        return words
    with suppress(SumoutError):  # what cannot be read is said where it is sampled from
        return join([words, _picture(read(program))])
    return words


@_content.register
def _(plan: Plan) -> Html:
    rows = [
        (
            tag("td", name),
            tag("td", f"{choice.num_sites:,}"),
            tag("td", METHODS[choice.method]),
            tag("td", choice.reason),
        )
        for name, choices in plan.choices.items()
        for choice in choices
    ]
    headline = tag("p", "Plan for ", tag("b", plan.structure.program.name))
    listed = table(("", "sites", "what is done", "why"), rows) if rows else tag("p", "There are no discrete sites.")
    return join([headline, listed, _picture(plan.structure)])


@_content.register
def _(kernel: Kernel) -> Html:
    summary = (inspect.getdoc(type(kernel)) or "").split("\n\n")[0]
    rows = [
        (tag("td", field.name), tag("td", repr(getattr(kernel, field.name)))) for field in fields(kernel) if field.repr
    ]
    return join([tag("p", tag("b", type(kernel).__name__), f": {summary}"), table(("option", "value"), rows)])


@_content.register
def _(explanation: Explanation) -> Html:
    return join([tag("pre", str(explanation), style=TEXT), _picture(explanation.plan.structure)])


def _picture(structure: Structure) -> Html:
    """The graph of the discrete sites, if there are any and it can be drawn."""
    if structure.num_sites == 0:
        return Html("")
    try:
        check_matplotlib()
    except SumoutError:
        return Html("")
    with house_style():
        return network(structure)
