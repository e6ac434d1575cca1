"""Sites that meet in a quadratic form.

Inclusion indicators in a regression, spins that all attract each other: the factors in which many sites meet are often
of degree two at most in some numbers v_j, one for each site,

    Σ factors = c + s·v − ½ v·A v,

with s and A free of z. Then what a change of one site does follows from s and A, and the factors need not be evaluated
again. Often v_j also depends on a coordinate of x that is in no other v, the partner of the site, as in
v_j = inclusion_j · β_j. If v_j is linear in it, all factors of a site alone are quadratic in its own partner, and the
rest of the log density is quadratic in all partners, then site and partner have a joint conditional in closed form: for
each value of the site a Gaussian. Sites that do not meet can have partners, too, that meet in the rest: a prior
Normal(0, where(inclusion_j, 1, 0.01)) for β_j.

All of this is read off the program, by degrees of polynomials and by scopes in which x counts, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.extend.core import Literal, Var
from jaxtyping import Array, Float

from sumout.compile.policy import MOST_QUADRATIC_SITES
from sumout.errors import note_unforeseen
from sumout.jaxpr.degrees import Degrees, find_degrees
from sumout.jaxpr.primitives import Linear, row_of
from sumout.jaxpr.walk import shape_of, variables, walk_back
from sumout.model.program import Data, Nuisance
from sumout.structure.factors import Factorisation
from sumout.structure.interpret import Reader
from sumout.structure.scopes import Scopes, dependent
from sumout.structure.structure import Structure, operands_of


@dataclass(frozen=True, eq=False)
class Quadratic:
    """How some sites meet.

    Attributes:
        structure: the reading.
        sites: their numbers, ascending.
        arrays: the arrays that hold the numbers v; none where the sites do not meet.
        places: where the v of each site stands among all elements of `arrays`.
        meeting: the factor arrays in which the sites meet.
        own: the factor arrays in which they are, but do not meet.
        partners: for each site the number of a coordinate of x; empty where there are none.
        do_partners_meet: whether the rest of the log density is more than a sum of functions of one partner each.
    """

    structure: Structure
    sites: np.ndarray
    arrays: tuple[Var, ...]
    places: np.ndarray
    meeting: tuple[int, ...]
    own: tuple[int, ...]
    partners: np.ndarray
    do_partners_meet: bool = False

    @property
    def has_partners(self) -> bool:
        """Whether every site has one."""
        return len(self.partners) > 0

    @cached_property
    def numbers(self) -> Callable[[Array, Nuisance, Data], Float[Array, " n"]]:
        """The v of every site."""
        # Jitted, so that it is traced once however often other compiled code calls it.
        if not self.arrays:
            return lambda x, z, data: jnp.zeros(len(self.sites), x.dtype)
        return jax.jit(lambda x, z, data: self._laid(self._arrays(x, z, data))[self.places])

    @cached_property
    def log_meeting(self) -> Callable[[Float[Array, " n"], Array, Nuisance, Data], Float[Array, ""]]:
        """The sum of the factors in which the sites meet, were their numbers v."""

        @jax.jit
        def log_meeting(v: Array, x: Array, z: Nuisance, data: Data) -> Array:
            arrays = self._arrays(x, z, data)
            laid = self._laid(arrays).at[self.places].set(v)
            ends = np.cumsum([array.size for array in arrays])[:-1]
            pieces = [piece.reshape(a.shape) for piece, a in zip(jnp.split(laid, ends), arrays, strict=True)]
            given = dict(zip(self.arrays, pieces, strict=True))
            factors, _ = self._factorisation.evaluate(*jax.tree.leaves((x, z, data)), given=given)
            return jnp.stack([factors[i].full.sum() for i in self.meeting]).sum()

        return log_meeting

    def log_own(self, x: Array, z: Nuisance, data: Data) -> Float[Array, ""]:
        """What is a sum of functions of one site and one partner each: the rest, too, unless partners meet there."""
        factors = self.structure.spread_factors(x, z, data)
        own = sum((factors[i].full.sum() for i in self.own), start=jnp.zeros((), x.dtype))
        return own if self.do_partners_meet else own + self.log_rest(x, z, data)

    def log_rest(self, x: Array, z: Nuisance, data: Data) -> Float[Array, ""]:
        """All of the log density that does not depend on the sites."""
        factors, rest = self.structure.spread_factors(x, z, data), self.structure.rest(x, z, data)
        others = set(range(len(factors))) - {*self.own, *self.meeting}
        return rest + sum(factors[i].full.sum() for i in others)

    def describe(self) -> str:
        """The form in words."""
        program = self.structure.program
        sites = [name for name, numbers in self.structure.site_numbers.items() if np.isin(numbers, self.sites).any()]
        text = f"{', '.join(sites)}: "
        if self.arrays:
            text += "they meet in a quadratic form, so that all conditionals follow from one matrix."
        if not self.has_partners:
            return text
        ends = np.cumsum([site.size for site in program.x.values()])
        owners = np.unique(np.searchsorted(ends, self.partners, side="right"))
        names = ", ".join(name for i, name in enumerate(program.x) if i in owners)
        also = f"is drawn together with its own coordinate of {names} (Gaussian, given all else), in HMC and NUTS."
        return f"{text}\n  Each {also}" if self.arrays else f"{text}each {also}"

    @property
    def _factorisation(self) -> Factorisation:
        return self.structure.factorisation

    def _arrays(self, x: Array, z: Nuisance, data: Data) -> list[Array]:
        return self._factorisation.values(self.arrays, *jax.tree.leaves((x, z, data)))

    @staticmethod
    def _laid(arrays: list[Array]) -> Array:
        return jnp.concatenate([array.ravel() for array in arrays])


def find_quadratic(structure: Structure, sites: np.ndarray) -> Quadratic | None:
    """The quadratic form in which some sites meet; None where they meet otherwise, or not one number for each."""
    if len(sites) > MOST_QUADRATIC_SITES:
        return None
    try:
        return _find_quadratic(structure, sites)
    except Exception as error:
        note_unforeseen("finding a quadratic form", error)
        return None


def _find_quadratic(structure: Structure, sites: np.ndarray) -> Quadratic | None:
    found = _Search(structure, sites)
    most = [found.most_sites(leaf) for leaf in found.leaves]
    meeting = tuple(i for i, count in enumerate(most) if count > 1)
    own = tuple(i for i, count in enumerate(most) if count == 1)
    if not meeting:
        partners, do_meet = _find_partners(found, (), np.zeros(0, np.int64), meeting, own)
        none = np.zeros(0, np.int64)
        return Quadratic(structure, sites, (), none, meeting, own, partners, do_meet) if len(partners) else None
    # The numbers that are nearest to the factors may have partners; those that are furthest are fewest.
    for go_far in (False, True):
        arrays = found.walk_back([found.leaves[i] for i in meeting], go_far)
        mine = found.z_of(arrays)[:, sites] if arrays else np.zeros((0, len(sites)), bool)
        if (mine.sum(axis=0) != 1).any() or (mine.sum(axis=1) > 1).any():
            continue
        degrees = find_degrees(found.closed, {v: np.ones(shape_of(v), np.int64) for v in arrays})
        if any(degrees.highest(found.leaves[i], found.live[i]) > 2 for i in meeting):
            continue
        places = mine.argmax(axis=0)
        partners, do_meet = _find_partners(found, arrays, places, meeting, own)
        return Quadratic(structure, sites, arrays, places, meeting, own, partners, do_meet)
    return None


class _Search:
    """The program as the search sees it: with the coordinates of x after the sites of z in every scope."""

    def __init__(self, structure: Structure, sites: np.ndarray):
        program, factorisation = structure.program, structure.factorisation
        self.sites, self.num_z, self.num_x = sites, program.num_z, program.num_x
        self.closed, self.linear = factorisation.closed, factorisation.linear
        self.leaves, self.live = factorisation.leaves, factorisation.live
        self.is_reached = factorisation.is_reached
        self.scopes = Scopes(program.num_z + program.num_x)
        self.x_sizes = [site.size for site in program.x.values()]
        x = dependent((program.num_x,), self.num_z + 1 + np.arange(program.num_x))
        self._most_sites: dict[Var, int] = {}
        self.env = Reader(self.scopes).run(self.closed.jaxpr, self.closed.consts, operands_of(program, x))

    def scope(self, variable: Var) -> sp.csr_array:
        """Elements × sites and coordinates."""
        return self.scopes.matrix(self.env[variable].scopes.ravel())

    def z_of(self, arrays: Any) -> np.ndarray:
        """Elements of some arrays laid end to end × sites."""
        return np.concatenate([self.scope(v)[:, : self.num_z].toarray() for v in arrays])

    def x_of(self, arrays: Any) -> np.ndarray:
        """Elements of some arrays laid end to end × coordinates of x."""
        return np.concatenate([self.scope(v)[:, self.num_z :].toarray() for v in arrays])

    def x_beside_sites(self, leaves: tuple[int, ...]) -> np.ndarray:
        """Sites × coordinates of x: whether an element of some factor arrays that counts depends on both."""
        found = np.zeros((len(self.sites), self.num_x), bool)
        for i in leaves:
            rows = self.scope(self.leaves[i])[np.flatnonzero(np.ravel(self.live[i]))]
            mine = sp.csr_array(rows[:, self.sites], dtype=np.int64)
            found |= (mine.T @ sp.csr_array(rows[:, self.num_z :], dtype=np.int64)).toarray() > 0
        return found

    def interact(self, partners: np.ndarray) -> np.ndarray:
        """For each site whether it meets its partner in more than a sum: else nothing is gained by drawing both."""
        found = np.zeros(len(self.sites), bool)
        for eqn in self.closed.jaxpr.eqns:
            row = row_of(eqn)
            if row.linear is not Linear.ALL and not row.is_movement:
                for v in eqn.outvars:
                    if self.most_sites(v):
                        scope = self.scope(v)
                        both = scope[:, self.sites].multiply(scope[:, self.num_z + partners])
                        found |= np.asarray(both.sum(axis=0)).ravel() > 0
        return found

    def most_sites(self, variable: Var) -> int:
        """How many of the sites in question an element depends on at most."""
        if variable not in self._most_sites:
            numbers = np.unique(self.env[variable].scopes)
            mine = set(self.sites.tolist())
            found = max((len(self.scopes.members(int(number)) & mine) for number in numbers), default=0)
            self._most_sites[variable] = found
        return self._most_sites[variable]

    def walk_back(self, leaves: list[Var], go_far: bool) -> tuple[Var, ...]:
        """From factors to arrays in which each element depends on one site; none where there are no such arrays.

        The walk ends where it first comes to such an array that is no larger than there are sites, or, if it is to go
        far, where it last does so before an equation that is not arithmetic.
        """
        arrays: list[Var] = []

        def step(eqn: Any, wanted: list[bool | None]) -> list[bool | None]:
            operands = [v for v in variables(eqn.invars) if self.most_sites(v)]
            is_last = not all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in operands)
            reached = [v for v, is_wanted in zip(eqn.outvars, wanted, strict=True) if is_wanted]
            found = [v for v in reached if self._is_one_each(v) and (is_last or not go_far)]
            arrays.extend(found)
            goes_on = len(found) < len(reached)
            return [True if goes_on and v in operands else None for v in eqn.invars]

        jaxpr = self.closed.jaxpr
        wanted = walk_back(jaxpr.eqns, dict.fromkeys(leaves, True), step, lambda one, _: one)
        return tuple(arrays) if wanted.keys().isdisjoint(jaxpr.invars) else ()

    def _is_one_each(self, variable: Var) -> bool:
        """Whether each element depends on one site, and there are no more elements than sites."""
        return self.most_sites(variable) == 1 and math.prod(shape_of(variable)) <= len(self.sites)


def _find_partners(
    found: _Search, arrays: tuple[Var, ...], places: np.ndarray, meeting: tuple[int, ...], own: tuple[int, ...]
) -> tuple[np.ndarray, bool]:
    """A coordinate of x for each site, so that both have a joint conditional in closed form; none if any has none.

    Also whether the partners meet in what does not depend on the sites.
    """
    if arrays:
        x_of_v = found.x_of(arrays)
        exclusive = x_of_v[places] & (x_of_v.sum(axis=0) == 1)
    else:
        with_site = found.x_beside_sites(own)
        exclusive = with_site & (with_site.sum(axis=0) == 1)
    start = 0
    for size in found.x_sizes:  # partners of all sites are elements of one variable
        inside = np.arange(found.num_x) - start
        candidates = exclusive & (inside >= 0) & (inside < size)
        start += size
        if not candidates.any(axis=1).all():
            continue
        partners = candidates.argmax(axis=1)
        do_meet = _do_partners_meet(found, arrays, partners, meeting, own)
        if do_meet is not None:
            return partners, do_meet
    return np.zeros(0, np.int64), False


def _do_partners_meet(
    found: _Search, arrays: tuple[Var, ...], partners: np.ndarray, meeting: tuple[int, ...], own: tuple[int, ...]
) -> bool | None:
    """Whether partners meet in what does not depend on the sites; None where conditionals are not Gaussian."""
    is_partner = np.zeros(found.num_x, bool)
    is_partner[partners] = True

    def is_one(variable: Var) -> np.ndarray:
        count = found.scope(variable)[:, found.num_z :][:, is_partner].sum(axis=1)
        return (np.asarray(count) <= 1).reshape(shape_of(variable))

    x = found.closed.jaxpr.invars[0]
    (output,) = found.closed.jaxpr.outvars
    as_they_are = {x: is_partner.astype(np.int64)}
    degrees = find_degrees(found.closed, as_they_are, is_one)
    without_v = find_degrees(found.closed, as_they_are | _constant(arrays), is_one)
    without_sites = as_they_are | _constant(found.leaves[i] for i in (*meeting, *own))
    weights = [v for eqn in found.linear for v in eqn.invars if not found.is_reached(v)]
    is_so = (
        all(degrees.highest(v) <= 1 for v in arrays)
        and all(without_v.highest(found.leaves[i], found.live[i]) == 0 for i in meeting)
        and all(degrees.highest(found.leaves[i], found.live[i]) <= 2 for i in own)
        and not any(_adds(found, weight, degrees) for weight in weights)
        and all(_keeps_to_itself(found, found.leaves[i], partners, is_partner) for i in own)
        and found.interact(partners).all()
    )
    if not is_so:
        return None
    if find_degrees(found.closed, without_sites, is_one).highest(output) <= 2:
        return False
    return True if find_degrees(found.closed, without_sites).highest(output) <= 2 else None


def _constant(variables: Any) -> dict[Var, np.ndarray]:
    return {v: np.zeros(shape_of(v), np.int64) for v in variables}


def _adds(found: _Search, weight: Var | Literal, degrees: Degrees) -> bool:
    """Whether a partner enters where factors are weighed; what is only added to them does no harm."""
    users = [eqn for eqn in found.linear if weight in eqn.invars]
    return degrees.highest(weight) > 0 and any(row_of(eqn).linear is not Linear.ALL for eqn in users)


def _keeps_to_itself(found: _Search, leaf: Var, partners: np.ndarray, is_partner: np.ndarray) -> bool:
    """Whether a factor of a site depends on no partner but that site's."""
    scope = found.scope(leaf).toarray()
    mine, theirs = scope[:, found.sites], scope[:, found.num_z :] & is_partner
    rows, which = np.nonzero(mine)
    theirs[rows, partners[which]] = False
    return not theirs[rows].any()
