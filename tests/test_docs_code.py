"""The Python of the documents runs, from top to bottom of each page.

In the suite draws are made up, as nothing else takes as long; in calibration they are made. The loops of
`docs/own_loops.md` are run, and judged, by `tests/run/test_steps_documented.py`.
"""

import re
import warnings
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

import sumout

from made_up_runs import run_of

ROOT = Path(__file__).parents[1]
RNG = np.random.default_rng(0)
# What a page takes for granted.
GIVEN = {
    "README.md": {},
    "docs/getting_started.md": {},
    "docs/results.md": {},
    "docs/coming_from.md": {"y": RNG.integers(0, 2, size=(20, 3)), "key": jax.random.key(0)},
    "docs/front_ends.md": {"data": RNG.normal(size=100)},
    "docs/minibatches.md": {"y": RNG.normal(size=20_000)},
}
QUICK = ("README.md", "docs/getting_started.md", "docs/results.md")
ELSEWHERE = {"docs/own_loops.md", "docs/several_machines.md"}  # the latter needs several processes


def run(page, sample, monkeypatch, tmp_path):
    """Blocks with an ellipsis are no programs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sumout, "sample", sample)
    scope = {"__name__": "page", **GIVEN[page]}
    if "y" in scope:
        np.save("y.npy", scope["y"])
    if page == "docs/front_ends.md":
        scope["az"] = pytest.importorskip("arviz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws should not be trusted
        for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
            if "…" not in block:
                exec(block, scope)
    return scope


@pytest.mark.parametrize("page", QUICK)
def test_pages_run_with_draws_made_up(page, monkeypatch, tmp_path):
    scope = run(page, lambda program, *_, **__: run_of(program), monkeypatch, tmp_path)
    assert set(scope["program"].z) <= set(scope["result"].posterior.data_vars)


@pytest.mark.calibration
@pytest.mark.parametrize("page", GIVEN)
def test_pages_run(page, monkeypatch, tmp_path):
    scope = run(page, partial(sumout.sample, draws=60, tune=200, chains=2), monkeypatch, tmp_path)
    assert scope["result"].posterior.sizes["draw"] == 60


def test_every_page_with_code_is_run():
    pages = [path for path in (ROOT / "docs").glob("*.md") if "```python" in path.read_text()]
    assert {path.relative_to(ROOT).as_posix() for path in pages} | {"README.md"} == GIVEN.keys() | ELSEWHERE
