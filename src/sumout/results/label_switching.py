"""Label switching: do chains agree once the components of a mixture are put in the same order?

A model that does not tell its components apart has a posterior with a mode for every permutation of them. Chains in
different ones disagree about every component, though they agree about all that matters. Components are looked for as an
axis of the same length K in several variables. One permutation for each chain, matched to the first chain by means and
spreads, is tried first; then one for each draw, which sorts one of the variables. It counts if the chains agree and mix
after it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

MOST_COMPONENTS = 20  # longer axes are not taken for components
CLEARER = 1.5  # times as far apart when sorted as independent ones, of which 150 effective draws come to 1.2 at most

Draws = Mapping[str, np.ndarray]  # axes (chain, draw) in front
Permutations = np.ndarray  # (chain, draw, K): new component k is the old one of that number


@dataclass(frozen=True)
class Switching:
    """Variables that agree once components are in the same order.

    Attributes:
        names: of the variables.
        by: one that tells the components apart.
        is_within: whether labels switch within chains, too.
    """

    names: tuple[str, ...]
    by: str
    is_within: bool


def find_switching(
    x: Draws, z: Draws, others: Draws, apart: Collection[str], agrees: Callable[[np.ndarray], bool]
) -> list[Switching]:
    """What of the variables is explained by labels.

    Args:
        x: continuous variables about which chains disagree, or that mix too slowly.
        z: such discrete ones, by values.
        others: the other continuous variables.
        apart: those about which chains disagree. Where chains are slow only, an order for each of them can but match
            noise with noise.
        agrees: whether the chains of a variable agree and mix.
    """
    found, left = [], dict(x)
    # Where a variable is always in order, components have a meaning. One that has nothing to do with them may happen to
    # be so, too: where a single order for each chain mends all, that is evidence enough.
    ordered = {value.shape[2] for value in x.values() if _is_ordered(value)}
    maybe_ordered = {value.shape[2] for value in others.values() if _is_ordered(value)}
    sizes = {size for value in x.values() for size in value.shape[2:] if 2 <= size <= MOST_COMPONENTS}
    for num in sorted(sizes - ordered):
        group = {name: value for name, value in left.items() if num in value.shape[2:]}
        labels = {name: value for name, value in z.items() if are_labels(value, num)}
        for order, by, is_within in _orders(group, num):
            if num in maybe_ordered if is_within else not group.keys() & set(apart):
                continue
            mended = [name for name, value in group.items() if any(map(agrees, _relabelled(value, order)))]
            if mended:
                mended += [name for name, value in labels.items() if agrees(renumber(value, order))]
                found.append(Switching(tuple(mended), by, is_within))
                left = {name: value for name, value in left.items() if name not in mended}
                break
    return found


def _orders(group: Draws, num: int) -> Iterator[tuple[Permutations, str, bool]]:
    """Orders of the components to try, by what they go, and whether they differ within chains."""
    if not group:
        return
    vectors = {name: value for name, value in group.items() if value.shape[2:] == (num,)}
    clearest = sorted(vectors, key=lambda name: -_separation(vectors[name]))
    yield _match_chains(group, num), (clearest or list(group))[0], False
    for name in filter(lambda name: _keep_clear(vectors[name]), clearest):
        yield np.argsort(vectors[name], axis=-1), name, True


def _separation(vector: np.ndarray) -> float:
    """How far apart the sorted components are, by their spreads."""
    return float(_gaps(vector.reshape(-1, vector.shape[-1])).min())


def _keep_clear(vector: np.ndarray) -> bool:
    """Whether components keep clear of each other at every draw: where one is, no other is.

    Independent coefficients mix faster once they are sorted, too, though nothing switches. But with the draws of each
    shuffled, which leaves independent ones what they are, they are sorted as far apart as before.
    """
    flat = vector.reshape(-1, vector.shape[-1])
    shuffled = np.random.default_rng(0).permuted(flat, axis=0)
    return bool((_gaps(flat) > CLEARER * _gaps(shuffled)).any())


def _gaps(columns: np.ndarray) -> np.ndarray:
    """Between sorted neighbours, in the mean spread."""
    in_order = np.sort(columns, axis=-1)
    return np.diff(in_order.mean(axis=0)) / (in_order.std(axis=0).mean() + 1e-300)


def _is_ordered(value: np.ndarray) -> bool:
    """Whether a vector has its components in the same order at all draws."""
    if value.ndim != 3 or not 2 <= value.shape[2] <= MOST_COMPONENTS:
        return False
    steps = np.sign(np.diff(value, axis=-1))
    return bool((steps == steps[:1, :1]).all() and (steps[0, 0] == steps[0, 0, 0]).all())


def _match_chains(group: Draws, num: int) -> Permutations:
    """For each chain the order in which its components are most like those of the first."""
    from scipy.optimize import linear_sum_assignment  # takes a while to import

    features = np.concatenate([_features(value, num) for value in group.values()], axis=-1)  # (chain, K, feature)
    orders = [linear_sum_assignment(((features[0][:, None] - chain[None]) ** 2).sum(-1))[1] for chain in features]
    shape = next(iter(group.values())).shape[:2]
    return np.broadcast_to(np.stack(orders)[:, None], (*shape, num))


def _features(value: np.ndarray, num: int) -> np.ndarray:
    """Means and spreads by component in each chain, `(chain, K, feature)`, that do not depend on other labels."""
    axis = 2 + value.shape[2:].index(num)
    flat = np.moveaxis(value, axis, 2).reshape(*value.shape[:2], num, -1).astype(float)
    mean, sd = flat.mean(axis=1), flat.std(axis=1)
    scale = np.sqrt((sd**2).mean(axis=0, keepdims=True)).mean(axis=1, keepdims=True) + 1e-300
    if value.shape[2:].count(num) > 1:  # another axis of components, as of transitions: its order is not known
        mean, sd = np.sort(mean, axis=-1), np.sort(sd, axis=-1)
    return np.concatenate([mean / scale, sd / scale], axis=-1)


def _relabelled(value: np.ndarray, order: Permutations) -> Iterator[np.ndarray]:
    """The variable with its components in that order: along all axes that may be theirs, or one of them."""
    axes = [axis for axis in range(2, value.ndim) if value.shape[axis] == order.shape[-1]]
    for chosen in [axes, *([axis] for axis in axes if len(axes) > 1)]:
        yield reorder(value, order, chosen)


def reorder(value: np.ndarray, order: Permutations, axes: Sequence[int]) -> np.ndarray:
    """The variable with its components in that order along some axes."""
    for axis in axes:
        shape = [1] * value.ndim
        shape[0], shape[1], shape[axis] = order.shape
        value = np.take_along_axis(value, order.reshape(shape), axis=axis)
    return value


def are_labels(value: np.ndarray, num: int) -> bool:
    """Whether all values of a discrete variable are numbers of components."""
    return value.dtype.kind in "biu" and value.min() >= 0 and value.max() < num


def renumber(z: np.ndarray, order: Permutations) -> np.ndarray:
    """Sites with the new numbers of their components as values."""
    new = np.argsort(order, axis=-1)  # the inverse permutation
    flat = z.reshape(*z.shape[:2], -1).astype(int)
    return np.take_along_axis(np.ascontiguousarray(new), flat, axis=-1).reshape(z.shape)
