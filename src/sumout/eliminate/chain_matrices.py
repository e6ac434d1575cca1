"""Sums along chains side by side whose tables are one for all of them: products of matrices, scaled at each level.

With T_l the table of level l, S_l what each chain has of its own there, E = exp(T − max T) and w = exp(S − max S),

    p_{l+1} = E_lᵀ (w_l p_l) / s_l        b_l = w_l (E_l b_{l+1}) / t_l        b_L = w_L, p_0 = 1

s and t scale p and b to maxima of 1. The sum over a chain is Z = Σ_k p_L w_L times all scales, the probabilities of the
values of level l are p_l b_l / o_l, o_l = Σ_k p_l b_l, and those of pairs w_l p_l E_l b_{l+1} / (t_l o_l).

What falls below the smallest normal number ε₀ is lost: at each level at most 3 K ε₀ of each entry of E_lᵀ (w_l p_l),
and so 3 K² ε₀ / (s_l o_l) of Z, as b is 1 at most; of b likewise, with t_l. Where min(s_l, t_l) o_l ≥ 4 K² L ε₀ / ε at
every level of L, all of it together is less than the last place ε. Where that fails, as far from all that data say, sum
and derivative are taken in logarithms; that is decided for all chains that are run side by side.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from sumout.eliminate.chain_products import at, in_logarithms, shifted, unless, where
from sumout.tables.logsumexp import invert


class Passes(NamedTuple):
    """What the two passes leave.

    Attributes:
        log_totals: for each column; right only if `is_right`.
        is_right: whether nothing that counts was lost.
        factors: E, `(n or 1, K, J)`.
        weights: w.
        before: p.
        after: b.
        overlaps: o.
        scales: t, of all levels but the last.
    """

    log_totals: Float[Array, " C"]
    is_right: Bool[Array, ""]
    factors: Array
    weights: Float[Array, "L K C"]
    before: Float[Array, "L K C"]
    after: Float[Array, "L K C"]
    overlaps: Float[Array, "L C"]
    scales: Float[Array, "n C"]


def both_ways(
    table: Float[Array, "D K J 1"],
    linked: Bool[Array, "n C"] | None,
    single: Float[Array, "L K C"],
    is_padding: Bool[Array, "L C"] | None,
) -> Passes:
    """The passes from both ends; arguments as for `log_matrix_totals`."""
    factors, highest = shifted(table[..., 0], (1, 2))
    weights, largest = shifted(single, (1,))
    num_levels, num_values, _ = single.shape
    own = factors if len(factors) > 1 else None

    def forward(p: Array, level: tuple) -> tuple[Array, Any]:
        weights, matrix, linked, is_padding = level
        passed = weights * p
        found = (factors[0] if matrix is None else matrix).T @ passed
        found = unless(is_padding, where(linked, found, passed.sum(axis=0)), 1.0)
        scaled, scale = _scaled(found)
        return scaled, (scaled, scale)

    def backward(after: Array, level: tuple) -> tuple[Array, Any]:
        weights, matrix, linked, is_padding = level
        found = (factors[0] if matrix is None else matrix) @ after
        found = weights * where(linked, found, after.sum(axis=0))
        scaled, scale = _scaled(unless(is_padding, found, 1.0))
        return scaled, (scaled, scale)

    inner = at(is_padding, slice(-1))
    levels = weights[:-1], own, linked, inner
    first = jnp.ones_like(weights[0])
    _, (p, down) = lax.scan(forward, first, levels)
    _, (b, up) = lax.scan(backward, weights[-1], levels, reverse=True)
    p, b = jnp.concatenate([first[None], p]), jnp.concatenate([b, weights[-1:]])
    overlaps = (p * b).sum(axis=1)
    shift = where(linked, highest[:, None], 0.0) + largest[:-1] + jnp.log(down)
    shift = unless(inner, shift, 0.0).sum(axis=0) + largest[-1]
    is_empty = at(is_padding, -1)
    total = unless(is_empty, jnp.log(overlaps[-1]) + shift, 0.0)
    limits = jnp.finfo(single.dtype)
    least = 4 * num_values**2 * num_levels * limits.tiny / limits.eps
    smallest = jnp.minimum(down, up)
    smallest = jnp.minimum(overlaps[:-1], overlaps[1:]) * smallest
    is_right = unless(inner, smallest >= least, True).all() & unless(is_empty, overlaps[-1] >= least, True).all()
    return Passes(total, is_right, factors, weights, p, b, overlaps, up)


def draw_down(
    passes: Passes, table: Float[Array, "D K J 1"], linked: Array | None, single: Array, hints: Float[Array, "L C"]
) -> Int[Array, "L C"]:
    """For each cell the number of a value: one joint draw, by one uniform number each, from the roots to the leaves."""
    log_weights = single + jnp.log(passes.before)
    matrices = jnp.swapaxes(table[..., 0], 1, 2)

    def step(above: Array, level: tuple) -> tuple[Array, Array]:
        log_weights, matrix, linked, hint = level
        column = (matrices[0] if matrix is None else matrix)[above].T
        number = invert(log_weights + where(linked, column, 0.0), hint)
        return number, number

    root = invert(log_weights[-1], hints[-1])
    levels = log_weights[:-1], matrices if len(matrices) > 1 else None, linked, hints[:-1]
    _, numbers = lax.scan(step, root, levels, reverse=True)
    return jnp.concatenate([numbers, root[None]])


def _scaled(array: Float[Array, "K C"]) -> tuple[Float[Array, "K C"], Float[Array, " C"]]:
    """With a maximum of 1, and what it was; what is zero throughout stays so."""
    scale = array.max(axis=0)
    return array / jnp.where(scale > 0, scale, 1.0), jnp.where(scale > 0, scale, 0.0)


@jax.custom_vjp
def log_matrix_totals(
    table: Float[Array, "D K J 1"],
    linked: Bool[Array, "n C"] | None,
    single: Float[Array, "L K C"],
    is_padding: Bool[Array, "L C"] | None,
) -> Float[Array, " C"]:
    """For each column the logarithm of the sum over all joint values of its chain.

    Args:
        table: T, one for all columns; for each level but the last, or one for all of them.
        linked: which cells have it; that of the others is zero. None if all have.
        single: S, for each level and column.
        is_padding: cells that are none. In its column such a cell comes before all others. None if there are none.
    """
    return _forward(table, linked, single, is_padding)[0]


def _forward_rule(table: Array, linked: Array | None, single: Array, is_padding: Array | None) -> tuple[Array, Any]:
    total, passes = _forward(table, linked, single, is_padding)
    return total, (table, linked, single, is_padding, passes)


def _backward_rule(kept: Any, gradient: Array) -> tuple[Array, None, Array, None]:
    from_table, from_single = _backward(*kept, gradient)
    return from_table, None, from_single, None


log_matrix_totals.defvjp(_forward_rule, _backward_rule)


@custom_vmap
def _forward(table: Array, linked: Array | None, single: Array, is_padding: Array | None) -> tuple[Array, Passes]:
    passes = both_ways(table, linked, single, is_padding)
    total = lax.cond(
        passes.is_right, lambda: passes.log_totals, lambda: in_logarithms(table, linked, single, is_padding)
    )
    return total, passes


@custom_vmap
def _backward(
    table: Array, linked: Array | None, single: Array, is_padding: Array | None, passes: Passes, gradient: Array
) -> tuple[Array, Array]:
    """The derivatives by table and single, from that by the logarithm."""

    def by_products() -> tuple[Array, Array]:
        share = unless(is_padding, gradient / unless(is_padding, passes.overlaps, 1.0), 0.0)
        from_single = passes.before * passes.after * share[:, None]
        scales = unless(at(is_padding, slice(-1)), where(linked, passes.scales, 1.0), 1.0)
        weight = where(linked, share[:-1] / scales, 0.0)
        passed = passes.before[:-1] * passes.weights[:-1] * weight[:, None]
        after = passes.after[1:]
        pairs = jnp.einsum("nkc,njc->nkj" if len(table) > 1 else "nkc,njc->kj", passed, after)
        return (passes.factors * pairs.reshape(passes.factors.shape))[..., None], from_single

    def by_logarithms() -> tuple[Array, Array]:
        def total(table: Array, single: Array) -> Array:
            return in_logarithms(table, linked, single, is_padding)

        return jax.vjp(total, table, single)[1](gradient)

    return lax.cond(passes.is_right, by_products, by_logarithms)


def _one_by_one(function: Callable[..., Any], size: int, batched: Any, arguments: Any) -> tuple[Any, Any]:
    """A batch one after the other, as each has a table, and a decision, of its own."""
    flat, form = jax.tree.flatten(arguments)
    is_batched = jax.tree.leaves(batched)
    whole = [a if b else jnp.broadcast_to(a, (size, *a.shape)) for a, b in zip(flat, is_batched, strict=True)]
    results = lax.map(lambda each: function(*jax.tree.unflatten(form, each)), whole)
    return results, jax.tree.map(lambda _: True, results)


@_forward.def_vmap
def _forward_batch(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
    return _one_by_one(_forward, size, batched, arguments)


@_backward.def_vmap
def _backward_batch(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
    return _one_by_one(_backward, size, batched, arguments)
