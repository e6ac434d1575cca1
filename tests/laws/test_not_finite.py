"""What is not finite is never taken silently: neither by a kernel, nor by a move on z, nor by the summary."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_base import from_dict
from numpyro.distributions import constraints

import sumout
from sumout.kernels.leapfrog import Point
from sumout.kernels.registry import KERNELS
from sumout.plan.plan import plan_for
from sumout.plan.target import Target
from sumout.randomness import fold_in, new_key
from sumout.results.summary import chain_warnings, locate
from sumout.tables.logsumexp import draw

STEPS = 300


def cut_off(nothing):
    """A Gaussian that is not there above 1."""

    def log_density(x, z, data):
        del z, data
        return jnp.where(x[0] < 1, -0.5 * x[0] ** 2, nothing)

    return Target(log_density)


CASES = [*((kernel, jnp.nan) for kernel in KERNELS), (sumout.GHMC, -jnp.inf), (sumout.SGLD, -jnp.inf)]


@pytest.mark.parametrize(("kernel", "nothing"), CASES, ids=[f"{kernel.name}-{nothing}" for kernel, nothing in CASES])
def test_kernels_stay_or_say_so(kernel, nothing):
    bound = kernel(step_size=0.7).bind(cut_off(nothing))

    @jax.jit
    def run(key):
        def step(state, t):
            state, info = bound.step(fold_in(key, t), state, None, t)
            return state, (state.x[0], info.log_density, info.diverging)

        start = bound.init(fold_in(key, STEPS), Point.at(bound.target, jnp.zeros(1), {}, None), {})
        return jax.lax.scan(step, start, jnp.arange(STEPS))[1]

    x, log_density, diverging = (np.asarray(part) for part in run(new_key(0)))
    assert np.isfinite(x).all()
    assert len(np.unique(x)) > 1
    if kernel.is_exact:
        assert (x < 1).all()
        assert np.isfinite(log_density).all()
    assert diverging[~np.isfinite(log_density)].all()
    assert diverging.any()


def test_gibbs_never_draws_what_has_no_probability():
    weights = jnp.array([[0.0, 0.0], [jnp.nan, 0.0], [0.0, -jnp.inf]])
    drawn = np.asarray(jax.vmap(lambda key: draw(key, weights))(jax.random.split(jax.random.key(0), 200)))
    assert set(drawn[:, 0]) == {0, 2}
    assert set(drawn[:, 1]) == {0, 1}


def test_metropolis_leaves_what_has_no_probability_and_does_not_return():
    def hole(x, z, data):
        return -(x["a"] ** 2) + jnp.where(z["z"] == 1, jnp.nan, 0.0)

    program = sumout.density(hole, x={"a": (constraints.real, ())}, z={"z": sumout.finite(3)})
    move = jax.jit(plan_for(program, {"z": "metropolis"}).sweep)
    z = {"z": jnp.array(1)}
    visited = []
    for t in range(40):
        z = move(fold_in(new_key(0), t), jnp.zeros(1), z, program.data)
        visited.append(int(z["z"]))
    left = next(t for t, value in enumerate(visited) if value != 1)
    assert 1 not in visited[left:]


def made_up(chains=4, draws=50, **stats):
    """A run of independent draws of a Gaussian."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(chains, draws, 2))
    groups = {
        "posterior": {"x": x.copy()},
        "unconstrained_posterior": {"x": x.copy()},
        "unconstrained_gradient": {"x": -x},
        "sample_stats": {"lp": rng.normal(size=(chains, draws)), **stats},
    }
    tree = from_dict(groups)
    tree["posterior"].attrs["discrete"] = []
    return tree


def test_a_good_run_is_not_complained_of():
    assert chain_warnings(made_up()) == []
    assert chain_warnings(made_up(chains=1, draws=3, diverging=np.zeros((1, 3), bool))) == []


def test_divergences_are_located():
    diverging = np.zeros((4, 50), bool)
    diverging[0, [3, 17, 18, 40]] = diverging[2, 5] = True
    (words,) = chain_warnings(made_up(diverging=diverging))
    assert words.startswith("5 draws diverged")
    assert "chain 0 (draws 3, 17, 18 and 1 more), chain 2 (draw 5)" in words


@pytest.mark.parametrize("group", ["sample_stats", "unconstrained_posterior", "unconstrained_gradient"])
def test_what_is_not_finite_is_located(group):
    tree = made_up()
    name = "lp" if group == "sample_stats" else "x"
    tree[group][name].values[1, 7] = np.nan
    (words,) = chain_warnings(tree)
    assert words.startswith("at 1 draws")
    assert "chain 1 (draw 7)" in words
    assert "sumout.check" in words


def test_a_stuck_chain_is_named():
    tree = made_up()
    tree["unconstrained_posterior"]["x"].values[2] = 1.5
    (words,) = chain_warnings(tree)
    assert words.startswith("chain 2 is stuck")
    assert "another seed" in words
    tree["unconstrained_posterior"]["x"].values[2, :, 0] = np.arange(50)  # one coordinate moves
    assert chain_warnings(tree) == []


def test_lost_chains_are_named():
    tree = made_up()
    tree["sample_stats"]["lp"].values[[0, 3]] -= 20
    (words,) = chain_warnings(tree)
    assert words.startswith("chains 0, 3 are lost")
    tree = made_up()
    tree["sample_stats"]["lp"].values[0] -= 2  # lower, but among the others
    assert chain_warnings(tree) == []


def test_the_summary_tells_of_chains():
    tree = made_up(draws=400)
    tree["sample_stats"]["lp"].values[3] -= 30
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sumout.summary(tree)
    assert any("chain 3 is lost" in str(warning.message) for warning in caught)


def test_many_places_are_told_in_brief():
    assert locate(np.ones((6, 9), bool)).endswith("chain 2 (draws 0, 1, 2 and 6 more) and 3 more chains")
