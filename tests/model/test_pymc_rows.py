"""Rows of PyMC models: dimensions as plates, and programs of some of their rows."""

from functools import cache

import jax
import numpy as np
import pymc as pm
import pytest
from pymc_extras.distributions import DiscreteMarkovChain

import sumout
from sumout.errors import ModelError
from sumout.model.arguments import as_jax
from sumout.model.initial_values import any_z
from sumout.model.row_program import take_rows
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.minibatch_target import RowData, make_minibatch_target
from sumout.plan.plan import plan_for
from sumout.plan.row_sums import RowSums
from sumout.plan.target import make_target
from sumout.randomness import new_key, split

SIZE, BATCH, BATCHES = 41, 6, 5_000
RNG = np.random.default_rng(3)
Y, COVARIATE = RNG.normal(size=SIZE), RNG.normal(size=(2, SIZE))
SEQUENCES = RNG.normal(size=(SIZE, 3))


def mixture():
    """A covariate whose rows lie along its second axis, another without names, a potential of rows."""
    with pm.Model(coords={"n": range(SIZE), "k": range(2)}) as model:
        mu = pm.Normal("mu", [-1, 1], 3, dims="k")
        slope = pm.Normal("slope", 0, 1, dims="k")
        weights = pm.Dirichlet("weights", np.ones(2), dims="k")
        covariate = pm.Data("covariate", COVARIATE, dims=("k", "n"))
        weight = pm.Data("weight", np.abs(Y))
        z = pm.Categorical("z", weights, dims="n")
        pm.Deterministic("centre", mu[z], dims="n")
        pm.Potential("pull", -weight * z * mu[0] ** 2, dims="n")
        pm.Normal("y", mu[z] + pm.math.dot(slope, covariate), 1, observed=Y, dims="n")
    return model


def sequences():
    """Each row a chain of three."""
    with pm.Model(coords={"n": range(SIZE), "t": range(3)}) as model:
        stay = pm.Beta("stay", 2, 2)
        mu = pm.Normal("mu", [-1, 1], 3)
        rows = pm.math.stack([pm.math.stack([stay, 1 - stay]), pm.math.stack([1 - stay, stay])])
        start = pm.Categorical.dist([0.5, 0.5])
        z = DiscreteMarkovChain("z", P=rows, init_dist=start, dims=("n", "t"))
        pm.Normal("y", mu[z], 1, observed=SEQUENCES, dims=("n", "t"))
    return model


def labels():
    """Labels as vectors with a single one, and a discrete variable outside."""
    with pm.Model(coords={"n": range(SIZE), "k": range(3)}) as model:
        mu = pm.Normal("mu", [-1, 0, 1], 3, dims="k")
        switch = pm.Bernoulli("switch", 0.3)
        pm.Normal("seen", mu[0] + switch, 1, observed=0.4)
        z = pm.Multinomial("z", 1, [0.2, 0.3, 0.5], dims=("n", "k"))
        pm.Normal("y", pm.math.dot(z, mu), 1, observed=Y, dims="n")
    return model


@cache
def model_of(make):
    return make()  # kept, as programs do not keep it


@cache
def sums_of(make):
    program = sumout.program(model_of(make))
    return program, RowSums(take_rows(program, "n", BATCH))


def exact(program, x):
    plan = plan_for(program, None, NOT_CUT)
    return make_target(plan).value_and_gradient(x, any_z(plan.structure.program), program.data)


@pytest.mark.parametrize("make", [mixture, sequences, labels], ids=lambda make: make.__name__)
def test_totals_are_those_of_all_rows(make):
    program, sums = sums_of(make)
    x, arrays = 0.5 * RNG.normal(size=program.num_x), as_jax(sums.rows.all_rows)
    (value, gradient), (low, low_gradient) = jax.jit(sums.totals)(x, arrays)
    shared, slope = sums.shared(x, sums.rows.take(arrays, np.arange(BATCH)))
    whole, whole_gradient = exact(program, x)
    np.testing.assert_allclose(value + low + shared, whole, rtol=1e-9)
    np.testing.assert_allclose(gradient + low_gradient + slope, whole_gradient, rtol=1e-8, atol=1e-8)


def test_gradients_are_unbiased():
    """Within six standard errors: by chance outside in 2e-9 of coordinates."""
    program, sums = sums_of(mixture)
    x, nothing = as_jax(0.5 * RNG.normal(size=program.num_x)), np.zeros(program.num_x)
    target = make_minibatch_target(sums)
    data = as_jax(RowData(dict(sums.rows.all_rows), np.arange(BATCH), nothing, np.eye(len(x)), nothing, np.zeros(())))
    one = lambda key: target.value_and_gradient(x, {}, target.subsample(key, data))[1]  # noqa: E731
    keys = as_jax(split(new_key(1), BATCHES))
    estimates = np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=100))(keys))
    error = estimates.std(axis=0, ddof=1) / np.sqrt(BATCHES)
    assert (np.abs(estimates.mean(axis=0) - exact(program, x)[1]) < 6 * error).all()


def without_names():
    with pm.Model(coords={"n": range(SIZE)}) as model:
        mu = pm.Normal("mu", 0, 1)
        z = pm.Bernoulli("z", 0.3, dims="n")
        pm.Normal("y", mu * z + COVARIATE[0], 1, observed=Y, dims="n")
    return model


def weighed():
    with pm.Model(coords={"n": range(SIZE)}) as model:
        mu = pm.Normal("mu", 0, 1)
        z = pm.Bernoulli("z", 0.3, dims="n")
        pm.Normal("y", mu * z, 1, observed=Y, dims="n", total_size=2 * SIZE)
    return model


def own_effects():
    with pm.Model(coords={"n": range(SIZE)}) as model:
        effect = pm.Normal("effect", 0, 1, dims="n")
        z = pm.Bernoulli("z", 0.3, dims="n")
        pm.Normal("y", effect * z, 1, observed=Y, dims="n")
    return model


def mean_of_rows():
    with pm.Model(coords={"n": range(SIZE)}) as model:
        mu = pm.Normal("mu", 0, 1)
        z = pm.Bernoulli("z", 0.3, dims="n")
        data = pm.Data("data", Y, dims="n")
        pm.Normal("y", mu * z, 1 + data.mean() ** 2, observed=Y, dims="n")
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (without_names, r"cannot be given 6 of the 41 rows of 'n'.*pm\.Data"),
        (weighed, "weighed by total_size"),
        (own_effects, "'effect' is inside plate 'n'"),
        (mean_of_rows, "'y' of a program of 6 rows .* depends on other rows"),
    ],
)
def test_refused_by_name(make, words):
    program = sumout.program(model_of(make))
    with pytest.raises(ModelError, match=words):
        take_rows(program, "n", BATCH)
