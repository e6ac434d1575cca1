"""Two processes that compile side by side and then run one by one, so that nothing runs beside what is timed.

Each process has programs of its own and keeps what it has compiled for them; a piece of work goes to the process that
has compiled it. Threads would not do: NumPyro traces one model at a time.
"""

import multiprocessing as mp
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from sumout.errors import SumoutError
from sumout_studies import two_normals
from sumout_studies.measure import CHAINS, Outcome, run_once
from sumout_studies.models import STUDIES
from sumout_studies.schemes import SCHEMES
from sumout_studies.two_normals import Crossings

NUMBER = 2


class Bench:
    """What a process can do, with the programs that it does it with."""

    def __init__(self):
        self._programs: dict[Any, Any] = {}

    def sample(self, study: str, scheme: str, step_size: float, draws: int, tune: int, seed: int) -> Outcome:
        """One run of a scheme on a study."""
        chosen, by_hand = STUDIES[study], SCHEMES[scheme].by_hand
        program = self._program((study, by_hand), chosen.marginal_density if by_hand else chosen.program)
        return run_once(chosen, SCHEMES[scheme], program, step_size, draws=draws, tune=tune, seed=seed)

    def compile(self, study: str, scheme: str, step_size: float, seed: int) -> None:
        """A few draws, after which nothing is left to compile."""
        self.sample(study, scheme, step_size, CHAINS, 1, seed)

    def cross(self, name: str, gradients: int, seed: int) -> Crossings:
        """One run on the two normals."""
        kernel = two_normals.SCHEMES[name]
        program = self._program("two normals", two_normals.make_program)
        return two_normals.run(program, kernel, max(gradients, CHAINS * kernel.gradients_per_step), seed)

    def _program(self, name: Any, make: Callable[[], Any]) -> Any:
        if name not in self._programs:
            self._programs[name] = make()
        return self._programs[name]


class Workers:
    """The processes; made by `workers`."""

    def __init__(self, pipes: Sequence[Connection]):
        self._pipes = pipes

    def do(self, worker: int, what: str, *args: Any) -> Any:
        """One piece of work, with nothing beside it."""
        pipe = self._pipes[worker % len(self._pipes)]
        pipe.send((what, args))
        return _result(pipe)

    def do_all(self, work: Sequence[tuple[int, str, tuple]]) -> Iterator[int]:
        """Much work, side by side: for each piece its process, what to do, and with what; numbers of those done."""
        left = [[i for i, (worker, *_) in enumerate(work) if worker % len(self._pipes) == j] for j in range(NUMBER)]
        current: dict[Connection, int] = {}

        def next_piece(j: int) -> None:
            if left[j]:
                current[self._pipes[j]] = i = left[j].pop(0)
                self._pipes[j].send(work[i][1:])

        for j in range(len(self._pipes)):
            next_piece(j)
        while current:
            for pipe in wait(list(current)):
                assert isinstance(pipe, Connection)
                _result(pipe)
                yield current.pop(pipe)
                next_piece(self._pipes.index(pipe))


def _result(pipe: Connection) -> Any:
    try:
        is_done, result = pipe.recv()
    except EOFError:
        raise SumoutError("studies: a process ended before its work was done; is there memory enough?") from None
    if not is_done:
        raise SumoutError(f"studies: {result}")
    return result


@contextmanager
def workers() -> Iterator[Workers]:
    """The processes, for as long as they are needed."""
    context = mp.get_context("spawn")  # JAX does not survive a fork
    pipes, processes = [], []
    for _ in range(NUMBER):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        yield Workers(pipes)
    finally:
        for process in processes:
            process.kill()  # what it is doing is of no use any more
            process.join()


def _serve(pipe: Connection) -> None:
    """In the process: do what comes until nothing comes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever gives the work hears it too, and ends the process
    bench = Bench()
    while True:
        try:
            what, args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(bench, what)(*args)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
