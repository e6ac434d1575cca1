"""`sumout run` by several processes: started here on one machine, or by a cluster's own `srun` or `mpirun`.

The processes find each other, and talk, by JAX's runtime. Here they are only started and looked after: signals are
passed on to all of them, and when one fails the others are ended.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from time import monotonic, sleep
from typing import IO, Any

from sumout.cli.options import whole
from sumout.errors import OptionError

TICK = 0.1  # seconds between two looks at the processes
GRACE = 5.0  # seconds that processes have to end by themselves when one has failed
LAST_WORDS = 20  # lines of what a failed process has said
# A process that has nothing left to do waits so many seconds for the others, as long as it takes to write a result.
PATIENCE = 24 * 3600


def add_processes(parser: argparse.ArgumentParser) -> None:
    """By how many processes, and what each of them does."""
    parser.add_argument("--processes", type=whole(1), default=1, metavar="N", help="processes on this machine (1)")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="this is one of several processes that were started by srun or mpirun, as JAX finds out by itself",
    )
    parser.add_argument(
        "--shard",
        metavar="PLATE",
        help="spread the rows of this plate over all devices of all processes; without it they share the chains",
    )
    parser.add_argument("--process", type=_place, help=argparse.SUPPRESS)  # what `start` gives to those it starts


def _place(text: str) -> tuple[int, int, str]:
    """`0/2@127.0.0.1:4711`: number, how many, and where process 0 listens."""
    numbers, _, address = text.partition("@")
    number, _, count = numbers.partition("/")
    return int(number), int(count), address


def is_one_of_many(options: argparse.Namespace) -> bool:
    """Whether this process works on the run together with others."""
    return getattr(options, "process", None) is not None or getattr(options, "cluster", False)


def join(options: argparse.Namespace) -> None:
    """Meet the other processes; to be called before JAX computes anything."""
    import jax

    if options.cluster and (options.processes > 1 or options.process is not None):
        raise OptionError("--cluster and --processes exclude each other: srun or mpirun say how many there are.")
    where: dict[str, Any] = {}
    if options.process is not None:
        number, count, address = options.process
        where = {"process_id": number, "num_processes": count, "coordinator_address": address}
    try:
        jax.distributed.initialize(**where, shutdown_timeout_seconds=PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise OptionError(
            f"--cluster: JAX cannot tell which processes belong together ({str(error).splitlines()[0]}). Start them by "
            "srun or mpirun, or, on one machine, with --processes 2."
        ) from error


def mesh_for(options: argparse.Namespace) -> dict[str, Any]:
    """`mesh` and `shard` for `sumout.sample`: all devices of all processes."""
    if not is_one_of_many(options) and options.shard is None:
        return {}
    import jax

    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    return {"mesh": mesh, "shard": None if options.shard is None else {options.shard: "data"}}


def end_alone(options: argparse.Namespace, code: int) -> int:
    """The exit code of a command that failed; one of many processes ends here, without waiting for the others."""
    if is_one_of_many(options):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def start(options: argparse.Namespace) -> int:
    """Run the command in as many processes as it says; the exit code of the first that failed."""
    with socket.socket() as probe:  # a port that is free
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    count = options.processes
    said = [tempfile.TemporaryFile() for _ in range(count)]  # noqa: SIM115  (closed with the process)
    processes = [_start_one(options.argv, f"{number}/{count}@{address}", said[number]) for number in range(count)]
    try:
        first = _wait(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if first is None:
        return 0
    _explain(first, processes, said[first], options.store)
    code = processes[first].returncode
    return code if code > 0 else 1


def _start_one(argv: Sequence[str], place: str, said: IO[bytes]) -> subprocess.Popen:
    """One process; the first speaks for all, what others say is kept."""
    is_first = place.startswith("0/")
    return subprocess.Popen(
        [sys.executable, "-m", "sumout", *argv, "--process", place],
        stdin=subprocess.DEVNULL,
        stdout=None if is_first else subprocess.DEVNULL,
        stderr=None if is_first else said,
        # The code that they compile must be the same, and may follow the order of sets.
        env={"PYTHONHASHSEED": "0", **os.environ},
        start_new_session=True,  # signals come from here, each of them once
    )


def _wait(processes: Sequence[subprocess.Popen]) -> int | None:
    """Wait for all; the first that failed, after which the others have little time left."""
    first, failed, signals = None, 0.0, 0
    while any(process.poll() is None for process in processes):
        try:
            sleep(TICK)
            if first is None:
                first = next((i for i, process in enumerate(processes) if process.poll()), None)
                failed = monotonic()
            elif monotonic() - failed > GRACE:
                break
        except KeyboardInterrupt:
            signals += 1
            if signals > 1:
                raise
            for process in processes:
                process.send_signal(signal.SIGINT)
    return next((i for i, process in enumerate(processes) if process.poll()), None) if first is None else first


def _explain(first: int, processes: Sequence[subprocess.Popen], said: IO[bytes], store: Any) -> None:
    """Say which process failed, unless process 0 has said the same."""
    code = processes[first].returncode
    if code > 0 and (first == 0 or processes[0].returncode == code):
        return
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has failed (exit code {code})"
    resume = "" if store is None else " The same command resumes the run, with any number of processes."
    print(f"sumout: process {first} of {len(processes)} {how}; the others were ended, too.{resume}", file=sys.stderr)
    said.seek(0)
    for line in said.read().decode(errors="replace").splitlines()[-LAST_WORDS:] if code > 0 else ():
        print(f"  {line}", file=sys.stderr)
