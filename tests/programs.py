"""Programs of every structure, each so small that its joint states can be enumerated: `ENUMERABLE`, by name.

Laws are tested on all of them; tests that need some small program or other take theirs from here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout

import models

REAL = (constraints.real, ())


def survey(num=6):
    """Isolated booleans, as in the paper's Figure 1."""
    y = np.arange(num) % 3 > 0
    x, z = {"theta": (constraints.unit_interval, ())}, {"coin": sumout.finite([False, True], shape=num)}
    return sumout.density(models.coins, x=x, z=z, data=y.astype(int))


def mixture(num=5):
    """Isolated sites with three values in a NumPyro plate."""
    return sumout.program(models.weighted_mixture, np.linspace(-2, 3, num))


def array_hmm(length=5, states=3):
    """A path, written without a loop."""
    x, z = {"logits": (constraints.real, (states, states))}, {"state": sumout.finite(states, length)}
    return sumout.density(models.path, x=x, z=z, data=np.sin(np.arange(length)) + 1)


def loop_hmm(length=5, states=3):
    """A path, written as the paper writes it: a Python loop."""

    def hmm(x, z, y):
        log_transition = jax.nn.log_softmax(x["logits"])
        ll = dist.Normal(0, 2).log_prob(x["logits"]).sum()
        for i in range(length):
            ll += dist.Normal(z["state"][i], 0.5).log_prob(y[i])
            if i > 0:
                ll += log_transition[z["state"][i - 1], z["state"][i]]
        return ll

    y = np.sin(np.arange(length)) + 1
    return sumout.density(
        hmm, x={"logits": (constraints.real, (states, states))}, z={"state": sumout.finite(states, length)}, data=y
    )


def scan_hmm(length=6):
    """A path through NumPyro's scan."""
    return sumout.program(models.scan_hmm, np.cos(np.arange(length)) + 1)


def grid(rows=2, columns=3):
    """A lattice whose coupling multiplies a sum of integers."""
    y = np.arange(rows * columns).reshape(rows, columns) % 4 * 0.4
    return sumout.density(models.lattice, x={"coupling": REAL}, z={"s": sumout.finite(2, (rows, columns))}, data=y)


