"""Starts by ascents on some of many rows."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.plan.plan import plan_for
from sumout.plan.target import make_target
from sumout.randomness import new_key
from sumout.run import row_starts
from sumout.run.row_starts import RowStarts, make_starts
from sumout.run.starts import Starts

from row_models import mixture, mixture_data

SIZE = 5_000


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    for name, value in {"MANY_ROWS": 1_000, "FEWEST": 400, "BATCH": 100}.items():
        monkeypatch.setattr(row_starts, name, value)


def starts_of(program, plan=None):
    made = plan_for(program, plan)
    return make_starts(Starts(made.structure.program, make_target(made)))


@pytest.mark.parametrize("plan", [None, {"z": "gibbs"}])
def test_chains_start_around_the_mode_of_all_rows(plan):
    """Within five times √(5,000 / 400) posterior deviations of it, each elsewhere; z drawn or summed out."""
    program = sumout.program(mixture, *mixture_data(np.random.default_rng(0), SIZE))
    starts = starts_of(program, plan)
    assert isinstance(starts, RowStarts)
    points, z = starts.find(new_key(0), 3)
    assert np.isfinite(points.log_density).all() and np.isfinite(points.gradient).all()
    mu = np.sort(points.x[:, 1:] if points.x.shape[1] == 3 else points.x, axis=1)
    assert np.abs(mu - [0.0, 3.0]).max() < 5 * np.sqrt(SIZE / 400) * 2 / np.sqrt(0.3 * SIZE)
    assert len(np.unique(mu)) == mu.size
    target = make_target(plan_for(program, plan))
    one = {name: value[1] for name, value in z.items()}
    value, gradient = target.value_and_gradient(points.x[1], one, program.data)
    np.testing.assert_allclose([value, *gradient], [points.log_density[1], *points.gradient[1]], rtol=1e-9)
    again = starts_of(program, plan).find(new_key(0), 2)[0]
    np.testing.assert_array_equal(points.x[:2], again.x)  # whatever the number of chains


def test_with_other_data_other_rows_are_looked_at():
    rng = np.random.default_rng(0)
    (y,) = mixture_data(rng, SIZE)
    program = sumout.program(mixture, y)
    other = starts_of(program).of(program.with_data(y=y + 20.0))
    assert np.sort(other.find(new_key(0), 1)[0].x[0])[-1] > 15


def chain_of_rows(y):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("n", len(y)):
        numpyro.sample("y", dist.Normal(mu * np.arange(len(y)), 1.0), obs=y)


def of_each_row(y):
    with numpyro.plate("n", len(y)):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize("model", [chain_of_rows, of_each_row])
def test_other_programs_take_all_rows(model):
    program = sumout.program(model, np.zeros(1_000))
    assert isinstance(starts_of(program), Starts)
    few = sumout.program(mixture, np.zeros(999))
    assert isinstance(starts_of(few), Starts)
