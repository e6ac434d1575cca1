"""Messages along many levels of one path of few states, by products of matrices in pairs.

    A_l(s, s') = log Σ_{k: f(s, k) = s'} exp table_l(s, k)        m_L = m_0 · A_0 · A_1 ⋯ A_{L−1}

with · in logarithms: log Σ exp of sums. Products may be taken in any order; two by two, all pairs at once, there are
log₂ L operations on arrays instead of L on a few numbers each, of which one costs as much on a CPU.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.compile.policy import PRODUCT_TERMS
from sumout.eliminate.lists import NONE, lists_of, take_rows
from sumout.tables.logsumexp import log_sum_exp


def is_worth_products(num_levels: int, num_states: int) -> bool:
    """Whether products of matrices take less time than messages from level to level."""
    return num_levels > 2 and num_levels * num_states**3 <= PRODUCT_TERMS


def last_message(table: Float[Array, "l n 1"], out: np.ndarray, start: int, num_states: int) -> Float[Array, "S 1"]:
    """The message after some levels.

    Args:
        table: of the levels.
        out: the state that each entry s · K + k leads to, or `NONE`.
        start: the state that all begins with.
        num_states: S.
    """
    states = np.arange(len(out)) // (len(out) // num_states)
    lists = lists_of(np.where(out == NONE, NONE, states * num_states + out), num_states**2)
    rows = take_rows(table[..., 0].T, lists.ravel()).reshape(*lists.shape, len(table))
    is_term = (lists != NONE)[..., None] & _reached(out, start, num_states, len(table))
    matrices = log_sum_exp(jnp.where(is_term, rows, -jnp.inf).transpose(2, 1, 0))
    matrices = matrices.reshape(-1, num_states, num_states)
    while len(matrices) > 1:
        half = len(matrices) // 2
        first, second, rest = matrices[: 2 * half : 2], matrices[1 : 2 * half : 2], matrices[2 * half :]
        product = log_sum_exp(first[..., None] + second[:, None])
        matrices = jnp.concatenate([product, rest]) if len(rest) else product
    return matrices[0, start][:, None]


def _reached(out: np.ndarray, start: int, num_states: int, num_levels: int) -> np.ndarray:
    """Of which pairs of states the first is reached at each level, `(S², 1, levels)`; elsewhere tables may be any."""
    reached = np.zeros((num_levels, num_states), bool)
    reached[0, start] = True
    by_state = out.reshape(num_states, -1)
    for level in range(1, num_levels):
        after = by_state[reached[level - 1]]
        reached[level, after[after != NONE]] = True
    return np.repeat(reached.T, num_states, axis=0)[:, None]
