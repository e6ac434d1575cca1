"""New data of a model: compiled code is shared where it is right for them, and only there."""

import gc
import pickle
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask

import sumout
from sumout.errors import ModelError, OptionError
from sumout.model.kin import MOST_KIN
from sumout.plan.plan import plan_for
from sumout.run.setup import set_up

SHORT = {"draws": 8, "tune": 8, "chains": 2, "progress": False}


def mixture():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)

    return model


def zero_inflated():
    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
            numpyro.sample("y", dist.Poisson(rate * z + 1e-6), obs=y)

    return model


def grouped():
    def model(group, y):
        mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]))
        with numpyro.plate("groups", 3):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
        with numpyro.plate("points", len(y)):
            numpyro.sample("y", dist.Normal(mu[z[group]], 1), obs=y)

    return model


def paired():
    """Sites that data tie together, or do not."""

    def model(weight, y):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        z = numpyro.sample("z", dist.Bernoulli(0.3).expand([4]).to_event(1))
        numpyro.factor("ties", (weight * z[1:] * z[:-1]).sum())
        numpyro.sample("y", dist.Normal(mu * z, 1).to_event(1), obs=y)

    return model


def masked():
    def model(seen, y):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        with numpyro.plate("points", len(y)), mask(mask=seen):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)

    return model


def counted():
    def model(total, y):
        p = numpyro.sample("p", dist.Beta(2, 2))
        with numpyro.plate("points", len(y)):
            n = numpyro.sample("n", dist.Binomial(total, 0.6))
            numpyro.sample("y", dist.Normal(n * p, 1), obs=y)

    return model


def missing():
    """A count that nothing depends on."""

    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1))
        z = numpyro.sample("z", dist.Bernoulli(0.4))
        numpyro.sample("y", dist.Normal(rate * z, 1).expand([len(y)]).to_event(1), obs=y)
        numpyro.sample("filled", dist.Poisson(rate))

    return model


def abundance():
    """Counts whose sums end where the data say."""

    def model(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1))
        with numpyro.plate("points", len(y)):
            n = numpyro.sample("n", dist.Poisson(rate))
            numpyro.sample("y", dist.Binomial(n, 0.6), obs=y)

    return model


def ragged():
    """Chains of lengths that are data."""

    def model(length, y):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        z = numpyro.sample("z", dist.Bernoulli(0.3).expand(y.shape).to_event(2))
        inside = jnp.arange(y.shape[1]) < length[:, None]
        same = jnp.where(inside[:, 1:], 1.5 * (z[:, 1:] == z[:, :-1]), 0.0)
        numpyro.factor("steps", same.sum())
        terms = dist.Normal(mu * z, 1).log_prob(y)
        numpyro.factor("y", jnp.where(inside, terms, 0.0).sum())

    return model


Y = np.array([0.3, 2.9, 3.4, -0.2])
ROWS = np.arange(8.0).reshape(2, 4) / 4

CASES = {
    "y": (mixture, (Y,), (Y[::-1] + 1,)),
    "zeros": (zero_inflated, (np.array([0, 3, 0, 2]),), (np.array([4, 0, 0, 0]),)),
    "all zero": (zero_inflated, (np.array([0, 3, 0, 2]),), (np.array([0, 0, 0, 0]),)),
    "an index": (grouped, (np.array([0, 1, 2, 2]), Y), (np.array([1, 1, 0, 2]), Y)),
    "an edge less": (paired, (np.array([0.5, 1.0, -1.0]), Y), (np.array([0.5, 0.0, -1.0]), Y)),
    "an edge more": (paired, (np.array([0.5, 0.0, -1.0]), Y), (np.array([0.5, 0.3, -1.0]), Y)),
    "weights": (paired, (np.array([0.5, 1.0, -1.0]), Y), (np.array([-0.5, 2.0, 1.0]), Y + 1)),
    "a mask": (masked, (np.array([True, True, False, True]), Y), (np.array([False, True, True, True]), Y)),
    "totals": (counted, (np.array([2, 3, 1, 2]), Y), (np.array([3, 1, 2, 2]), Y)),
    "a missing count": (missing, (Y,), (Y[::-1] + 1,)),
    "counts": (abundance, (np.array([2, 3, 1, 2]),), (np.array([3, 1, 40, 2]),)),
    "lengths": (ragged, (np.array([4, 2]), ROWS), (np.array([3, 4]), ROWS)),
}


def marginal(setup, x):
    """Log p(x, y) and its gradient by what a run would call."""
    program = setup.program
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    return setup._target.value_and_gradient(jnp.full(program.num_x, x), z, program.data)


@pytest.mark.parametrize("case", CASES)
def test_other_data_are_treated_as_a_fresh_program_would(case):
    """Both ways, so that what the first data rule out does not rule it out for the second."""
    make, *both = CASES[case]
    for old, new in (both, both[::-1]):
        model = make()
        set_up(sumout.program(model, *old), None, None)
        found = set_up(sumout.program(model, *new), None, None)
        fresh = set_up(sumout.program(make(), *new), None, None)
        for x in (-0.4, 0.7):
            for one, other in zip(marginal(found, x), marginal(fresh, x), strict=True):
                np.testing.assert_array_equal(one, other)
        assert found.plan.choices == fresh.plan.choices
        np.testing.assert_array_equal(found.program.observed.get("y", 0), fresh.program.observed.get("y", 0))


SHARED = {"y", "zeros", "all zero", "weights", "a missing count"}


@pytest.mark.parametrize("case", CASES)
def test_what_is_built_is_shared_where_the_structure_is_the_same(case):
    make, old, new = CASES[case]
    model = make()
    first = set_up(sumout.program(model, *old), None, None)
    second = set_up(sumout.program(model, *new), None, None)
    assert (second._first is first) == (case in SHARED)


