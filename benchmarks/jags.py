"""JAGS as a peer: Gibbs sampling of a BUGS program with z left in, by its command line (Debian's package `jags`)."""

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


@dataclass(frozen=True)
class JagsRun:
    """Draws by parameter, `(chain, draw, element)`, the seconds of the whole process, and those of the draws alone."""

    draws: dict[str, np.ndarray]
    cold: float
    sampling: float


def is_there() -> bool:
    """Whether JAGS is installed."""
    return shutil.which("jags") is not None


def run_jags(
    program: str,
    data: Mapping[str, Any],
    starts: Mapping[str, Any],
    parameters: tuple[str, ...],
    *,
    draws: int = 1000,
    tune: int = 1000,
) -> JagsRun:
    """Sample a BUGS program.

    Args:
        program: its text.
        data: by name; masked arrays have missing values.
        starts: of z, as JAGS finds none that agree with data by itself.
        parameters: what to look at.
        draws: of each chain.
        tune: of each chain, before them.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "program.bug").write_text(program)
        (place / "data.R").write_text(_dump(data))
        for chain in range(CHAINS):
            random = '".RNG.name" <- "base::Mersenne-Twister"\n' + f'".RNG.seed" <- {chain + 1}\n'
            (place / f"starts{chain + 1}.R").write_text(random + _dump(starts))
        warm = _timed(place, parameters, tune, 0)
        cold = _timed(place, parameters, tune, draws)
        return JagsRun(_read(place, parameters, draws), cold, max(cold - warm, 1e-3))


def _timed(place: Path, parameters: tuple[str, ...], tune: int, draws: int) -> float:
    """Seconds of a process with so many draws."""
    lines = ['model in "program.bug"', 'data in "data.R"', f"compile, nchains({CHAINS})"]
    lines += [f'parameters in "starts{chain + 1}.R", chain({chain + 1})' for chain in range(CHAINS)]
    lines += ["initialize", f"update {tune}", *(f"monitor {name}" for name in parameters)]
    lines += [f"update {draws}", 'coda *, stem("out")'] if draws else []
    (place / "script.txt").write_text("\n".join([*lines, "exit", ""]))
    start = time.perf_counter()
    done = subprocess.run(["jags", "script.txt"], cwd=place, capture_output=True, text=True, check=False)
    if "rror" in done.stdout + done.stderr:
        raise RuntimeError(f"JAGS: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - start


def _read(place: Path, parameters: tuple[str, ...], draws: int) -> dict[str, np.ndarray]:
    """The draws that JAGS has written."""
    index = [line.split() for line in (place / "outindex.txt").read_text().splitlines() if line.strip()]
    chains = [np.loadtxt(place / f"outchain{chain + 1}.txt")[:, 1] for chain in range(CHAINS)]
    found: dict[str, list[np.ndarray]] = {name: [] for name in parameters}
    for label, first, _ in index:
        column = np.stack([values[int(first) - 1 : int(first) - 1 + draws] for values in chains])
        found[label.split("[")[0]].append(column)
    return {name: np.stack(columns, axis=-1) for name, columns in found.items()}


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
