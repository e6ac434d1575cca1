"""Factors computed with one number for a whole site are the factors computed with that number in every element."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import sumout
from sumout.plan.plan import plan_for
from sumout_studies.models import STUDIES

from models import lda
from programs import ENUMERABLE


def topics():
    """Look-ups along rows that differ between sites."""
    return sumout.program(lda(3, 4, 5), np.arange(9) % 5, np.arange(9) % 4)


def multivariate():
    """A matrix-valued look-up and a triangular solve."""

    def mixture(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([3, 2]))
        scale = numpyro.sample("scale", dist.LKJCholesky(2))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
            numpyro.sample("y", dist.MultivariateNormal(mu[z], scale_tril=scale), obs=y)

    return sumout.program(mixture, np.linspace(0, 1, 12).reshape(6, 2))


def regression():
    """Class-specific slopes and an ordinal outcome, in two dimensions."""

    def classes(u, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]))
        cuts = numpyro.sample("cuts", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
        with numpyro.plate("rows", 3, dim=-2), numpyro.plate("columns", 4, dim=-1):
            z = numpyro.sample("z", dist.Bernoulli(logits=u))
            numpyro.sample("y", dist.OrderedLogistic(beta[z] * u, cuts), obs=y)

    u = np.linspace(-1, 1, 12).reshape(3, 4)
    return sumout.program(classes, u, np.arange(12).reshape(3, 4) % 3)


def tricky():
    """One-hot codes, comparisons, reshapes, reversals and an index computed from z."""

    def density(x, z, y):
        s = z["z"]
        onehot = jax.nn.one_hot(s, 3) @ x["a"]
        flipped = jnp.flip(s) * y
        wrapped = x["a"][(s + 1) % 3] * y
        grid = (s.reshape(2, 3) * y.reshape(2, 3)).T
        above = jnp.where(s > 1, jnp.logaddexp(y, x["a"][0]), jax.nn.softplus(s * x["a"][1]))
        return (onehot**2).sum() + jnp.sin(flipped).sum() + wrapped.sum() + jnp.cos(grid).sum() + above.sum()

    return sumout.density(
        density, x={"a": (constraints.real, (3,))}, z={"z": sumout.finite(3, 6)}, data=np.linspace(-1, 1, 6)
    )


PROGRAMS = {
    **{make.__name__: make for make in (topics, multivariate, regression, tricky)},
    **{name: ENUMERABLE[name] for name in ("survey", "mixture", "grid", "scan_hmm", "odd_values", "factorial_hmm")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_number_for_a_site_stands_for_all_its_elements(name):
    program = PROGRAMS[name]()
    structure = sumout.read(program)
    x = jax.random.normal(jax.random.key(0), (program.num_x,))
    factors = jax.jit(structure.factors)
    for site, spec in program.z.items():
        others = {n: jnp.full(s.shape, s.support.values[0], s.dtype) for n, s in program.z.items()}
        for value in spec.support.values:
            full = factors(x, {**others, site: jnp.full(spec.shape, value, spec.dtype)}, program.data)
            small = factors(x, {**others, site: jnp.full((1,) * len(spec.shape), value, spec.dtype)}, program.data)
            for one, other in zip(full, small, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def reductions():
    """Reductions along axes with and without content that varies."""

    def mixture(y):
        logits = numpyro.sample("logits", dist.Normal(0, 1).expand([3, 4]).to_event(2))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
            row = logits[z]
            weight = jnp.prod(1 + row**2, -1) + row.min(-1) + jnp.sum(jnp.ones((len(y), 5)) * z[:, None], -1)
            numpyro.sample("y", dist.Normal(jnp.max(row, -1) + weight, 1 + jnp.any(row > 0, -1)), obs=y)

    return sumout.program(mixture, np.linspace(0, 1, 6))


def test_reductions_keep_what_is_small():
    program = reductions()
    structure = sumout.read(program)
    at_x = 0.3 * np.arange(program.num_x) - 1
    for number in range(3):
        one = structure.factors(at_x, {"z": jnp.full((1,), number)}, program.data)
        every = structure.factors(at_x, {"z": jnp.full((6,), number)}, program.data)
        for small, large in zip(one, every, strict=True):
            np.testing.assert_allclose(small, large)


def test_the_transitions_of_a_chain_are_computed_once():
    program = STUDIES["hmm"].program()
    z = {name: jnp.zeros(site.shape, site.dtype) for name, site in program.z.items()}
    ((_, tables),) = plan_for(program, None).summation._tables(jnp.zeros(program.num_x), z, program.data)
    assert [part.table.shape for part in tables.joint] == [(1, 3, 3, 1)]
    assert tables.single.shape == (16, 3, 1)
