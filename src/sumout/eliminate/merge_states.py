"""States that need not be told apart.

Two states are one if from both the same follows: the same factors for each value of the next site, and then states that
are one, too. What never occurs may be whatever suits. So "at least k so far" is one state however many there are, and
what begins in another way than it goes on, as a chain does at its first site, has no states of its own.
"""

from collections.abc import Sequence

import numpy as np

from sumout.compile.policy import MOST_MERGED_STATES

NONE = -1


def merge_states(out: np.ndarray, factors: Sequence[np.ndarray], num_values: int) -> np.ndarray:
    """The new number of each state.

    Args:
        out: for each entry s · K + k the state that it leads to; `NONE` where there is no such entry.
        factors: for each part of the factors, and each entry, the joint value they are looked up at; `NONE` for none.
        num_values: K.
    """
    num_states = len(out) // num_values
    if num_states > MOST_MERGED_STATES:
        return np.arange(num_states)
    following = out.reshape(num_states, num_values)
    seen = np.stack([np.zeros_like(out), *factors], axis=1).reshape(num_states, num_values, -1)
    joined = _Joined(following, seen)
    kept: list[int] = []
    for state in range(num_states):
        if any(joined.find(state) == joined.find(other) for other in kept):
            continue
        for other in kept:
            attempt = joined.merged(other, state)
            if attempt is not None:
                joined = attempt
                break
        else:
            kept.append(state)
    return np.unique([joined.find(state) for state in range(num_states)], return_inverse=True)[1].reshape(-1)


class _Joined:
    """Sets of states, and what follows from each."""

    def __init__(self, following: np.ndarray, seen: np.ndarray):
        self.following, self.seen = following, seen
        self.parent = list(range(len(following)))

    def find(self, state: int) -> int:
        """The one that stands for a set."""
        while self.parent[state] != state:
            state = self.parent[state]
        return state

    def merged(self, one: int, other: int) -> "_Joined | None":
        """With two states as one, and all that must be one then; None if these cannot be."""
        new = object.__new__(_Joined)
        new.following, new.seen, new.parent = self.following.copy(), self.seen.copy(), list(self.parent)
        pairs = [(one, other)]
        while pairs:
            a, b = sorted(map(new.find, pairs.pop()))
            if a == b:
                continue
            mine, theirs = new.seen[a], new.seen[b]
            if ((mine != theirs) & (mine != NONE) & (theirs != NONE)).any():
                return None
            both = (new.following[a] != NONE) & (new.following[b] != NONE)
            pairs += zip(new.following[a][both].tolist(), new.following[b][both].tolist(), strict=True)
            new.seen[a] = np.where(mine == NONE, theirs, mine)
            new.following[a] = np.where(new.following[a] == NONE, new.following[b], new.following[a])
            new.parent[b] = a
        return new
