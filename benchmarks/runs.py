"""Runs, each in a fresh process, one at a time, and what is kept of them.

A run that has no result after the time limit is killed; once it has one, its warm clock gets as long again. What is
found is written at once, so that a benchmark that was interrupted goes on where it was. No run finds compiled code of
an earlier one on the disk, but for the parts of PyTensor that are the same for all models, and Python's own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import worker
from benchmarks.model import find_model
from benchmarks.samplers.names import SAMPLERS
from benchmarks.samplers.sampler import Settings
from benchmarks.summary import Summary, summarise

ROOT = Path(__file__).parents[1]
BUILDING = 900.0  # seconds that a Stan program may take to build
PYTENSOR = ("pymc", "nutpie")
SMALLEST = "import pytensor; pytensor.function([], pytensor.tensor.zeros(2).sum())()"  # compiles what all need
DONE, OVER, FAILED, NOTHING = "done", "over", "failed", "nothing"


@dataclass(frozen=True)
class Record:
    """What is kept of a run.

    Attributes:
        model: its name.
        sampler: its name.
        variant: how it ran.
        repeat: which repeat it was.
        settings: how much it drew, and its time limit.
        status: done, over (the time limit), failed, or nothing (there is no such form).
        message: the last line of an error.
        cold: seconds from the start of the process to the result.
        warm: seconds for the draws after the warm-up, with compiled code.
        summary: of the draws.
    """

    model: str
    sampler: str
    variant: str
    repeat: int
    settings: Mapping[str, float]
    status: str
    message: str = ""
    cold: float | None = None
    warm: float | None = None
    summary: Summary | None = None

    @property
    def rate(self) -> float:
        """Effective draws a second, warm; 0 where there is none."""
        return self.summary.fewest / self.warm if self.summary and self.warm else 0.0


@dataclass(frozen=True)
class Bench:
    """A folder of runs.

    Attributes:
        folder: where they are kept.
        settings: how much to draw.
        limit: seconds for a result.
    """

    folder: Path
    settings: Settings
    limit: float

    def path(self, model: str, sampler: str, variant: str, repeat: int) -> Path:
        """Of a run."""
        return self.folder / "runs" / ("-".join(filter(None, (model, sampler, variant, str(repeat)))) + ".json")

    def records(self) -> Iterator[Record]:
        """All runs that are kept."""
        for path in sorted((self.folder / "runs").glob("*.json")):
            yield read_record(path)

    def run(self, model: str, sampler: str, variant: str, repeat: int) -> Record:
        """Run it, unless the same run is kept already."""
        path = self.path(model, sampler, variant, repeat)
        settings = {**asdict(self.settings), "seed": self.settings.seed + repeat, "limit": self.limit}
        if path.exists() and (kept := read_record(path)).settings == settings:
            return kept
        path.parent.mkdir(parents=True, exist_ok=True)
        found = self._execute(model, sampler, variant, settings)
        record = Record(model, sampler, variant, repeat, settings, **found)
        text = json.dumps(asdict(record), ensure_ascii=False)
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").rename(path)
        return record

    def _execute(self, model: str, sampler: str, variant: str, settings: Mapping[str, float]) -> dict:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            environment = self._environment(sampler, folder)
            if SAMPLERS[sampler].is_built:
                code, said = _process(model, sampler, folder, environment, ["--prepare"], BUILDING)
                if code != 0:
                    return _trouble(code, said)
            if (folder / worker.NOTHING).exists():
                return {"status": NOTHING, "message": json.loads((folder / worker.NOTHING).read_text())}
            sizes = {name: value for name, value in settings.items() if name != "limit"}
            arguments = ["--variant", variant, "--settings", json.dumps(sizes)]
            code, said = _process(model, sampler, folder, environment, arguments, self.limit)
            if (folder / worker.NOTHING).exists():
                return {"status": NOTHING, "message": json.loads((folder / worker.NOTHING).read_text())}
            if not (folder / worker.COLD).exists():
                return _trouble(code, said)
            warm = folder / worker.WARM
            with np.load(folder / worker.DRAWS, allow_pickle=False) as draws:
                summary = summarise(find_model(model).scored(dict(draws)))
            return {
                "status": DONE,
                "message": "" if warm.exists() else f"no warm clock: {_trouble(code, said)['message']}",
                "cold": json.loads((folder / worker.COLD).read_text()),
                "warm": json.loads(warm.read_text()) if warm.exists() else None,
                "summary": summary,
            }

    def _environment(self, sampler: str, folder: Path) -> dict[str, str]:
        """With caches of compiled code that are empty but for what counts otherwise."""
        cache = self.folder.resolve() / "cache" if sampler == "stan" else folder / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": str(folder / "numba")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        if sampler in PYTENSOR:
            shared, own = self.folder.resolve() / "pytensor", folder / "pytensor"
            if not shared.exists():
                shared.mkdir(parents=True)
                flags = {"PYTENSOR_FLAGS": f"base_compiledir={shared}"}
                subprocess.run([sys.executable, "-c", SMALLEST], env={**environment, **flags}, capture_output=True)
            shutil.copytree(shared, own)
            environment["PYTENSOR_FLAGS"] = f"base_compiledir={own}"
        return environment


def read_record(path: Path) -> Record:
    """A run that was kept."""
    found = json.loads(path.read_text())
    return Record(**{**found, "summary": Summary(**found["summary"]) if found["summary"] else None})


def _process(model, sampler, folder, environment, arguments, limit) -> tuple[int | None, str]:
    """Exit code, None if it was killed, and what it said."""
    command = [sys.executable, "-m", "benchmarks.worker", model, sampler, "--folder", str(folder)]
    with (folder / "said.txt").open("w+") as said:
        started = time.time()
        process = subprocess.Popen(
            [*command, "--started", repr(started), *arguments], cwd=ROOT, env=environment, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = _wait(process, folder, started, limit)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        return code, said.read()


def _wait(process: subprocess.Popen, folder: Path, started: float, limit: float) -> int | None:
    """Until it ends or its time is over; with a result it has twice the time."""
    while time.time() - started < 2 * limit:
        try:
            return process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if time.time() - started > limit and not (folder / worker.COLD).exists():
                return None
    return None


def _trouble(code: int | None, said: str) -> dict:
    """What went wrong, by the last line that says anything."""
    if code is None:
        return {"status": OVER, "message": "over the time limit"}
    lines = [line.strip() for line in said.splitlines() if line.strip() and not set(line.strip()) <= set("-=^~ ")]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    return {"status": FAILED, "message": (errors or lines or [f"exit code {code}"])[-1][:300]}
