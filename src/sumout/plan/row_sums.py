"""Sums over the rows of a plate, z summed out row by row: of some rows, of all, and what all rows share.

With G(x) the log density of all that rows share and ℓ_i(x) = log Σ_z p(y_i, z | x) that of row i, N/B Σ ℓ_i(x) over a
batch of B rows estimates the sum over all N. The weight stands outside the sum over z.

Rows are drawn by strata: of N rows in their order the k-th B-th part gives the k-th row of a batch, each row with the
same probability. Where neighbours resemble each other that is less noisy than rows drawn at random.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from sumout.errors import ModelError
from sumout.model.initial_values import any_z
from sumout.model.plates_apart import take_rows_of_plates
from sumout.model.program import Data, Program
from sumout.model.row_program import RowProgram, row_numbers
from sumout.model.supports import Count
from sumout.plan.count_ends import NOT_CUT
from sumout.plan.plan import Plan, check_overrides, plan_for, without_partners
from sumout.plan.target import make_target
from sumout.randomness import NUMBERS, fold_in, random_words


def draw_rows(key: Any, size: int, batch: int) -> Int[Array, " batch"]:
    """Numbers of the rows of a batch: one of each of `batch` equal parts of the rows, each row as likely.

    In whole numbers: row ⌊(k N + t) / B⌋ of part k, with t uniform on 0, …, N − 1; k N is split before t is added, as
    it may have more than 32 bits.
    """
    words, _ = random_words(key, jax.lax.iota(jnp.uint32, batch), NUMBERS)
    first, rest = np.divmod(np.arange(batch) * np.int64(size), batch)
    return jnp.asarray(first, jnp.int32) + (jnp.asarray(rest, jnp.int32) + _scaled(words, size)) // batch


def _scaled(words: Array, size: int) -> Array:
    """⌊w N / 2³²⌋ of random words, in halves of 16 bits."""
    high, low, top, bottom = words >> 16, words & 0xFFFF, np.uint32(size >> 16), np.uint32(size & 0xFFFF)
    upper, lower = high * bottom, low * top
    carry = ((upper & 0xFFFF) + (lower & 0xFFFF) + (low * bottom >> 16)) >> 16
    return (high * top + (upper >> 16) + (lower >> 16) + carry).astype(jnp.int32)


class RowSums:
    """The log density of some rows and of what they share, z summed out, and their gradients.

    Args:
        rows: the program of some rows.
        plan: what to do with discrete sites, by name; all must be summed out.
        jacobian: whether x is on the real line, or in the user's own coordinates.
    """

    def __init__(self, rows: RowProgram, plan: Mapping[str, str] | None = None, jacobian: bool = True):
        self.rows = rows
        program, shared = rows.program, rows.shared
        if not jacobian:
            program, shared = program.without_jacobian(), shared.without_jacobian()
        self.plan = plan_for(program, without_partners(program, plan, NOT_CUT), NOT_CUT)
        _refuse_drawn(rows, self.plan)
        _refuse_joined(rows, self.plan)
        self._whole, self._shared = make_target(self.plan), make_target(plan_for(shared, None, NOT_CUT))
        self._z, self._shared_z = any_z(self.plan.structure.program), any_z(shared)

    @property
    def num_x(self) -> int:
        """Length of x."""
        return self.rows.program.num_x

    @property
    def each(self) -> "tuple[RowSums, ...]":
        """The sums over the rows of one plate: these."""
        return (self,)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.size

    def draw(self, key: Any, arrays: Data) -> Array:
        """Numbers of the rows of a batch."""
        return draw_rows(key, self.rows.num_held(arrays), self.rows.batch)

    def shared_at(self, x: Array, arrays: Data, index: Array) -> tuple[Array, Array]:
        """G and its gradient, from the data of all rows and the numbers of some."""
        return self.shared(x, self.rows.take(arrays, index))

    def estimate(self, x: Array, arrays: Data, index: Array) -> tuple[Array, Array]:
        """The sum over all rows and its gradient, from a batch."""
        weight = self.rows.size / index.size
        return jax.tree.map(lambda a: weight * a, self.parts(x, self.rows.take(arrays, index))[1])

    def shared(self, x: Array, data: Data) -> tuple[Array, Array]:
        """G and its gradient."""
        return self._shared.value_and_gradient(x, self._shared_z, data)

    def parts(self, x: Array, data: Data) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Value and gradient of G, and those of the sum over the rows of the batch."""
        value, gradient = self._whole.value_and_gradient(x, self._z, data)
        shared, shared_gradient = self.shared(x, data)
        return (shared, shared_gradient), (value - shared, gradient - shared_gradient)

    def curvature(self, x: Array, data: Data) -> tuple[Array, Array]:
        """The Hessians of G and of the sum over the rows of the batch, column by column."""
        whole = jax.grad(lambda x: self._whole.log_density(x, self._z, data))
        shared = jax.grad(lambda x: self._shared.log_density(x, self._shared_z, data))

        def column(unit: Array) -> tuple[Array, Array]:
            outside, all_terms = (jax.jvp(fn, (x,), (unit,))[1] for fn in (shared, whole))
            return outside, all_terms - outside

        return jax.lax.map(column, jnp.eye(len(x), dtype=x.dtype))

    def weighed(self, x: Array, arrays: Data, index: Array) -> tuple[Array, Array]:
        """Log density and gradient from some batches alone, `(batches, batch)`, each row counted N/B times."""

        def one(index: Array) -> tuple[Array, Array]:
            return self.parts(x, self.rows.take(arrays, index))[1]

        shared = self.shared_at(x, arrays, index[0])
        weight = self.rows.size / index.size
        return jax.tree.map(lambda a, b: a + weight * b.sum(axis=0), shared, jax.lax.map(one, index))

    def totals(self, x: Array, arrays: Data) -> Any:
        """Value and gradient of the sum over all rows of some arrays, each as two numbers that are to be added.

        One pass over them. Sums of chunks are added up with compensation (Kahan), so that single precision keeps
        differences of a nat among ten million. The last chunk is filled up by copies of the last row, which are taken
        away again.
        """
        size, batch = self.rows.num_held(arrays), self.rows.batch

        def chunk(index: Array) -> Any:
            return self.parts(x, self.rows.take(arrays, index))[1]

        def add(carry: Any, number: Array) -> tuple[Any, None]:
            index = jnp.minimum(number * batch + jnp.arange(batch), size - 1)
            return add_compensated(carry, chunk(index)), None

        chunks = -(-size // batch)
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(chunk, jnp.zeros(batch, jnp.int32)))
        total = jax.lax.scan(add, (nothing, nothing), jnp.arange(chunks))[0]
        copies = chunk(jnp.full(batch, size - 1))
        filled = (chunks * batch - size) / batch
        return add_compensated(total, jax.tree.map(lambda a: -filled * a, copies))


