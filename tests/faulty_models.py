"""A generator of bad models: kinds of fault × base models. Each must end in one error or warning that names the site.

A kind is a function `(base) -> Program`; what its message must contain stands beside it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

import sumout

import models


@dataclass(frozen=True)
class Fault:
    """A bad model: how to make it, the words that its one message must contain, and the plan it is checked with."""

    kind: str
    base: str
    make: Callable[[], Any]
    words: str
    plan: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.base}"


@dataclass(frozen=True)
class Model:
    """A NumPyro model of one argument y, to be spoilt, and its data."""

    model: Callable[[Any], None]
    y: np.ndarray

    @property
    def name(self) -> str:
        return self.model.__name__


@dataclass(frozen=True)
class Density:
    """A plain density, to be spoilt, its variables and its data."""

    log_density: Callable[..., Any]
    x: dict
    z: dict
    y: Any

    @property
    def name(self) -> str:
        return self.log_density.__name__


def spike_and_slab(y):
    models.spike_and_slab(jnp.cos(jnp.arange(18.0)).reshape(6, 3), y)


REAL = constraints.real
MODELS = (
    Model(models.mixture, np.array([-1.0, 0.9, 1.1, -0.8])),
    Model(models.survey, np.array([1, 0, 1, 1, 0])),
    Model(models.scan_hmm, np.cos(np.arange(5)) + 1),
    Model(models.switch_point, np.array([5, 7, 5, 2, 1, 0])),
    Model(spike_and_slab, np.sin(np.arange(6))),
    Model(models.groups, np.array([0.1, 2.0, -1.4, 3.0])),
    Model(models.abundance, np.array([3, 5, 2])),
    Model(models.failures, np.array([0.2, 1.4, 0.7])),
)
DENSITIES = (
    Density(
        models.coins, {"theta": (constraints.unit_interval, ())}, {"coin": sumout.finite([False, True], 4)},
        np.array([1, 0, 1, 1]),
    ),
    Density(models.lattice, {"coupling": (REAL, ())}, {"s": sumout.finite(2, (2, 3))}, np.ones((2, 3)) / 2),
    Density(models.path, {"logits": (REAL, (2, 2))}, {"state": sumout.finite(2, 5)}, np.sin(np.arange(5.0))),
    Density(
        models.levels, {"mu": (REAL, ()), "sigma": (constraints.positive, ())},
        {"level": sumout.finite([-1.5, 0.0, 2.5], 4)}, np.array([-1.0, 0.4, 2.2, 3.1]),
    ),
)  # fmt: skip
IMPROPER = dist.ImproperUniform(REAL, (), ())
IMPROPER_POSITIVE = dist.ImproperUniform(constraints.positive, (), ())


# Lines that spoil a NumPyro model when they are added to it.


def negative_scale():
    scale = numpyro.sample("scale", dist.Normal(0, 1))
    numpyro.sample("bad", dist.Normal(0, scale), obs=1.0)


def logarithm_of_a_real():
    real = numpyro.sample("real", dist.Normal(0, 1))
    numpyro.factor("bad", jnp.log(real))


def root_behind_where():
    bad = numpyro.sample("bad", dist.Normal(0, 1))
    numpyro.factor("term", jnp.where(bad > 0, -jnp.sqrt(bad), 0.0))


def nan_factor():
    numpyro.factor("bad", jnp.nan)


def impossible_factor():
    numpyro.factor("bad", -jnp.inf)


def infinite_factor():
    numpyro.factor("bad", jnp.inf)


def broken_covariance():
    numpyro.sample("bad", dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 2.0], [2.0, 1.0]])), obs=jnp.ones(2))


def without_influence():
    numpyro.sample("bad", dist.Bernoulli(0.5))


def without_influence_in_a_plate():
    with numpyro.plate("idle", 3):
        numpyro.sample("bad", dist.Categorical(jnp.ones(3) / 3))


def flat():
    numpyro.sample("bad", IMPROPER)


def flat_vector():
    numpyro.sample("bad", dist.ImproperUniform(REAL, (3,), ()))


def rising():
    numpyro.sample("bad", IMPROPER_POSITIVE)


def improper_location():
    bad = numpyro.sample("bad", IMPROPER)
    numpyro.sample("w", dist.Bernoulli(logits=bad), obs=jnp.ones(3, int))


def improper_scale():
    bad = numpyro.sample("bad", IMPROPER_POSITIVE)
    numpyro.sample("w", dist.Normal(0, 1 + 1 / bad), obs=jnp.ones(3))


def in_steps():
    bad = numpyro.sample("bad", IMPROPER)
    numpyro.factor("term", -(jnp.floor(bad) ** 2))


def as_an_integer():
    bad = numpyro.sample("bad", IMPROPER)
    numpyro.sample("w", dist.Normal(bad.astype(int), 1.0), obs=1.0)


def moving_edge():
    bad = numpyro.sample("bad", dist.HalfNormal(2))
    numpyro.sample("w", dist.Uniform(0, bad), obs=jnp.array([0.8, 0.7]))


def moving_lower_edge():
    bad = numpyro.sample("bad", dist.Normal(0, 1))
    numpyro.sample("w", dist.Uniform(bad, 5), obs=jnp.array([0.1, 0.7]))


def hard_edge():
    bad = numpyro.sample("bad", dist.Normal(0, 1))
    numpyro.factor("term", jnp.where(bad > 0.3, 0.0, -jnp.inf))


def tiny_scale():
    numpyro.sample("bad", dist.Normal(0, 1e-9))


def huge_scale():
    numpyro.sample("bad", dist.Normal(0, 1e9))


def named_draw():
    numpyro.sample("draw", dist.Normal(0, 1))


def slashed():
    numpyro.sample("bad/worse", dist.Normal(0, 1))


def subsampled():
    with numpyro.plate("bad", 6, subsample_size=3):
        numpyro.sample("w", dist.Normal(0, 1))


def twice():
    numpyro.sample("bad", dist.Normal(0, 1))
    numpyro.sample("bad", dist.Normal(0, 1))


def plate_named_like_a_site():
    numpyro.sample("bad", dist.Normal(0, 1))
    with numpyro.plate("bad", 3):
        numpyro.sample("w", dist.Normal(0, 1))


def branching():
    bad = numpyro.sample("bad", dist.Bernoulli(0.5))
    if bad:
        numpyro.sample("w", dist.Normal(0, 1), obs=1.0)


def whole_number_asked_for():
    bad = numpyro.sample("bad", dist.Bernoulli(0.5))
    numpyro.sample("w", dist.Normal(int(bad), 1), obs=1.0)


def vector_of_counts():
    numpyro.sample("bad", dist.Multinomial(3, jnp.ones(2) / 2))


def moving_lower_end():
    low = numpyro.sample("low", dist.Poisson(3.0))
    numpyro.sample("bad", dist.DiscreteUniform(low, 20))


def negative_constant_scale():
    numpyro.sample("bad", dist.Normal(0.0, -1.0))


def probability_above_one():
    numpyro.sample("bad", dist.Bernoulli(1.5))


def probabilities_twice():
    numpyro.sample("bad", dist.Bernoulli(probs=0.5, logits=0.0))


def unknown_parameter():
    numpyro.sample("bad", dist.Normal(mean=0.0, sd=1.0))


def plate_of_another_size():
    with numpyro.plate("rows", 3):
        numpyro.sample("bad", dist.Normal(jnp.zeros(4), 1.0))


def empty_plate():
    with numpyro.plate("bad", 0):
        numpyro.sample("w", dist.Normal(0, 1))


def empty_site():
    numpyro.sample("bad", dist.Bernoulli(0.5).expand([0]))


def index_that_is_no_integer():
    bad = numpyro.sample("bad", dist.Normal(0, 1))
    numpyro.sample("w", dist.Normal(jnp.arange(3)[bad], 1.0), obs=1.0)


def index_beyond_the_end():
    means = numpyro.sample("means", dist.Normal(0, 1).expand([2]))
    bad = numpyro.sample("bad", dist.Categorical(jnp.ones(3) / 3))
    numpyro.sample("w", dist.Normal(means[bad], 1.0), obs=1.0)


def stretched_column():
    numpyro.sample("bad", dist.Normal(jnp.zeros((4, 1)), 1.0), obs=jnp.arange(4.0))


def stretched_row():
    numpyro.sample("bad", dist.Normal(jnp.zeros(4), 1.0), obs=jnp.zeros((4, 1)))


def wrong_event():
    numpyro.sample("bad", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), obs=jnp.zeros(3))


def forced_equal():
    bad = numpyro.sample("bad", dist.Bernoulli(0.4))
    other = numpyro.sample("other", dist.Bernoulli(0.5))
    numpyro.factor("equal", jnp.where(bad == other, 0.0, -jnp.inf))


def forced_sum():
    with numpyro.plate("committee", 6):
        bad = numpyro.sample("bad", dist.Bernoulli(0.4))
    numpyro.factor("seats", jnp.where(bad.sum() == 3, 0.0, -jnp.inf))


LINES = {
    negative_scale: "'bad'",
    logarithm_of_a_real: "'bad'",
    root_behind_where: "'bad'",
    nan_factor: "'bad'",
    impossible_factor: "'bad'",
    infinite_factor: "'bad'",
    broken_covariance: "'bad'",
    without_influence: "'bad'",
    without_influence_in_a_plate: "'bad'",
    flat: "'bad'",
    flat_vector: "'bad'",
    rising: "'bad'",
    improper_location: "'bad'",
    improper_scale: "'bad'",
    in_steps: "'bad'",
    as_an_integer: "'bad'",
    moving_edge: "'bad'",
    moving_lower_edge: "'bad'",
    hard_edge: "'bad'",
    tiny_scale: "'bad'",
    huge_scale: "'bad'",
    named_draw: "'draw'",
    slashed: "'bad/worse'",
    subsampled: "'bad'",
    twice: "'bad'",
    plate_named_like_a_site: "'bad'",
    branching: "`if bad:`",
    whole_number_asked_for: "int(bad)",
    vector_of_counts: "'bad'",
    moving_lower_end: "'bad'",
    negative_constant_scale: '"bad"',
    probability_above_one: '"bad"',
    probabilities_twice: '"bad"',
    unknown_parameter: '"bad"',
    plate_of_another_size: "'bad'",
    empty_plate: "'bad'",
    empty_site: "'bad'",
    index_that_is_no_integer: "[bad]",
    index_beyond_the_end: "'bad'",
    stretched_column: "'bad'",
    stretched_row: "'bad'",
    wrong_event: "'bad'",
    forced_equal: "'bad'",
    forced_sum: "'bad'",
}
PLANS = {forced_equal: {"bad": "gibbs", "other": "gibbs"}, forced_sum: {"bad": "gibbs"}}

# Data that a distribution cannot have produced.
IMPOSSIBLE_DATA = {
    "missing": (dist.Normal(0, 1), [0.0, np.nan]),
    "infinite": (dist.Normal(0, 1), [np.inf, 0.0]),
    "negative_count": (dist.Poisson(2.0), [1, -2]),
    "broken_count": (dist.Poisson(2.0), [0.5, 1.0]),
    "broken_binomial": (dist.Binomial(3, 0.5), [1.5, 2.0]),
    "too_large_binomial": (dist.Binomial(3, 0.5), [1, 4]),
    "unknown_category": (dist.Categorical(jnp.ones(3) / 3), [0, 3]),
    "no_boolean": (dist.Bernoulli(0.5), [0, 2]),
    "no_probability": (dist.Beta(2, 2), [0.5, 1.5]),
    "not_positive": (dist.Gamma(2, 2), [1.0, -0.5]),
    "not_in_interval": (dist.Uniform(0, 1), [0.5, 1.01]),
    "no_simplex": (dist.Dirichlet(jnp.ones(2)), [[0.5, 0.6]]),
}

# What can be wrong with the argument y of a base model itself.
BAD_ARGUMENTS = {
    "strings": (lambda y: y.astype(str), "'y'"),
    "objects": (lambda y: np.array([None, *y.ravel()[1:].tolist()], object), "'y'"),
    "masked": (lambda y: np.ma.masked_array(y), "'y'"),
    "another_axis": (lambda y: y[..., None], "'y'"),
    "complex": (lambda y: y + 1j, "'y'"),
}


def of_models() -> Iterator[Fault]:
    """Faults of NumPyro models."""
    for base in MODELS:
        for line, words in LINES.items():
            yield Fault(line.__name__, base.name, _with_line(base, line), words, PLANS.get(line, {}))
        for kind, (law, data) in IMPOSSIBLE_DATA.items():
            yield Fault(kind, base.name, _with_data(base, law, data), "'bad'")
        for kind, (spoil, words) in BAD_ARGUMENTS.items():
            yield Fault(kind, base.name, _with_argument(base, spoil), words)


def _with_line(base: Model, line: Callable[[], None]) -> Callable[[], Any]:
    def spoilt(y):
        base.model(y)
        line()

    return lambda: sumout.program(spoilt, base.y)


def _with_data(base: Model, law: Any, data: Any) -> Callable[[], Any]:
    def spoilt(y, bad):
        base.model(y)
        numpyro.sample("bad", law, obs=bad)

    return lambda: sumout.program(spoilt, base.y, np.array(data))


def _with_argument(base: Model, spoil: Callable[[np.ndarray], Any]) -> Callable[[], Any]:
    return lambda: sumout.program(base.model, spoil(base.y))


# Terms that spoil a plain density when they are added to it, with the variables they need.
X_BAD = {"bad": (REAL, ())}
TERMS: dict[str, tuple[Callable[..., Any], dict, dict, str]] = {
    "nan_term": (lambda x, z: jnp.log(-1 - x["bad"] ** 2) - x["bad"] ** 2, X_BAD, {}, "bad"),
    "nan_half": (lambda x, z: jnp.log(x["bad"]) - x["bad"] ** 2, X_BAD, {}, "no discrete variable"),
    "nan_of_z": (lambda x, z: jnp.sqrt(z["bad"] - 5.0), {}, {"bad": sumout.finite(3)}, "'bad'"),
    "impossible_z": (
        lambda x, z: jnp.where(z["bad"] < 5, -jnp.inf, 0.0), {}, {"bad": sumout.finite(3)}, "'bad'"
    ),
    "unused_x": (lambda x, z: 0.0, X_BAD, {}, "'bad'"),
    "unused_positive": (lambda x, z: 0.0, {"bad": (constraints.positive, ())}, {}, "'bad'"),
    "unused_z": (lambda x, z: 0.0, {}, {"bad": sumout.finite(2)}, "'bad'"),
    "hard_edge": (lambda x, z: jnp.where(x["bad"] > 0.3, -x["bad"] ** 2, -jnp.inf), X_BAD, {}, "'bad'"),
    "in_steps": (lambda x, z: -(jnp.round(x["bad"]) ** 2), X_BAD, {}, "'bad'"),
    "never_falls": (lambda x, z: -jnp.log1p(jnp.exp(-x["bad"])), X_BAD, {}, "'bad'"),
    "falls_too_slowly": (lambda x, z: -0.5 * jnp.log1p(jnp.abs(x["bad"])), X_BAD, {}, "'bad'"),
    "root_behind_where": (
        lambda x, z: jnp.where(x["bad"] > 0, jnp.sqrt(x["bad"]), 0.0) - x["bad"] ** 2, X_BAD, {}, "'bad'"
    ),
    "tiny_scale": (lambda x, z: -0.5 * (x["bad"] / 1e-9) ** 2, X_BAD, {}, "'bad'"),
    "asks_for_a_value": (lambda x, z: 1.0 if z["bad"] else 0.0, {}, {"bad": sumout.finite(2)}, "z"),
    "float_index": (lambda x, z: jnp.arange(3.0)[z["bad"]], {}, {"bad": sumout.finite([0.0, 1.0])}, "bad ()"),
    "beyond_the_end": (lambda x, z: jnp.array([0.3, 0.7])[z["bad"]].sum(), {}, {"bad": sumout.finite(3, 2)}, "'bad'"),
    "wrong_name": (lambda x, z: x["bad"], {}, {}, "'bad'"),
    "wrong_shape": (lambda x, z: (z["bad"] + jnp.zeros(4)).sum(), {}, {"bad": sumout.finite(2, 3)}, "bad (3,)"),
    "not_summed": (lambda x, z: -(x["bad"] ** 2), {"bad": (REAL, (3,))}, {}, "(3,)"),
    "no_number": (lambda x, z: 1j, {}, {}, "complex"),
    "no_support": (lambda x, z: 0.0, {}, {"bad": 3}, "'bad'"),
    "no_constraint": (lambda x, z: 0.0, {"bad": "real"}, {}, "'bad'"),
    "discrete_x": (lambda x, z: 0.0, {"bad": (constraints.boolean, ())}, {}, "'bad'"),
    "empty_z": (lambda x, z: 0.0, {}, {"bad": sumout.finite(2, 0)}, "'bad'"),
    "clash": (lambda x, z: 0.0, X_BAD, {"bad": sumout.finite(2)}, "'bad'"),
    "forced_equal": (
        lambda x, z: jnp.where(z["bad"] == z["other"], 0.0, -jnp.inf),
        {}, {"bad": sumout.finite(3), "other": sumout.finite(3)}, "'bad'",
    ),
    "open_count": (lambda x, z: -0.5 * (jnp.minimum(z["bad"], 4) - 2.0) ** 2, {}, {"bad": sumout.count()}, "'bad'"),
    "tied_counts": (
        lambda x, z: jnp.where(z["bad"] + z["other"] == 7, -jnp.log1p(1.0 * z["bad"]), -jnp.inf),
        {}, {"bad": sumout.count(), "other": sumout.count()}, "'bad'",
    ),
    "stretched": (
        lambda x, z: -0.5 * ((z["bad"][:, None] * 1.0 - jnp.arange(7.0)) ** 2).sum(), {},
        {"bad": sumout.finite(2, 7)}, "'bad'",
    ),
}  # fmt: skip


def of_densities() -> Iterator[Fault]:
    """Faults of plain densities."""
    for base in DENSITIES:
        for kind, (term, x, z, words) in TERMS.items():
            plan = dict.fromkeys(z, "gibbs") if kind == "forced_equal" else {}
            yield Fault(kind, base.name, _with_term(base, term, x, z), words, plan)


def _with_term(base: Density, term: Callable[..., Any], x: dict, z: dict) -> Callable[[], Any]:
    def spoilt(x, z, data):
        return base.log_density(x, z, data["y"]) + term(x, z)

    data = {"y": base.y, "rows": np.arange(7.0)}
    return lambda: sumout.density(spoilt, x={**base.x, **x}, z={**base.z, **z}, data=data)


FAULTS = [*of_models(), *of_densities()]