@pytest.fixture
def compilations():
    """The names of what has been compiled."""
    seen = []

    def listen(event, seconds, **about):
        if "backend_compile" in event:
            seen.append(about.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("case", ["y", "zeros", "a missing count"])
def test_new_data_compile_nothing_and_give_the_draws_of_a_fresh_program(case, compilations):
    make, old, new = CASES[case]
    model = make()
    first = sumout.program(model, *old)
    sumout.sample(first, **SHORT)
    assert compilations
    compilations.clear()
    again = [sumout.sample(p, **SHORT) for p in (sumout.program(model, *new), first.with_data(y=new[-1]))]
    assert compilations == []
    fresh = sumout.sample(sumout.program(make(), *new), **SHORT)
    assert compilations
    for result in again:
        for group in ("posterior", "log_likelihood", "observed_data", "sample_stats"):
            assert result[group].to_dataset().equals(fresh[group].to_dataset())


def test_a_model_that_has_changed_is_not_taken_for_the_old_one():
    outside = {"scale": 1.0, "shown": 1.0}

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        numpyro.deterministic("shown", outside["shown"] * mu)
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu * z, outside["scale"]), obs=y)

    first = set_up(sumout.program(model, Y), None, None)
    assert set_up(sumout.program(model, Y), None, None)._first is first
    for name in outside:
        outside[name] = 2.0
        assert set_up(sumout.program(model, Y), None, None)._first is not first


def test_missing_values_that_are_others():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        with numpyro.plate("points", 4):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            filled = numpyro.sample("filled", dist.Normal(mu * z, 1).mask(jnp.isnan(y)))
            numpyro.sample("y", dist.Normal(mu * z, 1), obs=jnp.where(jnp.isnan(y), filled, y))

    def where(*missing):
        y = Y.copy()
        y[list(missing)] = np.nan
        return y

    x = np.linspace(-1, 1, 5)
    first = sumout.program(model, where(1))
    set_up(first, None, None)
    found, fresh = first.with_data(y=where(0, 3)), sumout.program(model, where(0, 3))
    z = {"z": jnp.ones(4, int)}
    assert found.num_x == fresh.num_x == 5
    assert float(found.log_density(x, z, found.data)) == float(fresh.log_density(x, z, fresh.data))


def test_data_are_checked_anew():
    first = sumout.program(zero_inflated(), np.array([0, 3, 0, 2]))
    with pytest.raises(ModelError, match="'y'"):
        first.with_data(y=np.array([0, -3, 0, 2]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"w": Y}, "no array 'w' among the data; the arrays are: y"),
        ({"y": Y[:3]}, r"'y' has the shape \(3,\), in the program \(4,\)"),
        ({"y": np.arange(4)}, "'y' has the type int"),
        ({"y": "abcd"}, "'y' is no array of numbers"),
    ],
)
def test_data_that_do_not_fit_are_refused(given, said):
    with pytest.raises(OptionError, match=said):
        sumout.program(mixture(), Y).with_data(**given)


def test_arrays_in_a_dict_by_path_or_all_at_once():
    def model(data):
        mu = numpyro.sample("mu", dist.Normal(data["prior"], 3))
        with numpyro.plate("points", 4):
            z = numpyro.sample("z", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(mu * z, 1), obs=data["y"])

    first = sumout.program(model, {"y": Y, "prior": np.array(0.0)})
    for second in (first.with_data(**{"data.y": Y + 1}), first.with_data(data={"y": Y + 1})):
        np.testing.assert_allclose(second.observed["y"], Y + 1, rtol=1e-6)
        assert float(second.data["data.prior"]) == 0.0


def test_a_density_with_other_data():
    def log_density(x, z, data):
        return -0.5 * ((data["y"] - x["mu"] * z["z"]) ** 2).sum() - x["mu"] ** 2

    real = dist.constraints.real
    first = sumout.density(log_density, x={"mu": (real, ())}, z={"z": sumout.finite(2, shape=4)}, data={"y": Y})
    second = first.with_data(y=Y + 1)
    built = set_up(first, None, None)
    found = set_up(second, None, None)
    assert found._first is built
    np.testing.assert_allclose(
        marginal(found, 0.5)[0], plan_for(second).log_density(jnp.full(1, 0.5), {"z": jnp.zeros(4, int)}, second.data)
    )


def test_few_programs_are_held_and_none_without_their_model():
    model = mixture()
    for i in range(MOST_KIN + 2):
        set_up(sumout.program(model, np.arange(i + 2.0)), None, None)
    kin = sumout.program(model, Y).kin
    assert len(kin.programs) == MOST_KIN
    assert pickle.loads(pickle.dumps(kin)).programs == ()
    held = weakref.ref(model)
    del model, kin
    gc.collect()
    assert held() is None


def test_other_data_of_a_pymc_model_find_what_was_built():
    pm = pytest.importorskip("pymc")
    y = np.array([0.3, 2.9, 3.4, -0.2])
    with pm.Model() as model:
        pm.Data("y", y)
        mu, z = pm.Normal("mu", 0, 3), pm.Bernoulli("z", 0.3, shape=4)
        pm.Normal("seen", mu * z, 1, observed=model["y"])
    first = set_up(sumout.program(model), None, None)
    pm.set_data({"y": y[::-1]}, model=model)
    second = set_up(sumout.program(model), None, None)
    assert second._first is first
    np.testing.assert_array_equal(second.program.observed["seen"], y[::-1].astype(second.program.data["y"].dtype))