class SumsOfPlates:
    """The same of several plates, each with rows of its own, that stand side by side.

    Rows are numbered in as many arrays as there are plates.

    Args:
        each: the sums over the rows of one plate, without the terms of the others.
    """

    def __init__(self, each: Sequence[RowSums]):
        self.each = tuple(each)

    @property
    def num_x(self) -> int:
        """Length of x."""
        return self.each[0].num_x

    def draw(self, key: Any, arrays: Data) -> tuple[Array, ...]:
        """Numbers of the rows of a batch of each plate."""
        return tuple(sums.draw(fold_in(key, i), arrays) for i, sums in enumerate(self.each))

    def shared_at(self, x: Array, arrays: Data, index: tuple[Array, ...]) -> tuple[Array, Array]:
        """G and its gradient."""
        return self.each[0].shared_at(x, arrays, index[0])

    def estimate(self, x: Array, arrays: Data, index: tuple[Array, ...]) -> tuple[Array, Array]:
        """The sum over all rows of all plates and its gradient, from a batch."""
        return _total([sums.estimate(x, arrays, own) for sums, own in zip(self.each, index, strict=True)])

    def weighed(self, x: Array, arrays: Data, index: tuple[Array, ...]) -> tuple[Array, Array]:
        """Log density and gradient from some batches alone."""
        found = [sums.weighed(x, arrays, own) for sums, own in zip(self.each, index, strict=True)]
        shared = self.shared_at(x, arrays, tuple(own[0] for own in index))
        return jax.tree.map(lambda a, b: a - (len(self.each) - 1) * b, _total(found), shared)

    def totals(self, x: Array, arrays: Data) -> Any:
        """Value and gradient of the sum over all rows of all plates, each as two numbers that are to be added."""
        total = self.each[0].totals(x, arrays)
        for sums in self.each[1:]:
            high, low = sums.totals(x, arrays)
            total = add_compensated(add_compensated(total, high), low)
        return total

    @property
    def size(self) -> int:
        """How many rows all plates have."""
        return sum(sums.size for sums in self.each)


