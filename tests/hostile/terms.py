"""Kinds of terms that random programs are made of.

A kind is a function of a `Chooser`: it picks sites, coordinates of x and constants at random, and returns the term, a
function of an `Env` (x, z and data). All that it picks are such functions, too, so that a kind reads like the program
that it writes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln, logsumexp, xlog1py, xlogy

INF = jnp.inf


class Env(NamedTuple):
    """The arguments of a program."""

    x: dict[str, Any]
    z: dict[str, Any]
    data: dict[str, Any]


Pick = Callable[[Env], Any]
Kind = Callable[["Chooser"], Pick]


@dataclass
class Chooser:
    """Picks what a term is made of; notes what it has picked."""

    rng: np.random.Generator
    shapes: dict[str, tuple[int, ...]]  # of the discrete sites
    label: str
    data: dict[str, np.ndarray] = field(default_factory=dict)
    sites: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def one_of(self, *options):
        return options[self.rng.integers(len(options))]

    # Of z.

    def element(self) -> Pick:
        """One element of a site, in its own type."""
        name = self.one_of(*self.shapes)
        place = tuple(int(self.rng.integers(n)) for n in self.shapes[name])
        place = tuple(i - n if self.rng.random() < 0.2 else i for i, n in zip(place, self.shapes[name], strict=True))
        self.sites.add(name)
        self.notes.append(name + (str(list(place)) if place else ""))
        return lambda e: e.z[name][place] if place else e.z[name]

    def number(self) -> Pick:
        """One element as a fraction."""
        one = self.element()
        return lambda e: one(e) * 1.0

    def amount(self) -> Pick:
        """One element, not negative."""
        one = self.element()
        return lambda e: jnp.abs(one(e) * 1.0)

    def integer(self) -> Pick:
        """One element as an integer."""
        one = self.element()
        return lambda e: jnp.asarray(one(e) * 2).astype(int)

    def index(self, size: int) -> Pick:
        """One element as an index."""
        one = self.integer()
        return lambda e: one(e) % size

    def truth(self) -> Pick:
        one, limit = self.element(), float(self.one_of(0.0, 0.5, 1.0))
        return lambda e: one(e) > limit

    def vector(self, least: int = 2) -> tuple[Pick, int]:
        """Several elements as fractions: of one site or of several."""
        large = [name for name, shape in self.shapes.items() if np.prod(shape, dtype=int) >= least]
        if large and self.rng.random() < 0.6:
            name = self.one_of(*large)
            self.sites.add(name)
            self.notes.append(name)
            return (lambda e: e.z[name].reshape(-1) * 1.0), int(np.prod(self.shapes[name]))
        many = [self.number() for _ in range(max(least, int(self.rng.integers(2, 4))))]
        return (lambda e: jnp.stack([one(e) for one in many])), len(many)

    def indices(self, size: int, least: int = 2) -> tuple[Pick, int]:
        many, n = self.vector(least)
        return (lambda e: (many(e) * 2).astype(int) % size), n

    def truths(self) -> tuple[Pick, int]:
        many, n = self.vector()
        limit = float(self.one_of(0.0, 0.5, 1.0))
        return (lambda e: many(e) > limit), n

    # Of x.

    def real(self) -> Pick:
        """A smooth function of x."""
        name = self.one_of("a", "p", "s", "v")
        scale = float(self.one_of(0.5, -0.7, 1.0))
        wave = self.one_of(lambda a: a, jnp.sin, jnp.tanh, lambda a: 0.3 * a**2)
        self.notes.append(f"x.{name}")
        return lambda e: scale * wave(e.x[name][1] if name == "v" else e.x[name])

    def reals(self, n: int) -> Pick:
        one, table = self.real(), self.array(n)
        return lambda e: table(e) * one(e) + 0.3 * jnp.cos(jnp.arange(n) * e.x["a"])

    def probability(self) -> Pick:
        self.notes.append("x.p")
        return self.one_of(lambda e: e.x["p"], lambda e: jax.nn.sigmoid(e.x["a"]), lambda e: 0.2 + 0.6 * e.x["p"])

    def positive(self) -> Pick:
        self.notes.append("x.s")
        return self.one_of(lambda e: e.x["s"], lambda e: jnp.exp(0.5 * e.x["a"]), lambda e: 0.5 + e.x["s"])

    # Of data.

    def array(self, *shape: int) -> Pick:
        """Numbers that are known: part of the code, or data."""
        value = np.round(self.rng.normal(size=shape), 2)
        return self.known(value)

    def known(self, value: np.ndarray) -> Pick:
        if self.rng.random() < 0.5:
            return lambda e: jnp.asarray(value)
        name = f"{self.label}{len(self.data)}"
        self.data[name] = value
        return lambda e: e.data[name]

    def whole(self, most: int, *shape: int) -> np.ndarray:
        return self.rng.integers(0, most, size=shape)


KINDS: dict[str, Kind] = {}
IMPOSSIBLE: set[str] = set()  # kinds with values of z that are impossible, or singular where they are not chosen
OWN_DERIVATIVE: set[str] = set()  # kinds whose derivative is not that of their value


def kind(make: Kind) -> Kind:
    KINDS[make.__name__] = make
    return make


def impossible(make: Kind) -> Kind:
    IMPOSSIBLE.add(make.__name__)
    return kind(make)


# Look-ups.


@kind
def looked_up(c):
    table, i, w = c.array(5), c.index(5), c.real()
    return lambda e: w(e) * table(e)[i(e)]


@kind
def looked_up_in_x(c):
    table, (i, _) = c.reals(4), c.indices(4)
    return lambda e: table(e)[i(e)].sum()


@kind
def looked_up_along(c):
    i, n = c.indices(3)
    table, w = c.array(n, 3), c.real()
    return lambda e: w(e) * jnp.take_along_axis(table(e), i(e)[:, None], axis=1).sum()


@kind
def looked_up_in_rows(c):
    i, n = c.indices(3)
    table, w = c.array(n, 3), c.real()
    return lambda e: (w(e) * table(e)[jnp.arange(n), i(e)]).sum()


@kind
def looked_up_twice(c):
    table, i, j, w = c.array(3, 4), c.index(3), c.index(4), c.real()
    return lambda e: w(e) * table(e)[i(e), j(e)]


@kind
def looked_up_from_the_end(c):
    table, i, w = c.reals(4), c.index(4), c.real()
    return lambda e: table(e)[-i(e) - 1] * w(e)


@kind
def looked_up_clipped(c):
    table, i, w = c.array(3), c.integer(), c.real()
    return lambda e: w(e) * table(e).at[i(e)].get(mode="clip")


@kind
def looked_up_or_filled(c):
    table, (i, _), w = c.array(2), c.indices(4), c.real()
    return lambda e: w(e) * table(e).at[i(e)].get(mode="fill", fill_value=0.7).sum()


@kind
def looked_up_wrapped(c):
    table, i, w = c.array(3), c.integer(), c.real()
    return lambda e: w(e) * jnp.take(table(e), i(e), mode="wrap")


@kind
def row_looked_up(c):
    table, i, w = c.array(3, 2), c.index(3), c.reals(2)
    return lambda e: table(e)[i(e)] @ w(e)


@kind
def z_at_z(c):
    (many, n), w = c.vector(), c.real()
    i = c.index(n)
    return lambda e: w(e) * many(e)[i(e)]


@kind
def chosen(c):
    (i, n), w = c.indices(3), c.real()
    tables = [c.array(n) for _ in range(3)]
    return lambda e: w(e) * jnp.choose(i(e), [table(e) for table in tables], mode="clip").sum()


@kind
def selected(c):
    (many, _), w = c.vector(), c.reals(2)
    return lambda e: jnp.select([many(e) < 0.5, many(e) < 1.5], [w(e)[0] * many(e), w(e)[1]], 0.4).sum()


@kind
def window_at_z(c):
    table, i, w = c.array(5), c.index(4), c.reals(2)
    return lambda e: lax.dynamic_slice(table(e), (i(e),), (2,)) @ w(e)


@kind
def known_window(c):
    (many, n), w = c.vector(3), c.reals(2)
    start = int(c.rng.integers(n))
    return lambda e: jnp.sin(lax.dynamic_slice(many(e), (start,), (2,)) @ w(e))


# Writing.


@kind
def one_set(c):
    many, n = c.vector()
    w, i = c.reals(n), int(c.rng.integers(-n, n))
    return lambda e: jnp.sin(many(e).at[i].set(0.5)) @ w(e)


@kind
def some_added(c):
    many, n = c.vector()
    w, at = c.reals(3), c.whole(3, n)
    return lambda e: jnp.sin(jnp.zeros(3).at[at].add(many(e))) @ w(e)


@kind
def one_added_in_a_table(c):
    one, w, i, j = c.number(), c.real(), *c.whole(2, 2)
    table = c.array(2, 2)
    return lambda e: (w(e) * jnp.cos(table(e).at[int(i), int(j)].add(one(e)))).sum()


@kind
def some_multiplied(c):
    many, n = c.vector()
    w, at, by = c.reals(n), c.whole(n, 2), c.number()
    return lambda e: jnp.tanh(many(e).at[at].mul(1 + by(e))) @ w(e)


@kind
def least_written(c):
    many, n = c.vector()
    w, at = c.reals(3), c.whole(3, n)
    return lambda e: jnp.ones(3).at[at].min(many(e)) @ w(e)


@kind
def most_written(c):
    many, n = c.vector()
    w, at = c.reals(3), c.whole(3, n)
    return lambda e: jnp.zeros(3).at[at].max(many(e)) @ w(e)


@kind
def set_at_z(c):
    i, w, one = c.index(3), c.reals(3), c.number()
    return lambda e: jnp.sin(jnp.arange(3.0).at[i(e)].set(one(e))) @ w(e)


@kind
def added_at_z(c):
    (i, n), w = c.indices(4), c.reals(4)
    return lambda e: jnp.zeros(4).at[i(e)].add(jnp.arange(n) + 1.0) @ jnp.cos(w(e))


@kind
def histogram(c):
    (i, _), w = c.indices(3), c.reals(3)
    return lambda e: (gammaln(1.5 + jnp.bincount(i(e), length=3)) * w(e)).sum()


@kind
def applied(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: many(e).at[jnp.array([0, n - 1])].apply(jnp.sin) @ w(e)


@kind
def window_written(c):
    many, n = c.vector(3)
    w, two, start = c.reals(n), c.number(), int(c.rng.integers(n))
    return lambda e: lax.dynamic_update_slice(many(e), jnp.stack([two(e), w(e)[0]]), (start,)) @ w(e)


@kind
def window_written_at_z(c):
    many, n = c.vector()
    w, i = c.reals(n), c.index(n)
    return lambda e: jnp.sin(lax.dynamic_update_slice(many(e), w(e)[:1], (i(e),))) @ w(e)


# Sorting.


@kind
def sorted_(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.sort(many(e)) @ w(e)


@kind
def ranks(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.argsort(jnp.argsort(many(e))) @ w(e)


@kind
def sorted_by_z(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: w(e)[jnp.argsort(many(e))] @ jnp.arange(1.0, n + 1)


@kind
def sorted_pairs(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: lax.sort((many(e), w(e)), num_keys=1)[1] @ jnp.linspace(-1, 1, n)


@kind
def highest_two(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: lax.top_k(many(e) + 0.1 * w(e), 2)[0] @ jnp.array([1.0, -0.5])


@kind
def median(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * jnp.median(many(e))


@kind
def quantile(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * jnp.quantile(many(e), jnp.array([0.25, 0.8])).sum()


@kind
def searched(c):
    (many, _), w = c.vector(), c.real()
    grid = np.array([-1.0, 0.25, 0.75, 1.25])
    return lambda e: w(e) * jnp.sqrt(1.0 + jnp.searchsorted(grid, many(e))).sum()


@kind
def searched_in_z(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * jnp.searchsorted(jnp.sort(many(e)), 0.6)


# Running along.


@kind
def running_sum(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.sin(jnp.cumsum(many(e))) @ w(e)


@kind
def running_product(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.cumprod(many(e) * 0.5 + 1) @ w(e)


@kind
def running_maximum(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: lax.cummax(many(e), reverse=bool(n % 2)) @ w(e)


@kind
def running_log_sum(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: lax.cumlogsumexp(many(e) * w(e)).sum()


@kind
def ever_so_far(c):
    truths, n = c.truths()
    w = c.reals(n)
    return lambda e: jnp.where(lax.associative_scan(jnp.logical_or, truths(e)), w(e), 0.3).sum()


@kind
def running_affine(c):
    many, n = c.vector()
    w = c.reals(n)

    def join(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    return lambda e: lax.associative_scan(join, (0.5 * many(e), w(e)))[1].sum()


@kind
def running_matrices(c):
    (many, _), w = c.vector(), c.real()

    def term(e):
        each = jnp.eye(2) + 0.3 * many(e)[:, None, None] * jnp.array([[0.0, 1.0], [1.0, 0.5]]) * w(e)
        return jnp.log(1 + lax.associative_scan(jnp.matmul, each)[-1].sum() ** 2)

    return term


@kind
def differences(c):
    many, n = c.vector()
    w = c.reals(n - 1)
    return lambda e: -((jnp.diff(many(e)) - w(e)) ** 2).sum()


@kind
def shares_a_value(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * (many(e)[1:] == many(e)[:-1]).sum()


# Counting and grouping.


@kind
def one_hot(c):
    (i, n), w = c.indices(3), c.reals(3)
    table = c.array(n, 3)
    return lambda e: jnp.einsum("nk,nk,k->", jax.nn.one_hot(i(e), 3), table(e), w(e))


@kind
def one_hot_counts(c):
    (i, _), w = c.indices(3), c.reals(3)
    return lambda e: jnp.square(jax.nn.one_hot(i(e), 3).sum(axis=0)) @ w(e)


@kind
def sums_by_group(c):
    many, n = c.vector()
    w, groups = c.reals(3), c.whole(3, n)
    return lambda e: jnp.sin(jax.ops.segment_sum(many(e), groups, num_segments=3)) @ w(e)


@kind
def sums_by_z(c):
    i, n = c.indices(3)
    w = c.reals(n)
    return lambda e: (jax.ops.segment_sum(w(e), i(e), num_segments=3) ** 2).sum()


@kind
def maxima_by_group(c):
    many, n = c.vector()
    w, groups = c.reals(2), np.arange(n) % 2
    return lambda e: jax.ops.segment_max(many(e), groups, num_segments=2) @ w(e)


# Linear algebra.


@kind
def inner_product(c):
    many, n = c.vector()
    w, table = c.reals(n), c.array(n)
    return lambda e: jnp.dot(many(e), table(e)) * 0.3 + jnp.dot(many(e), w(e))


@kind
def quadratic_form(c):
    many, n = c.vector()
    table, w = c.array(n, n), c.real()
    return lambda e: -0.2 * w(e) * many(e) @ (table(e) + table(e).T) @ many(e)


@kind
def regression(c):
    many, n = c.vector()
    design, y, w = c.array(3, n), c.array(3), c.reals(n)
    return lambda e: dist.Normal(design(e) @ (many(e) * w(e)), e.x["s"]).log_prob(y(e)).sum()


@kind
def sparse_product(c):
    many, n = c.vector()
    design, w = c.known(np.eye(4, n) * c.rng.normal(size=n).round(2)), c.reals(4)
    return lambda e: jnp.sin(design(e) @ many(e)) @ w(e)


@kind
def einsum(c):
    (many, n), (other, m) = c.vector(), c.vector()
    table, w = c.array(n, m), c.real()
    return lambda e: w(e) * jnp.einsum("i,ij,j->", many(e), table(e), other(e))


def spread(e, many, n):
    return jnp.eye(n) * (1.5 + many(e) ** 2) + 0.3


@kind
def cholesky(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: -0.5 * (solve_triangular(jnp.linalg.cholesky(spread(e, many, n)), w(e), lower=True) ** 2).sum()


@kind
def solved(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.linalg.solve(spread(e, many, n), w(e)).sum()


@kind
def log_determinant(c):
    many, n = c.vector()
    return lambda e: -0.5 * jnp.linalg.slogdet(spread(e, many, n) + e.x["s"] * jnp.eye(n))[1]


@kind
def inverse(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: w(e) @ jnp.linalg.inv(spread(e, many, n)) @ w(e)


@kind
def distances(c):
    (many, _), w = c.vector(), c.positive()
    return lambda e: -jnp.exp(-((many(e)[:, None] - many(e)) ** 2) / (1 + w(e))).sum()


@kind
def norm(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: -jnp.linalg.norm(many(e) - w(e))


@kind
def convolution(c):
    many, _ = c.vector(3)
    w = c.reals(2)
    return lambda e: jnp.sin(jnp.convolve(many(e), w(e))).sum()


@kind
def spectrum(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * jnp.abs(jnp.fft.rfft(many(e)) + 0.5).sum()


# Control flow.


@kind
def branch_by_z(c):
    truth, w, one = c.truth(), c.real(), c.number()
    return lambda e: lax.cond(truth(e), lambda a: a * one(e), lambda a: jnp.sin(a) - 0.2, w(e))


@kind
def branch_by_x(c):
    one, w = c.number(), c.real()
    return lambda e: lax.cond(e.x["a"] > 0.123, lambda a: a * one(e), lambda a: jnp.cos(one(e) + a), w(e))


@kind
def switch_by_z(c):
    i, w, one = c.index(3), c.real(), c.number()
    cases = (lambda a, b: a, lambda a, b: a * b, lambda a, b: jnp.sin(a + b))
    return lambda e: lax.switch(i(e), cases, w(e), one(e))


@kind
def loop_until_z(c):
    i, w = c.index(4), c.real()
    return lambda e: lax.while_loop(lambda s: s[0] < i(e), lambda s: (s[0] + 1, 0.5 * s[1] + 1.0), (0, 1.0))[1] * w(e)


@kind
def loop_of_known_length(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: lax.fori_loop(0, n, lambda t, a: 0.5 * a + jnp.sin(many(e)[t] * w(e)[t]), 0.1)


@kind
def loop_that_fills(c):
    many, n = c.vector()
    w = c.reals(n)

    def term(e):
        filled = lax.fori_loop(0, n, lambda t, a: a.at[t].set(many(e)[t] * w(e)[t]), jnp.zeros(n))
        return jnp.tanh(filled).sum()

    return term


@kind
def loop_that_fills_from_before(c):
    many, n = c.vector(3)
    w = c.reals(n)

    def term(e):
        return lax.fori_loop(1, n, lambda t, a: a.at[t].set(0.5 * a[t - 1] + many(e)[t] * w(e)[t]), w(e)).sum()

    return term


@kind
def hidden_markov(c):
    (i, n), w = c.indices(3), c.real()
    table, y = c.array(3, 3), c.array(n)

    def term(e):
        log_transition = jax.nn.log_softmax(table(e) * w(e), axis=1)

        def step(before, now):
            state, y_t = now
            return state, log_transition[before, state] - 0.5 * (y_t - state * w(e)) ** 2

        return lax.scan(step, i(e)[0], (i(e), y(e)))[1].sum()

    return term


@kind
def hidden_markov_backwards(c):
    (many, n), w = c.vector(), c.real()
    y = c.array(n)

    def term(e):
        def step(later, now):
            s, y_t = now
            return s, w(e) * s * later - 0.5 * (y_t - s) ** 2

        return lax.scan(step, 0.5, (many(e), y(e)), reverse=True)[1].sum()

    return term


@kind
def recurrence(c):
    (many, _), w = c.vector(), c.real()

    def term(e):
        last, path = lax.scan(lambda a, s: (jnp.tanh(a + w(e) * s), a * s), 0.2, many(e))
        return last + path.sum()

    return term


@kind
def sum_in_a_loop(c):
    many, n = c.vector()
    w = c.reals(n)

    def term(e):
        return lax.scan(lambda a, t: (a + jnp.sin(many(e)[t] * w(e)[t]), None), 0.0, jnp.arange(n))[0]

    return term


@kind
def loop_in_a_loop(c):
    (many, _), w = c.vector(), c.reals(2)

    def term(e):
        def inner(s):
            return lax.scan(lambda b, v: (b + v * s, b * v), 0.0, w(e))[1].sum()

        return lax.scan(lambda a, s: (a + inner(s), None), 0.0, many(e))[0]

    return term


@kind
def branch_in_a_loop(c):
    many, n = c.vector(3)
    w = c.reals(n)

    def term(e):
        def step(before, now):
            t, s = now
            return s, lax.cond(t == 0, lambda: w(e)[0] * s, lambda: jnp.cos(s - before) * w(e)[1])

        return lax.scan(step, 0.0, (jnp.arange(n), many(e)))[1].sum()

    return term


@kind
def branch_by_z_in_a_loop(c):
    many, n = c.vector()
    w = c.reals(n)

    def term(e):
        def step(a, now):
            s, v = now
            return a + lax.cond(s > 0.4, lambda: jnp.sin(v), lambda: v * s), s

        return lax.scan(step, 0.0, (many(e), w(e)))[0]

    return term


@kind
def second_order_chain(c):
    (i, _), w = c.indices(2, 3), c.real()
    table = c.array(2, 2, 2)

    def term(e):
        def step(carry, now):
            first, second = carry
            return (second, now), table(e)[first, second, now] * w(e)

        return lax.scan(step, (i(e)[0], i(e)[1]), i(e)[2:])[1].sum()

    return term


@kind
def counting_loop(c):
    many, n = c.vector()
    w = c.reals(n)

    def term(e):
        def step(carry, s):
            t, seen = carry
            return (t + 1, seen | (s > 0.4)), jnp.where(seen, w(e)[t], 0.2 * s)

        return lax.scan(step, (0, jnp.array(False)), many(e))[1].sum()

    return term


@kind
def mapped(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: lax.map(lambda s: jnp.sin(s * w(e)) + s, many(e)).sum()


# Functions of functions.


@jax.custom_jvp
def soft(a):
    return jnp.log1p(jnp.exp(a))


soft.defjvp(lambda primals, tangents: (soft(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]))


@jax.custom_jvp
def scaled_product(a, b):
    return jnp.sin(a) * b


@scaled_product.defjvp
def _(primals, tangents):
    (a, b), (da, db) = primals, tangents
    return scaled_product(a, b), jnp.cos(a) * b * da + jnp.sin(a) * db


@jax.custom_vjp
def rounded(a):
    return jnp.round(a * 4) / 4


rounded.defvjp(lambda a: (rounded(a), None), lambda _, g: (g,))


@jax.custom_vjp
def mixed(a, b):
    return jnp.sin(a * b)


mixed.defvjp(
    lambda a, b: (mixed(a, b), (a, b)), lambda r, g: (g * jnp.cos(r[0] * r[1]) * r[1], g * jnp.cos(r[0] * r[1]) * r[0])
)


@kind
def own_derivative(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: soft(many(e) * w(e)).sum()


@kind
def own_derivative_of_two(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: scaled_product(w(e), many(e)).sum()


@kind
def own_derivative_backwards(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: mixed(many(e), w(e)).sum()


@kind
def straight_through(c):
    one, w = c.number(), c.real()
    return lambda e: rounded(w(e)) * one(e)


OWN_DERIVATIVE.add("straight_through")


@kind
def checkpointed(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jax.checkpoint(lambda a, b: jnp.sin(a * b).sum())(many(e), w(e))


@kind
def jitted(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jax.jit(lambda a, b: jnp.cos(a - b).sum())(many(e), w(e))


@kind
def mapped_over(c):
    (many, n), w = c.vector(), c.real()
    y = c.array(n)
    return lambda e: jax.vmap(lambda s, y: dist.Normal(s, e.x["s"]).log_prob(y) * w(e))(many(e), y(e)).sum()


@kind
def branch_mapped_over(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: jax.vmap(lambda s: lax.cond(s > 0.4, lambda: w(e) * s, lambda: jnp.sin(w(e))))(many(e)).sum()


@kind
def pairs_mapped_over(c):
    (many, _), w = c.vector(), c.real()
    each = jax.vmap(jax.vmap(lambda a, b, w: jnp.cos(a * w - b), (None, 0, None)), (0, None, None))
    return lambda e: 0.3 * each(many(e), many(e), w(e)).sum()


@kind
def derivative_within(c):
    one, w = c.number(), c.real()
    return lambda e: jax.grad(lambda a: jnp.sin(a * one(e)) + a**2)(w(e))


@kind
def stopped(c):
    one, w = c.number(), c.real()
    return lambda e: lax.stop_gradient(jnp.sin(one(e))) * w(e)


# Integers, bits and types.


@kind
def bits(c):
    i, j, w = c.integer(), c.integer(), c.real()
    join = c.one_of(jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor)
    return lambda e: 0.3 * w(e) * join(i(e), j(e))


@kind
def shifted_bits(c):
    i, j, w = c.index(4), c.index(3), c.real()
    shift = c.one_of(jnp.left_shift, jnp.right_shift)
    return lambda e: 0.3 * w(e) * shift(i(e), j(e))


@kind
def remainder(c):
    i, j, w = c.integer(), c.integer(), c.real()
    return lambda e: w(e) * ((i(e) + 2 * j(e)) % 3)


@kind
def signed_remainder(c):
    i, w = c.integer(), c.real()
    return lambda e: w(e) * lax.rem(i(e) - 1, 3) + 0.1 * w(e) * jnp.fmod(i(e) * 1.0, 1.5)


@kind
def floor_divided(c):
    i, j, w = c.integer(), c.integer(), c.real()
    return lambda e: w(e) * ((i(e) + j(e)) // 2) + 0.2 * jnp.floor(i(e) / 3)


@kind
def population(c):
    i, j, w = c.index(8), c.index(8), c.real()
    return lambda e: w(e) * lax.population_count(i(e) * 8 + j(e)) + 0.01 * lax.clz((i(e) + 1).astype(jnp.int32))


@kind
def whole_power(c):
    i, w = c.index(3), c.real()
    return lambda e: 0.3 * w(e) * (2 ** i(e)) + 0.1 * (i(e) - 1) ** 2


@kind
def wraps_around(c):
    i, j, w = c.integer(), c.integer(), c.real()
    return lambda e: 0.01 * w(e) * (i(e).astype(jnp.uint8) - j(e).astype(jnp.uint8))


@kind
def short_integers(c):
    i, j, w = c.index(100), c.index(100), c.real()
    return lambda e: 0.01 * w(e) * (i(e).astype(jnp.int8) * 40 + j(e).astype(jnp.int8) * 3)


@kind
def truths_added(c):
    (truths, _), (others, _), w = c.truths(), c.truths(), c.real()
    return lambda e: w(e) * (truths(e).sum() - 0.5 * others(e).astype(jnp.int8).sum())


@kind
def logic(c):
    a, b, d, w = c.truth(), c.truth(), c.truth(), c.real()
    return lambda e: w(e) * ((a(e) & ~b(e)) | (d(e) ^ b(e)))


@kind
def signs(c):
    one, two, w = c.number(), c.number(), c.real()
    return lambda e: w(e) * jnp.sign(one(e) - two(e)) + jnp.clip(one(e) - 0.3, -0.5, two(e) + 1)


@kind
def half_precision(c):
    one, w = c.number(), c.real()
    return lambda e: one(e).astype(jnp.float16).astype(float) * w(e)


@kind
def rounded_z(c):
    one, two, w = c.number(), c.number(), c.real()
    return lambda e: w(e) * jnp.round(0.6 * one(e) + 0.3 * two(e)) + jnp.ceil(0.4 * one(e))


# Hard constraints.


@impossible
def differ(c):
    one, two = c.number(), c.number()
    return lambda e: jnp.where(one(e) != two(e), 0.0, -INF)


@impossible
def ascend(c):
    many, _ = c.vector()
    return lambda e: jnp.where(jnp.all(many(e)[1:] >= many(e)[:-1]), 0.0, -INF)


@impossible
def total_is(c):
    truths, _ = c.truths()
    return lambda e: jnp.where(truths(e).sum() == 1, 0.2 * e.x["a"], -INF)


@impossible
def log_of_truth(c):
    one, two = c.number(), c.number()
    return lambda e: jnp.log((one(e) <= two(e)).astype(float))


@impossible
def forbidden_by_x(c):
    one, w = c.number(), c.real()
    return lambda e: jnp.where(one(e) < 1.37 + w(e), jnp.sin(w(e)), -INF)


# What is impossible for some z, or singular where it is not chosen.


@impossible
def log_of_product(c):
    one, p = c.amount(), c.probability()
    return lambda e: jnp.log(one(e) * p(e))


@impossible
def log_of_rest(c):
    truth, p = c.truth(), c.probability()
    return c.one_of(lambda e: jnp.log1p(-(truth(e) * 1.0)) + p(e), lambda e: jnp.log1p(-(truth(e) * p(e))))


@impossible
def occupied(c):
    truth, p = c.truth(), c.probability()
    y = c.known(c.one_of(np.array([0.0, 1.0, 0.0]), np.zeros(3), np.ones(2)))
    return lambda e: dist.Bernoulli(probs=truth(e) * p(e)).log_prob(y(e)).sum()


@impossible
def occupied_counts(c):
    truth, p = c.truth(), c.probability()
    y = c.known(c.one_of(np.array([0, 5, 2]), np.array([0, 0]), np.array([5])))
    return lambda e: dist.Binomial(5, probs=truth(e) * p(e)).log_prob(y(e)).sum()


@impossible
def occupied_many(c):
    truths, n = c.truths()
    p, y = c.probability(), c.known(c.whole(4, n))
    return lambda e: dist.Binomial(3, probs=truths(e) * p(e)).log_prob(y(e)).sum()


@impossible
def rate_of_zero(c):
    one, s = c.amount(), c.positive()
    y = c.known(c.one_of(np.array([0, 3]), np.array([0]), np.array([2])))
    return lambda e: dist.Poisson(one(e) * s(e)).log_prob(y(e)).sum()


@impossible
def scale_of_zero(c):
    one, s, y = c.amount(), c.positive(), c.array(2)
    return lambda e: dist.Normal(e.x["a"], one(e) * s(e)).log_prob(y(e)).sum()


@impossible
def power_of_zero(c):
    truths, n = c.truths()
    w = c.reals(n)
    return lambda e: (jnp.power(0.0, truths(e)) * w(e)).sum()


@impossible
def probability_to_z(c):
    (many, _), p = c.vector(), c.probability()
    return lambda e: jnp.log(jnp.power(p(e), jnp.abs(many(e)))).sum() + xlogy(many(e), p(e)).sum()


@impossible
def divided_by_z(c):
    one, s = c.amount(), c.positive()
    return lambda e: -(s(e) ** 2) / one(e)


@impossible
def not_taken(c):
    one, p = c.amount(), c.probability()
    return lambda e: jnp.where(one(e) > 0, jnp.log(one(e) * p(e)), jnp.sin(p(e)))


@impossible
def not_taken_root(c):
    one, s = c.number(), c.positive()
    return lambda e: jnp.where(one(e) > 0, jnp.sqrt(one(e) * s(e)), s(e) ** 2)


@impossible
def log_of_choice(c):
    truths, _ = c.truths()
    p = c.probability()
    return lambda e: jnp.log(jnp.where(truths(e), p(e), 0.0)).sum() * 0.5


@impossible
def log_of_choice_with_data(c):
    (truths, n), s = c.truths(), c.positive()
    y = c.known(c.whole(3, n) * 1.0)

    def term(e):
        rate = jnp.where(truths(e), s(e), 0.0)
        return (xlogy(y(e), rate) - rate).sum()

    return term


@impossible
def clamped(c):
    truths, n = c.truths()
    p, y = c.probability(), c.known(c.whole(2, n))
    return lambda e: dist.Bernoulli(probs=dist.util.clamp_probs(truths(e) * p(e))).log_prob(y(e) * 1.0).sum()


@impossible
def survival(c):
    truths, _ = c.truths()
    phi, p = c.probability(), c.probability()

    def term(e):
        def step(alive, now):
            return now, dist.Bernoulli(phi(e) * alive).log_prob(now * 1) + xlog1py(now * 1.0, -0.5 * p(e))

        return lax.scan(step, jnp.array(True), truths(e))[1].sum()

    return term


@impossible
def mixture_with_zero(c):
    one, p, s = c.truth(), c.probability(), c.positive()
    return lambda e: logsumexp(jnp.stack([jnp.log(one(e) * p(e)), jnp.log1p(-p(e)) - s(e)]))


@impossible
def atan_of_zeros(c):
    one, two, w = c.number(), c.number(), c.real()
    return lambda e: jnp.where(one(e) == 0, w(e), jnp.arctan2(two(e) * w(e), one(e) * w(e) ** 2))


# Moving about.


@kind
def rolled(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: -((many(e) - w(e) * jnp.roll(many(e), 1)) ** 2).sum() * 0.3


@kind
def flipped(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: (many(e) * jnp.flip(many(e)) * w(e)).sum()


@kind
def padded(c):
    many, n = c.vector()
    w = c.reals(n + 2)
    return lambda e: jnp.sin(jnp.pad(many(e), (1, 2), constant_values=0.5)[1:]) @ w(e)


@kind
def spaced(c):
    many, n = c.vector()
    w = c.reals(2 * n)
    return lambda e: jnp.cos(lax.pad(many(e), 0.3, [(-1, 2, 1)])) @ w(e)


@kind
def joined(c):
    (many, n), (other, m) = c.vector(), c.vector()
    w = c.reals(n + m)
    return lambda e: jnp.sin(jnp.concatenate([other(e)[::-1], many(e)]) * w(e)).sum()


@kind
def stacked(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.prod(jnp.stack([many(e) + 1, w(e)], axis=1), axis=1).sum()


@kind
def turned(c):
    many, n = c.vector()
    table, w = c.array(n, 3), c.reals(3)
    return lambda e: jnp.tanh((many(e)[:, None] * table(e)).T.reshape(3, n).sum(axis=1)) @ w(e)


@kind
def repeated(c):
    many, n = c.vector()
    w = c.reals(2 * n)
    return lambda e: jnp.sin(jnp.repeat(many(e), 2) * w(e)).sum() + (jnp.tile(many(e), 2) * w(e)).sum()


@kind
def triangle(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jnp.sin(jnp.tril(jnp.outer(many(e), w(e)))).sum()


@kind
def every_second(c):
    many, _ = c.vector(3)
    w = c.reals(2)
    return lambda e: jnp.cos(many(e)[:3:2] * w(e)).sum() + jnp.trace(jnp.diag(many(e))) * w(e)[0]


# Reductions.


@kind
def reduced(c):
    (many, _), w = c.vector(), c.real()
    reduce = c.one_of(jnp.sum, jnp.max, jnp.min, jnp.mean, jnp.var, jnp.ptp)
    c.notes.append(reduce.__name__)
    return lambda e: w(e) * jnp.tanh(reduce(many(e)))


@kind
def product_of_all(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * jnp.prod(0.5 * many(e) + 0.7)


@kind
def any_or_all(c):
    (truths, _), w = c.truths(), c.real()
    reduce = c.one_of(jnp.any, jnp.all)
    return lambda e: w(e) * reduce(truths(e))


@kind
def place_of_highest(c):
    many, n = c.vector()
    w, arg = c.reals(n), c.one_of(jnp.argmax, jnp.argmin)
    return lambda e: w(e)[arg(many(e) + 0.01 * jnp.arange(n))]


@kind
def log_sum(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: logsumexp(many(e) * w(e))


@kind
def log_sum_with_signs(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: 0.5 * logsumexp(w(e), b=1.0 + many(e) ** 2)


@kind
def parity(c):
    (i, _), w = c.indices(2), c.real()
    return lambda e: w(e) * lax.reduce(i(e), np.array(0, i(e).dtype), lax.bitwise_xor, (0,))


@kind
def windows(c):
    many, _ = c.vector(3)
    w = c.real()

    def term(e):
        lowest = np.array(-np.inf, many(e).dtype)
        return w(e) * lax.reduce_window(many(e), lowest, lax.max, (2,), (1,), "VALID").sum()

    return term


@kind
def softmax(c):
    many, n = c.vector()
    w = c.reals(n)
    return lambda e: jax.nn.log_softmax(many(e) * w(e))[0] + jax.nn.softmax(many(e)) @ w(e)


# Distributions.


@kind
def categorical(c):
    i, w = c.index(3), c.reals(3)
    return lambda e: dist.Categorical(logits=w(e)).log_prob(i(e))


@kind
def categorical_of_rows(c):
    (i, _n), w, table = c.indices(3), c.real(), c.array(3, 3)
    return lambda e: dist.Categorical(jax.nn.softmax(table(e) * w(e), -1)[i(e)[:-1]]).log_prob(i(e)[1:]).sum()


@kind
def bernoulli_of_logits(c):
    (truths, _), w = c.truths(), c.real()
    return lambda e: dist.Bernoulli(logits=w(e)).log_prob(truths(e) * 1.0).sum()


@kind
def binomial_of_n(c):
    i, p = c.index(4), c.probability()
    return lambda e: dist.Binomial(i(e) + 2, p(e)).log_prob(jnp.asarray(2))


@impossible
def binomial_of_small_n(c):
    i, p = c.index(4), c.probability()
    y = c.known(c.whole(3, 2))
    return lambda e: dist.Binomial(i(e), p(e)).log_prob(y(e)).sum()


@kind
def poisson(c):
    i, s = c.index(5), c.positive()
    return lambda e: dist.Poisson(s(e)).log_prob(i(e))


@kind
def normal_mixture(c):
    (i, n), w = c.indices(2), c.reals(2)
    y = c.array(n)
    return lambda e: dist.Normal(w(e)[i(e)], e.x["s"]).log_prob(y(e)).sum()


@kind
def normal_of_z(c):
    one, w, s = c.number(), c.real(), c.positive()
    return lambda e: dist.Normal(w(e), s(e)).log_prob(one(e))


@kind
def beta(c):
    one, p, s = c.amount(), c.probability(), c.positive()
    return lambda e: dist.Beta(1.0 + one(e), s(e)).log_prob(p(e))


@impossible
def uniform(c):
    one, s = c.amount(), c.positive()
    return lambda e: dist.Uniform(0.0, 0.5 + one(e)).log_prob(jnp.asarray(0.9)) * s(e)


@kind
def multinomial(c):
    (i, n), w = c.indices(3), c.reals(3)

    def term(e):
        counts = jnp.zeros(3, int).at[i(e)].add(1)
        return dist.Multinomial(n, jax.nn.softmax(w(e))).log_prob(counts)

    return term


@kind
def negative_binomial(c):
    one, s = c.amount(), c.positive()
    return lambda e: dist.NegativeBinomial2(0.5 + one(e), s(e)).log_prob(jnp.asarray(2))


@kind
def student(c):
    one, two, s = c.number(), c.amount(), c.positive()
    return lambda e: dist.StudentT(2.0 + two(e), one(e), s(e)).log_prob(0.4)


@kind
def multivariate_normal(c):
    many, n = c.vector()
    w, s = c.reals(n), c.positive()
    return lambda e: dist.MultivariateNormal(w(e), jnp.eye(n) * s(e) + 0.2).log_prob(many(e))


@kind
def ordered(c):
    i, w = c.index(3), c.real()
    return lambda e: dist.OrderedLogistic(w(e), jnp.array([-0.5, 0.7])).log_prob(i(e))


@kind
def mixture(c):
    one, w, p = c.number(), c.real(), c.probability()

    def term(e):
        parts = dist.Normal(jnp.stack([w(e), one(e)]), 1.0)
        return dist.MixtureSameFamily(dist.Categorical(jnp.stack([p(e), 1 - p(e)])), parts).log_prob(0.3)

    return term


@kind
def ising(c):
    (many, _), w = c.vector(), c.real()
    return lambda e: w(e) * (many(e)[1:] * many(e)[:-1]).sum()


@kind
def alone(c):
    one, w = c.number(), c.real()
    return lambda e: -0.5 * (one(e) - w(e)) ** 2
