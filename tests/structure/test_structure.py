"""The structures that must come out exactly so."""

import time
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints

import sumout
from sumout.checks.guard import ReadingGuard
from sumout.errors import ReadingError

from models import lda
from programs import ENUMERABLE, REAL, array_hmm

LOGITS = {"logits": (constraints.real, (3, 3))}


def counts(structure):
    return structure.num_sites, structure.num_edges, structure.num_colours, structure.num_components


def is_path(structure, length):
    expected = np.stack([np.arange(length - 1), np.arange(1, length)], axis=1)
    return structure.num_colours == 2 and np.array_equal(sorted(structure.edges.tolist()), expected)


def test_gmm_of_10000_sites_has_no_edges():
    structure = sumout.read(ENUMERABLE["mixture"](10_000))
    assert counts(structure) == (10_000, 0, 1, 10_000)


def test_100000_independent_sites_are_read_quickly_in_linear_memory():
    program = ENUMERABLE["mixture"](100_000)
    start = time.perf_counter()
    structure = sumout.read(program)
    assert counts(structure) == (100_000, 0, 1, 100_000)
    assert structure.scopes.nnz == 200_000
    assert time.perf_counter() - start < 10


def test_array_hmm_is_a_path():
    assert is_path(sumout.read(array_hmm(1000)), 1000)


def test_loop_hmm_is_a_path():
    assert is_path(sumout.read(ENUMERABLE["loop_hmm"](16)), 16)


def test_numpyro_scan_of_1000_steps_is_a_path():
    program = ENUMERABLE["scan_hmm"](1000)
    start = time.perf_counter()
    assert is_path(sumout.read(program), 1000)
    assert time.perf_counter() - start < 20


def test_log_density_accumulated_in_a_lax_scan_is_a_path():
    def hmm(x, z, y):
        log_transition = jax.nn.log_softmax(x["logits"])

        def step(carry, now):
            previous, total = carry
            s, y = now
            return (s, total + log_transition[previous, s] + dist.Normal(s, 0.5).log_prob(y)), None

        return jax.lax.scan(step, (0, 0.0), (z["s"], y))[0][1]

    program = sumout.density(hmm, x=LOGITS, z={"s": sumout.finite(3, 50)}, data=np.zeros(50))
    assert is_path(sumout.read(program), 50)


def test_sequences_in_a_plate_are_as_many_paths():
    def hmms(y):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(3)).expand([3]).to_event(1))

        def step(previous, y):
            with numpyro.plate("sequences", 20):
                z = numpyro.sample("z", dist.Categorical(rows[previous]))
                numpyro.sample("y", dist.Normal(z, 0.5), obs=y)
            return z, None

        scan(step, jnp.zeros(20, int), y)

    structure = sumout.read(sumout.program(hmms, np.zeros((15, 20))))
    assert counts(structure) == (300, 280, 2, 20)


def test_grid_with_a_factor_outside_the_sum():
    structure = sumout.read(ENUMERABLE["grid"](32, 32))
    assert counts(structure) == (1024, 2 * 32 * 31, 2, 1)
    number = np.arange(1024).reshape(32, 32)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    assert {tuple(e) for e in structure.edges} == {tuple(e) for e in np.concatenate([right, down])}


def test_lda_has_no_edges():
    rng = np.random.default_rng(0)
    structure = sumout.read(sumout.program(lda(5, 100, 30), rng.integers(30, size=6000), rng.integers(100, size=6000)))
    assert counts(structure) == (6000, 0, 1, 6000)


