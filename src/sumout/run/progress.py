"""The progress bar: one line for the run, with what its chains report; silent when nobody is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from sumout.run.loop import Progress

SHOWN = {"acceptance_rate": "acceptance {:.2f}", "noise_share": "noise share {:.2f}"}

Show = Callable[[str, int, int, str], None]


@contextmanager
def bar(wanted: bool | None, title: str) -> Iterator[Show | None]:
    """A function of description, steps done, steps in all and notes; None where nothing is shown.

    `wanted=None` shows the bar on a terminal only. Until its first call the bar says that `title` is being compiled.
    """
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield None
        return
    from rich.console import Console  # takes a tenth of a second to import
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[notes]}"),
    ]
    with Bar(*columns, console=Console(stderr=True)) as drawn:
        task = drawn.add_task(f"compiling, {title}", total=None, notes="")

        def show(description: str, done: int, total: int, notes: str) -> None:
            drawn.update(task, description=description, completed=done, total=total, notes=notes)

        yield show


@contextmanager
def progress_bar(wanted: bool | None, chains: int) -> Iterator[Callable[[Progress], None]]:
    """A function to call after every chunk of draws."""
    with bar(wanted, f"{chains} chains") as show:
        if show is None:
            yield lambda progress: None
            return
        diverged = 0

        def report(progress: Progress) -> None:
            nonlocal diverged
            info = vars(progress.latest.info)
            is_warming_up = progress.done <= progress.tune
            diverged += 0 if is_warming_up else int(np.sum(info.get("diverging", 0)))
            notes = [words.format(float(np.mean(info[name]))) for name, words in SHOWN.items() if name in info]
            notes += [f"{diverged} divergences"] if diverged else []
            phase = "warming up" if is_warming_up else "sampling"
            show(f"{phase}, {chains} chains", progress.done, progress.total, " · ".join(notes))

        yield report
