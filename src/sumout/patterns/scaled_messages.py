"""Scaled messages: sums along chains whose table is the same at every level are products with a matrix.

With T the table and S_l what level l has of its own, the messages of a chain are

    m_l(s) = log Σ_k exp(m_{l−1}(k) + S_l(k) + T(k, s))

or, with c(s) = max_k T(k, s), E = exp(T − c), and X_l = exp(S_l + c − h_l), where h_l is the largest of the exponents
(and c is left out where there is no message yet),

    q_l = p_{l−1} X_l / t_l      t_l = Σ_k p_{l−1}(k) X_l(k)      p_l = q_l E
    m_l = log p_l + c + Σ_{i≤l} (log t_i + h_i)

so that a level takes K² multiplications instead of K² exponentials. E, X, q and p are at most 1. What falls below the
smallest normal number ε₀ is lost, which is at most 2 ε₀ of each term of t_l, and so at most 2 ε₀ / t_l + 2 ε₀ of each
term of p_l. If p_l(s) min(t_l, 1) ≥ 4 K ε₀ / ε, all of that together is less than the last place ε of p_l(s). This is
looked at for every l and s. Where it fails, as it does for states that cannot be reached, sum and derivative are taken
in logarithms. That is decided for all chains that are run side by side: so it stays a branch, of which one side is run.

With g_l the derivative by m_l, u_l = g_l / p_l, that by m_{l−1} and by S_l is q_l (E u_l). That by T is E Σ_l q_l u_lᵀ:
one product for all levels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from sumout.compile.policy import PRODUCT_VALUES
from sumout.patterns.contract import ChainSum
from sumout.tables.logsumexp import log_sum_exp


@dataclass(frozen=True, eq=False)
class ScaledSum:
    """Sums along chains by scaled messages; `cost` counts multiplications."""

    cost: float
    last_message: Callable[..., Array]


@dataclass(frozen=True)
class ScaledMessages:
    """Recognises chains with so many joint values in a cell that products save more than their scaling costs.

    Whether all levels have the same table is seen only when the tables are filled: where they have not, the match is
    not used.

    Attributes:
        least_values: K; a level of fewer is one small operation in logarithms, and faster.
    """

    least_values: int = PRODUCT_VALUES
    name: str = "scaled messages"
    subject: type = ChainSum

    def match(self, subject: ChainSum) -> ScaledSum | None:
        """Separators of one cell, of many values."""
        if subject.width != 1 or subject.num_values < self.least_values:
            return None
        return ScaledSum(subject.num_cells * float(subject.num_values) ** 2, last_message)


@jax.custom_vjp
def last_message(
    table: Float[Array, "C K K"], single: Float[Array, "L C K"], is_padding: Bool[Array, "L C"]
) -> Float[Array, "C K"]:
    """The messages of the last level.

    Args:
        table: T, for each column.
        single: S, for each level and column.
        is_padding: cells that are none: their message is zero. In its column such a cell comes before all others.
    """
    return _forward(table, single, is_padding)[0]


def _forward_rule(table: Array, single: Array, is_padding: Array) -> tuple[Array, Any]:
    message, *kept = _forward(table, single, is_padding)
    return message, (table, single, is_padding, *kept)


def _backward_rule(kept: Any, gradient: Array) -> tuple[Array, Array, None]:
    return (*_backward(*kept, gradient), None)


last_message.defvjp(_forward_rule, _backward_rule)


@custom_vmap
def _forward(table: Array, single: Array, is_padding: Array) -> tuple[Array, ...]:
    """The message; whether nothing was lost on the way of products; E, q and p."""
    highest = table.max(axis=1)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    matrix = jnp.exp(table - highest[:, None])
    is_first = _is_first(is_padding)
    exponent = single + jnp.where(is_first, 0.0, highest)
    largest = exponent.max(axis=-1, keepdims=True)
    weights = jnp.exp(exponent - largest)
    # A level is one operation, one product and a copy to memory: the total is another column of the product.
    with_total = jnp.concatenate([matrix, jnp.ones_like(matrix[..., :1])], axis=-1)

    def step(p: Array, level: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, is_first = level
        q = jnp.where(is_first, weights, p[:, :-1] / p[:, -1:] * weights)
        p = jnp.einsum("ck,ckj->cj", q, with_total)
        return p, p

    _, sums = lax.scan(step, jnp.ones_like(with_total[:, 0]), (weights, is_first))
    p, totals = sums[..., :-1] / sums[..., -1:], sums[..., -1:]
    before = jnp.concatenate([p[:1], p[:-1]])
    q = jnp.where(is_first, weights, before * weights) / totals
    scale = jnp.where(is_padding[..., None], 0.0, jnp.log(totals) + largest).sum(axis=0)
    limits = jnp.finfo(single.dtype)
    least = 4 * single.shape[-1] * limits.tiny / limits.eps
    is_right = (is_padding[..., None] | (p * jnp.minimum(totals, 1.0) >= least)).all()
    message = lax.cond(
        is_right,
        lambda: jnp.where(is_padding[-1][:, None], 0.0, jnp.log(p[-1]) + highest + scale),
        lambda: _in_logarithms(table, single, is_padding),
    )
    return message, is_right, matrix, q, p


@custom_vmap
def _backward(
    table: Array, single: Array, is_padding: Array, is_right: Array, matrix: Array, q: Array, p: Array, gradient: Array
) -> tuple[Array, Array]:
    """The derivatives by table and single, from that by the message."""

    def by_products() -> tuple[Array, Array]:
        above = jnp.where(_is_first(is_padding)[1:], 0.0, q[1:])  # what has no message hands nothing down
        weights = jnp.concatenate([above, jnp.where(is_padding[-1:, :, None], 0.0, jnp.ones_like(q[:1]))]) / p

        def step(handed: Array, weights: Array) -> tuple[Array, Array]:
            handed = jnp.einsum("cj,ckj->ck", handed * weights, matrix)
            return handed, handed

        _, handed = lax.scan(step, gradient, weights, reverse=True)
        u = jnp.concatenate([handed[1:], gradient[None]]) * weights
        return matrix * jnp.einsum("lck,lcj->ckj", q, u), q * handed

    def in_logarithms() -> tuple[Array, Array]:
        return jax.vjp(lambda table, single: _in_logarithms(table, single, is_padding), table, single)[1](gradient)

    return lax.cond(is_right, by_products, in_logarithms)


def _is_first(is_padding: Array) -> Bool[Array, "L C 1"]:
    """Which cells get no message."""
    return jnp.concatenate([jnp.ones_like(is_padding[:1]), is_padding[:-1]])[..., None]


def _in_logarithms(table: Array, single: Array, is_padding: Array) -> Array:
    def step(message: Array, level: tuple[Array, Array]) -> tuple[Array, None]:
        single, is_padding = level
        return jnp.where(is_padding[:, None], 0.0, log_sum_exp((message + single)[..., None] + table)), None

    return lax.scan(step, jnp.zeros_like(single[0]), (single, is_padding))[0]


# Where the columns stand: batches of chains are taken as more columns.
_FORWARD = (0, 1, 1), (0, None, 0, 1, 1)
_BACKWARD = (0, 1, 1, None, 0, 1, 1, 0), (0, 1)


@_forward.def_vmap
def _forward_batch(size: int, batched: Any, *arguments: Array) -> tuple[Any, Any]:
    return _as_columns(_forward, _FORWARD, size, batched, arguments)


@_backward.def_vmap
def _backward_batch(size: int, batched: Any, *arguments: Array) -> tuple[Any, Any]:
    return _as_columns(_backward, _BACKWARD, size, batched, arguments)


def _as_columns(function: Any, axes: Any, size: int, batched: Any, arguments: tuple[Array, ...]) -> tuple[Any, Any]:
    """The results of a function for a batch, and which of them have one entry for each member of it."""
    columns = arguments[0].shape[int(batched[0])]
    together = []
    for axis, is_batched, argument in zip(axes[0], batched, arguments, strict=True):
        if axis is None:
            together.append(argument.all())
        else:
            whole = argument if is_batched else jnp.broadcast_to(argument, (size, *argument.shape))
            whole = jnp.moveaxis(whole, 0, axis)
            together.append(whole.reshape(*whole.shape[:axis], size * columns, *whole.shape[axis + 2 :]))
    results = []
    for axis, result in zip(axes[1], function(*together), strict=True):
        if axis is not None:
            result = result.reshape(*result.shape[:axis], size, columns, *result.shape[axis + 1 :])
            result = jnp.moveaxis(result, axis, 0)
        results.append(result)
    return tuple(results), tuple(axis is not None for axis in axes[1])
