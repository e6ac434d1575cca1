"""The log likelihood of data with their own sites summed out, all others held at their draws.

With S the sites that datum i depends on, and w(v) the weight of z_S = v given all other sites, without the data of S,

    log p(y_i | x, z_{−S}, y_{−i}) = log Σ_v w(v) Π_j p(y_j | v) − log Σ_v w(v) Π_{j ≠ i} p(y_j | v)

j running through the data that depend on some site of S. As in `likelihood_by_beliefs.py` terms of −∞ are counted, not
divided by. Data of the same sites are a unit with one table of joint values. Units that meet in no factor and no datum
have the same colour, and their tables are filled at once; of the colours one is computed after the other.

Where S has too many joint values, or all tables together cost too much, the sites of S are held as well: then it is
log p(y_i | x, z, y_{−i}), which is the term of the datum itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array

from sumout.compile.policy import LIKELIHOOD_ENTRIES, MOST_JOINT_VALUES
from sumout.model.program import Data, Nuisance, Program
from sumout.model.supports import Finite
from sumout.structure.graph import connect
from sumout.structure.structure import Structure, read
from sumout.tables.blocks import num_values
from sumout.tables.logsumexp import log_sum_exp


@partial(
    jax.tree_util.register_dataclass, data_fields=["strides", "factors", "data", "allowed", "units"], meta_fields=[]
)
@dataclass(frozen=True, eq=False)
class Colours:
    """Units by colour, which is the first axis of every array; n units are the most of a colour.

    Attributes:
        strides: how many joint values of its unit pass until a site changes; 0 for sites of no unit.
        factors: the unit that each factor depends on; n for none.
        data: likewise of the data.
        allowed: which joint values `(V, n)` a unit can take.
        units: the unit whose own each datum is; n for none.
    """

    strides: np.ndarray
    factors: np.ndarray
    data: np.ndarray
    allowed: np.ndarray
    units: np.ndarray


@dataclass(frozen=True, eq=False)
class LikelihoodGivenOthers:
    """The log likelihood of some observed arrays given the draws of the other sites.

    Attributes:
        program: whose data they are.
        structure: of the program without their terms.
        names: of the arrays.
        colours: their units; None if there are none.
        num_held: for each array of how many data the own sites are held, too, and how many have any.
    """

    program: Program
    structure: Structure
    names: list[str]
    colours: Colours | None
    num_held: dict[str, tuple[int, int]]

    @property
    def notes(self) -> dict[str, str]:
        """By name on what the arrays are conditional."""
        words = "given the draws of all discrete variables but a datum's own, which are summed out"
        own = "given the draws of all discrete variables"
        found = {}
        for name, (number, size) in self.num_held.items():
            some = f"{words}; for {number:,} of {size:,} data their own, too"
            found |= {name: words if not number else own if number == size else some} if size else {}
        return found

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """For each observed array the log likelihoods of its data."""
        terms = self.program.log_likelihood(x, z, data)
        flat = self._terms(x, z, data)
        if self.colours is not None:
            found = jax.lax.map(lambda colour: self._of_colour(colour, x, z, data), self.colours)
            is_own = self.colours.units < self.colours.allowed.shape[-1]
            flat = jnp.where(is_own.any(axis=0), jnp.where(is_own, found, 0.0).sum(axis=0), flat)
        ends = np.cumsum([terms[name].size for name in self.names])
        parts = jnp.split(flat, ends[:-1])
        return {name: part.reshape(terms[name].shape) for name, part in zip(self.names, parts, strict=True)}

    def _terms(self, x: Array, z: Nuisance, data: Data) -> Array:
        terms = self.program.log_likelihood(x, z, data)
        return jnp.concatenate([terms[name].ravel() for name in self.names])

    def _of_colour(self, colour: Colours, x: Array, z: Nuisance, data: Data) -> Array:
        """The log likelihoods of the data of one colour's units; of no meaning for the others."""
        num_joint, num_units = colour.allowed.shape

        def at(number: Array) -> tuple[Array, Array, Array]:
            placed = self._place(colour.strides, number, z)
            factors = [factor.ravel() for factor in self.structure.factors(x, placed, data)]
            factors = jnp.concatenate([jnp.zeros(0), *factors])
            weights = jax.ops.segment_sum(factors, colour.factors, num_units + 1)[:-1]
            terms = self._terms(x, placed, data)
            is_zero = jnp.isnan(terms) | (terms == -jnp.inf)
            return weights, jnp.where(is_zero, 0.0, terms), is_zero

        weights, terms, is_zero = jax.vmap(at)(jnp.arange(num_joint))
        of_units = jax.vmap(lambda values: jax.ops.segment_sum(values, colour.data, num_units + 1)[:-1])
        weights = jnp.where(colour.allowed, weights + of_units(terms), -jnp.inf)
        zeros = of_units(is_zero.astype(int))
        own = jnp.minimum(colour.units, num_units - 1)
        cavity = jnp.where(zeros[:, own] == is_zero, weights[:, own] - terms, -jnp.inf)
        return log_sum_exp(jnp.where(zeros == 0, weights, -jnp.inf))[own] - log_sum_exp(cavity)

    def _place(self, strides: Array | np.ndarray, number: Array, z: Nuisance) -> Nuisance:
        """Z with all units at the joint value of a number."""
        placed = dict(z)
        for name, numbers in self.structure.site_numbers.items():
            support = self.structure.program.z[name].support
            if isinstance(support, Finite) and len(numbers):
                stride = strides[numbers[0] : numbers[-1] + 1]
                rows = jnp.asarray(support.rows()[0])
                digits = number // jnp.maximum(stride, 1) % rows.shape[1]
                values = jnp.take_along_axis(rows, digits[:, None], axis=1)[:, 0].astype(z[name].dtype)
                placed[name] = jnp.where(stride > 0, values, z[name].ravel()).reshape(z[name].shape)
        return placed


