"""JAGS as a peer: Gibbs sampling of a BUGS program with z left in, by its command line (Debian's package `jags`).

JAGS runs the chains of one process one after the other, so there are two processes, each with half of the chains.
"""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CHAINS = 4
CORES = 2


@dataclass(frozen=True)
class JagsRun:
    """Draws by parameter, `(chain, draw, …)`, and the seconds that all processes took."""

    draws: dict[str, np.ndarray]
    seconds: float


@dataclass(frozen=True)
class Jags:
    """A BUGS program and its data.

    Attributes:
        program: its text.
        data: by name; masked arrays have missing values.
        parameters: what to look at.
        starts: of z, where JAGS finds none that agree with data by itself.
        seed: of the first chain.
        chains: how many.
    """

    program: str
    data: Mapping[str, Any]
    parameters: tuple[str, ...]
    starts: Mapping[str, Any]
    seed: int = 0
    chains: int = CHAINS

    def run(self, draws: int = 1000, tune: int = 1000) -> JagsRun:
        """Sample each chain, from nothing; without draws only the warm-up is made."""
        shares = [share for share in np.array_split(np.arange(1, self.chains + 1), CORES) if len(share)]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "program.bug").write_text(self.program)
            (folder / "data.R").write_text(_dump(self.data))
            scripts = [self._write(folder, share, draws, tune) for share in shares]
            start = time.perf_counter()
            _wait([_begin(folder, script) for script in scripts])
            seconds = time.perf_counter() - start
            read = (
                [read_draws(folder, f"out{share[0]}", len(share), self.parameters) for share in shares] if draws else []
            )
        return JagsRun({one: np.concatenate([part[one] for part in read]) for one in self.parameters if read}, seconds)

    def _write(self, folder: Path, share: np.ndarray, draws: int, tune: int) -> str:
        """The script for these chains, and what they start from."""
        lines = ['model in "program.bug"', 'data in "data.R"', f"compile, nchains({len(share)})"]
        for place, chain in enumerate(share, 1):
            random = f'".RNG.name" <- "base::Mersenne-Twister"\n".RNG.seed" <- {self.seed + chain}\n'
            (folder / f"starts{chain}.R").write_text(random + _dump(self.starts))
            lines.append(f'parameters in "starts{chain}.R", chain({place})')
        lines += ["initialize", f"update {tune}"]
        if draws:
            lines += [*(f"monitor {name}" for name in self.parameters), f"update {draws}"]
            lines.append(f'coda *, stem("out{share[0]}")')
        script = f"script{share[0]}.txt"
        (folder / script).write_text("\n".join([*lines, "exit", ""]))
        return script


def is_there() -> bool:
    """Whether JAGS is installed."""
    return shutil.which("jags") is not None


def _begin(folder: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(["jags", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait(processes: list[subprocess.Popen[str]]) -> None:
    """Until all have ended; what one says of an error is raised: JAGS ends with 0 even then."""
    said = [process.communicate()[0] for process in processes]
    for text in said:
        if "error" in text.lower():
            raise RuntimeError(f"JAGS: {text[-2000:]}")


def read_draws(folder: Path, stem: str, chains: int, parameters: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The draws that JAGS has written; elements are named `rows[1,2]`."""
    index = [line.split() for line in (folder / f"{stem}index.txt").read_text().splitlines() if line.strip()]
    columns = [np.loadtxt(folder / f"{stem}chain{chain + 1}.txt")[:, 1] for chain in range(chains)]
    elements: dict[str, dict[tuple[int, ...], np.ndarray]] = {name: {} for name in parameters}
    for label, first, last in index:
        place = tuple(int(number) - 1 for number in re.findall(r"\d+", label.partition("[")[2]))
        elements[label.partition("[")[0]][place] = np.stack([c[int(first) - 1 : int(last)] for c in columns])
    return {name: _gather(found) for name, found in elements.items()}


def _gather(elements: Mapping[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """One array of all elements of a parameter."""
    shape = tuple(np.max(list(elements), axis=0) + 1) if () not in elements else ()
    some = next(iter(elements.values()))
    found = np.full((*some.shape, *shape), np.nan)
    for place, values in elements.items():
        found[(..., *place)] = values
    return found


def _dump(arrays: Mapping[str, Any]) -> str:
    """Arrays as R writes them, the first axis varying fastest."""
    lines = []
    for name, value in arrays.items():
        array = np.ma.asarray(value)
        flat = ["NA" if missing else f"{number}" for number, missing in _elements(array)]
        body = flat[0] if array.ndim == 0 else f"c({', '.join(flat)})"
        if array.ndim > 1:
            body = f"structure({body}, .Dim=c({', '.join(map(str, array.shape))}))"
        lines.append(f'"{name}" <- {body}')
    return "\n".join([*lines, ""])


def _elements(array: Any) -> list[tuple[Any, bool]]:
    values, missing = np.ma.getdata(array).ravel(order="F"), np.ma.getmaskarray(array).ravel(order="F")
    return list(zip(values.tolist(), missing.tolist(), strict=True))
