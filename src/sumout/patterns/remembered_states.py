"""What the program remembers: sums over what it carries on, not over all sites that come before.

A datum that depends on "has never happened before", on how many there are, on the longest of some, depends on all sites
that go into that, and is a clique of them. But there are few values that it may have, and if they follow from each
other the sites can be summed out along a path of states: T · S · K entries instead of K^T (`state_paths.py`). Cuts are
looked for by running the program on sets of values (`structure/states.py`).
"""

from dataclasses import dataclass

import numpy as np

from sumout.compile.policy import MOST_JOINT_STATES
from sumout.patterns.contract import Candidates
from sumout.patterns.state_groups import Group, Kind, find_groups
from sumout.patterns.state_paths import Path, find_path
from sumout.structure.states import States, find_states


@dataclass(frozen=True, eq=False)
class RememberedStates:
    """What matches `Candidates`.

    Attributes:
        states: the program cut at states.
        groups: of sites and states; together with sites that no state follows from they are all candidates.
        paths: by kind of group. A group without one cannot be summed out so.
        cost: entries of all paths, and of the tables of factors.
    """

    states: States
    groups: tuple[Group, ...]
    paths: dict[Kind, Path]
    cost: float

    @property
    def sites(self) -> np.ndarray:
        """The sites that are summed out along paths."""
        return np.concatenate([np.zeros(0, np.int64), *(group.sites for group in self.groups)])

    @property
    def by_size(self) -> list[list[Group]]:
        """Groups of one number of values that are summed side by side."""
        found: dict[object, list[Group]] = {}
        for group in self.groups:
            path = self.paths[group.kind]
            most = max(len(self.states.reachable.arrays[group.kind.values[i]]) for i in group.kind.sites)
            # Paths of very different length or width would be mostly padding.
            length, width = int(np.log2(len(path.levels))), int(np.log2(path.most_states))
            found.setdefault((most, length, width, _names(group)), []).append(group)
        return list(found.values())

    def work(self, group: Group) -> float:
        """Entries of the path of a group, and of the tables of its factors."""
        sizes = value_counts(self.states)
        joint = sum(float(np.prod([sizes[m.name] for m in members])) for _, members in group.kind.factors)
        return self.paths[group.kind].num_entries + joint


def _names(group: Group) -> frozenset[str]:
    return frozenset(getattr(group.kind.sources[i], "name", "") for i in group.kind.sites)


def value_counts(states: States) -> list[int]:
    """How many values the sites and states of each name have."""
    z = states.structure.program.z
    return [getattr(z[name].support, "num_values", 0) for name in states.structure.site_numbers]


@dataclass(frozen=True)
class DeterministicStates:
    """Recognises sites that meet only in what the program remembers of them."""

    name: str = "deterministic states"
    subject: type = Candidates

    def match(self, subject: Candidates) -> RememberedStates | None:
        """The program cut at states, without those groups that have too many; None if there are no states."""
        label = (self.name, id(subject.structure), subject.candidates.tobytes())
        return subject.structure.program.remember(label, lambda: _match(subject))


def _match(subject: Candidates) -> RememberedStates | None:
    candidates = subject.candidates.copy()
    for _ in range(2):  # what cannot be summed out is given, and states that follow from it are none
        if not candidates.any():
            return None
        states = find_states(subject.structure, candidates)
        if states is None:
            return None
        groups = find_groups(states)
        sizes, paths = value_counts(states), {}
        for kind in dict.fromkeys(group.kind for group in groups):
            joint = [np.prod([float(sizes[m.name]) for m in members]) for _, members in kind.factors]
            path = None if max(joint, default=0.0) > MOST_JOINT_STATES else find_path(kind, states.reachable, sizes)
            if path is not None:
                paths[kind] = path
        failed = [group for group in groups if group.kind not in paths]
        if not failed:
            match = RememberedStates(states, tuple(groups), paths, 0.0)
            cost = sum(match.work(group) for group in groups)
            return RememberedStates(states, tuple(groups), paths, cost) if groups else None
        for group in failed:
            candidates[group.sites] = False
    return None
