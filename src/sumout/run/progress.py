"""The progress bar: one line for the run, with what its chains report; silent when nobody is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from sumout.results.data_tree import Draws
from sumout.results.effective_draws import slowest

SHOWN = {"acceptance_rate": "acceptance", "noise_share": "noise share"}
MOST_CHAINS = 8  # of which each is shown
RECENT = 1000  # draws from which the effective sample size is estimated
FEWEST = 20  # draws for that
SELDOM = 2.0  # seconds between two such estimates

Show = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Progress:
    """How far a run is: draws done (warm-up included) and the latest chunk of them."""

    done: int
    total: int
    tune: int
    latest: Draws


def is_watched(wanted: bool | None) -> bool:
    """Whether to show anything; None for on a terminal only."""
    return sys.stderr.isatty() if wanted is None else wanted


@contextmanager
def bar(wanted: bool | None, title: str) -> Iterator[Show | None]:
    """A function of description, steps done, steps in all and notes; None where nothing is shown.

    `wanted=None` shows the bar on a terminal only. Until its first call the bar says that `title` is being compiled.
    """
    if not is_watched(wanted):
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


class Notes:
    """Diagnostics beside the bar: acceptance rate or noise share and divergences of each chain, effective draws."""

    def __init__(self):
        self._diverged = np.zeros((), int)
        self._recent: list[np.ndarray] = []
        self._told, self._effective = 0.0, ""

    def add(self, progress: Progress) -> str:
        """Take a chunk into account; the diagnostics so far."""
        info = vars(progress.latest.info)
        words = [
            f"{name} {_each(np.mean(info[field], axis=1), '{:.2f}')}" for field, name in SHOWN.items() if field in info
        ]
        if progress.done > progress.tune:
            self._diverged = self._diverged + np.sum(info.get("diverging", 0), axis=-1)
            words += [f"divergences {_each(self._diverged, '{}')}" if self._diverged.any() else ""]
            words += [self._effective_draws(progress)]
        return " · ".join(word for word in words if word)

    def _effective_draws(self, progress: Progress) -> str:
        """Of all draws, estimated now and then from the latest."""
        latest = progress.latest
        self._recent.append(np.concatenate([latest.x, latest.info.log_density[..., None]], axis=-1))
        while sum(part.shape[1] for part in self._recent[1:]) > RECENT:
            self._recent.pop(0)
        now = perf_counter()
        if now - self._told > SELDOM:
            columns = np.concatenate(self._recent, axis=1)
            made = progress.done - progress.tune
            if columns.shape[1] >= FEWEST:
                ess = slowest(columns)[0] / columns.shape[1] * made
                self._effective = "" if np.isnan(ess) else f"{ess:,.0f} effective draws"
            self._told = perf_counter()
        return self._effective


def _each(values: np.ndarray, form: str) -> str:
    """One number for each chain, or the range where there are many."""
    shown = values if len(values) <= MOST_CHAINS else (values.min(), values.max())
    return (" " if len(values) <= MOST_CHAINS else " to ").join(form.format(value) for value in shown)


@contextmanager
def progress_bar(wanted: bool | None, chains: int) -> Iterator[Callable[[Progress], None]]:
    """A function to call after every chunk of draws."""
    with bar(wanted, f"{chains} chains") as show:
        if show is None:
            yield lambda progress: None
            return
        notes = Notes()

        def report(progress: Progress) -> None:
            phase = "warming up" if progress.done <= progress.tune else "sampling"
            show(f"{phase}, {chains} chains", progress.done, progress.total, notes.add(progress))

        yield report
