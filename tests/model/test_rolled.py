"""Programs written as loops: read, summed and named as the user wrote them, in the time of the array form."""

import sys
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.errors import OptionError
from sumout.model.packing import Packs, find_packs
from sumout.model.rolled import roll_up
from sumout.plan.plan import plan_for

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks.loops import KINDS

Y = np.array([-2.1, 1.8, 2.2, -1.7, 0.3, 2.5, -2.4, 1.1, -0.2, 1.9])


def effects(y):
    """A loop with all kinds of sites: continuous, discrete, deterministic, observed."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    rate = numpyro.sample("rate", dist.Beta(2.0, 2.0))
    for i in range(len(y)):
        effect = numpyro.sample(f"effect_{i}", dist.LogNormal(0.0, 0.5))
        z = numpyro.sample(f"z_{i}", dist.Bernoulli(rate))
        mean = numpyro.deterministic(f"mean_{i}", jnp.where(z == 1, effect, -effect))
        numpyro.sample(f"y_{i}", dist.Normal(mean, 0.5 + scale), obs=y[i])


def point(program, seed=0):
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=program.num_x) / 2)
    z = {name: jnp.asarray(rng.choice(site.support.values, site.shape)) for name, site in program.z.items()}
    return x, z


def density_of(kind, form, num):
    plan = plan_for(KINDS[kind](form, num))
    return plan, plan.structure


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_has_the_structure_and_the_sums_of_the_array_form(kind):
    (plan, structure), (other, of_array) = (density_of(kind, form, 30) for form in ("loop", "array"))
    assert len(structure.program.z) == 1
    assert (structure.num_sites, structure.num_edges) == (of_array.num_sites, of_array.num_edges)
    assert structure.num_components == of_array.num_components
    assert plan.sums_all and other.sums_all
    x, z = point(structure.program)
    of_z = dict(zip(of_array.program.z, z.values(), strict=True))
    np.testing.assert_allclose(
        jax.jit(plan.summation.log_density)(x, z, structure.program.data),
        jax.jit(other.summation.log_density)(x, of_z, of_array.program.data),
        rtol=1e-8,
    )


@pytest.mark.parametrize(
    "kind", ["hmm", *(pytest.param(k, marks=pytest.mark.calibration) for k in KINDS if k != "hmm")]
)
def test_the_reading_does_not_grow_with_the_loop(kind):
    few, many = (sumout.read(KINDS[kind]("loop", num)).factorisation.closed.jaxpr.eqns for num in (40, 80))
    assert len(many) <= len(few)


def test_sums_over_a_loop_are_those_of_all_its_states():
    num_states = 2

    def chain(y):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(num_states)))
        mu = numpyro.sample("mu", dist.Normal(0, 2).expand([num_states]))
        before = 0
        for t in range(len(y)):
            before = numpyro.sample(f"z_{t}", dist.Categorical(jnp.roll(p, before)))
            numpyro.sample(f"y_{t}", dist.Normal(mu[before], 1), obs=y[t])

    program = sumout.program(chain, Y[:8])
    plan = plan_for(program)
    assert list(plan.structure.program.z) == ["z_0…z_7"]
    x, _ = point(program)
    states = np.array(list(product(range(num_states), repeat=8)))
    named = {f"z_{t}": jnp.asarray(states[:, t]) for t in range(8)}
    every = jax.vmap(program.log_density, in_axes=(None, 0, None))(x, named, program.data)
    at = x, {"z_0…z_7": jnp.zeros(8, int)}, program.data
    total = jax.nn.logsumexp(every)
    np.testing.assert_allclose(jax.jit(plan.summation.log_density)(*at), total, rtol=1e-10)
    weights = np.exp(np.asarray(every) - total)
    marginals = [[weights[states[:, t] == k].sum() for k in range(num_states)] for t in range(8)]
    np.testing.assert_allclose(jnp.exp(jax.jit(plan.summation.log_marginals)(*at)), marginals, rtol=1e-8)


def test_all_functions_of_a_loop_return_what_the_model_does():
    program = sumout.program(effects, Y)
    rolled = roll_up(program)
    x, z = point(program)
    packed = {name: jnp.asarray(value) for name, value in rolled.packs.pack(z).items()}
    data = program.data
    np.testing.assert_allclose(rolled.log_density(x, packed, data), program.log_density(x, z, data), rtol=1e-10)
    gradients = [jax.jit(jax.grad(p.log_density))(x, at, data) for p, at in ((rolled, packed), (program, z))]
    np.testing.assert_allclose(*gradients, rtol=1e-9)
    without = [jax.jit(p.log_joint_without_data)(given, at, data) for p, given, at in
               ((rolled, x, packed), (program, program.unravel(x), z))]  # fmt: skip
    np.testing.assert_allclose(*without, rtol=1e-10)
    for name in ("log_likelihood", "log_terms", "constrain"):
        ours = jax.jit(getattr(rolled, name))(x, packed, data)
        theirs = jax.jit(getattr(program, name))(x, z, data)
        packs = getattr(rolled, f"{name}_named").packs
        assert len(ours) < 8
        named = packs.unpack(ours)
        assert named.keys() == theirs.keys()
        for name, value in theirs.items():
            np.testing.assert_allclose(named[name], value, rtol=1e-10, err_msg=name)


def test_results_have_the_names_of_the_user():
    program = sumout.program(effects, Y)
    with pytest.warns():  # of so few draws
        result = sumout.sample(program, draws=8, tune=20, chains=2, progress=False)
        sumout.summary(result)
    names = [f"{kind}_{i}" for kind in ("effect", "mean", "z") for i in range(len(Y))]
    assert set(result.posterior.data_vars) == {"scale", "rate", *names}
    assert set(result.log_likelihood.data_vars) == set(result.observed_data.data_vars) == {f"y_{i}" for i in range(10)}
    assert result.posterior.attrs["discrete"] == [f"z_{i}" for i in range(10)]
    for i in range(len(Y)):  # each name has its own values
        sign = np.where(result.posterior[f"z_{i}"] == 1, 1, -1)
        np.testing.assert_allclose(result.posterior[f"mean_{i}"], sign * result.posterior[f"effect_{i}"], rtol=1e-6)
        assert float(result.observed_data[f"y_{i}"]) == Y[i]
    found = sumout.marginals(program, result)
    assert found["z_3"].dims == ("z_3_value",) and found["z_3_mode"].shape == ()


def test_a_site_with_a_plan_of_its_own_is_left_by_itself():
    program = sumout.program(effects, Y)
    plan = plan_for(program, {"z_3": "draw"})
    assert list(plan.structure.program.z) == ["z_0…z_9", "z_3"]
    assert plan.structure.user_site_numbers.keys() == program.z.keys()
    assert [choice.method for choice in plan.choices["z_3"]] != ["sum"]
    with pytest.raises(OptionError, match="no discrete site 'z_12'"):
        plan_for(program, {"z_12": "draw"})


def test_names_are_packed_by_number_and_kind():
    packs = find_packs({**{f"a_{i}": "int" for i in reversed(range(12))}, "a_12": "float", "b_1": "int", "c": "int"})
    assert packs.members == {"a_0…a_11": tuple(f"a_{i}" for i in range(12))}
    arrays = packs.pack({"c": np.zeros(2), **{f"a_{i}": np.full(2, i) for i in range(12)}})
    assert list(arrays) == ["c", "a_0…a_11"]
    assert arrays["a_0…a_11"].shape == (12, 2)
    assert packs.unpack(arrays)["a_7"].tolist() == [7, 7]
    assert not Packs() and Packs().unpack({"a": 1}) == {"a": 1}


def test_values_outside_a_support_stay_impossible_in_a_loop():
    def model(y):
        low = numpyro.sample("low", dist.Normal(0, 1))
        for i in range(len(y)):
            z = numpyro.sample(f"z_{i}", dist.Bernoulli(0.5))
            numpyro.sample(f"y_{i}", dist.Uniform(low - z, low + 4.0), obs=y[i])

    program = sumout.program(model, np.linspace(0.5, 2, 10))
    rolled = roll_up(program)
    inside = {"z_0…z_9": jnp.ones(10, int)}
    assert jnp.isfinite(rolled.log_density(jnp.array([1.0]), inside, program.data))
    assert rolled.log_density(jnp.array([1.0]), {"z_0…z_9": jnp.zeros(10, int)}, program.data) == -jnp.inf


def test_a_site_of_a_loop_that_was_forgotten_is_told():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        for i in range(len(y)):
            z = numpyro.sample(f"z_{i}", dist.Bernoulli(0.5))
            numpyro.sample(f"y_{i}", dist.Normal(mu * (0.0 if i == 3 else z), 1), obs=y[i])

    found = sumout.check(sumout.program(model, Y))
    assert len(found.warnings) == 1 and "'z_3' has no influence" in found.warnings[0]
