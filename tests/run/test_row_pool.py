"""Pools of rows on the disk: which rows are in them, and that runs with them are those of all rows."""

import jax
import numpy as np
import pytest

import sumout
from sumout.errors import ModelError
from sumout.model.row_program import take_rows
from sumout.randomness import new_key
from sumout.run import row_pool
from sumout.run.row_pool import HeldRows

from row_models import mixture, mixture_data

SIZE, BATCH = 3_001, 50


@pytest.fixture(autouse=True)
def _small_pools(monkeypatch):
    """Pools of 500 rows in stretches of 7, and pieces of 650 rows."""
    for name, value in {"FEWEST_ROWS": 500, "BATCHES": 10, "PIECE_BYTES": 690 * 8}.items():
        monkeypatch.setattr(row_pool, name, value)


def held(y):
    return HeldRows(take_rows(sumout.program(mixture, sumout.on_disk(y)), "n", BATCH))


def test_every_row_is_as_likely_in_a_pool():
    """Of 400 pools of about 500 rows a row is in about 66: sixfold deviations."""
    rows = held(np.arange(SIZE, dtype=float))
    pools = [np.asarray(rows.at_draw(new_key(0), row_pool.EVERY * i)[0]["y"]) for i in range(400)]
    counts = np.bincount(np.concatenate(pools).astype(int), minlength=SIZE)
    expected = sum(map(len, pools)) / SIZE
    assert rows.is_renewed
    assert counts.sum() == sum(map(len, pools))
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected)
    assert len(pools[0]) > 450


def test_pieces_are_all_rows_once():
    y = np.random.default_rng(0).normal(size=SIZE)
    pieces = [np.asarray(piece["y"]) for piece in held(y).pieces()]
    assert [len(piece) for piece in pieces] == [650, 650, 650, 650, 401]
    np.testing.assert_array_equal(np.concatenate(pieces), y)


def test_the_pool_of_a_draw_does_not_depend_on_the_one_before():
    rows, key = held(np.arange(SIZE, dtype=float)), new_key(1)
    first, until = rows.at_draw(key, 70)
    rows.at_draw(key, 20)
    again, _ = rows.at_draw(key, 99)
    assert until == 100
    np.testing.assert_array_equal(first["y"], again["y"])


QUICK = {"draws": 120, "tune": 60, "chains": 2, "minibatch": {"n": 100}}


@pytest.fixture(scope="module")
def y():
    return np.sort(mixture_data(np.random.default_rng(0), SIZE)[0])


@pytest.mark.calibration
def test_runs_are_those_of_all_rows(y, tmp_path):
    """Sorted rows: means within half a deviation, deviations within 40 %; the same draws however they are cut."""
    np.save(tmp_path / "y.npy", y)
    program = sumout.program(mixture, sumout.on_disk(tmp_path / "y.npy"))
    run = sumout.sample(program, **QUICK)
    in_memory = sumout.sample(sumout.program(mixture, y), **QUICK)
    order = lambda run: np.sort(run.posterior.mu.values, axis=-1)  # noqa: E731  (labels may differ)
    one, other = order(run), order(in_memory)
    assert (np.abs(one.mean((0, 1)) - other.mean((0, 1))) < 0.5 * other.std((0, 1))).all()
    assert (np.abs(one.std((0, 1)) / other.std((0, 1)) - 1) < 0.4).all()
    assert run.posterior.attrs["log_density_at_mode"] == pytest.approx(in_memory.posterior.attrs["log_density_at_mode"])
    again = sumout.sample(program, **QUICK, chunk=7)
    np.testing.assert_array_equal(run.posterior.mu.values, again.posterior.mu.values)
    sumout.sample(program, **{**QUICK, "draws": 75}, store=tmp_path / "run")
    stored = sumout.sample(program, **QUICK, store=tmp_path / "run")
    np.testing.assert_array_equal(run.posterior.mu.values, stored.posterior.mu.values)


def test_the_mode_is_that_of_all_rows(y):
    one, other = (
        sumout.maximize(sumout.program(mixture, rows), minibatch={"n": 100}) for rows in (sumout.on_disk(y), y)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.sort(a), np.sort(b), atol=0.01), one.x, other.x)


def test_rows_that_are_missing_are_named(y):
    broken = y.copy()
    broken[2_500] = np.nan
    with pytest.raises(ModelError, match="among rows 1,950 to 2,599 there are some whose log density is not finite"):
        sumout.sample(sumout.program(mixture, sumout.on_disk(broken)), **QUICK)
