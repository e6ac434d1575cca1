"""Chains in groups: side by side in one compiled call, the groups in threads.

How chains are grouped depends on their number only, so that draws do not depend on the number of cores.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

GROUP = 2  # chains of one group at least


def part(chains: Any) -> list[Any]:
    """Arrays with a leading axis of chains, group by group; all groups are of one size, to be compiled once."""
    num = num_chains_of(chains)
    size = next((size for size in range(GROUP, num) if num % size == 0), num)
    return [jax.tree.map(lambda a, i=i: a[i : i + size], chains) for i in range(0, num, size)]


def join(groups: Sequence[Any]) -> Any:
    """The groups as one."""
    return groups[0] if len(groups) == 1 else jax.tree.map(lambda *parts: np.concatenate(parts), *groups)


def num_chains_of(chains: Any) -> int:
    """How many chains there are."""
    return len(jax.tree.leaves(chains)[0])