def build_likelihood_given_others(
    bare: Program, program: Program, scopes: Mapping[str, sp.csr_array]
) -> LikelihoodGivenOthers:
    """The log likelihood of some arrays.

    Args:
        bare: the program without the terms of these data.
        program: with them.
        scopes: for each of these arrays which datum depends on which site.
    """
    structure = read(bare)
    all_scopes = sp.csr_array(sp.vstack(list(scopes.values())))
    all_scopes.sort_indices()
    unit_of, units = _find_units(structure, all_scopes)
    colours = _colour(structure, all_scopes, unit_of, units) if units else None
    has_own = np.diff(all_scopes.indptr) > 0
    is_held = has_own & ((unit_of < 0) | (colours is None))
    ends = np.cumsum([len(scope.indptr) - 1 for scope in scopes.values()])[:-1]
    counted = zip(scopes, np.split(is_held, ends), np.split(has_own, ends), strict=True)
    held = {name: (int(some.sum()), int(own.sum())) for name, some, own in counted}
    return LikelihoodGivenOthers(program, structure, list(scopes), colours, held)


def _find_units(structure: Structure, scopes: sp.csr_array) -> tuple[np.ndarray, list[np.ndarray]]:
    """The unit of each datum, −1 for none, and the sites of the units."""
    counts = num_values(structure)
    numbers: dict[bytes, int] = {}
    unit_of, units = np.full(len(scopes.indptr) - 1, -1), []
    for i in np.flatnonzero(np.diff(scopes.indptr)):
        sites = scopes.indices[scopes.indptr[i] : scopes.indptr[i + 1]]
        if not 0 < np.prod(counts[sites], dtype=float) <= MOST_JOINT_VALUES:
            continue
        unit_of[i] = numbers.setdefault(sites.tobytes(), len(units))
        if unit_of[i] == len(units):
            units.append(sites)
    return unit_of, units


def _colour(structure: Structure, scopes: sp.csr_array, unit_of: np.ndarray, units: list[np.ndarray]) -> Colours | None:
    """Units by colour; None where to fill their tables costs too much."""
    counts, num_factors = num_values(structure), structure.scopes.shape[0]  # pyright: ignore[reportOptionalSubscript]
    num_joint = int(max(np.prod(counts[sites]) for sites in units))
    width = num_joint * (num_factors + len(unit_of))
    if width > LIKELIHOOD_ENTRIES:
        return None
    rows = np.concatenate([np.full(len(sites), u) for u, sites in enumerate(units)])
    by_unit = sp.csr_array((np.ones(len(rows), int), (rows, np.concatenate(units))), (len(units), structure.num_sites))
    met = sp.csr_array(sp.vstack([structure.scopes, scopes]).astype(int) @ by_unit.T)  # factors and data × units
    met.eliminate_zeros()
    colour_of = connect(sp.csr_array(met > 0)).colours
    num_colours = int(colour_of.max()) + 1
    if num_colours * width > LIKELIHOOD_ENTRIES:
        return None
    place, sizes = np.zeros(len(units), int), np.zeros(num_colours, int)
    for u, c in enumerate(colour_of):
        place[u], sizes[c] = sizes[c], sizes[c] + 1
    most = int(sizes.max())
    strides = np.zeros((num_colours, structure.num_sites), int)
    allowed = np.zeros((num_colours, num_joint, most), bool)
    possible = _possible(structure)
    for u, sites in enumerate(units):
        c, each = colour_of[u], counts[sites]
        strides[c, sites] = np.concatenate([[1], np.cumprod(each[:-1])])
        number = np.arange(np.prod(each))[:, None]
        digits = number // strides[c, sites] % each
        allowed[c, : len(number), place[u]] = possible[sites, digits].all(axis=1)
    owner = np.full((num_colours, met.shape[0]), most)  # pyright: ignore[reportOptionalSubscript]
    entries = met.tocoo()
    owner[colour_of[entries.col], entries.row] = place[entries.col]
    own = np.full((num_colours, len(unit_of)), most)
    of_data = np.flatnonzero(unit_of >= 0)
    own[colour_of[unit_of[of_data]], of_data] = place[unit_of[of_data]]
    return Colours(strides, owner[:, :num_factors], owner[:, num_factors:], allowed, own)


def _possible(structure: Structure) -> np.ndarray:
    """Which of its values each site may take, `(sites, K)`."""
    counts = num_values(structure)
    found = np.zeros((structure.num_sites, int(counts.max(initial=1))), bool)
    for name, numbers in structure.site_numbers.items():
        support: Any = structure.program.z[name].support
        if isinstance(support, Finite):
            found[numbers, : support.num_values] = support.rows()[1]
    return found
