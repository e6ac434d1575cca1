"""Programs on which a reading could go wrong: every one is compared with brute force.

For each: the factors and the rest add up to the log density, no factor moves outside its scope, and the graph has the
edges it should have.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpyro.distributions import constraints

import sumout
from sumout.checks.guard import ReadingGuard

THREE = sumout.finite(3, 6)
PATH = 5
COMPLETE = 15


def random_walk(x, z, d):
    def step(position, move):
        position = position + move
        return position, -((position - 1.0) ** 2)

    return lax.scan(step, 0.0, z * 1.0)[1].sum()


def sum_used_elsewhere(x, z, d):
    def step(carry, now):
        total = carry + now
        return total + 1.0, jnp.sin(total)

    last, ys = lax.scan(step, 0.0, z * 1.0)
    return last + ys.sum()


def masked_logarithm(x, z, d):
    return jnp.where(d > 0, (z[1:] + z[:-1]) * jnp.log(d), 0.0).sum()


def masked_by_x(x, z, d):
    return jnp.where(x[0] > 0, (z[1:] + z[:-1]) * jnp.log(x[0]), 0.0).sum() + (2.0 * z).sum()


def unsigned_difference(x, z, d):
    short = z.astype(jnp.uint8)
    return x[0] * (short[1:] - short[:-1]).astype(float).sum()


def clipped_scatter(x, z, d):
    return jnp.exp(jnp.zeros(4).at[d].add(z * 1.0, mode="clip")).sum()


def applied_in_place(x, z, d):
    return jnp.exp((z * 1.0).at[jnp.array([0, 2])].apply(jnp.sin)).sum()


def saturating_conversion(x, z, d):
    return jnp.exp(jnp.where(d.astype(jnp.int32) >= 1, z, 0) * 0.3).sum()


def empty_scan(x, z, d):
    return lax.scan(lambda c, a: (c * a, c), z.sum() * 1.0, jnp.zeros(0))[0]


def batched_while(x, z, d):
    def count(n, s):
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + jnp.sin(s * 1.0)), (0, 0.0))[1]

    return jax.vmap(count)(d, z).sum()


def tall_tower(x, z, d):
    def step(carry, t):
        k, total = carry
        return ((k * 5 + 1) % 7, total + jnp.sin(z[t % 6] * 1.0)), None

    (k, total), _ = lax.scan(step, (jnp.int32(3), 0.0), jnp.arange(2000))
    return total + jnp.exp(z[k % 6] * x[0])


def stacked_and_tiled(x, z, d):
    both = jnp.stack([jnp.sin(z * x[0]), jnp.cos(z * x[1])], axis=1)
    return both.sum() + jnp.exp(jnp.tile(z, 2) * 0.1).sum()


def sparse_einsum(x, z, d):
    return jnp.einsum("ij,ij->", d, (z[:, None] == z[None]) * x[0])


def inner_product(x, z, d):
    return x[0] * ((z[1:] * 1.0) @ (z[:-1] * 1.0))


def hyphenated_scatter(x, z, d):
    return jnp.exp(jnp.ones(6).at[jnp.arange(6)].multiply(z * 1.0)).sum()


def checkpointed(x, z, d):
    return jax.checkpoint(lambda s: jnp.exp(s * x[0]).sum())(z)


def counted_in_a_loop(x, z, d):
    return x[0] * lax.fori_loop(0, 5, lambda i, c: c + (z[i] == z[i + 1]), 0)


def rows_by_arange(x, z, d):
    table = jnp.outer(jnp.exp(z[:-1] * 0.3), jnp.arange(3.0))
    return jnp.sin(table[jnp.arange(5), z[1:]]).sum() * x[0]


def shared_covariance(x, z, d):
    cholesky = jnp.array([[1.0, 0.0], [0.4, 0.9]])
    solved = jax.scipy.linalg.solve_triangular(cholesky, jnp.stack([z * x[0], z * 0.5]), lower=True)
    return -0.5 * (solved**2).sum()


def known_branch(x, z, d):
    return x[0] * lax.cond(d[0] > 0, lambda s: s[1:] * s[:-1] * 1.0, lambda s: s[1:] * 0.0, z).sum()


def either_known(x, z, d):
    return x[0] * ((z[1:] == z[:-1]) | jnp.array([True, True, False, False, True])).sum()


def segment_maxima(x, z, d):
    return jnp.exp(jax.ops.segment_max(z * 1.0, jnp.array([0, 0, 1, 1, 2, 2]), 3)).sum()


def running_sum(x, z, d):
    return jnp.sin(jnp.cumsum(z * x[0])).sum()


NEIGHBOURS = np.diag(np.ones(5), 1)
CORNERS = [
    (random_walk, None, COMPLETE),
    (sum_used_elsewhere, None, COMPLETE),
    (masked_logarithm, np.array([0.0, 1.0, 2.0, 0.0, 3.0]), None),
    (masked_by_x, None, None),
    (unsigned_difference, None, PATH),
    (clipped_scatter, np.array([0, 7, 9, -20, 2, 3]), None),
    (applied_in_place, None, 0),
    (saturating_conversion, np.array([3e9, 0.0, 1.0, 2.0, -1.0, 0.5]), 0),
    (empty_scan, None, None),
    (batched_while, np.arange(6), None),
    (tall_tower, None, 0),
    (stacked_and_tiled, None, 0),
    (sparse_einsum, NEIGHBOURS, PATH),
    (inner_product, None, PATH),
    (hyphenated_scatter, None, 0),
    (checkpointed, None, 0),
    (counted_in_a_loop, None, PATH),
    (rows_by_arange, None, PATH),
    (shared_covariance, None, 0),
    (known_branch, np.array([1.0]), PATH),
    (either_known, None, 2),
    (segment_maxima, None, 3),
    (running_sum, None, COMPLETE),
]


@pytest.mark.parametrize(("fn", "data", "edges"), CORNERS, ids=[fn.__name__ for fn, _, _ in CORNERS])
def test_reading_agrees_with_the_program(fn, data, edges):
    program = sumout.density(
        lambda x, z, d: fn(x["x"], z["z"], d), x={"x": (constraints.real, (3,))}, z={"z": THREE}, data=data
    )
    structure = sumout.read(program)
    rng = np.random.default_rng(2)
    z = {"z": jnp.asarray(rng.integers(0, 3, 6))}
    single = np.tile(z["z"], (12, 1))
    single[np.arange(12), np.arange(12) % 6] = (single[np.arange(12), np.arange(12) % 6] + 1 + np.arange(12) // 6) % 3
    others = {"z": jnp.asarray(np.concatenate([single, rng.integers(0, 3, (8, 6))]))}
    for sign in (1.0, -1.0):
        ReadingGuard(structure).compare(jnp.asarray(sign * np.abs(rng.normal(size=3))), z, others)
    if edges is not None:
        assert structure.num_edges == edges


def test_large_cliques_are_read_without_listing_their_edges():
    def density(x, z, data):
        return jnp.sin(z["s"].sum() * x["x"])

    program = sumout.density(density, x={"x": (constraints.real, ())}, z={"s": sumout.finite(2, 5000)})
    structure = sumout.read(program)
    assert structure.num_edges == 5000 * 4999 // 2
    assert structure.num_colours == 5000
    assert structure.num_components == 1
