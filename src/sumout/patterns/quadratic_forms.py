"""Sites that meet in a quadratic form.

Inclusion indicators in a regression, spins that all attract each other: the factors in which many sites meet are often
of degree two at most in some numbers v_j, one for each site,

    Σ factors = c + s·v − ½ v·A v,

with s and A free of z. Then what a change of one site does follows from s and A, and the factors need not be evaluated
again. Often v_j also depends on a coordinate of x that is in no other v, the partner of the site, as in
v_j = inclusion_j · β_j. If v_j is linear in it, and the rest of the log density a sum of quadratic functions of one
partner each, then site and partner have a joint conditional in closed form: for each value of the site a Gaussian.

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
        arrays: the arrays that hold the numbers v.
        places: where the v of each site stands among all elements of `arrays`.
        meeting: the factor arrays in which the sites meet.
        own: the factor arrays in which they do not.
        partners: for each site the number of a coordinate of x; empty where there are none.
    """

    structure: Structure
    sites: np.ndarray
    arrays: tuple[Var, ...]
    places: np.ndarray
    meeting: tuple[int, ...]
    own: tuple[int, ...]
    partners: np.ndarray

    @property
    def has_partners(self) -> bool:
        """Whether every site has one."""
        return len(self.partners) > 0

    @cached_property
    def numbers(self) -> Callable[[Array, Nuisance, Data], Float[Array, " n"]]:
        """The v of every site."""
        # Jitted, so that it is traced once however often other compiled code calls it.
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
        """The rest of the log density."""
        factors, rest = self.structure.spread_factors(x, z, data), self.structure.rest(x, z, data)
        return rest + sum(factors[i].full.sum() for i in self.own)

    def describe(self) -> str:
        """The form in words."""
        program = self.structure.program
        sites = [name for name, numbers in self.structure.site_numbers.items() if np.isin(numbers, self.sites).any()]
        text = f"{', '.join(sites)}: they meet in a quadratic form, so that all conditionals follow from one matrix."
        if not self.has_partners:
            return text
        ends = np.cumsum([site.size for site in program.x.values()])
        owners = np.unique(np.searchsorted(ends, self.partners, side="right"))
        names = ", ".join(name for i, name in enumerate(program.x) if i in owners)
        also = f"Each is drawn together with its own coordinate of {names} (Gaussian, given all else), in HMC and NUTS."
        return f"{text}\n  {also}"

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
    meeting = tuple(i for i, leaf in enumerate(found.leaves) if found.most_sites(leaf) > 1)
    own = tuple(i for i in range(len(found.leaves)) if i not in meeting)
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
        partners = _find_partners(found, arrays, places, meeting, own)
        return Quadratic(structure, sites, arrays, places, meeting, own, partners)
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
        x = dependent((program.num_x,), self.num_z + 1 + np.arange(program.num_x))
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

    def most_sites(self, variable: Var) -> int:
        """How many of the sites in question an element depends on at most."""
        numbers = np.unique(self.env[variable].scopes)
        mine = set(self.sites.tolist())
        return max((len(self.scopes.members(int(number)) & mine) for number in numbers), default=0)

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
) -> np.ndarray:
    """A coordinate of x for each site, so that both have a joint conditional in closed form; none if any has none."""
    nobody = np.zeros(0, np.int64)
    x_of_v = found.x_of(arrays)
    exclusive = x_of_v[places] & (x_of_v.sum(axis=0) == 1)
    if not exclusive.any(axis=1).all():
        return nobody
    partners = exclusive.argmax(axis=1)

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
    without_factors = find_degrees(found.closed, as_they_are | _constant(found.leaves), is_one)
    weights = [v for eqn in found.linear for v in eqn.invars if not found.is_reached(v)]
    is_so = (
        all(degrees.highest(v) <= 1 for v in arrays)
        and all(without_v.highest(found.leaves[i], found.live[i]) == 0 for i in meeting)
        and all(degrees.highest(found.leaves[i], found.live[i]) <= 2 for i in own)
        and without_factors.highest(output) <= 2
        and not any(_adds(found, weight, degrees) for weight in weights)
        and all(_keeps_to_itself(found, found.leaves[i], partners, is_partner) for i in own)
    )
    return partners if is_so else nobody


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
