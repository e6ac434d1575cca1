"""Change points: tables of sites at one value of which each datum changes.

    table[k] = Σ_t log p(y_t | early if t < k else late)

Filled for one value after the other such a table takes K evaluations of T terms. But each term has two values only, the
one it has at the first k and the one it has at the last: so the terms are evaluated twice, and what lies between are
running totals. Where each term changes is found when the table is built, as all index arithmetic is done then.
The sums of such terms are found within the program, or are those of its factors; the rest of it is evaluated for
every value as ever, with these sums given.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array, Float

from sumout.compile.policy import RUNNING_TOTAL_ENTRIES, RUNNING_TOTAL_GAIN
from sumout.jaxpr.equations import traced_once
from sumout.jaxpr.lazy_broadcast import evaluate
from sumout.jaxpr.walk import cut, following
from sumout.model.program import Data, Nuisance
from sumout.patterns.contract import BlockTable
from sumout.patterns.find_changes import NEVER, find_changes
from sumout.structure.factors import Factorisation
from sumout.structure.structure import data_operands
from sumout.tables.blocks import Block, shared_elements
from sumout.tables.factor_sums import Sums, build_sums, share

# Sums of elements that change once while k runs through its values, for all k at once:
#
#     Σ_e (first_e if k < p_e else last_e) = Σ_{e: p_e > k} first_e + Σ_{e: p_e ≤ k} last_e
#
# Elements are added up by the value p_e at which they change; the rest are running totals, one from each end. Every
# sum has the terms it would have if it were added up on its own, and no others: an impossible case (−∞) stays where it
# is chosen, and nothing is subtracted that was added before.


@dataclass(frozen=True, eq=False)
class RunningSums:
    """Sums by owner for every value.

    Attributes:
        num_values: K.
        size: number of owners n.
        until: how the elements are shared out that change, to owner · K + number of the last value before they do.
        since: likewise to owner · K + number of the value they change at; those that never change, at 0.
    """

    num_values: int
    size: int
    until: Any
    since: Any

    def __call__(self, first: Array, last: Array) -> Float[Array, "K n"]:
        """The sums, of elements with their values before and after they change."""
        bins = self.size * self.num_values
        parts = [(self.since, last, False), (self.until, first, True)]
        rows = [owned.sums(flat.ravel(), bins).reshape(self.size, -1) for owned, flat, _ in parts if owned is not None]
        ways = [is_reversed for owned, _, is_reversed in parts if owned is not None]
        return sum_up(rows, ways).T


def sum_up(rows: list[Array], is_reversed: list[bool]) -> Array:
    """The running totals of some arrays along the last axis, each from its own end, added."""
    turned = [a[..., ::-1] if way else a for a, way in zip(rows, is_reversed, strict=True)]
    steps = jnp.moveaxis(jnp.stack(turned), -1, 0)
    # One by one, which on CPUs takes less time, to run and to compile, than `cumsum` with its rounds of pairs.
    totals = jnp.moveaxis(lax.scan(_add, jnp.zeros_like(steps[0]), steps)[1], 0, -1)
    return reduce(jnp.add, [a[..., ::-1] if way else a for a, way in zip(totals, is_reversed, strict=True)])


def _add(total: Array, step: Array) -> tuple[Array, Array]:
    return total + step, total + step


def build_running(elements: np.ndarray, owners: np.ndarray, changes: np.ndarray, size: int, count: int) -> RunningSums:
    """The sums of some elements of an array.

    Args:
        elements: their numbers.
        owners: the owner of each.
        changes: for all elements of the array, the number of the value at which they change; 0 for those that never do.
        size: number of owners.
        count: number of values K.
    """
    at = changes.ravel()[elements]
    moves = at > 0
    since = share(elements, owners * count + at, changes.shape, size * count) if len(elements) else None
    until = (
        share(elements[moves], (owners * count + at - 1)[moves], changes.shape, size * count) if moves.any() else None
    )
    return RunningSums(count, size, until, since)


class Total(NamedTuple):
    """A sum within the program: its variable, the terms it is of, and the running totals that take its place."""

    variable: Any
    terms: Any
    sums: RunningSums


class Factor(NamedTuple):
    """An array of factors: its number among them, its variable, and the running totals of it for each member."""

    number: int
    variable: Any
    sums: RunningSums


@dataclass(frozen=True, eq=False)
class RunningTable:
    """The table of a block of which some sums are taken by running totals.

    Attributes:
        block: the members.
        values: `(K, n)`, or `(K, 1)` where all members share their values.
        totals: the sums within the program.
        factors: the arrays of factors.
        terms: the part of the program that leads to the terms of `totals`.
        others: all of the program but that, with the sums and the factors given.
        sums: of the other factors, by member.
    """

    block: Block
    values: np.ndarray
    totals: tuple[Total, ...]
    factors: tuple[Factor, ...]
    terms: ClosedJaxpr
    others: Factorisation
    sums: Sums

    @property
    def cost(self) -> float:
        """Elements of the largest array that is still computed for every value, for all values."""
        part = self.others.closed
        moving = [*_places(self.block).values(), *(total.variable for total in self.totals)]
        arrays: set[Any] = following(part, moving)
        return float(len(self.values) * max((v.aval.size for v in arrays), default=0))

    @cached_property
    def table(self) -> Callable[[Array, Nuisance, Data], Array]:
        """The log weights of all values `(K, n)`, a function of x, z and data."""
        return traced_once(self._table)

    def _table(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "K n"]:
        place = self.block.place_all if self.values.shape[1] == 1 else self.block.place
        # With an axis of two: the first value and the last.
        of_totals, of_factors = jax.vmap(lambda values: self._at_end(x, place(z, values), data))(self.values[[0, -1]])
        given = [
            total.sums(*terms).reshape(-1, *total.variable.aval.shape)
            for total, terms in zip(self.totals, of_totals, strict=True)
        ]
        left_out = [jnp.zeros((1,) * terms[0].ndim, terms.dtype) for terms in of_factors]

        def at(values: Array, given: list[Array]) -> Array:
            leaves = jax.tree.leaves((x, place(z, values), data))
            return self.sums(self.others.evaluate(*leaves, *given, *left_out)[0])

        table = jax.vmap(at)(jnp.asarray(self.values), given)
        for factor, terms in zip(self.factors, of_factors, strict=True):
            table += factor.sums(*terms)
        return jnp.where(jnp.isnan(table), -jnp.inf, table)

    def _at_end(self, x: Array, z: Nuisance, data: Data) -> tuple[list[Array], list[Array]]:
        """The terms of the sums and the factors at one value."""
        env = evaluate(self.terms.jaxpr, self.terms.consts, jax.tree.leaves((x, z, data)))
        factors = self.block.structure.spread_factors(x, z, data) if self.factors else ()
        return [env[total.terms].full for total in self.totals], [factors[f.number].full for f in self.factors]


@dataclass(frozen=True)
class ChangePoints:
    """Recognises blocks whose data change once while their sites run through their values."""

    name: str = "change points"
    subject: type = BlockTable

    def match(self, subject: BlockTable) -> RunningTable | None:
        """The table by running totals. It is looked for once: plans ask when they choose a method, and to build it."""
        block, values = subject.block, subject.values
        if not subject.allowed.all():
            return None
        label = (self.name, id(block.structure), block.members.tobytes(), values.tobytes())
        return block.structure.program.remember(label, lambda: _find_table(block, values))


def _find_table(block: Block, values: np.ndarray) -> RunningTable | None:
    """The table of a block by running totals; None where that is not possible or would gain little."""
    whole = block.structure.factorisation
    summed = [
        eqn
        for eqn in whole.closed.jaxpr.eqns
        if _is_sum_within(eqn, whole) and _gains(eqn.invars[0], eqn.outvars[0].aval.size, values)
    ]
    numbers = [i for bundle in block.sums.bundles for i in bundle if _gains(whole.leaves[i], block.size, values)]
    sites = _running_sites(block, values) if summed or numbers else None
    if sites is None:
        return None
    program = block.structure.program
    data = whole.closed.jaxpr.invars[1 + len(program.z) :]
    known = {v: leaf for v, leaf in zip(data, data_operands(program), strict=True) if leaf.known is not None}
    targets = [*(eqn.invars[0] for eqn in summed), *(whole.leaves[i] for i in numbers)]
    found = zip(targets, find_changes(whole.closed, targets, sites, known), strict=True)
    changes = {v: at for v, at in found if at is not None and (at != NEVER).any()}
    totals = {eqn.outvars[0]: _total(eqn, changes[eqn.invars[0]], values) for eqn in summed if eqn.invars[0] in changes}
    numbers = [i for i in numbers if whole.leaves[i] in changes and whole.leaves[i] not in totals]
    # A sum that only another one or a factor needs is left to that.
    used = _used(cut(whole.closed, whole.closed.jaxpr.outvars, [*totals, *(whole.leaves[i] for i in numbers)]))
    outermost = [total for variable, total in totals.items() if variable in used]
    return _build(block, values, outermost, numbers, changes) if outermost or numbers else None


def _build(
    block: Block, values: np.ndarray, totals: list[Total], numbers: list[int], changes: dict[Any, np.ndarray]
) -> RunningTable:
    structure = block.structure
    whole = structure.factorisation
    elements, owners = shared_elements(structure, block.members)
    arrays = structure.factor_array(elements)
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in structure.factor_shapes)])
    factors = []
    for i in numbers:
        inside, leaf = arrays == i, whole.leaves[i]
        sums = build_running(elements[inside] - starts[i], owners[inside], changes[leaf], block.size, len(values))
        factors.append(Factor(i, leaf, sums))
    left = ~np.isin(arrays, numbers)
    given = [part.variable for part in (*totals, *factors)]
    return RunningTable(
        block,
        values,
        tuple(totals),
        tuple(factors),
        cut(whole.closed, [total.terms for total in totals]),
        replace(whole, closed=cut(whole.closed, whole.closed.jaxpr.outvars, given)),
        build_sums(structure, (elements[left], owners[left]), block.size),
    )


def _is_sum_within(eqn: Any, whole: Factorisation) -> bool:
    """Whether an equation adds up numbers before the factors are there, or as the last thing in a factor."""
    total = eqn.outvars[0]
    if eqn.primitive.name != "reduce_sum" or not jnp.issubdtype(total.aval.dtype, jnp.floating):
        return False
    return total in whole.leaves or not whole.is_reached(total)


def _gains(terms: Any, num_owners: int, values: np.ndarray) -> bool:
    """Whether running totals are much less work than all terms for all values."""
    num_terms = terms.aval.size
    return len(values) * num_terms >= max(
        RUNNING_TOTAL_ENTRIES, RUNNING_TOTAL_GAIN * (num_terms + len(values) * num_owners)
    )


def _running_sites(block: Block, values: np.ndarray) -> dict[Any, np.ndarray] | None:
    """The sites of a block as arguments that run through their values; None if some of their elements stay behind."""
    program, places, found = block.structure.program, _places(block), {}
    for name, slot in zip(block.names, block.slots, strict=True):
        site = program.z[name]
        slot = np.arange(block.size) if slot is None else np.asarray(slot)
        if site.event_shape or (slot >= block.size).any():
            return None
        rows = np.broadcast_to(values, (len(values), block.size))[:, slot]
        found[places[name]] = rows.reshape(len(values), *site.shape).astype(site.dtype)
    return found


def _places(block: Block) -> dict[str, Any]:
    """The arguments of the program that are sites of a block."""
    arguments = block.structure.factorisation.closed.jaxpr.invars[1:]
    every = dict(zip(sorted(block.structure.program.z), arguments, strict=False))
    return {name: every[name] for name in block.names}


def _used(closed: ClosedJaxpr) -> set[Any]:
    atoms = [*closed.jaxpr.outvars, *(v for eqn in closed.jaxpr.eqns for v in eqn.invars)]
    return {v for v in atoms if not isinstance(v, Literal)}


def _total(eqn: Any, changes: np.ndarray, values: np.ndarray) -> Total:
    """A sum whose terms change where they do."""
    (total,), (terms,) = eqn.outvars, eqn.invars
    owners = np.expand_dims(np.arange(total.aval.size).reshape(total.aval.shape), eqn.params["axes"])
    owners = np.broadcast_to(owners, changes.shape).ravel()
    sums = build_running(np.arange(changes.size), owners, changes, total.aval.size, len(values))
    return Total(total, terms, sums)
