"""Bars of progress: in a terminal, redrawn in place from the first second on, and in a notebook; else silent."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any, Protocol

NOTEBOOK = "ZMQInteractiveShell"  # what IPython calls the shell behind a notebook


class Bar(Protocol):
    """A line that says how far something is, and what there is to say of it below."""

    def phase(self, description: str) -> None:
        """Say what is being done, of which nobody knows how long it takes."""
        ...

    def show(self, description: str, done: int, total: int, notes: str) -> None:
        """Say how much of it is done."""
        ...


class Silent:
    """Where nobody is watching."""

    def phase(self, description: str) -> None:
        """Say nothing."""

    def show(self, description: str, done: int, total: int, notes: str) -> None:
        """Likewise."""


class TerminalBar:
    """A bar as wide as the terminal, with the notes below it, so that neither is cut."""

    def __init__(self, bar: Any, notes: Any, refresh: Callable[[], None]):
        self._bar, self._notes, self._refresh = bar, notes, refresh
        self._task = bar.add_task("", total=None, count="")

    def phase(self, description: str) -> None:
        """Say what is being done, of which nobody knows how long it takes."""
        self._bar.update(self._task, description=description)
        self._refresh()  # at once: what comes next may leave the thread that redraws no time

    def show(self, description: str, done: int, total: int, notes: str) -> None:
        """Say how much of it is done."""
        count = f"{done:,}/{total:,}"
        self._bar.update(self._task, description=description, completed=done, total=total, count=count)
        self._notes.plain = notes
        self._refresh()


class NotebookBar:
    """A bar in the output of a cell, drawn again in its place."""

    def __init__(self):
        self._display = import_module("IPython.display")
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def phase(self, description: str) -> None:
        """Say what is being done, of which nobody knows how long it takes."""
        self._draw(f"<progress></progress> {escape(description)}")

    def show(self, description: str, done: int, total: int, notes: str) -> None:
        """Say how much of it is done."""
        words = f"{escape(description)} {done:,}/{total:,}<br><small>{escape(notes)}</small>"
        self._draw(f'<progress value="{done}" max="{total}"></progress> {words}')

    def _draw(self, html: str) -> None:
        self._handle.update(self._display.HTML(f"<div>{html}</div>"))


def is_notebook() -> bool:
    """Whether this runs in a notebook."""
    ipython = sys.modules.get("IPython")  # which has loaded it if it does
    return ipython is not None and type(ipython.get_ipython()).__name__ == NOTEBOOK


def is_watched(wanted: bool | None) -> bool:
    """Whether to show anything; None for in terminals and notebooks only."""
    return (sys.stderr.isatty() or is_notebook()) if wanted is None else wanted


@contextmanager
def bar(wanted: bool | None) -> Iterator[Bar]:
    """A bar for what takes time; `wanted=None` shows it in terminals and notebooks only."""
    if not is_watched(wanted):
        yield Silent()
    elif is_notebook():
        yield NotebookBar()
    else:
        with _terminal_bar() as drawn:
            yield drawn


@contextmanager
def _terminal_bar() -> Iterator[TerminalBar]:
    from rich.console import Console, Group  # takes a tenth of a second to import
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    progress, notes = Progress(*columns, expand=True), Text(style="dim")
    console = Console(stderr=True)
    with Live(Group(progress, notes), console=console, refresh_per_second=10) as live:
        yield TerminalBar(progress, notes, live.refresh)
    if not console.is_terminal:  # where it is written once, without an end of the line
        console.print()