def test_spike_and_slab_is_complete():
    structure = sumout.read(ENUMERABLE["spike_and_slab"](40))
    assert counts(structure) == (40, 40 * 39 // 2, 40, 1)


def test_factorial_hmm():
    def factorial(x, z, y):
        log_transition = jax.nn.log_softmax(x["logits"])
        s = z["s"]
        moves = sum(log_transition[s[c, :-1], s[c, 1:]].sum() for c in range(5))
        return moves + dist.Normal(x["weights"] @ s, 1.0).log_prob(y).sum()

    x = {"logits": (constraints.real, (2, 2)), "weights": (constraints.real, (5,))}
    program = sumout.density(factorial, x=x, z={"s": sumout.finite(2, (5, 50))}, data=np.zeros(50))
    structure = sumout.read(program)
    assert structure.num_edges == 5 * 49 + 50 * 10
    number = np.arange(250).reshape(5, 50)
    along = {(number[c, t], number[c, t + 1]) for c in range(5) for t in range(49)}
    across = {(number[a, t], number[b, t]) for t in range(50) for a in range(5) for b in range(a + 1, 5)}
    assert {tuple(e) for e in structure.edges} == along | across
    assert structure.num_colours >= 5


def test_unknown_primitive_means_a_complete_graph_and_is_named():
    program = ENUMERABLE["opaque"]()
    structure = sumout.read(program)
    assert counts(structure) == (6, 15, 6, 1)
    assert structure.opaque == ("approx_top_k",)
    assert "approx_top_k" in sumout.explain(program)


def test_tree_and_second_order_chain():
    assert sumout.read(ENUMERABLE["tree"]()).num_edges == 5
    second = sumout.read(ENUMERABLE["second_order_chain"]())
    assert {tuple(e) for e in second.edges} == {(t, t + d) for d in (1, 2) for t in range(6 - d)}


def test_known_zeros_and_masks_cut_dependence():
    neighbours = np.zeros((6, 6))
    neighbours[[0, 1, 3], [1, 2, 4]] = 1.0

    def potts(x, z, data):
        s = z["s"]
        padded = jnp.where(data["mask"], dist.Normal(s[1:] + s[:-1], 1.0).log_prob(0.0), 0.0)
        return x["b"] * (data["a"] * (s[:, None] == s[None, :])).sum() + padded.sum()

    data = {"a": neighbours, "mask": np.array([False, False, False, False, True])}
    structure = sumout.read(sumout.density(potts, x={"b": REAL}, z={"s": sumout.finite(3, 6)}, data=data))
    assert {tuple(e) for e in structure.edges} == {(0, 1), (1, 2), (3, 4), (4, 5)}


@pytest.mark.parametrize("name", ENUMERABLE)
def test_factors_and_rest_add_up_and_only_their_scopes_move_them(name):
    program = ENUMERABLE[name]()
    structure = sumout.read(program)
    rng = np.random.default_rng(1)
    z = {name: jnp.asarray(pick(site, rng)) for name, site in program.z.items()}
    others = {name: jnp.stack([jnp.asarray(pick(site, rng)) for _ in range(16)]) for name, site in program.z.items()}
    keep = rng.random(16) < 0.5
    others = {n: jnp.where(keep.reshape(-1, *[1] * z[n].ndim), others[n], z[n]) for n in z}
    ReadingGuard(structure).compare(jnp.asarray(rng.normal(size=program.num_x)), z, others)


def pick(site, rng):
    values, allowed = site.support.rows()
    return np.array([rng.choice(v[a]) for v, a in zip(values, allowed, strict=True)]).reshape(site.shape)


def test_guard_is_not_alarmed_by_terms_that_cancel():
    """In single precision the sum of large terms of both signs is only as good as the terms."""

    def cancelling(x, z, data):
        s = z["s"].astype(float)
        return (x["a"] * s[1:]).sum() - (x["a"] * jnp.sqrt(s[:-1] * s[1:])).sum()

    with jax.enable_x64(False):
        program = sumout.density(cancelling, x={"a": REAL}, z={"s": sumout.finite([0.7, 0.9], 2000)})
        z = {"s": jnp.full(2000, 0.7)}
        ReadingGuard(sumout.read(program)).compare(jnp.full(1, 1e7 * np.pi), z, {"s": jnp.full((1, 2000), 0.9)})


def test_guard_catches_a_wrong_reading():
    program = ENUMERABLE["grid"]()
    structure = sumout.read(program)
    wrong = type(structure)(
        program,
        structure.opaque,
        structure.factorisation,
        structure._scopes,
        tuple(np.zeros_like(ids) for ids in structure._ids),
    )
    z = {"s": jnp.zeros((2, 3), int)}
    with pytest.raises(ReadingError, match="factor element"):
        ReadingGuard(wrong).compare(jnp.ones(1), z, {"s": jnp.ones((1, 2, 3), int)})


def test_what_is_broadcast_takes_no_memory():
    """Topics: of 5,000 tokens × 2,000 words the scopes would be 80 MB, and truths 10 MB."""

    def topics(words):
        with numpyro.plate("topics", 3):
            phi = numpyro.sample("phi", dist.Dirichlet(jnp.ones(2_000)))
        with numpyro.plate("tokens", len(words)):
            z = numpyro.sample("z", dist.Categorical(jnp.ones(3) / 3))
            numpyro.sample("w", dist.Categorical(phi[z]), obs=words)

    program = sumout.program(topics, np.arange(5_000) % 2_000)
    tracemalloc.start()
    try:
        structure = sumout.read(program)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert structure.num_edges == 0
    assert peak < 8e6
