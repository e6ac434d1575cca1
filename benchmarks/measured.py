"""What was measured, as JSON: `out/bench/` has the last run of each script, `docs/measured/` what the docs show.

`python -m benchmarks.pages` makes the tables of the docs from the latter, with `--take` of what was measured last.
"""

import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LAST, KEPT = Path("out/bench"), ROOT / "docs/measured"


def machine() -> str:
    """What the numbers hold for."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def circumstances() -> dict[str, Any]:
    """When, where, and beside how much other work."""
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "load": round(os.getloadavg()[1], 1)}


def write_rows(name: str, rows: Sequence[dict[str, Any]], folder: Path = LAST) -> None:
    """What a script measured, a line for each row of a table."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    about = json.dumps(circumstances(), ensure_ascii=False)[:-1]
    (folder / f"{name}.json").write_text(f'{about}, "rows": [\n  {lines}\n]}}\n', encoding="utf-8")


def read_kept(name: str) -> dict[str, Any]:
    """What the docs show."""
    return json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
