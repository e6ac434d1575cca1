"""Run the scripts of the gallery and keep their pictures and what `explain` says of them.

`python docs/draw_gallery.py` runs all, `python docs/draw_gallery.py mixture potts` these. The pages of the gallery
include script, picture and text as they are; a test holds the texts against the scripts.
"""

import runpy
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

import sumout

GALLERY = Path(__file__).parent / "gallery"
LARGEST = 40_000  # bytes of a picture


def draw(script: Path) -> None:
    """Run a script, its window replaced by a file beside it."""
    start = time.perf_counter()
    picture = script.with_suffix(".png")
    plt.show = lambda: plt.savefig(picture, dpi=72, pil_kwargs={"optimize": True})
    runpy.run_path(str(script))
    plt.close("all")
    size = picture.stat().st_size
    assert size <= LARGEST, f"{picture.name} has {size} bytes; draw less, or smaller"
    print(f"{script.stem}: {time.perf_counter() - start:.0f} s, {size // 1000} kB", file=sys.stderr, flush=True)


def explain(script: Path) -> None:
    """Keep what a script prints before it samples: a run may fit the plan to its starts."""
    before, _, _ = script.read_text(encoding="utf-8").partition("print(sumout.explain(program))")
    scope: dict[str, Any] = {}
    exec(before, scope)
    script.with_suffix(".txt").write_text(f"{sumout.explain(scope['program'])}\n", encoding="utf-8")


if __name__ == "__main__":
    mpl.use("agg")
    for script in sorted(GALLERY.glob("*.py")):
        if not sys.argv[1:] or script.stem in sys.argv[1:]:
            explain(script)
            draw(script)
