"""Python's compiled code: packages that are installed come with it, and sumout, run from its folder, should too."""

import compileall
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_bytecode() -> None:
    """Write it, where it is not there yet, whatever the environment says."""
    for folder in ("src", "benchmarks"):
        compileall.compile_dir(ROOT / folder, quiet=1)
