"""What the progress bar says of the chains."""

import numpy as np
import pytest

from sumout.kernels.metropolis_adjusted import Info
from sumout.results.data_tree import Draws
from sumout.run import progress


def chunk(done, count, *, chains=3, tune=10, diverging=0, seed=0):
    x = np.random.default_rng(seed).normal(size=(chains, count, 2))
    acceptance = np.broadcast_to(np.linspace(0.5, 0.9, chains)[:, None], (chains, count))
    diverged = np.zeros((chains, count), bool)
    diverged[1, :diverging] = True
    info = Info(x[..., 0], acceptance, acceptance, diverged, x[..., 0])
    return progress.Progress(done, 1010, tune, Draws(x, {}, x, info, x[..., 0]))


@pytest.fixture(autouse=True)
def _always(monkeypatch):
    monkeypatch.setattr(progress, "SELDOM", -1.0)


def test_each_chain_is_told_of():
    notes = progress.Notes()
    assert notes.add(chunk(10, 10, diverging=2)) == "acceptance 0.50 0.70 0.90"  # in warm-up nothing counts
    assert notes.add(chunk(15, 5, diverging=2)) == "acceptance 0.50 0.70 0.90 · divergences 0 2 0"
    assert notes.add(chunk(20, 5, diverging=1)) == "acceptance 0.50 0.70 0.90 · divergences 0 3 0"


def test_effective_draws_so_far_are_told_and_little_is_remembered():
    notes = progress.Notes()
    for number in range(30):
        said = notes.add(chunk(110 + 100 * number, 100, seed=number))
    effective = int(said.split(" · ")[1].removesuffix(" effective draws").replace(",", ""))
    assert 6000 < effective < 12_000  # of 9,000 independent ones
    assert sum(part.shape[1] for part in notes._recent) <= progress.RECENT + 100


def test_of_many_chains_the_range_is_told():
    assert progress.Notes().add(chunk(10, 10, chains=20)) == "acceptance 0.50 to 0.90"