def curvature_of(sums: RowSums, x: Array, arrays: Data, index: Array) -> tuple[Array, Array]:
    """The Hessians of what is shared and of the sum over a batch, for each of some batches."""
    return jax.lax.map(lambda i: sums.curvature(x, sums.rows.take(arrays, i)), index)


def make_row_sums(
    program: Program, batches: Mapping[str, int], plan: Mapping[str, str] | None = None, jacobian: bool = True
) -> RowSums | SumsOfPlates:
    """The sums over the rows of one plate or of several, of each so many in a batch."""
    programs = take_rows_of_plates(program, batches)
    if len(programs) == 1:
        return RowSums(programs[0], plan, jacobian)
    check_overrides(program, plan)
    own = [{name: how for name, how in (plan or {}).items() if name in rows.program.z} for rows in programs]
    return SumsOfPlates([RowSums(rows, said, jacobian) for rows, said in zip(programs, own, strict=True)])


def _total(found: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *parts: sum(parts), *found)


def add_compensated(total: Any, terms: Any) -> Any:
    """Add to a sum that is held as two numbers: the sum, and what rounding has taken from it (Neumaier's form)."""

    def error(a: Array, b: Array) -> Array:
        whole = a + b
        return jnp.where(jnp.abs(a) >= jnp.abs(b), (a - whole) + b, (b - whole) + a)

    high, low = total
    low = jax.tree.map(lambda a, b, c: c + error(a, b), high, terms, low)
    return jax.tree.map(jnp.add, high, terms), low


def _refuse_drawn(rows: RowProgram, plan: Plan) -> None:
    if not plan.sums_all:
        name = plan.drawn[0]
        is_count = isinstance(plan.structure.program.z[name].support, Count)
        where = "where a sum over an unbounded count is cut would follow from the rows of every batch"
        reason = where if is_count else plan.choices[name][0].reason
        raise ModelError(
            f"minibatch: '{name}' cannot be summed out ({reason}), and drawn for some rows at a time it would add "
            f"noise that grows with the {rows.size} rows of plate '{rows.plate}'. Sample without minibatch."
        )


def _refuse_joined(rows: RowProgram, plan: Plan) -> None:
    """No discrete element may share a component with one of another row, or with one outside the plate."""
    structure = plan.structure
    numbers = row_numbers(rows, list(rows.program.z))
    row_of, name_of = np.full(structure.num_sites, -1), np.empty(structure.num_sites, object)
    for name, sites in structure.user_site_numbers.items():
        row_of[sites], name_of[sites] = np.ravel(numbers[name]), name
    order = np.lexsort((row_of, structure.components))
    component, row = structure.components[order], row_of[order]
    joined = np.flatnonzero((component[1:] == component[:-1]) & (row[1:] != row[:-1]))
    if len(joined):
        one, other = (name_of[order[joined[0] + i]] for i in (0, 1))
        raise ModelError(
            f"minibatch: '{one}' and '{other}' depend on each other across rows of plate '{rows.plate}' (a chain along "
            "it, a group, a term over all rows), so that their sum cannot be taken row by row. Make what belongs "
            "together one row, or sample without minibatch."
        )