def spike_and_slab(num=5):
    """A clique: every indicator meets every other in the likelihood. More colours than are unrolled."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(8, num))
    return sumout.program(models.spike_and_slab, design, design[:, 0] * 2 + rng.normal(size=8))


def factorial_hmm(chains=2, length=4):
    """Chains that meet in every observation."""

    def factorial(x, z, y):
        stay = jax.nn.log_sigmoid(x["stay"])
        leave = jax.nn.log_sigmoid(-x["stay"])
        s = z["s"]
        moves = jnp.where(s[:, 1:] == s[:, :-1], stay, leave).sum()
        emission = dist.Normal(jnp.arange(1, chains + 1) @ s, 0.7).log_prob(y).sum()
        return moves + emission + dist.Normal(0, 1).log_prob(x["stay"])

    y = np.array([0.2, 1.1, 2.8, 2.9, 1.2, 0.1])[:length]
    return sumout.density(factorial, x={"stay": REAL}, z={"s": sumout.finite(2, (chains, length))}, data=y)


def shifted_support():
    """Supports that do not start at 0, meeting in one likelihood."""

    def shifted(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1))
        change = numpyro.sample("change", dist.DiscreteUniform(3, 7))
        size = numpyro.sample("size", dist.Binomial(4, 0.4))
        mean = rate * jnp.where(jnp.arange(10) < change, 1.0, 1.0 + size)
        numpyro.sample("y", dist.Poisson(mean), obs=y)

    return sumout.program(shifted, np.array([1, 0, 2, 1, 1, 5, 3, 6, 4, 5]))


def ragged_binomials():
    """Elements of one site with different numbers of values."""

    def ragged(totals, y):
        p = numpyro.sample("p", dist.Beta(1, 1))
        with numpyro.plate("groups", 3):
            k = numpyro.sample("k", dist.Binomial(totals, p))
            numpyro.sample("y", dist.Normal(k, 1.0), obs=y)

    return sumout.program(ragged, np.array([1, 3, 4]), np.array([0.3, 1.0, 3.2]))


def named_scalars():
    """One site name for each variable, in a Python loop; with an observed mask and a scale."""

    def scalars(y):
        mu = numpyro.sample("mu", dist.Normal(0, 2))
        previous = 0
        for i in range(5):
            z = numpyro.sample(f"z_{i}", dist.Bernoulli(0.3 + 0.4 * previous))
            with numpyro.handlers.mask(mask=i != 2), numpyro.handlers.scale(scale=1.5):
                numpyro.sample(f"y_{i}", dist.Normal(mu * z, 1.0), obs=y[i])
            previous = z

    return sumout.program(scalars, np.array([0.1, 1.2, np.nan, 0.9, 0.2]))


def opaque():
    """Seen only through a primitive the reading does not know."""

    def opaque(x, z, data):
        highest, _ = jax.lax.approx_max_k(z["s"].astype(float), 3)
        return -(x["a"] ** 2) + jnp.tanh(x["a"]) * highest @ jnp.array([1.0, 1.5, 2.0])

    return sumout.density(opaque, x={"a": REAL}, z={"s": sumout.finite(2, 6)})


def odd_values():
    """Float and negative values, a ring, and a site nobody depends on."""

    def odd(x, z, data):
        s = z["spin"]
        ring = x["j"] * (s * jnp.roll(s, 1)).sum()
        level = dist.Normal(z["level"], 1.0).log_prob(x["j"])
        return ring + level * 0.5 - x["j"] ** 2

    return sumout.density(
        odd,
        x={"j": REAL},
        z={"spin": sumout.finite([-1, 1], 5), "level": sumout.finite([0.5, 1.5, 4.0]), "idle": sumout.finite(2)},
    )


def tree(values=3):
    """A tree given by a table of parents in the data."""

    def tree(x, z, data):
        s = z["s"]
        same = s[1:] == s[data["parent"]]
        emission = dist.Normal(s * 1.0, 1.0).log_prob(data["y"])
        return jnp.where(same, x["a"], -x["a"]).sum() + emission.sum() + dist.Normal(0, 1).log_prob(x["a"])

    data = {"parent": np.array([0, 0, 1, 1, 2]), "y": np.array([0.1, 0.8, -0.3, 1.9, 1.1, 0.4])}
    return sumout.density(tree, x={"a": REAL}, z={"s": sumout.finite(values, 6)}, data=data)


def second_order_chain(length=6):
    """Each site depends on the two before it; the log density is accumulated in a lax.scan."""

    def second(x, z, y):
        def step(carry, now):
            before, previous, total = carry
            s, y = now
            total = total + x["a"] * (s == previous) - x["b"] * (s == before) + dist.Normal(s, 1.0).log_prob(y)
            return (previous, s, total), None

        start = (0, 1, dist.Normal(0, 1).log_prob(x["a"]) + dist.Normal(0, 1).log_prob(x["b"]))
        return jax.lax.scan(step, start, (z["s"], y))[0][2]

    y = np.linspace(0, 1.5, length)
    return sumout.density(second, x={"a": REAL, "b": REAL}, z={"s": sumout.finite(2, length)}, data=y)


def ladder(rungs=3):
    """Two chains tied to each other at every step: loops, but narrow ones."""

    def ladder(x, z, y):
        a, b = z["a"], z["b"]
        along = jnp.where(a[1:] == a[:-1], x["j"], -x["j"]).sum() + (b[1:] * b[:-1]).sum() * x["j"] * 0.5
        across = dist.Normal(x["j"] * a + b, 1.0).log_prob(y).sum()
        return along + across + dist.Normal(0, 1).log_prob(x["j"])

    z = {"a": sumout.finite(2, rungs), "b": sumout.finite([-1, 1], rungs)}
    return sumout.density(ladder, x={"j": REAL}, z=z, data=np.linspace(-1, 1, rungs))


def unequal_paths():
    """Chains of length 4, 1 and 3 end to end in one array; where one ends is known from the data."""

    def paths(x, z, data):
        s = z["s"]
        rows = jax.nn.log_softmax(x["logits"])
        moves = jnp.where(data["follows"][1:], rows[s[:-1], s[1:]], jnp.log(0.5)).sum()
        return moves + dist.Normal(s * 1.0, 1.0).log_prob(data["y"]).sum() - (x["logits"] ** 2).sum()

    data = {"follows": np.array([0, 1, 1, 1, 0, 0, 1, 1], bool), "y": np.sin(np.arange(8.0))}
    return sumout.density(paths, x={"logits": (constraints.real, (2, 2))}, z={"s": sumout.finite(2, 8)}, data=data)


def capture_recapture():
    """Animals that die and stay dead: states that cannot follow each other, states that cannot be seen."""

    def capture(seen):
        survival = numpyro.sample("survival", dist.Beta(4, 2))
        detection = numpyro.sample("detection", dist.Beta(2, 2))
        with numpyro.plate("animals", seen.shape[0]):
            alive = 1
            for t in range(seen.shape[1]):
                alive = numpyro.sample(f"alive_{t}", dist.Bernoulli(alive * survival))
                numpyro.sample(f"seen_{t}", dist.Bernoulli(alive * detection), obs=seen[:, t])

    return sumout.program(capture, np.array([[1, 0, 1], [1, 0, 0]]))


def mixed_values():
    """Neighbours with different numbers of values: a class of three, and within it a flag for each of four items."""

    def classes(group, y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        shift = numpyro.sample("shift", dist.Normal(0, 1))
        with numpyro.plate("groups", 2):
            kind = numpyro.sample("kind", dist.Categorical(weights))
        with numpyro.plate("items", len(y)):
            flag = numpyro.sample("flag", dist.Bernoulli(0.2 + 0.3 * kind[group]))
            numpyro.sample("y", dist.Normal(shift * flag + kind[group], 1.0), obs=y)

    return sumout.program(classes, np.array([0, 0, 1, 1]), np.array([0.1, 1.4, 2.0, 2.9]))


def without_x(num=4):
    """Nothing is continuous: a chain of spins."""
    return sumout.density(
        lambda x, z, data: 2.0 * (z["s"][1:] == z["s"][:-1]).sum(), x={}, z={"s": sumout.finite(2, num)}
    )


def abundance(*y):
    """A count, which can only be drawn."""
    return sumout.program(models.abundance, np.array(y or (3, 5, 2)))


def abundance_in_fog():
    """A count, which can only be drawn, and flags, which can be summed out given the count."""

    def in_fog(y):
        p = numpyro.sample("p", dist.Beta(2, 2))
        n = numpyro.sample("n", dist.Poisson(6.0))
        with numpyro.plate("visits", len(y)):
            fog = numpyro.sample("fog", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Binomial(n, p * (1 - 0.5 * fog)), obs=y)

    return sumout.program(in_fog, np.array([3, 5, 2]))


def switches(steps=4):
    """Three chains, each of a name of its own, whose sites of one step meet one after the other in a sum."""

    def model(y):
        weights = numpyro.sample("weights", dist.Normal(jnp.array([0.5, 1.0, 2.0]), 0.3).to_event(1))
        stay = numpyro.sample("stay", dist.Beta(8, 2).expand([3]).to_event(1))

        def step(previous, y):
            now = tuple(
                numpyro.sample(f"z{c}", dist.Bernoulli(jnp.where(previous[c] == 1, stay[c], 1 - stay[c])))
                for c in range(3)
            )
            numpyro.sample("y", dist.Normal(sum(weights[c] * now[c] for c in range(3)), 0.5), obs=y)
            return now, None

        scan(step, (0, 0, 0), y)

    return sumout.program(model, np.linspace(0, 3, steps))


def shared_pairs(length=5):
    """Sites meet in pairs, and each pair goes into two factors of three sites."""

    def density(x, z, y):
        pairs = x["a"] * z["s"][:-1] + x["b"] * z["s"][1:] ** 2
        return (dist.Normal(pairs[:-1] * pairs[1:], 1.0).log_prob(y)).sum() - x["a"] ** 2 - x["b"] ** 2

    z = {"s": sumout.finite(3, length)}
    return sumout.density(density, x={"a": REAL, "b": REAL}, z=z, data=np.linspace(-1, 2, length - 2))


def bare_end(length=5):
    """A path of which all sites but the last, where sums over paths end, have one and the same factor of their own."""

    def density(x, z, y):
        del y
        own, move = jax.nn.log_softmax(x["own"]), jax.nn.log_softmax(x["move"])
        prior = -0.5 * ((x["own"] ** 2).sum() + (x["move"] ** 2).sum())
        return own[z["s"][:-1]].sum() + move[z["s"][:-1], z["s"][1:]].sum() + prior

    x = {"own": (constraints.real, (3,)), "move": (constraints.real, (3, 3))}
    return sumout.density(density, x=x, z={"s": sumout.finite(3, length)}, data=None)


def one_way(steps=4):
    """Two chains with two and three values that meet in every observation; one of them never goes back."""

    def density(x, z, y):
        a, b = z["a"], z["b"]
        moves = jnp.log(jnp.array([[0.6, 0.3, 0.1], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]]))
        stay = jnp.where(a[1:] == a[:-1], jax.nn.log_sigmoid(x["stay"]), jax.nn.log_sigmoid(-x["stay"]))
        emission = dist.Normal(a + x["effect"] * b, 0.7).log_prob(y)
        return moves[b[:-1], b[1:]].sum() + stay.sum() + emission.sum() - x["stay"] ** 2 - x["effect"] ** 2

    z = {"a": sumout.finite(2, steps), "b": sumout.finite(3, steps)}
    return sumout.density(density, x={"stay": REAL, "effect": REAL}, z=z, data=np.linspace(0, 2, steps))


ENUMERABLE = {
    make.__name__: make
    for make in (
        survey,
        mixture,
        loop_hmm,
        scan_hmm,
        grid,
        spike_and_slab,
        factorial_hmm,
        shifted_support,
        ragged_binomials,
        named_scalars,
        opaque,
        odd_values,
        tree,
        second_order_chain,
        ladder,
        unequal_paths,
        capture_recapture,
        mixed_values,
        switches,
        shared_pairs,
        bare_end,
        one_way,
    )
}
