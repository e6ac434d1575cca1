"""Counts of which only the sum matters: survivors and recruits, each latent."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import sumout
from sumout.model.initial_values import any_z
from sumout.plan.plan import plan_for
from sumout.randomness import new_key, split

RATE, KEPT, GAIN, SEEN = 3.0, 0.6, 1.5, 0.5
Y = np.repeat([[2, 1, 3], [0, 2, 1], [3, 3, 2]], 3, axis=0)  # so many that one table serves them all
MOST = 45  # individuals that are summed by hand


def populations(y):
    """Individuals survive, recruits come in, and each is seen or not (Dail and Madsen 2011)."""
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
    with numpyro.plate("sites", len(y)):
        n = numpyro.sample("n", dist.Poisson(RATE * scale))
        numpyro.sample("y_0", dist.Binomial(n, SEEN), obs=y[:, 0])
        for t in range(1, y.shape[1]):
            kept = numpyro.sample(f"kept_{t}", dist.Binomial(n, KEPT))
            new = numpyro.sample(f"new_{t}", dist.Poisson(GAIN * scale))
            n = new + kept
            numpyro.sample(f"y_{t}", dist.Binomial(n, SEEN), obs=y[:, t])


def by_hand(log_scale: float) -> tuple[float, np.ndarray]:
    """Log p(x, y), and the means of the new ones in the first and second year."""
    scale, n = np.exp(log_scale), np.arange(MOST)
    kept = stats.binom.pmf(n[None], n[:, None], KEPT)  # n before, kept
    new = stats.poisson.pmf(n[None] - n[:, None], GAIN * scale)  # kept, n after
    seen = [stats.binom.pmf(Y[:, [t]], n, SEEN) for t in range(Y.shape[1])]
    first = stats.poisson.pmf(n, RATE * scale) * seen[0]
    last = np.ones_like(first) * seen[2]
    second = first @ kept @ new * seen[1]
    totals = (second @ kept @ new * last).sum(axis=1)
    after = (last @ new.T) @ kept.T * seen[1]
    early = np.einsum("sk,kn,sn->s", first @ kept, new * (n[None] - n[:, None]), after)
    late = np.einsum("sk,kn,sn->s", second @ kept, new * (n[None] - n[:, None]), last)
    prior = stats.norm.logpdf(log_scale, 0, 0.3)
    return prior + np.log(totals).sum(), np.stack([early, late]) / totals


@pytest.fixture(scope="module")
def program():
    """Nine populations in three years."""
    return sumout.program(populations, Y)


def test_sums_are_sites_and_all_is_summed_out(program):
    plan = plan_for(program)
    assert plan.sums_all
    assert set(plan.structure.program.z) == {"n", "kept_1", "kept_1 + new_1", "kept_2", "kept_2 + new_2"}
    assert max(np.diff(plan.structure.scopes.indptr)) == 2


def test_density_and_gradient_are_those_by_hand(program):
    plan = plan_for(program)
    z = any_z(plan.structure.program)
    value = jax.jit(jax.value_and_grad(lambda x: plan.log_density(x, z, program.data)))
    for x in (-0.4, 0.1, 0.5):
        found, slope = value(jnp.array([x]))
        assert found == pytest.approx(by_hand(x)[0], abs=1e-8)
        assert slope[0] == pytest.approx((by_hand(x + 1e-5)[0] - by_hand(x - 1e-5)[0]) / 2e-5, abs=1e-5)


def test_draws_are_of_the_users_counts_and_right(program):
    plan, x = plan_for(program), 0.2
    inner = plan.structure.program
    z, data = any_z(inner), inner.data
    keys = split(new_key(0), 2000)
    draws = jax.jit(lambda keys: jax.lax.map(lambda key: plan.recover(key, jnp.array([x]), z, data), keys))(keys)
    user = inner.packs.unpack({name: np.asarray(value) for name, value in draws.items()})
    assert all((user[name] >= 0).all() for name in program.z)
    assert (user["kept_1"] <= user["n"]).all()
    means = by_hand(x)[1]
    for t in (1, 2):  # within 5 standard errors: fails by chance once in 10⁵ runs
        error = user[f"new_{t}"].std(axis=0) / np.sqrt(len(keys))
        assert (np.abs(user[f"new_{t}"].mean(axis=0) - means[t - 1]) < 5 * error).all()
    back = inner.packs.pack(user, lambda rows: np.stack(rows, axis=1))
    assert all((back[name] == np.asarray(draws[name])).all() for name in inner.z)
    best = jax.jit(plan.most_probable)(jnp.array([x]), z, data)
    assert set(best) == set(program.z)


def test_counts_that_matter_by_themselves_stay():
    def visible(y, count):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("sites", len(y)):
            a = numpyro.sample("a", dist.Poisson(rate))
            b = numpyro.sample("b", dist.Poisson(2.0))
            numpyro.sample("y", dist.Binomial(a + b, 0.5), obs=y)
            numpyro.sample("count", dist.Poisson(0.1 + 2.0 * a + a * b), obs=count)

    y = np.array([1, 2, 0])
    assert set(plan_for(sumout.program(visible, y, y)).structure.program.z) == {"a", "a + b"}

    def apart(y):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
        a = numpyro.sample("a", dist.Poisson(rate))
        with numpyro.plate("sites", len(y)):
            b = numpyro.sample("b", dist.Poisson(2.0))
            c = numpyro.sample("c", dist.Binomial(b, 0.5))
            numpyro.sample("y", dist.Poisson(0.1 + a + b), obs=y)
            numpyro.sample("z", dist.Binomial(c + 3, 0.5), obs=y)

    assert set(plan_for(sumout.program(apart, y)).structure.program.z) == {"a", "b", "c"}
