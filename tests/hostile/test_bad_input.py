"""Bad input: one clear error that names the site or the option, before any sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout
from sumout.errors import ModelError, OptionError, StartError

X = {"a": (constraints.real, ())}
Z = {"z": sumout.finite(2, 3)}


def fine(x, z, data):
    return -(x["a"] ** 2) * (1 + z["z"].sum())


def model(y, n=3, latent=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("n", n):
        z = numpyro.sample("z", latent or dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu + z, 1), obs=y)


def all_observed():
    numpyro.sample("mu", dist.Normal(0, 1), obs=0.5)


def multinomial():
    numpyro.sample("counts", dist.Multinomial(3, jnp.ones(2) / 2))


def branching():
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    if z:
        numpyro.sample("y", dist.Normal(0, 1), obs=1.0)


def duplicated():
    numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("z", dist.Bernoulli(0.5))


def subsampled(y):
    with numpyro.plate("n", 6, subsample_size=3):
        numpyro.sample("w", dist.Normal(0, 1))


def moving_lower_end():
    low = numpyro.sample("low", dist.Poisson(3.0))
    numpyro.sample("high", dist.DiscreteUniform(low, 20))


def grouped(y, group):
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]))
    with numpyro.plate("n", 3):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu[group] + z, 1), obs=y)


def weighted(weights, scale=1.0, keep=True):
    with numpyro.plate("n", 3):
        z = numpyro.sample("z", dist.Categorical(weights))
        with numpyro.handlers.mask(mask=keep):
            numpyro.sample("y", dist.Normal(z, scale), obs=jnp.zeros(3))


EVEN = np.array([0.5, 0.5])


def in_single_precision(model, y):
    with jax.enable_x64(False):
        return sumout.program(model, y)


def nested_scans():
    def outer(u, _):
        def inner(v, _):
            return numpyro.sample("v", dist.Bernoulli(0.3 + 0.2 * u + 0.2 * v)), None

        scan(inner, 0, None, length=3)
        return numpyro.sample("u", dist.Bernoulli(0.3 + 0.4 * u)), None

    scan(outer, 0, None, length=2)


def named_chain():
    numpyro.sample("chain", dist.Bernoulli(0.5))


def slashed():
    numpyro.sample("a/b", dist.Bernoulli(0.5))


MODELS = [
    (lambda: sumout.program(all_observed), "no latent site"),
    (lambda: sumout.program(multinomial), "counts.*Multinomial"),
    (lambda: sumout.program(branching), "value of a latent site in Python"),
    (lambda: sumout.program(duplicated), "z"),
    (lambda: sumout.program(subsampled, np.zeros(6)), "plate 'n'.*subsample"),
    (lambda: sumout.program(moving_lower_end), "lower end.*'high'"),
    (
        lambda: sumout.program(grouped, np.full(3, 0.5), np.array([0.0, 1.0, 1.0])),
        "Argument 'group' holds whole numbers",
    ),
    (lambda: sumout.read(sumout.program(nested_scans)), "the model stops.*'v'.*nested scan"),
    (lambda: sumout.program(named_chain), "site 'chain'"),
    (lambda: sumout.program(slashed), "site 'a/b'"),
    (lambda: sumout.program(model, np.zeros(4)), r"'y'.*\(4,\).*\(3,\)"),
    (lambda: sumout.program(model, np.zeros((3, 1))), r"'y'.*\(3, 1\).*\(3,\)"),
    (lambda: sumout.program(model, np.array(["a", "b", "c"])), "argument 'y'.*<U1"),
    (lambda: sumout.program(model, np.array([1, None, 2])), "argument 'y'.*object"),
    (lambda: sumout.program(model, np.ma.masked_array(np.zeros(3))), "argument 'y'.*masked"),
    (lambda: sumout.program(weighted, np.array([0.5, 0.2])), r"'z'.*probs = \[0.5 0.2\].*Categorical.*up to one"),
    (lambda: sumout.program(weighted, np.array([EVEN, [1.5, -0.5], EVEN])), r"'z'.*probs\[1\] = \[ 1.5 -0.5\]"),
    (lambda: sumout.program(weighted, EVEN, np.array([1.0, 0.0, 1.0])), r"'y'.*scale\[1\] = 0.0.*Normal.*above 0"),
    (lambda: sumout.program(weighted, EVEN, np.array([1.0, 1.0, np.nan])), r"'y'.*scale\[2\] = nan"),
    (lambda: in_single_precision(model, np.array([2**40, 1, 2])), "argument 'y'.*1099511627776.*int32"),
    (lambda: sumout.density(fine, x=X, z={"z": 3}), r"z\['z'\] = 3.*sumout.finite"),
    (lambda: sumout.density(fine, x={"a": "real"}, z=Z), r"x\['a'\].*constraint"),
    (lambda: sumout.density(fine, x={"a": (constraints.boolean, ())}, z=Z), r"x\['a'\].*discrete"),
    (lambda: sumout.density(fine, x={"z": X["a"]}, z=Z), "'z' is named both"),
    (lambda: sumout.density(fine, x={"b": X["a"]}, z=Z), "'a'.*variables are b"),
    (lambda: sumout.density(lambda x, z, d: z["z"] * x["a"], x=X, z=Z), r"scalar.*\(3,\)"),
    (lambda: sumout.density(lambda x, z, d: None, x=X, z=Z), "one number.*NoneType"),
    (lambda: sumout.density(lambda x, z, d: {"a": 1.0}, x=X, z=Z), "one number.*dict"),
    (lambda: sumout.density(lambda x, z, d: (z["z"] + jnp.zeros(4)).sum(), x=X, z=Z), r"z \(3,\)"),
    (lambda: sumout.density(lambda x, z, d: 1.0 if z["z"][0] else 0.0, x=X, z=Z), "in Python code"),
]
OPTIONS = [
    (lambda: sumout.program(model), "arguments do not fit.*'y'"),
    (lambda: sumout.program(model, np.zeros(3), m=3), "arguments do not fit.*'m'"),
    (lambda: sumout.program("model"), "expected a NumPyro model"),
    (lambda: sumout.density(fine, x=[], z=Z), "x must be a dict"),
    (lambda: sumout.density("fine", x=X, z=Z), "expected a function"),
    (lambda: sumout.finite(0), "at least 1"),
    (lambda: sumout.finite([1, 1]), "twice"),
    (lambda: sumout.finite(["a", "b"]), "numbers"),
    (lambda: sumout.finite(2, shape=2.5), "shape=2.5"),
    (lambda: sumout.count(lower=1.5), "lower=1.5"),
    (lambda: sumout.implicit(3), "function"),
    (lambda: sumout.implicit(lambda a, b, c: a), "3 arguments"),
    (lambda: sumout.read(model), "expected a Program"),
    (lambda: sumout.sample(model), "expected a Program"),
    (lambda: sumout.sample(program(), "hcm"), "kernel='hcm'.*'sghmc'"),
    (lambda: sumout.sample(program(), sumout.SGHMC), "call it"),
    (lambda: sumout.sample(program(), draws=0), "draws=0"),
    (lambda: sumout.sample(program(), draws=2.5), "draws=2.5"),
    (lambda: sumout.sample(program(), chains=True), "chains=True"),
    (lambda: sumout.sample(program(), tune=-1), "tune=-1"),
    (lambda: sumout.sample(program(), plan={"y": "gibbs"}), "no discrete site 'y'"),
    (lambda: sumout.sample(program(), plan={"z": "magic"}), "'z' cannot be done by 'magic'"),
    (lambda: sumout.sample(program(), plan="gibbs"), "plan='gibbs'.*dict"),
    (lambda: sumout.SGHMC(step_size=-1), "step_size=-1"),
    (lambda: sumout.SGHMC(friction=2), "friction=2"),
    (lambda: sumout.SGHMC(noise=-1), "noise=-1"),
    (lambda: sumout.SGHMC(num_samples=0), "num_samples=0"),
    (lambda: sumout.HMC(num_leapfrog=0), "num_leapfrog=0"),
    (lambda: sumout.HMC(jitter=1.0), "jitter=1.0"),
    (lambda: sumout.HMC(step_size=0.0), "HMC: step_size=0.0"),
    (lambda: sumout.NUTS(step_size=-1.0), "NUTS: step_size=-1.0"),
    (lambda: sumout.NUTS(target_acceptance=1), "NUTS: target_acceptance=1"),
    (lambda: sumout.NUTS(max_depth=0), "max_depth=0"),
    (lambda: sumout.NUTS(max_depth=2.5), "max_depth=2.5"),
    (lambda: sumout.gradient_estimator(program(), num_samples=0), "num_samples=0"),
    (lambda: sumout.summary(sumout.sample(program(), draws=5, tune=5), var_names=["b"]), "no variable 'b'"),
]


def program():
    return sumout.density(fine, x=X, z=Z)


@pytest.mark.parametrize(("act", "message"), MODELS, ids=[m for _, m in MODELS])
def test_models_that_cannot_work(act, message):
    with pytest.raises(ModelError, match=message):
        act()


@pytest.mark.parametrize(("act", "message"), OPTIONS, ids=[m for _, m in OPTIONS])
def test_options_that_make_no_sense(act, message):
    with pytest.raises(OptionError, match=message):
        act()


def test_a_misspelt_option_is_named():
    with pytest.raises(TypeError, match="num_draws"):
        sumout.sample(program(), num_draws=5)  # pyright: ignore[reportCallIssue]


def test_parameters_of_what_is_masked_may_be_any():
    sumout.program(weighted, EVEN, np.array([1.0, 0.0, np.nan]), np.array([True, False, False]))


def test_no_start_with_a_finite_density():
    def impossible(x, z, data):
        return jnp.log(-1.0 - x["a"] ** 2) + z["z"].sum()

    with pytest.raises(StartError, match=r"impossible.*a ="):
        sumout.sample(sumout.density(impossible, x=X, z=Z))


def test_missing_data_are_named():
    with pytest.raises(ModelError, match=r"'y'.*y\[1\] = nan is missing"):
        sumout.sample(sumout.program(model, np.array([0.0, np.nan, 1.0])))


def test_data_outside_the_support_are_found_before_sampling():
    def negative(y):
        rate = numpyro.sample("rate", dist.Gamma(1, 1))
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Poisson(rate * (1 + z)), obs=y)

    with pytest.raises(ModelError, match=r"'y'.*y\[1\] = -2 cannot come from Poisson, whose support is the whole"):
        sumout.sample(sumout.program(negative, np.array([1, -2])))


ARGUMENTS_USED_BY_VALUE = [
    (lambda y, m: model(y[m], 3), (np.zeros(6), np.array([True, False] * 3)), {"m"}),
    (lambda y, n: model(y, int(n)), (np.zeros(3), jnp.array(3)), {"n"}),
    (lambda y, g: model(y + np.log(g), 3), (np.zeros(3), np.ones(3)), {"g"}),
    (lambda y, g: model(y + int(g.max()), 3), (np.zeros(3), jnp.arange(3)), {"g"}),
    (lambda y, g: model(y[np.unique(g)], 2), (np.zeros(3), np.array([0, 1, 1])), {"g"}),
]


@pytest.mark.parametrize(("wrapped", "args", "fixed"), ARGUMENTS_USED_BY_VALUE)
def test_arguments_used_by_value_just_work(wrapped, args, fixed):
    made = sumout.program(wrapped, *args)
    assert set(made.fixed) == fixed
    assert set(made.data) == {"y"}
    sumout.read(made)


def test_observed_values_of_any_kind_are_taken():
    def latent_bound(y):
        size = numpyro.sample("size", dist.Poisson(5.0))
        numpyro.sample("k", dist.Binomial(size, 0.5), obs=3)
        numpyro.sample("u", dist.Uniform(0, size + 1.0), obs=[0.5, 0.2])
        numpyro.sample("y", dist.Normal(size, 1.0), obs=y)

    made = sumout.program(latent_bound, 2.0)
    density = jax.jit(made.log_density)
    assert density(jnp.zeros(0), {"size": jnp.array(2)}, made.data) == -jnp.inf
    assert np.isfinite(density(jnp.zeros(0), {"size": jnp.array(4)}, made.data))


def test_continuous_support_that_depends_on_a_latent():
    def nested(y):
        top = numpyro.sample("top", dist.Gamma(3, 1))
        inner = numpyro.sample("inner", dist.Uniform(0, top))
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(inner + z, 1.0), obs=y)

    result = sumout.sample(sumout.program(nested, np.array(1.0)), draws=20, tune=20, chains=1)
    assert (result.posterior["inner"] <= result.posterior["top"]).all()


def test_plates_that_cannot_name_a_dimension():
    def two_sizes(y):
        for g in range(2):
            with numpyro.plate("obs", len(y[g])):
                z = numpyro.sample(f"z_{g}", dist.Bernoulli(0.5))
                numpyro.sample(f"y_{g}", dist.Normal(z, 1.0), obs=y[g])
        with numpyro.plate("draw", 3):
            w = numpyro.sample("w", dist.Bernoulli(0.5))
            numpyro.sample("v", dist.Normal(w, 1.0), obs=np.zeros(3))

    result = sumout.sample(sumout.program(two_sizes, [np.zeros(5), np.zeros(3)]), draws=3, tune=3, chains=1)
    assert result.posterior["z_1"].shape == (1, 3, 3)
    assert result.posterior["w"].dims == ("chain", "draw", "w_dim_0")


def test_data_with_like_names_are_told_apart():
    def nested(d):
        numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("a", dist.Normal(0, 1), obs=d["a.b"])
        numpyro.sample("b", dist.Normal(0, 1), obs=d["a"]["b"])

    observed = sumout.program(nested, {"a.b": np.array(1.0), "a": {"b": np.array(2.0)}}).observed
    assert (float(observed["a"]), float(observed["b"])) == (1.0, 2.0)
