"""Ctrl-C and SIGTERM: the first ends a run after the chunk it is in, with all that was drawn; the second at once."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Says whether the run was asked to stop. Signals reach the main thread only; elsewhere it never is."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        del number, frame
        if asked:
            raise KeyboardInterrupt
        asked = True
        print("\nsumout: stopping; what was drawn is kept. Once more to leave at once.", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
