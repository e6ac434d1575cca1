"""One run in a process of its own: `python -m benchmarks.worker`, started by `runs.py`.

The draws are written as soon as they are there, then the warm clock runs: nothing is lost if that takes too long.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.model import find_model
from benchmarks.samplers.names import SAMPLERS
from benchmarks.samplers.sampler import CannotTakeError, Settings

DRAWS, COLD, WARM, NOTHING = "draws.npz", "cold.json", "warm.json", "nothing.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("sampler")
    parser.add_argument("--variant", default="")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--started", type=float, required=True, help="when the process was started")
    parser.add_argument("--settings", default="{}", help="as JSON")
    parser.add_argument("--prepare", action="store_true", help="only do what is done once for all runs")
    options = parser.parse_args()
    adapter = SAMPLERS[options.sampler].adapter()
    before = time.time()
    model = find_model(options.model)
    try:
        form = adapter.load(model)
    except CannotTakeError as error:
        (options.folder / NOTHING).write_text(json.dumps(str(error)))
        return
    if options.prepare:
        adapter.prepare(model)
        return
    data = model.data()
    loading = time.time() - before
    run = adapter.run(model, form, data, Settings(**json.loads(options.settings)), options.variant)
    cold = time.time() - options.started - loading + run.beforehand
    np.savez(options.folder / DRAWS, **run.draws)
    (options.folder / COLD).write_text(json.dumps(cold))
    (options.folder / WARM).write_text(json.dumps(run.warm()))


if __name__ == "__main__":
    main()
