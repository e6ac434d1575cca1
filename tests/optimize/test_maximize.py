"""Modes of p(x|y): of the marginal and not of the joint, by exact and by stochastic gradients, told when not found."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from scipy.optimize import minimize_scalar

import sumout
from sumout.errors import ConvergenceWarning, ModelError, OptionError, StartError

import models
from enumeration import joint_states, log_joint, log_marginal
from programs import ENUMERABLE, REAL, abundance_in_fog
from row_models import outlier_data, outliers

DRAW = {"z": "draw"}


def two_hills():
    """The single most probable z has x at −2, but the nine others together have it at 2."""

    def hills(x, z, data):
        left = jnp.log(0.3) + dist.Normal(-2, 1).log_prob(x["x"])
        right = jnp.log(0.7 / 9) + dist.Normal(2, 1).log_prob(x["x"])
        return jnp.where(z["z"] == 0, left, right)

    return sumout.density(hills, x={"x": REAL}, z={"z": sumout.finite(10)})


def gamma(x, z, data):
    """The mode of rate is (4 − 1) / 2 in its own coordinates and 4 / 2 on the logarithmic scale, whatever z is."""
    return dist.Gamma(4.0, 2.0).log_prob(x["rate"]) - 0.5 * z["z"]


def log_hills(x):
    return np.logaddexp(np.log(0.3) - 0.5 * (x + 2) ** 2, np.log(0.7) - 0.5 * (x - 2) ** 2)


def top_of(low, high):
    return minimize_scalar(lambda x: -log_hills(x), bounds=(low, high), method="bounded", options={"xatol": 1e-9}).x


def test_mode_of_the_marginal_not_of_the_joint():
    found = sumout.maximize(two_hills())
    assert found.converged
    assert found.x["x"] == pytest.approx(top_of(1, 3), abs=1e-6)
    assert found.log_density == pytest.approx(log_hills(found.x["x"]) - 0.5 * np.log(2 * np.pi))
    lower = log_hills(top_of(1, 3)) - log_hills(top_of(-3, -1))
    gaps = np.array([start.gap for start in found.starts])
    ends = np.array([start.x["x"] for start in found.starts])
    assert (ends < 0).any()  # some starts climbed the other hill
    np.testing.assert_allclose(gaps, np.where(ends < 0, lower, 0.0), atol=1e-6)
    assert "in lower modes" in str(found)


@pytest.fixture(scope="module")
def drawn():
    return sumout.maximize(two_hills(), plan=DRAW)


def test_hills_are_compared_where_the_density_is_not_known(drawn):
    """Eight ascents with z drawn: gaps by integrating noisy gradients, each with its standard error."""
    assert drawn.converged
    assert drawn.log_density is None
    assert drawn.z_mode is None
    assert drawn.x["x"] == pytest.approx(top_of(1, 3), abs=0.02)
    lower = log_hills(top_of(1, 3)) - log_hills(top_of(-3, -1))
    ends = np.array([start.x["x"] for start in drawn.starts])
    assert (ends < 0).any()
    errors = np.array([start.gap - (lower if start.x["x"] < 0 else 0.0) for start in drawn.starts])
    told = np.array([start.gap_error for start in drawn.starts])
    assert told.max() < 0.5
    assert (np.abs(errors) <= 3 * told + 1e-3).all()


def given(x):
    """Probabilities of the ten values of z at x."""
    left = np.exp(np.log(0.3) - 0.5 * (x + 2) ** 2 - log_hills(x))
    return np.array([left, *[(1 - left) / 9] * 9])


def test_z_given_the_mode_by_averaging_conditionals(drawn):
    np.testing.assert_allclose(drawn.z["z"], given(drawn.x["x"]), atol=1e-6)


@pytest.mark.calibration
def test_z_given_the_mode_by_frequencies():
    """A tenth is five times the error of a frequency over 1,000 Metropolis moves."""
    found = sumout.maximize(two_hills(), plan={"z": "metropolis"}, starts=2, steps=400)
    np.testing.assert_allclose(found.z["z"], given(found.x["x"]), atol=0.1)
    assert found.z["z"].sum() == pytest.approx(1)


def test_same_seed_same_maximum_whether_watched_or_not(drawn, capsys):
    again = sumout.maximize(two_hills(), plan=DRAW, progress=True)
    assert "ascending, 8 starts" in capsys.readouterr().err
    assert [start.x["x"] for start in again.starts] == [start.x["x"] for start in drawn.starts]
    np.testing.assert_array_equal(again.z["z"], drawn.z["z"])


@pytest.mark.parametrize("jacobian, mode", [(False, 1.5), (True, 2.0)])
def test_with_or_without_jacobian(jacobian, mode):
    program = sumout.density(gamma, x={"rate": (constraints.positive, ())}, z={"z": sumout.finite(2)})
    found = sumout.maximize(program, jacobian=jacobian, starts=2)
    assert found.x["rate"] == pytest.approx(mode, rel=1e-5)
    assert np.exp(found.unconstrained["rate"]) == pytest.approx(found.x["rate"])
    expected = dist.Gamma(4.0, 2.0).log_prob(mode) + np.log1p(np.exp(-0.5)) + (np.log(mode) if jacobian else 0)
    assert found.log_density == pytest.approx(float(expected))


def test_density_without_jacobian_is_what_numpyro_adds():
    def model(y):
        a = numpyro.sample("a", dist.HalfNormal(2.0))
        b = numpyro.sample("b", dist.Uniform(-1.0, a))  # its support moves with a
        c = numpyro.sample("c", dist.Beta(2, 3).expand([2]))
        z = numpyro.sample("z", dist.Bernoulli(c[0]))
        numpyro.sample("y", dist.Normal(b + z, 1), obs=y)

    program = sumout.program(model, np.array(0.5))
    x, z = jnp.array([0.3, -0.4, 0.8, -1.1]), {"z": jnp.array(1)}

    def values(x):
        return jnp.concatenate([jnp.ravel(value) for value in program.constrain(x, z, program.data).values()])

    added = program.log_density(x, z, program.data) - program.without_jacobian().log_density(x, z, program.data)
    assert added == pytest.approx(np.linalg.slogdet(jax.jacfwd(values)(x))[1])


@pytest.mark.parametrize("name", [pytest.param("scan_hmm", marks=pytest.mark.calibration), "ragged_binomials"])
def test_z_given_the_mode_is_exact(name):
    program = ENUMERABLE[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # z given x is right wherever x is
        found = sumout.maximize(program, starts=2, jacobian=True)
    states = joint_states(program)
    x = jnp.concatenate([jnp.ravel(found.unconstrained[site]) for site in program.x])
    density = np.asarray(log_joint(program, states)(x))
    assert found.log_density == pytest.approx(float(log_marginal(program, states)(x)))
    exact = np.exp(density - found.log_density)
    for site, spec in program.z.items():
        rows, allowed = spec.support.rows()
        values = np.asarray(states[site]).reshape(len(exact), -1)
        expected = np.where(allowed, np.einsum("s,sik->ik", exact, values[..., None] == rows), 0.0)
        np.testing.assert_allclose(found.z[site].reshape(expected.shape), expected, atol=1e-9)
        np.testing.assert_array_equal(found.z_mode[site], np.asarray(states[site])[density.argmax()])


@pytest.mark.calibration
def test_a_count_is_drawn_and_flags_are_summed():
    """Within 0.1 of the mode on the logit scale, where the sd is 0.5; n by its mean, which varies by 0.1."""
    program = abundance_in_fog()
    found = sumout.maximize(program, jacobian=True, starts=2)
    states = joint_states(program, num_counts=40)
    points = jnp.linspace(-3, 3, 601)
    exact = float(points[jnp.argmax(jax.jit(jax.vmap(log_marginal(program, states)))(points[:, None]))])
    assert found.converged
    assert found.unconstrained["p"] == pytest.approx(exact, abs=0.1)
    density = np.asarray(log_joint(program, states)(jnp.asarray(found.unconstrained["p"])[None]))
    weights = np.exp(density - density.max()) / np.exp(density - density.max()).sum()
    assert found.z["n"] == pytest.approx(float(weights @ np.asarray(states["n"])), abs=0.6)
    np.testing.assert_allclose(found.z["fog"][:, 1], weights @ np.asarray(states["fog"]), atol=0.05)


def test_a_density_that_rises_for_ever_is_told():
    steep = sumout.density(lambda x, z, data: x["a"] + 0.1 * z["z"], x={"a": REAL}, z={"z": sumout.finite(2)})
    with pytest.warns(ConvergenceWarning, match="a diverged"):
        found = sumout.maximize(steep, plan={"z": "gibbs"}, starts=2)
    assert not found.converged
    assert not any(start.converged for start in found.starts)
    assert "2 did not converge" in str(found)


def test_a_slow_rise_for_ever_is_told():
    program = sumout.density(
        lambda x, z, data: 0.5 * jnp.log1p(x["a"] ** 2) + 0.1 * z["z"], x={"a": REAL}, z={"z": sumout.finite(2)}
    )
    with pytest.warns(ConvergenceWarning, match="diverged"):
        assert not sumout.maximize(program, starts=2).converged


@pytest.mark.calibration
def test_a_component_that_collapses_is_told():
    def mixture(x, z, y):
        return dist.Normal(x["mu"][z["z"]], x["sigma"][z["z"]]).log_prob(y).sum() - 0.05 * (x["mu"] ** 2).sum()

    program = sumout.density(
        mixture,
        x={"mu": (constraints.real, (2,)), "sigma": (constraints.positive, (2,))},
        z={"z": sumout.finite(2, 3)},
        data=np.array([-1.2, -0.8, 1.0]),
    )
    with pytest.warns(ConvergenceWarning, match="diverged"):
        sumout.maximize(program)


@pytest.mark.calibration
def test_a_scale_that_collapses_is_told_where_z_is_drawn():
    def effects(x, z, y):  # without end as b and tau go to zero together
        return dist.Normal(0, x["tau"]).log_prob(x["b"]).sum() + dist.Normal(x["b"] + z["z"], 1).log_prob(y).sum()

    program = sumout.density(
        effects,
        x={"tau": (constraints.positive, ()), "b": (constraints.real, (2,))},
        z={"z": sumout.finite(2, 2)},
        data=np.array([0.1, 0.9]),
    )
    with pytest.warns(ConvergenceWarning, match="still rises|diverged"):
        assert not sumout.maximize(program, plan=DRAW, starts=2).converged


@pytest.mark.parametrize("how", ["sum", "draw"])
def test_too_few_steps_are_told(how):
    def valley(x, z, data):  # Rosenbrock's
        return -100 * (x["b"] - x["a"] ** 2) ** 2 - (4 - x["a"]) ** 2 + jnp.where(z["z"], 0.01 * x["a"], 0.0)

    program = sumout.density(valley, x={"a": REAL, "b": REAL}, z={"z": sumout.finite(2)})
    with pytest.warns(ConvergenceWarning, match="Take more steps"):
        assert not sumout.maximize(program, steps=10, starts=2, plan={"z": how}).converged


def test_a_mode_at_the_edge_is_told():
    def all_yes(x, z, y):
        return jnp.where(z["coin"], jnp.log(x["theta"]), jnp.log(0.5)).sum() + 0.0 * y.sum()

    program = sumout.density(
        all_yes, x={"theta": (constraints.unit_interval, ())}, z={"coin": sumout.finite(2, 3)}, data=np.ones(3)
    )
    with pytest.warns(ConvergenceWarning, match="theta is far out"):
        found = sumout.maximize(program, starts=2)
    assert found.converged
    assert found.x["theta"] == pytest.approx(1)


@pytest.mark.calibration
def test_single_precision_is_enough():
    rng = np.random.default_rng(1)
    y = rng.normal(np.where(rng.random(200) < 0.6, -2.0, 2.0), 1.0).astype(np.float32)

    def log_density(x):  # of mu and sigma, z summed out by hand
        each = dist.Normal(x[:2], x[2]).log_prob(np.asarray(y, float)[:, None]) + jnp.log(jnp.array([0.6, 0.4]))
        prior = dist.Normal(0, 3).log_prob(x[:2]).sum() + dist.HalfNormal(2).log_prob(x[2])
        return prior + jax.nn.logsumexp(each, axis=1).sum()

    with jax.enable_x64(False):
        found = sumout.maximize(sumout.program(models.mixture, y), starts=2)
    assert found.converged
    assert found.x["mu"].dtype == np.float32
    x = jnp.array([*found.x["mu"], found.x["sigma"]], float)
    to_the_top = np.linalg.solve(jax.hessian(log_density)(x), jax.grad(log_density)(x))
    assert np.abs(to_the_top).max() < 3e-3  # 3% of a posterior sd
    assert found.log_density == pytest.approx(float(log_density(x)), rel=1e-5)


@pytest.mark.calibration
def test_deterministics_that_depend_on_z():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.deterministic("twice", 2 * mu)
        z = numpyro.sample("z", dist.Bernoulli(0.2))
        numpyro.deterministic("mean", mu + 10 * z)
        numpyro.sample("y", dist.Normal(mu + 10 * z, 1), obs=y)

    program = sumout.program(model, np.array(9.0))
    found = sumout.maximize(program, starts=2)
    assert found.z_mode["z"] == 1
    assert found.x["mu"] == pytest.approx(-0.5, abs=1e-6)
    assert found.x["mean"] == pytest.approx(9.5, abs=1e-6)
    drawn = sumout.maximize(program, starts=2, plan=DRAW)
    assert drawn.x["twice"] == pytest.approx(-1.0, abs=0.05)
    assert "mean" not in drawn.x


def moving_support():
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("u", dist.Uniform(0.0, 1.0 + z))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"starts": 0}, "starts=0"),
        ({"steps": 2.5}, "steps=2.5"),
        ({"steps": 9}, "at least 10"),
        ({"seed": -1}, "seed=-1"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"learning_rate": "fast"}, "learning_rate='fast'"),
        ({"jacobian": "yes"}, "jacobian='yes'"),
        ({"plan": {"w": "draw"}}, "no discrete site 'w'"),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(OptionError, match=words):
        sumout.maximize(two_hills(), **options)


def test_programs_that_have_no_mode_to_look_for():
    with pytest.raises(OptionError, match="expected a Program, got function"):
        sumout.maximize(gamma)
    with pytest.raises(TypeError, match="step_size"):
        sumout.maximize(two_hills(), step_size=0.1)
    with pytest.raises(ModelError, match="no continuous variable"):
        sumout.maximize(sumout.density(lambda x, z, d: 1.0 * z["s"], x={}, z={"s": sumout.finite(2)}))
    with pytest.raises(ModelError, match="support of 'u' depends on a discrete site"):
        sumout.maximize(sumout.program(moving_support))
    impossible = sumout.density(lambda x, z, d: x["a"] * z["z"] + jnp.nan, x={"a": REAL}, z={"z": sumout.finite(2)})
    with pytest.raises(StartError, match="in 3 starts"):
        sumout.maximize(impossible, starts=3)


def test_the_mode_of_minibatches_is_that_of_all_rows():
    """Deviations of the posterior are 0.04 and more."""
    program = sumout.program(outliers, *outlier_data(np.random.default_rng(0), 1_003))
    some, whole = sumout.maximize(program, minibatch={"n": 100}), sumout.maximize(program, starts=2)
    assert some.converged and "all 1,003 rows" in some.message
    for name, value in whole.x.items():
        if name != "is_outlier":
            np.testing.assert_allclose(some.x[name], value, atol=0.005)
    with pytest.raises(OptionError, match="no meaning with minibatch"):
        sumout.maximize(program, minibatch={"n": 100}, starts=3)
