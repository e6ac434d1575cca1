"""A value of z that makes something impossible adds nothing to a sum, nor to its gradient, however that is written.

The oracle never differentiates what is singular: it takes differences of sums over all joint values of z.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp, xlog1py, xlogy
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.distributions.util import clamp_probs

import sumout
from sumout.plan.plan import plan_for
from sumout.plan.target import make_target

from enumeration import joint_states, log_joint, random_x

Y = np.array([1.0, 0.0, 1.0, 0.0])
COUNTS = np.array([5, 4, 0, 1])
DIFFERENCE = 1e-5


@jax.custom_jvp
def inverse(a):
    return 1 / a


inverse.defjvp(lambda primals, tangents: (1 / primals[0], -tangents[0] / primals[0] ** 2))


def carried(p, z):
    """A true recurrence: alive as long as no z was 0."""

    def step(alive, z):
        alive = alive * z * p
        return alive, jnp.log(alive + (1 - z) * 0.5)

    return jax.lax.scan(step, 1.0, z)[1]


def gaussian(covariance):
    """The log density of a Gaussian vector at a point, by Cholesky factors."""
    factor = jnp.linalg.cholesky(covariance)
    scaled = jax.scipy.linalg.solve_triangular(factor, jnp.full((4, 2, 1), 0.3), lower=True)[..., 0]
    return -0.5 * (scaled**2).sum(-1) - jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).sum(-1)


# Each is a term for four sites z in {0, 1}, with p between 0 and 1, s positive, data y and counts n.
FORMS = {
    "bernoulli": lambda z, p, s, y, n: dist.Bernoulli(z * p).log_prob(y),
    "bernoulli by logits": lambda z, p, s, y, n: dist.Bernoulli(logits=jnp.log(z * p) - jnp.log1p(-z * p)).log_prob(y),
    "binomial": lambda z, p, s, y, n: dist.Binomial(5, z * p).log_prob(n),
    "poisson": lambda z, p, s, y, n: dist.Poisson(z * s).log_prob(n),
    "poisson by choice": lambda z, p, s, y, n: dist.Poisson(jnp.where(z == 1, s, 0.0)).log_prob(n),
    "poisson by one-hot": lambda z, p, s, y, n: dist.Poisson(jax.nn.one_hot(z, 2) @ jnp.stack([0.0, s])).log_prob(n),
    "negative binomial": lambda z, p, s, y, n: dist.NegativeBinomial2(z * s, 2.0).log_prob(n),
    "geometric": lambda z, p, s, y, n: dist.Geometric(z * p).log_prob(n),
    "normal": lambda z, p, s, y, n: dist.Normal(p, z * s).log_prob(y + 0.1),
    "gamma": lambda z, p, s, y, n: dist.Gamma(2.0, z * s).log_prob(y + 0.1),
    "categorical": lambda z, p, s, y, n: dist.Categorical(jnp.stack([z * p, 1 - z * p], -1)).log_prob(y.astype(int)),
    "certain": lambda z, p, s, y, n: dist.Bernoulli(jnp.where(z == 1, p, 1.0)).log_prob(y),
    "logarithm": lambda z, p, s, y, n: jnp.log(z * p),
    "logarithm of a choice": lambda z, p, s, y, n: jnp.log(jnp.where(z == 1, p, 0.0)),
    "logarithm of a vector's choice": lambda z, p, s, y, n: jnp.log(jnp.where(z == 1, p * jnp.ones(4), jnp.zeros(4))),
    "choice by the datum": lambda z, p, s, y, n: jnp.where(y > 0, jnp.log(z * p), jnp.log1p(-z * p)),
    "not chosen": lambda z, p, s, y, n: jnp.where(z == 0, -1.0, jnp.log(z * p) / (z * s)),
    "not chosen, a root": lambda z, p, s, y, n: jnp.where(z == 0, p, jnp.sqrt(z * p)),
    "power": lambda z, p, s, y, n: jnp.log(jnp.power(0.0, z) + p * z),
    "power of a product": lambda z, p, s, y, n: y * jnp.log(jnp.power(z * p, 0.5) + s),
    "product with a power": lambda z, p, s, y, n: jnp.power(z * p, y) * s - s,
    "x log y": lambda z, p, s, y, n: xlogy(y, z * p) + xlog1py(1 - y, -z * p),
    "x log y of a column": lambda z, p, s, y, n: xlogy(y, z[:, None] * p) + xlog1py(1 - y, -z[:, None] * p),
    "root": lambda z, p, s, y, n: jnp.sqrt(z * p) + s * z,
    "absolute root": lambda z, p, s, y, n: -jnp.sqrt(jnp.abs((1 - z) * s)),
    "quotient": lambda z, p, s, y, n: -s / z,
    "square of a quotient": lambda z, p, s, y, n: -((y - p) ** 2) / (2 * (z * s) ** 2) - jnp.log(z * s),
    "inverse with a rule": lambda z, p, s, y, n: -inverse(z * p),
    "softplus of a logarithm": lambda z, p, s, y, n: jax.nn.softplus(jnp.log(z * p)),
    "sum of exponentials": lambda z, p, s, y, n: jnp.logaddexp(jnp.log(z * p), jnp.log((1 - z) * s)),
    "log-sum-exp": lambda z, p, s, y, n: logsumexp(jnp.stack([jnp.log(z * p), jnp.log((1 - z) * s) + y]), axis=0),
    "weight of a logarithm": lambda z, p, s, y, n: s * jnp.log(z * p),
    "clamped": lambda z, p, s, y, n: y * 5 * jnp.log(jnp.clip(z * p, 1e-30, 1.0)),
    "lgamma": lambda z, p, s, y, n: -jax.lax.lgamma(z * s),
    "recurrence": lambda z, p, s, y, n: carried(p, z.astype(float)),
    "branch": lambda z, p, s, y, n: jax.vmap(lambda z: jax.lax.cond(z > 0, jnp.log, lambda a: a - 1.0, z * p))(z),
    "product of all": lambda z, p, s, y, n: jnp.log(1 - jnp.prod(1 - z * p)) + jnp.zeros(4) * s,
    "neighbours": lambda z, p, s, y, n: jnp.log(p * z[1:] * z[:-1] + (1 - z[1:]) * s),
    "normal by matrix": lambda z, p, s, y, n: gaussian(jnp.eye(2) * (s * z[:, None, None]) + 0.1 * z[:, None, None]),
}


def program_of(form):
    def log_density(x, z, data):
        prior = dist.Bernoulli(x["psi"]).log_prob(z["z"]).sum()
        return prior + FORMS[form](z["z"], x["p"], x["s"], data["y"], data["n"]).sum() - x["s"]

    unit = (constraints.unit_interval, ())
    x = {"p": unit, "psi": unit, "s": (constraints.positive, ())}
    return sumout.density(log_density, x=x, z={"z": sumout.finite(2, shape=4)}, data={"y": Y, "n": COUNTS})


def occupied(y):
    p, psi = numpyro.sample("p", dist.Beta(1, 1)), numpyro.sample("psi", dist.Beta(1, 1))
    with numpyro.plate("sites", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(psi))
        numpyro.sample("y", dist.Binomial(5, z * p), obs=y)


def recaptured(y, clamp=lambda p: p):
    p, phi = numpyro.sample("p", dist.Beta(1, 1)), numpyro.sample("phi", dist.Beta(1, 1))

    def step(z, y):
        with numpyro.plate("animals", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(clamp(phi * z)))
            numpyro.sample("y", dist.Bernoulli(clamp(p * z)), obs=y)
        return z, None

    scan(step, jnp.ones(y.shape[1], int), y)


CAPTURES = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0]])
PROGRAMS = {
    "occupancy": lambda: sumout.program(occupied, COUNTS),
    "captures": lambda: sumout.program(recaptured, CAPTURES),
    "captures, clamped": lambda: sumout.program(recaptured, CAPTURES, clamp_probs),
    **{form: lambda form=form: program_of(form) for form in FORMS},
}


# In make test every third of them is also tried with z drawn and in single precision.
EACH = [pytest.param(n, marks=() if i % 3 == 0 else pytest.mark.calibration) for i, n in enumerate(PROGRAMS)]


def sum_of_states(program):
    """log Σ_z p(x, z, y), what is no number counting as impossible."""
    table = log_joint(program, joint_states(program))

    def log_sum(x):
        log_weights = np.asarray(table(x), float)
        return np.logaddexp.reduce(np.where(np.isnan(log_weights), -np.inf, log_weights))

    return log_sum


def slopes(function, x):
    """The gradient by differences."""
    steps = DIFFERENCE * np.eye(len(x))
    with np.errstate(invalid="ignore"):  # ∞ − ∞, where it is impossible
        return np.array([(function(x + step) - function(x - step)) / (2 * DIFFERENCE) for step in steps])


def any_z(program):
    return {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_and_their_gradients(name):
    program = PROGRAMS[name]()
    brute, ours = sum_of_states(program), make_target(plan_for(program)).value_and_gradient
    for seed in range(2):
        x = np.asarray(random_x(program, seed))
        value, gradient = ours(x, any_z(program), program.data)
        np.testing.assert_allclose(value, brute(x), rtol=1e-9)
        np.testing.assert_allclose(gradient, slopes(brute, x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", EACH)
def test_gradients_where_z_is_drawn(name):
    """At every possible z, those that make part of the program singular included."""
    program = PROGRAMS[name]()
    plan = plan_for(program, dict.fromkeys(program.z, "draw"))
    states, x = joint_states(program), np.asarray(random_x(program, 1))
    table, gradient = log_joint(program, states), jax.grad(plan.log_density)
    gradients = np.asarray(jax.jit(jax.vmap(gradient, (None, 0, None)))(x, states, program.data))
    expected = slopes(lambda x: np.asarray(table(x)), x).T
    possible = np.isfinite(np.asarray(table(x)))
    assert possible.any()
    np.testing.assert_allclose(gradients[possible], expected[possible], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", EACH)
def test_in_single_precision(name):
    with jax.enable_x64(False):
        program = PROGRAMS[name]()
        x = np.asarray(random_x(program, 0), np.float32)
        value, gradient = make_target(plan_for(program)).value_and_gradient(x, any_z(program), program.data)
        assert gradient.dtype == np.float32
    brute, x = sum_of_states(PROGRAMS[name]()), x.astype(float)
    np.testing.assert_allclose(value, brute(x), rtol=1e-4)
    np.testing.assert_allclose(gradient, slopes(brute, x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("root", [jnp.sqrt, lambda a: a**0.5, lambda a: jnp.abs(a) ** 0.3])
def test_an_infinite_gradient_at_a_possible_value_is_seen(root):
    def steep(x, z, data):
        return root(x["a"] * z["z"]) + jnp.log(0.5)

    program = sumout.density(steep, x={"a": (constraints.real, ())}, z={"z": sumout.finite([1, 2])})
    value, gradient = make_target(plan_for(program)).value_and_gradient(np.zeros(1), any_z(program), program.data)
    assert np.isfinite(value)
    assert not np.isfinite(gradient).all()


@pytest.mark.parametrize("couple", [lambda j, s: j * (s[1:] * s[:-1]).sum(), lambda j, s: (j * s[1:] * s[:-1]).sum()])
def test_the_gradient_where_a_coefficient_is_zero(couple):
    def spins(x, z, data):
        return couple(x["j"], z["s"]) + 0.3 * z["s"][0] * z["s"][1] - x["j"] ** 2

    program = sumout.density(spins, x={"j": (constraints.real, ())}, z={"s": sumout.finite([-1, 1], shape=4)})
    brute, plan = sum_of_states(program), plan_for(program)
    gradient = jax.grad(plan.log_density)(np.zeros(1), any_z(program), program.data)
    np.testing.assert_allclose(gradient, slopes(brute, np.zeros(1)), atol=1e-8)
    assert abs(float(gradient[0])) > 0.2
    curvature = jax.hessian(plan.log_density)(np.zeros(1), any_z(program), program.data)
    along = (brute(np.array([1e-3])) - 2 * brute(np.zeros(1)) + brute(np.array([-1e-3]))) / 1e-6
    np.testing.assert_allclose(curvature, [[along]], rtol=1e-4)
