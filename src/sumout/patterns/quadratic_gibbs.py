"""Gibbs updates of sites that meet in a quadratic form, one after the other, each with its partner in x if it has one.

Given all else, the log density of site j at its k-th value and of its partner at u is a polynomial in u:

    v = a_k + b_k u                                  the number with which the site enters the form c + s·v − ½ v·A v
    own = p0_k + p1_k u − ½ p2_k u²                  the factors of the site alone, and the partner's prior
    own + t v − ½ A_jj v²,  t = s_j − Σ_{i≠j} A_ji v_i

so that k has weight exp(C_k + t a_k + ½ (G_k + t b_k)² / H_k) / √H_k, and u given k is Gaussian with precision
H_k = p2_k + A_jj b_k² and mean (G_k + t b_k) / H_k, where G_k = p1_k − A_jj a_k b_k and C_k = p0_k − ½ A_jj a_k². Where
partners also meet in the rest of the density, r·u − ½ u·R u, H_k has R_jj in addition, and G_k + t b_k is joined by
w = r_j − Σ_{i≠j} R_ji u_i. All but t and w is computed for all sites at once; then a turn of a site costs a few
operations and a row of A. For a coefficient with its inclusion indicator this is Gibbs sampling with the coefficient
integrated out: an indicator that is off need not wait until its coefficient, free to wander, comes by a good value.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.model.program import Data, Nuisance
from sumout.moves.move import NuisanceMove
from sumout.patterns.contract import SiteScan
from sumout.patterns.quadratic_forms import Quadratic, find_quadratic
from sumout.randomness import normal, split, uniform
from sumout.tables.blocks import Block, build_block, pick
from sumout.tables.factor_sums import Sums, build_sums
from sumout.tables.logsumexp import invert

LEAST_WEIGHT = 1000  # times as probable as a value that still counts the most probable one may be


class Conditionals(NamedTuple):
    """What the conditional of a site follows from, given its t: arrays `(K, n)`, of a single site `(K,)`."""

    a: Float[Array, "K ..."]
    b: Float[Array, "K ..."]
    constant: Float[Array, "K ..."]  # C − ½ log H
    slope: Float[Array, "K ..."]  # G
    variance: Float[Array, "K ..."]  # 1 / H

    def at(
        self, pull: Float[Array, "..."], on_partner: Float[Array, "..."] | float = 0.0
    ) -> tuple[Float[Array, "K ..."], Float[Array, "K ..."]]:
        """Log weights of the values, and means of the partner, from t and w."""
        slope = self.slope + pull * self.b + on_partner
        means = slope * self.variance
        return self.constant + pull * self.a + 0.5 * slope * means, means


@dataclass(frozen=True, eq=False)
class QuadraticGibbs(NuisanceMove):
    """A sweep over such sites.

    Attributes:
        form: how they meet.
        block: where their values stand; not a block otherwise, as they share factors.
        own: sums of the factors of each site alone.
        values: `(K, n)`, or `(K, 1)` where all sites share their values.
        allowed: like `values`; False where a site has fewer values than K. None where all have K.
        by_colour: the same sites by the values of their factors, for kernels that move one colour at a time.
    """

    form: Quadratic
    block: Block
    own: Sums
    values: np.ndarray
    allowed: np.ndarray | None
    by_colour: NuisanceMove

    @property
    def cost(self) -> float:
        """Elements of the matrix, and of the tables of all sites."""
        return self.block.size * float(self.block.size + len(self.values))

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated: those of the form are, once for each site, for A."""
        return len(self.values) + self.block.size

    @property
    def moves_x(self) -> bool:
        """Whether partners can be moved along."""
        return self.form.has_partners

    @property
    def num_parts(self) -> int:
        """The colours."""
        return self.by_colour.num_parts

    def part(self, i: Array) -> NuisanceMove:
        """By the values of the factors: for one part the matrix is not worth its while."""
        return self.by_colour.part(i)

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """The conditionals of the sites."""
        yield self.form.sites, self.conditionals(x, z, data).T

    @property
    def pattern(self) -> str:
        """As it is called in messages."""
        return "a quadratic form"

    def describe(self) -> str:
        """How the sites meet, and with what they are drawn."""
        return self.form.describe()

    def conditionals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Probabilities of the values of every site, given all else."""
        return jax.nn.softmax(self.log_weights(x, z, data), axis=0)

    def log_weights(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        """Log probabilities of the values of every site given all else, up to a constant for each site."""
        pull, matrix = self._pull(x, z, data)
        return self._at_this_x(jnp.diag(matrix), x, z, data).at(pull)[0]

    def verify(
        self, x: Array, z: Nuisance, other_x: Array, other_z: Nuisance, data: Data
    ) -> tuple[Array, Array, Array]:
        """The log density, what it is if one site, and its partner, are as they are elsewhere, and `log_changes`."""
        num_x, log_density = len(x), self.form.structure.program.log_density
        now, then, sites = self.block.take(z), self.block.take(other_z), jnp.arange(self.block.size)
        partners = self.form.partners if self.moves_x else np.full(self.block.size, num_x)

        def changed(j: Array) -> Array:
            x_j = jnp.where(jnp.arange(num_x) == jnp.asarray(partners)[j], other_x, x)
            return log_density(x_j, self.block.place(z, jnp.where(sites == j, then, now)), data)

        return log_density(x, z, data), jax.vmap(changed)(sites), self.log_changes(x, z, other_x, other_z, data)

    def mode_distances(self, x: Array, z: Nuisance, data: Data) -> Float[Array, " n"]:
        """How far apart the modes are that partners have with their sites summed out, in standard deviations.

        Of two means that follow on each other, of values that count, the largest distance.
        """
        log_weights, means, variance = self._given_others(x, z, data)
        counts = log_weights > log_weights.max(axis=0) - np.log(LEAST_WEIGHT)
        order = jnp.argsort(jnp.where(counts, means, jnp.inf), axis=0)
        means, deviations, counts = (jnp.take_along_axis(a, order, axis=0) for a in (means, jnp.sqrt(variance), counts))
        distances = (means[1:] - means[:-1]) / jnp.maximum(deviations[1:], deviations[:-1])
        return jnp.max(jnp.where(counts[1:], distances, 0.0), axis=0, initial=0.0)

    def log_changes(self, x: Array, z: Nuisance, other_x: Array, other_z: Nuisance, data: Data) -> Float[Array, " n"]:
        """How the log density would change if one site, and its partner if it has one, were as they are elsewhere."""
        log_weights, means, variances = self._given_others(x, z, data)

        def log_density(x: Array, z: Nuisance) -> Array:
            which = jnp.argmax(jnp.asarray(self.values) == self.block.take(z), axis=0)
            weight, mean, variance = (pick(table, which) for table in (log_weights, means, variances))
            off = x[self.form.partners] - mean if self.moves_x else 0.0
            return weight - 0.5 * off**2 / variance - 0.5 * jnp.log(variance)

        # Where a conditional is no law (an improper prior), a site stays as it is, and nothing is said.
        return jnp.where(_is_law(log_weights, variances), log_density(other_x, other_z) - log_density(x, z), jnp.nan)

    def _given_others(self, x: Array, z: Nuisance, data: Data) -> tuple[Array, Array, Array]:
        """Log weights of the values of every site, all others being as they are; mean and variance of its partner."""
        pull, matrix = self._pull(x, z, data)
        if not self.moves_x:
            found = self._at_this_x(jnp.diag(matrix), x, z, data)
            return *found.at(pull), found.variance
        linear, matrix_u = self._rest_form(x, z, data)
        found = self._with_partners(jnp.diag(matrix), x, z, data, jnp.diag(matrix_u))
        return *found.at(pull, linear - _between(matrix_u) @ x[self.form.partners]), found.variance

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """Draw all sites, one after the other, at this x."""
        if not self.form.arrays:  # given x they are independent
            return self.by_colour(key, x, z, data)
        linear, matrix = self._form(x, z, data)
        found = self._at_this_x(jnp.diag(matrix), x, z, data)
        return self._sweep(key, x, z, data, found, (linear, matrix), None)[0]

    def jointly(self, key: Array, x: Array, z: Nuisance, data: Data) -> tuple[Array, Nuisance]:
        """Draw all sites, one after the other, each together with its partner if it has one."""
        if not self.moves_x:
            return x, self(key, x, z, data)
        meeting, rest = self._form(x, z, data), self._rest_form(x, z, data)
        found = self._with_partners(jnp.diag(meeting[1]), x, z, data, jnp.diag(rest[1]))
        if self.form.arrays or self.form.do_partners_meet:
            z, u = self._sweep(key, x, z, data, found, meeting, rest)
        else:
            z, u = self._at_once(key, z, found, rest[0])
        partners = self.form.partners
        return x.at[partners].set(jnp.where(jnp.isnan(u), x[partners], u), unique_indices=True), z

    def _at_once(self, key: Array, z: Nuisance, found: Conditionals, on_partner: Array) -> tuple[Nuisance, Array]:
        """New z and partners, of sites that neither meet nor have partners that do."""
        key_z, key_x = split(key)
        num = self.block.size
        log_weights, means = found.at(jnp.zeros_like(on_partner), on_partner)
        which = invert(log_weights, uniform(key_z, (num,), means.dtype))
        u = pick(means, which) + normal(key_x, (num,), means.dtype) * jnp.sqrt(pick(found.variance, which))
        return self._placed_where_sound(z, found, which, u)

    def _sweep(
        self, key: Array, x: Array, z: Nuisance, data: Data, found: Conditionals, meeting: Any, rest: Any
    ) -> tuple[Nuisance, Array]:
        """New z, and a draw of every partner; NaN where a site stays as it is, as its conditional is no law."""
        linear, matrix = meeting
        v, between, num = self.form.numbers(x, z, data), _between(matrix), self.block.size
        # Without partners no draw of u is looked at.
        on_partner, u, between_u = (jnp.zeros((0,), v.dtype), jnp.zeros(num, v.dtype), jnp.zeros((num, 0), v.dtype))
        if rest is not None:
            u, between_u = x[self.form.partners], _between(rest[1])
            on_partner = rest[0] - between_u @ u
        key_z, key_x = split(key)
        levels, noise = (draw(k, (num,), v.dtype) for draw, k in ((uniform, key_z), (normal, key_x)))
        is_sound = _is_sound(found)
        sites = jnp.arange(num), v, u, is_sound, levels, noise, between, between_u, jax.tree.map(jnp.transpose, found)

        def one(pulls: tuple[Array, Array], site: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            pull, on_partner = pulls
            j, v, u, is_sound, level, noise, row, row_u, found = site
            log_weights, means = found.at(pull[j], on_partner[j] if len(on_partner) else 0.0)
            k = invert(log_weights[:, None], level[None])[0]
            drawn = means[k] + noise * jnp.sqrt(found.variance[k])
            change = jnp.where(is_sound, found.a[k] + found.b[k] * drawn - v, 0.0)
            return (pull - row * change, on_partner - row_u * jnp.where(is_sound, drawn - u, 0.0)), (k, drawn)

        _, (which, drawn) = jax.lax.scan(one, (linear - between @ v, on_partner), sites)
        return self._placed_where_sound(z, found, which, drawn)

    def _placed_where_sound(
        self, z: Nuisance, found: Conditionals, which: Array, u: Array
    ) -> tuple[Nuisance, Float[Array, " n"]]:
        is_sound = _is_sound(found)
        z = self.block.place(z, jnp.where(is_sound, pick(self.values, which), self.block.take(z)))
        return z, jnp.where(is_sound, u, jnp.nan)

    def _pull(self, x: Array, z: Nuisance, data: Data) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
        """The t of every site, all others being as they are, and the matrix."""
        linear, matrix = self._form(x, z, data)
        return linear - _between(matrix) @ self.form.numbers(x, z, data), matrix

    def _form(self, x: Array, z: Nuisance, data: Data) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
        """Gradient at v = 0 and matrix of the quadratic form."""
        if not self.form.arrays:
            return jnp.zeros(self.block.size, x.dtype), jnp.zeros((self.block.size, self.block.size), x.dtype)
        return _taken_apart(lambda v: self.form.log_meeting(v, x, z, data), self.block.size, x.dtype)

    def _rest_form(self, x: Array, z: Nuisance, data: Data) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
        """The same of what partners do to each other where no site is."""
        num, partners = self.block.size, self.form.partners
        if not self.form.do_partners_meet:
            return jnp.zeros(num, x.dtype), jnp.zeros((num, num), x.dtype)

        def log_rest(u: Array) -> Array:
            return self.form.log_rest(x.at[partners].set(u, unique_indices=True), z, data)

        return _taken_apart(log_rest, num, x.dtype)

    def _at_this_x(self, diagonal: Array, x: Array, z: Nuisance, data: Data) -> Conditionals:
        """With partners, if there are any, as they are."""

        def at(values: Array) -> Conditionals:
            z_k = self._placed(z, values)
            a = self.form.numbers(x, z_k, data)
            p0 = self.own(self.form.structure.spread_factors(x, z_k, data))
            return _complete(diagonal, a, jnp.zeros_like(a), p0, jnp.zeros_like(a), jnp.ones_like(a))

        return self._tabulate(at)

    def _with_partners(
        self, diagonal: Array, x: Array, z: Nuisance, data: Data, diagonal_u: Array | float = 0.0
    ) -> Conditionals:
        """With partners free; the diagonals are those of both matrices."""
        partners = self.form.partners
        origin, ones = (jnp.full(len(partners), value, x.dtype) for value in (0.0, 1.0))

        def at(values: Array) -> Conditionals:
            z_k = self._placed(z, values)

            def moved(u: Array) -> Array:
                return x.at[partners].set(u, unique_indices=True)

            a, b = jax.jvp(lambda u: self.form.numbers(moved(u), z_k, data), (origin,), (ones,))
            slope = jax.grad(lambda u: self.form.log_own(moved(u), z_k, data))
            p1, p2 = jax.jvp(slope, (origin,), (-ones,))  # of functions of one partner each: all slopes at once
            p0 = self.own(self.form.structure.spread_factors(moved(origin), z_k, data))
            return _complete(diagonal, a, b, p0, p1, p2 + diagonal_u)

        return self._tabulate(at)

    def _placed(self, z: Nuisance, values: Array) -> Nuisance:
        """Z with all sites at their k-th value."""
        return (self.block.place_all if values.shape == (1,) else self.block.place)(z, values)

    def _tabulate(self, at: Callable[[Array], Conditionals]) -> Conditionals:
        """For all values."""
        found = jax.vmap(at)(jnp.asarray(self.values))
        if self.allowed is None:
            return found
        return found._replace(constant=jnp.where(self.allowed, found.constant, -jnp.inf))


def _is_sound(found: Conditionals) -> Array:
    """For each site whether its conditional is a law."""
    return _is_law(found.constant, found.variance)


def _is_law(log_weights: Array, variances: Array) -> Array:
    return (log_weights > -jnp.inf).any(axis=0) & (variances > 0).all(axis=0)


def _taken_apart(quadratic: Callable[[Array], Array], num: int, dtype: Any) -> tuple[Array, Array]:
    """Gradient at zero, and minus the matrix of second derivatives, of a quadratic function."""
    linear, along = jax.linearize(jax.grad(quadratic), jnp.zeros(num, dtype))
    return linear, -jax.vmap(along)(jnp.eye(num, dtype=dtype))


def _between(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """What sites do to each other."""
    return jnp.where(np.eye(len(matrix), dtype=bool), 0.0, matrix)


def _complete(diagonal: Array, a: Array, b: Array, p0: Array, p1: Array, p2: Array) -> Conditionals:
    """The conditionals of all sites at one of their values; of precision zero or less, no law."""
    precision = p2 + diagonal * b**2
    variance = jnp.where(precision > 0, 1 / precision, -1.0)
    constant = p0 - 0.5 * diagonal * a**2 + 0.5 * jnp.log(variance)
    return Conditionals(a, b, jnp.where(jnp.isnan(constant), -jnp.inf, constant), p1 - diagonal * a * b, variance)


@dataclass(frozen=True)
class QuadraticForms:
    """Recognises sites that meet in a quadratic form."""

    name: str = "quadratic form"
    subject: type = SiteScan

    def match(self, subject: SiteScan) -> QuadraticGibbs | None:
        """A sweep by the matrix of the form, in which each site is drawn with its partner."""
        form = find_quadratic(subject.structure, subject.sites)
        return None if form is None else _build(form, subject)


def _build(form: Quadratic, subject: SiteScan) -> QuadraticGibbs:
    structure = form.structure
    columns = structure.scopes_by_site[form.sites].tocoo()
    is_own = np.isin(structure.factor_array(columns.col), form.own)
    shared = columns.col[is_own].astype(np.int64), columns.row[is_own].astype(np.int64)
    own = build_sums(structure, shared, len(form.sites))
    block, allowed = build_block(structure, form.sites, with_sums=False), subject.allowed
    return QuadraticGibbs(form, block, own, subject.values, None if allowed.all() else allowed, subject.by_colour)
