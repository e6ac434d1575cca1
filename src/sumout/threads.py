"""Work in background threads, so that the main thread can react to signals while it waits.

Python handles signals in its main thread, between two of its own instructions, and there are none of these while code
is being compiled or compiled code runs. So the main thread does neither: it waits, and a signal ends the waiting. What
it waited for cannot be ended; it is abandoned, and what was to come after it is not begun.

The threads are daemons, as a process that was told to end must not wait for abandoned work. But neither can
Python be shut down beside it: a thread that comes back from compiled code during that brings the process down. So a
process that ends waits for its threads as usual, but if it was interrupted only briefly, and then ends without being
shut down. Its exit code is then 130, as after Ctrl-C.
"""

import atexit
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread, main_thread
from threading import enumerate as enumerate_threads
from time import monotonic, sleep
from typing import Any, NoReturn, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")
U = TypeVar("U")

TICK = 0.1  # seconds between two looks at whether to wait on; where locks cannot be interrupted, signals wait for them
BRIEFLY = 0.5  # seconds that a process which was interrupted waits for its threads
INTERRUPTED = 130  # exit code

_interrupted = Event()
_parting = Event()
_idle: "deque[_Background]" = deque()  # threads are used again: compiled code takes longer in new ones


class _Background(Thread):
    """A daemon that runs one task after the other.

    Attributes:
        is_left: set when nobody waits any more for its task.
        is_busy: whether it has a task.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.is_left, self.is_busy = Event(), False
        self._work: SimpleQueue[tuple[Callable[[], None], Event]] = SimpleQueue()

    def give(self, do: Callable[[], None], is_left: Event) -> None:
        """Queue a task."""
        self.is_busy = True
        self._work.put((do, is_left))

    def run(self) -> None:
        """Run tasks as they come."""
        while True:
            do, self.is_left = self._work.get()
            do()
            del do  # and all that hangs on it
            self.is_busy = False
            _idle.append(self)


def begin(do: Callable[..., T], *args: Any) -> "Future[T]":
    """Start a call in a background thread, in the precision that is in force here."""
    future: Future[T] = Future()
    _start(partial(_settle, future, do, *args), Event())
    return future


def wait(future: "Future[T]") -> T:
    """The result, once it is there; signals are handled meanwhile."""
    is_done(future)
    return future.result()


def is_done(future: "Future[Any]", is_over: Callable[[], bool] = lambda: False) -> bool:
    """Wait for it; False if `is_over` ended the waiting before."""
    with noticing_interrupts():
        while not future.done() and not is_over():
            wait_for([future], TICK)
    return future.done()


def attentively(do: Callable[..., T], *args: Any) -> T:
    """The result of a call; called from the main thread it runs in another one, and waits for its arrays."""
    if current_thread() is not main_thread():
        return do(*args)
    return wait(begin(lambda: jax.block_until_ready(do(*args))))


def in_threads(
    do: Callable[[T], U], each: Iterable[T], most: int | None = None, is_over: Callable[[], bool] = lambda: False
) -> list[U]:
    """Map a function over arguments, in threads.

    Args:
        do: the function.
        each: the arguments.
        most: threads; None for one each.
        is_over: polled: whether to wait no longer.

    Returns:
        The results; if `is_over` ended the waiting, those of the first arguments up to one that was not done.
    """
    work = [(what, Future()) for what in each]
    futures = [future for _, future in work]
    is_left, lock, queue = Event(), Lock(), iter(work)

    def do_some() -> None:
        while not is_left.is_set():
            with lock:
                what, future = next(queue, (None, None))
            if future is None:
                return
            _settle(future, do, what)

    try:
        with noticing_interrupts():
            for _ in range(min(len(work), most or len(work))):
                _start(do_some, is_left)
            while wait_for(futures, TICK, FIRST_EXCEPTION).not_done and not _has_failed(futures) and not is_over():
                pass
    finally:
        is_left.set()
    for future in futures:
        if future.done():
            future.result()  # raises if it failed
    done = list(takewhile(Future.done, futures))
    if len(done) < len(futures):
        note_interrupt()
    return [future.result() for future in done]


def is_left_behind() -> bool:
    """Whether nobody waits any more for the task of this thread."""
    thread = current_thread()
    return isinstance(thread, _Background) and thread.is_left.is_set()


def attentive_jit(fn: Callable[..., T], **options: Any) -> Callable[..., T]:
    """As `jax.jit`, but compiled and run in another thread if it is called from the main one."""
    jitted = jax.jit(fn, **options)
    compiled: dict[Any, Any] = {}

    def run(*args: Any) -> T:
        if current_thread() is not main_thread():
            return jitted(*args)
        leaves, form = jax.tree.flatten(args)
        signature = form, tuple(map(jax.typeof, leaves)), jnp.result_type(float)
        if signature not in compiled:
            # Traced here: settings of JAX belong to a thread.
            compiled[signature] = wait(begin(jitted.lower(*args).compile))
        return attentively(compiled[signature], *args)

    return run


def note_interrupt() -> None:
    """The process was interrupted: when it ends, it will not wait for background threads."""
    _interrupted.set()


@contextmanager
def noticing_interrupts() -> Iterator[None]:
    """Note an interrupt that passes through."""
    try:
        yield
    except KeyboardInterrupt:
        note_interrupt()
        raise


def leave_without_farewell() -> None:
    """If the process ends by an error, it will not wait for others on the same run: they wait for it."""
    _parting.set()


def _start(do: Callable[[], None], is_left: Event) -> None:
    is_double = jnp.result_type(float) == jnp.float64

    def run() -> None:
        with jax.enable_x64(is_double):  # a setting that belongs to a thread
            do()

    thread = _idle_thread() or _Background()
    thread.give(run, is_left)
    if thread.ident is None:
        thread.start()


def _idle_thread() -> _Background | None:
    with suppress(IndexError):
        while True:
            thread = _idle.pop()
            if thread.is_alive():  # not so after a fork
                return thread
    return None


def _settle(future: "Future[U]", do: Callable[..., U], *args: Any) -> None:
    try:
        future.set_result(do(*args))
    except BaseException as error:
        future.set_exception(error)


def _has_failed(futures: list["Future[Any]"]) -> bool:
    return any(future.done() and future.exception() is not None for future in futures)


@atexit.register  # after JAX was imported, and so called before JAX shuts down
def _end() -> None:
    """Wait for the threads, briefly if the process was interrupted."""
    uncaught = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(uncaught, KeyboardInterrupt):
        note_interrupt()
    if uncaught is not None and _parting.is_set():
        _leave(uncaught)
    threads = [thread for thread in enumerate_threads() if isinstance(thread, _Background)]
    begun = monotonic()
    with suppress(KeyboardInterrupt), noticing_interrupts():
        while any(thread.is_busy for thread in threads):
            if _interrupted.is_set() and monotonic() - begun > BRIEFLY:
                _leave(uncaught)
            sleep(TICK)
        return
    _leave(KeyboardInterrupt())


def _leave(uncaught: BaseException | None) -> NoReturn:
    """End the process now, as Python would have after this exception."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if isinstance(uncaught, KeyboardInterrupt) and os.name == "posix":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(1 if uncaught is not None and not isinstance(uncaught, KeyboardInterrupt) else INTERRUPTED)


# Ctrl-C and SIGTERM: a run ends within seconds, with all that was drawn; at a second signal at once.
#
# Before the first chunk of draws there is nothing to keep, and the first signal interrupts whatever is being done.
# From then on it only asks: the loop ends after the chunk that is running, or abandons it if it takes too long, and
# the draws get some time to be post-processed.

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SECONDS_FOR_CHUNK, SECONDS_FOR_POSTPROCESSING = 2.0, 4.0  # after the signal


class Stop:
    """Whether a run was asked to stop, and when.

    Attributes:
        is_deferred: whether the first signal only asks to stop; before, it interrupts.
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
            raise KeyboardInterrupt("interrupted before this call has made a draw.")
        with suppress(RuntimeError):  # something was just being printed
            print("\nsumout: stopping; what was drawn is kept. A second signal stops at once.", file=sys.stderr)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Let signals ask a run to stop. They reach the main thread only."""
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
