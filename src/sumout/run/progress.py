"""The progress of a run: its phases, how far it is, and what its chains report."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from sumout.results.data_tree import Draws
from sumout.results.effective_draws import slowest
from sumout.run.bars import Bar, Silent, bar

SHOWN = {"acceptance_rate": "acceptance", "noise_share": "noise share"}
MOST_CHAINS = 8  # of which each is shown
RECENT = 1000  # draws from which the effective sample size is estimated
FEWEST = 20  # draws for that
SELDOM = 2.0  # seconds between two such estimates


@dataclass(frozen=True)
class Progress:
    """How far a run is: draws done (warm-up included) and the latest chunk of them."""

    done: int
    total: int
    tune: int
    latest: Draws


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


class Report:
    """What a run says of itself: its phases, and after every chunk of draws how far it is."""

    def __init__(self, drawn: Bar, chains: int):
        self._bar, self._chains, self._notes = drawn, chains, Notes()

    def phase(self, description: str) -> None:
        """Say what is being done before the first draws."""
        self._bar.phase(description)

    def __call__(self, progress: Progress) -> None:
        """Take a chunk into account."""
        if isinstance(self._bar, Silent):
            return
        phase = "warming up" if progress.done <= progress.tune else "sampling"
        notes = self._notes.add(progress)
        self._bar.show(f"{phase}, {self._chains} chains", progress.done, progress.total, notes)


@contextmanager
def progress_bar(wanted: bool | None, chains: int) -> Iterator[Report]:
    """What to call in every phase and after every chunk of draws; None shows it in terminals and notebooks only."""
    with bar(wanted) as drawn:
        yield Report(drawn, chains)
