"""Each check finds its fault, and is silent about a good model that looks almost the same."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.checks.discrete_sites import check_barriers, check_broadcasting, check_influence
from sumout.checks.examination import Examination
from sumout.checks.not_finite import check_edges, check_nan, check_start
from sumout.checks.tails import check_flat, check_scales, check_tails
from sumout.checks.unbounded_counts import check_counts
from sumout.errors import ModelError, StartError
from sumout.plan.plan import plan_for

A = {"a": (constraints.real, ())}
TWO = {"a": (constraints.real, ()), "b": (constraints.real, ())}
COIN = {"z": sumout.finite(2)}


def found(check, log_density, x=A, z=COIN, data=None, plan=None):
    """What one check says of a plain density."""
    program = sumout.density(log_density, x=x, z=z, data=data)
    return list(check(Examination(plan_for(program, plan)).look()))


def normal(x):
    return -0.5 * x**2


def pairs(bad, good):
    """A log density with a fault and a good one that is close to it."""
    return pytest.mark.parametrize(("log_density", "is_bad"), [(bad, True), (good, False)], ids=["bad", "good"])


@pairs(
    lambda x, z, d: normal(x["a"]) + jnp.log(-1.0 - x["a"] ** 2) + z["z"],
    lambda x, z, d: normal(x["a"]) + jnp.log(1.0 + x["a"] ** 2) + z["z"],
)
def test_no_start(log_density, is_bad):
    findings = found(check_start, log_density)
    assert [finding.error for finding in findings] == [StartError] * is_bad


@pairs(
    lambda x, z, d: normal(x["a"]) + jnp.where(z["z"] == 1, jnp.sqrt(x["a"]), 0.0),
    lambda x, z, d: normal(x["a"]) + jnp.where(z["z"] == 1, jnp.sqrt(jnp.abs(x["a"]) + 1), 0.0),
)
def test_nan_for_one_value_of_z(log_density, is_bad):
    messages = [finding.message for finding in found(check_nan, log_density)]
    assert bool(messages) == is_bad
    assert all("'z'" in message or "'a'" in message for message in messages)


@pairs(
    lambda x, z, d: normal(x["a"]) + z["z"] * x["a"] + jnp.where(x["a"] > 0.3, 0.0, -jnp.inf),
    lambda x, z, d: normal(x["a"]) + z["z"] * x["a"] - jnp.exp(-100 * x["a"]),  # falls steeply, but by itself
)
def test_edges(log_density, is_bad):
    messages = [finding.message for finding in found(check_edges, log_density)]
    assert len(messages) == is_bad
    assert all("as 'a' changes" in message for message in messages)


@pairs(
    lambda x, z, d: normal(x["a"] - z["z"]) + jnp.sign(x["b"]),
    lambda x, z, d: normal(x["a"] - z["z"]) + normal(x["b"] / 1e5),
)
def test_steps(log_density, is_bad):
    messages = [finding.message for finding in found(check_flat, log_density, TWO)]
    assert len(messages) == is_bad
    assert all("'b' is zero" in message for message in messages)


def test_a_variable_that_is_not_used():
    (finding,) = found(check_flat, lambda x, z, d: normal(x["a"] - z["z"]), TWO)
    assert finding.error is ModelError
    assert "does not depend on 'b'" in finding.message
    unused = {**A, "b": (constraints.unit_interval, (2,))}  # uniform, and so proper
    assert found(check_flat, lambda x, z, d: normal(x["a"] - z["z"]), unused) == []


TAILS = {
    "flat from somewhere on": (lambda b: -jnp.logaddexp(0.0, -b), True),
    "one over x": (lambda b: -jnp.log1p(jnp.abs(b)), True),
    "Cauchy": (lambda b: -jnp.log1p(b**2), False),
    "almost one over x": (lambda b: -1.1 * jnp.log1p(jnp.abs(b)), False),
    "wide": (lambda b: normal(b / 1e6), False),
    "exponential of x": (lambda b: b - jnp.exp(b), False),
    "rising": (lambda b: 2.0 * b - jnp.log1p(jnp.exp(b)), True),
}


@pytest.mark.parametrize("name", TAILS)
def test_tails(name):
    tail, is_bad = TAILS[name]
    messages = [f.message for f in found(check_tails, lambda x, z, d: normal(x["a"] - z["z"]) + tail(x["b"]), TWO)]
    assert len(messages) == is_bad
    assert all("along 'b'" in message for message in messages)


def test_tails_of_transformed_variables():
    x = {**A, "s": (constraints.positive, ()), "p": (constraints.unit_interval, ())}

    def with_prior(power):
        return lambda x, z, d: normal(x["a"] - z["z"]) + power * jnp.log(x["s"]) - x["s"] + 0.0 * x["p"]

    assert found(check_tails, with_prior(0.0), x) == []
    (finding,) = found(check_tails, with_prior(-1.0), x)  # 1/s, which has no integral near 0
    assert "'s'" in finding.message
    assert "−∞" in finding.message


@pytest.mark.parametrize(("scale", "is_bad"), [(1e-8, True), (1e8, True), (1e-3, False), (1e3, False)])
def test_scales(scale, is_bad):
    findings = found(check_scales, lambda x, z, d: normal(x["a"] - z["z"]) + normal(x["b"] / scale), TWO)
    assert len(findings) == is_bad


def test_slopes_without_curvature_have_a_scale():
    assert found(check_scales, lambda x, z, d: normal((x["a"] - z["z"]) / 0.1) - jnp.abs(x["b"]), TWO) == []


def test_sites_without_influence():
    z = {"z": sumout.finite(2), "idle": sumout.finite(3, 2)}
    (finding,) = found(check_influence, lambda x, z, d: normal(x["a"] - z["z"]), z=z)
    assert "'idle'" in finding.message
    assert found(check_influence, lambda x, z, d: normal(x["a"] - z["z"] - z["idle"].sum()), z=z) == []


def test_what_is_predicted_is_not_idle():
    def predicting(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1))
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Poisson(rate * (1 + kind)), obs=y)
        numpyro.sample("next", dist.Poisson(rate))
        shown = numpyro.sample("shown", dist.Bernoulli(0.5))
        numpyro.deterministic("twice", 2 * shown)
        numpyro.sample("forgotten", dist.Bernoulli(0.5))

    program = sumout.program(predicting, np.array([1, 2]))
    messages = [finding.message for finding in check_influence(Examination(plan_for(program)).look())]
    assert len(messages) == 1
    assert "'forgotten'" in messages[0]


def test_shapes_that_stretch():
    y, z = np.arange(6.0), {"z": sumout.finite(2, 6)}

    def column(x, z, y):
        return normal(x["a"]) + normal(y - (x["a"] * z["z"])[:, None]).sum()

    def row(x, z, y):
        return normal(x["a"]) + normal(y - x["a"] * z["z"]).sum()

    (finding,) = found(check_broadcasting, lambda x, z, d: column(x, z, d["y"]), z=z, data={"y": y})
    assert "'z' meet 6 elements of 'y'" in finding.message
    assert found(check_broadcasting, lambda x, z, d: row(x, z, d["y"]), z=z, data={"y": y}) == []
    square = {"y": y, "weights": np.ones((6, 6))}  # every site with every datum, and meant so
    assert found(check_broadcasting, lambda x, z, d: column(x, z, d["y"]) + d["weights"].sum(), z=z, data=square) == []


EQUAL = {"z": sumout.finite(2), "w": sumout.finite(2)}


@pytest.mark.parametrize(
    ("penalty", "plan", "is_bad"), [(jnp.inf, "gibbs", True), (900.0, "gibbs", False), (jnp.inf, "joint", False)]
)
def test_barriers(penalty, plan, is_bad):
    def tied(x, z, d):
        return normal(x["a"] - z["z"]) - jnp.where(z["z"] == z["w"], 0.0, penalty)

    findings = found(check_barriers, tied, z=EQUAL, plan=dict.fromkeys(EQUAL, plan))
    assert len(findings) == is_bad
    if is_bad:
        assert "'z', 'w'" in findings[0].message
        assert "plan={'z': 'sum', 'w': 'sum'}" in findings[0].message


def test_barriers_between_groups_of_values():
    """0 and 1 go together, and 2 and 3; no site is frozen, yet half of the values are out of reach."""
    z = {"z": sumout.finite(4, 6)}

    def grouped(is_open):
        def log_density(x, z, d):
            group = z["z"] // 2
            is_allowed = (group[1:] == group[:-1]) | is_open
            return normal(x["a"] - z["z"].sum()) + jnp.where(is_allowed, 0.0, -jnp.inf).sum()

        return log_density

    assert len(found(check_barriers, grouped(False), z=z, plan={"z": "gibbs"})) == 1
    assert found(check_barriers, grouped(True), z=z, plan={"z": "gibbs"}) == []


def test_impossible_states_that_can_be_walked_around():
    """What has died stays dead: many states are impossible, but from each of the others one gets anywhere."""
    z = {"alive": sumout.finite(2, 5)}

    def dying(x, z, d):
        alive = z["alive"]
        rises = (alive[1:] > alive[:-1]).any()
        return normal(x["a"]) + 0.3 * x["a"] * alive.sum() + jnp.where(rises, -jnp.inf, 0.0)

    assert found(check_barriers, dying, z=z, plan={"alive": "gibbs"}) == []


def poisson(n, rate=3.0):
    return n * jnp.log(rate) - jax.lax.lgamma(n + 1.0)


@pytest.mark.parametrize(
    "law, is_bad",
    [
        (lambda n: -0.5 * (jnp.minimum(n, 5) - 2.0) ** 2, True),
        (lambda n: -0.9 * jnp.log1p(n), True),
        (lambda n: -1.5 * jnp.log1p(n), False),
        (lambda n: -1e-5 * n, False),
        (lambda n: jnp.where(n <= 12_000, 0.0, -jnp.inf), False),
        (poisson, False),
    ],
    ids=["flat beyond", "slow", "falls", "slowly, but by a factor", "ends", "poisson"],
)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_counts_without_a_law(law, is_bad, shape):
    def density(x, z, data):
        n = jnp.asarray(z["n"], float)
        last = n if not shape else n[-1]
        return normal(x["a"]) + law(last) + (poisson(n[:-1]).sum() if shape else 0.0)

    told = [f.message for f in found(check_counts, density, z={"n": sumout.count(shape)})]
    assert len(told) == is_bad
    assert all(f"count 'n'{' (element 2)' if shape else ''} grows" in message for message in told)


@pytest.mark.parametrize("where", ["statement", "handler"])
def test_a_count_whose_law_is_masked_away_is_refused(where):
    def model():
        law = dist.Poisson(numpyro.sample("rate", dist.Gamma(2, 1)))
        with numpyro.handlers.mask(mask=where == "statement"):
            n = numpyro.sample("n", law.mask(False) if where == "statement" else law)
        numpyro.sample("y", dist.Normal(jnp.minimum(n, 5), 1.0), obs=2.0)

    assert "does not fall as count 'n' grows" in sumout.check(sumout.program(model)).errors[0]


def test_counts_in_colours_of_different_size():
    """What fills up the smaller colours of a stack has no law, and is no count."""

    def density(x, z, data):
        n = z["n"] * 1.0
        pairs = [(i, j) for i in range(6) for j in range(i)] + [(6, 3), (7, 2)]
        return normal(x["a"]) - 0.5 * n.sum() - 0.01 * sum(jnp.abs(n[i] - n[j]) for i, j in pairs)

    assert found(check_counts, density, z={"n": sumout.count(8)}) == []


@pytest.mark.parametrize(
    "is_possible, is_bad",
    [
        (lambda n, m: n + m == 7, True),
        (lambda n, m: 2 * n + m == 8, True),
        (lambda n, m: n == m, True),
        (lambda n, m: n + m <= 7, False),
        (lambda n, m: (n + m) % 2 == 0, False),
        (lambda n, m: (n == 3) & (m >= 0), False),
    ],
    ids=["sum", "weighted", "equal", "below", "even", "known"],
)
def test_counts_that_are_tied(is_possible, is_bad):
    def density(x, z, data):
        hard = jnp.where(is_possible(z["n"], z["m"]), 0.0, -jnp.inf)
        return normal(x["a"]) + poisson(z["n"] * 1.0) + poisson(z["m"] * 1.0) + hard

    told = [f.message for f in found(check_counts, density, z={"n": sumout.count(), "m": sumout.count()})]
    assert len(told) == is_bad
    assert all("'n', 'm' cannot move one at a time" in message for message in told)


def test_an_observed_sum_ties_its_parts():
    def model():
        n = numpyro.sample("n", dist.Poisson(numpyro.sample("rate", dist.Gamma(2, 1))).expand([3]))
        numpyro.sample("total", dist.Delta(n.sum()), obs=7)

    program = sumout.program(model)
    assert program.log_density(jnp.zeros(1), {"n": jnp.array([1, 2, 3])}, program.data) == -np.inf
    assert any("'n'" in told and "one at a time" in told for told in sumout.check(program).warnings)


def test_a_site_of_no_elements():
    with pytest.raises(ModelError, match=r"'z' has the shape \(0,\)"):
        sumout.density(lambda x, z, d: normal(x["a"]), x=A, z={"z": sumout.finite(2, 0)})


def test_starts_that_only_the_moves_can_find():
    """No guess of z is possible, but sweeps get there: no error."""
    z = {"z": sumout.finite(2, 40)}

    def rare(x, z, d):
        return normal(x["a"] - z["z"].sum()) + jnp.where(z["z"] == 1, 0.0, -jnp.inf).sum()

    program = sumout.density(rare, x=A, z=z)
    exam = Examination(plan_for(program)).look()
    assert (exam.tried == -np.inf).all()
    assert exam.is_sound.any()
    assert sumout.check(program)


def test_a_checkup_is_kept_and_prints():
    program = sumout.density(lambda x, z, d: normal(x["a"] - z["z"]), x=TWO, z=COIN)
    first = sumout.check(program)
    assert first is sumout.check(program)
    assert not first
    assert "error: the log density does not depend on 'b'" in str(first)
    with pytest.raises(ModelError):
        first.raise_or_warn()


def test_single_precision():
    with jax.enable_x64(False):
        program = sumout.density(lambda x, z, d: normal(x["a"] - z["z"]) - jnp.log1p(x["b"] ** 2), x=TWO, z=COIN)
        assert sumout.check(program)
