"""The progress bar: one line for the run, with what its chains report; silent when nobody is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from sumout.run.loop import Progress

SHOWN = {"acceptance_rate": "acceptance {:.2f}", "noise_share": "noise share {:.2f}"}


@contextmanager
def progress_bar(wanted: bool | None, chains: int) -> Iterator[Callable[[Progress], None]]:
    """A function to call after every chunk. `wanted=None` shows the bar on a terminal only."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda progress: None
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
    diverged = 0
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"compiling, {chains} chains", total=None, notes="")

        def report(progress: Progress) -> None:
            nonlocal diverged
            info = vars(progress.latest.info)
            is_warming_up = progress.done <= progress.tune
            diverged += 0 if is_warming_up else int(np.sum(info.get("diverging", 0)))
            notes = [words.format(float(np.mean(info[name]))) for name, words in SHOWN.items() if name in info]
            notes += [f"{diverged} divergences"] if diverged else []
            phase = "warming up" if is_warming_up else "sampling"
            bar.update(
                task,
                description=f"{phase}, {chains} chains",
                completed=progress.done,
                total=progress.total,
                notes=" · ".join(notes),
            )

        yield report
