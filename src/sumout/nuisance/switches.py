"""Tables of sites like switch points, each of whose data changes at one value of the site.

    table[k] = Σ_t log p(y_t | early if t < k else late)

Filled for one value after the other such a table takes K evaluations of T terms. But each term has two values only, the
one it has at the first k and the one it has at the last: so the terms are evaluated twice, and what lies between are
running totals (`running.py`). Where each term changes is settled when the table is built, as all index arithmetic is.
The sums of such terms are found within the program, or are those of its factors; the rest of it is evaluated for
every value as ever, with these sums given.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, Var
from jaxtyping import Array, Float

from sumout.nuisance.block import Block
from sumout.nuisance.running import RunningSums, build_running
from sumout.nuisance.sums import Sums
from sumout.program import Data, Nuisance
from sumout.reading.changes import NEVER, find_changes
from sumout.reading.cut import cut
from sumout.reading.evaluate import evaluate
from sumout.reading.factors import Factorisation

FEWEST_ENTRIES = 1024  # of terms and values, from which running totals are worth their while
GAIN = 4  # how much fewer must be left of them


@dataclass(frozen=True, eq=False)
class Switches:
    """The table of a block of which some sums are taken by running totals.

    Attributes:
        block: the members.
        values: `(K, n)`, or `(K, 1)` where all members share their values.
        terms: what leads to the terms of sums within the program.
        within: the running totals of these.
        factors: numbers of factor arrays that change once, too.
        of_factors: the running totals of these, by member.
        others: all else, with the sums and those factors given.
        sums: of the other factors, by member.
    """

    block: Block
    values: np.ndarray
    terms: ClosedJaxpr
    within: tuple[tuple[tuple[int, ...], RunningSums], ...]
    factors: tuple[int, ...]
    of_factors: tuple[RunningSums, ...]
    others: Factorisation
    sums: Sums

    @cached_property
    def table(self) -> Any:
        """The log weights of all values `(K, n)`, a function of x, z and data."""
        return jax.jit(self._table)  # traced once, however often it is used

    def _table(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        ends = jax.vmap(lambda values: self._terms(x, self._placed(z, values), data))(self.values[[0, -1]])
        inner, outer = ends[: len(self.within)], ends[len(self.within) :]
        given = [
            sums(*terms).reshape(sums.num_values, *shape)
            for (shape, sums), terms in zip(self.within, inner, strict=True)
        ]
        left_out = [jnp.zeros((1,) * terms[0].ndim, terms.dtype) for terms in outer]

        def at(values: Array, given: Sequence[Array]) -> Array:
            leaves = jax.tree.leaves((x, self._placed(z, values), data))
            return self.sums(self.others.evaluate(*leaves, *given, *left_out)[0])

        table = jax.vmap(at)(jnp.asarray(self.values), given)
        for sums, terms in zip(self.of_factors, outer, strict=True):
            table += sums(*terms)
        return jnp.where(jnp.isnan(table), -jnp.inf, table)

    def _terms(self, x: Array, z: Nuisance, data: Data) -> list[Array]:
        env = evaluate(self.terms.jaxpr, self.terms.consts, jax.tree.leaves((x, z, data)))
        found = [env[term].full for term in self.terms.jaxpr.outvars]
        if self.factors:
            factors = self.block.structure.spread_factors(x, z, data)
            found += [factors[number].full for number in self.factors]
        return found

    def _placed(self, z: Nuisance, values: Array) -> Nuisance:
        return (self.block.place_all if values.shape == (1,) else self.block.place)(z, values)


def build_switches(block: Block, values: np.ndarray) -> Switches | None:
    """The table of a block by running totals; None where that is not possible or would gain little."""
    program, whole = block.structure.program, block.structure.factorisation
    arguments = whole.closed.jaxpr.invars
    summed = [eqn for eqn in whole.closed.jaxpr.eqns if _is_sum_within(eqn, whole)]
    candidates = {eqn.outvars[0]: eqn.invars[0] for eqn in summed if _gains(eqn.invars[0], eqn.outvars[0], values)}
    alone = [number for bundle in block.sums.bundles if len(bundle) == 1 for number in bundle]
    candidates |= {whole.leaves[i]: whole.leaves[i] for i in alone if _gains(whole.leaves[i], block, values)}
    sites = _running_sites(block, values) if candidates else None
    if sites is None:
        return None
    known = dict(zip(arguments[1 + len(program.z) :], jax.tree.leaves(program.data), strict=True))
    changes = find_changes(whole.closed, list(candidates.values()), sites, known)
    found = {
        variable: at for variable, at in zip(candidates, changes, strict=True) if at is not None and (at != NEVER).any()
    }
    # A sum that only another one needs is left to that one.
    used = _used(cut(whole.closed, whole.closed.jaxpr.outvars, found))
    found = {variable: at for variable, at in found.items() if variable in used}
    return _build(block, values, found) if found else None


def _build(block: Block, values: np.ndarray, found: dict[Var, np.ndarray]) -> Switches:
    """The table with the running totals of some sums within the program, and of some factors."""
    whole, count = block.structure.factorisation, len(values)
    made_by = {eqn.outvars[0]: eqn for eqn in whole.closed.jaxpr.eqns}
    factors = [i for i, leaf in enumerate(whole.leaves) if leaf in found and not _is_sum(made_by.get(leaf))]
    leaves = [whole.leaves[i] for i in factors]
    totals = [variable for variable in found if variable not in leaves]
    within = []
    for total in totals:
        (axes, shape), at = (made_by[total].params["axes"], total.aval.shape), found[total]
        owners = np.broadcast_to(np.expand_dims(np.arange(total.aval.size).reshape(shape), axes), at.shape).ravel()
        within.append((shape, build_running(np.arange(at.size), owners, at, total.aval.size, count)))
    return Switches(
        block,
        values,
        cut(whole.closed, [made_by[total].invars[0] for total in totals]),
        tuple(within),
        tuple(factors),
        tuple(build_running(*_owned(block, i), found[whole.leaves[i]], block.size, count) for i in factors),
        replace(whole, closed=cut(whole.closed, whole.closed.jaxpr.outvars, [*totals, *leaves])),
        _without(block.sums, factors),
    )


def _is_sum(eqn: Any) -> bool:
    return eqn is not None and eqn.primitive.name == "reduce_sum"


def _is_sum_within(eqn: Any, whole: Factorisation) -> bool:
    """Whether an equation adds up numbers before the factors are there, or as the last thing in a factor."""
    total = eqn.outvars[0]
    is_floating = jnp.issubdtype(total.aval.dtype, jnp.floating)
    return _is_sum(eqn) and is_floating and (total in whole.leaves or not whole.is_reached(total))


def _gains(terms: Any, owners: Var | Block, values: np.ndarray) -> bool:
    """Whether running totals are much less work than all terms for all values."""
    size = owners.size if isinstance(owners, Block) else owners.aval.size
    entries = len(values) * terms.aval.size
    return entries >= max(FEWEST_ENTRIES, GAIN * (terms.aval.size + len(values) * size))


def _running_sites(block: Block, values: np.ndarray) -> dict[Any, np.ndarray] | None:
    """The sites of a block as arguments that run through their values; None if some of their elements stay behind."""
    program = block.structure.program
    places = dict(zip(sorted(program.z), block.structure.factorisation.closed.jaxpr.invars[1:], strict=False))
    found = {}
    for name, slot in zip(block.names, block.slots, strict=True):
        site = program.z[name]
        slot = np.arange(block.size) if slot is None else np.asarray(slot)
        if site.event_shape or (slot >= block.size).any():
            return None
        rows = np.broadcast_to(values, (len(values), block.size))[:, slot]
        found[places[name]] = rows.reshape(len(values), *site.shape).astype(site.dtype)
    return found


def _used(closed: ClosedJaxpr) -> set[Any]:
    atoms = [*closed.jaxpr.outvars, *(v for eqn in closed.jaxpr.eqns for v in eqn.invars)]
    return {v for v in atoms if not isinstance(v, Literal)}


def _owned(block: Block, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements of a factor array that depend on a member, and the member."""
    structure = block.structure
    columns = structure.scopes_by_site[block.members].tocoo()
    inside = structure.factor_array(columns.col) == number
    start = sum(int(np.prod(shape)) for shape in structure.factor_shapes[:number])
    return columns.col[inside].astype(np.int64) - start, columns.row[inside].astype(np.int64)


def _without(sums: Sums, factors: Sequence[int]) -> Sums:
    kept = [(b, o) for b, o in zip(sums.bundles, sums.owned, strict=True) if b[0] not in factors]
    return replace(sums, bundles=tuple(b for b, _ in kept), owned=tuple(o for _, o in kept))
