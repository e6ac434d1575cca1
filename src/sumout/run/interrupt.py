"""Ctrl-C and SIGTERM: a run ends within seconds, with all that was drawn; at a second one at once.

Before the first chunk of draws there is nothing to keep, and the first signal interrupts whatever is being done. From
then on it is noted: the loop ends after the chunk that is running, or leaves it behind if it takes too long, and what
was drawn gets some time to be named.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from time import monotonic

from sumout.background import noticing_interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FOR_CHUNKS, FOR_NAMES = 2.0, 4.0  # seconds after the signal


class Stop:
    """Whether a run was asked to stop, and for how long.

    Attributes:
        is_deferred: whether the first signal is noted only; before, it interrupts.
    """

    def __init__(self):
        self.is_deferred = False
        self._asked: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to stop."""
        return self._asked is not None

    def is_overdue(self, seconds: float) -> bool:
        """Whether it was asked to stop more than so many seconds ago."""
        return self._asked is not None and monotonic() - self._asked > seconds

    def ask(self) -> None:
        """What a signal does."""
        if self.is_asked:
            raise KeyboardInterrupt
        self._asked = monotonic()
        if not self.is_deferred:
            raise KeyboardInterrupt("asked to stop before this call has made a draw.")
        with suppress(RuntimeError):  # something was just being printed
            print("\nsumout: stopping; what was drawn is kept. Once more to leave at once.", file=sys.stderr)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ask a run to stop by signals. They reach the main thread only; elsewhere it never is."""
    stop = Stop()
    if current_thread() is not main_thread():
        yield stop
        return
    # What is ignored stays so, as for a process in the background.
    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, lambda *_: stop.ask())
        with noticing_interrupts():
            yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
