"""Sums over a program cut at states, for the program itself, which knows nothing of states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from sumout.compile.policy import MOST_ENTRIES, MOST_PATH_ENTRIES, STATES_GAIN, STATES_WORTH_LOOKING, SUM_WORTH
from sumout.eliminate.components import Component, find_components
from sumout.eliminate.state_tables import build_state_tables
from sumout.eliminate.summation import Summation, build_summation
from sumout.model.program import Data, Nuisance
from sumout.moves.move import NuisanceMove
from sumout.patterns.contract import Candidates, Pattern
from sumout.patterns.registry import PATTERNS, find_match
from sumout.patterns.remembered_states import RememberedStates
from sumout.patterns.state_groups import num_joint_values
from sumout.structure.states import States, state_arguments
from sumout.structure.structure import Structure


@dataclass(frozen=True, eq=False)
class StateSummation(NuisanceMove):
    """Sums over some sites of a program, done on the program cut at states: all that a `Summation` has.

    Attributes:
        structure: the reading of the program itself.
        summed: mask over its sites.
        inner: the sums over sites of the cut program.
        states: how it was cut.
    """

    structure: Structure
    summed: np.ndarray
    inner: Summation
    states: States

    @property
    def evaluations(self) -> int:
        """How many times the factors are evaluated to draw the sites."""
        return self.inner.evaluations

    def _with_states(self, z: Nuisance) -> Nuisance:
        """Z with arrays of states, whose values do not matter."""
        return {**z, **dict(state_arguments(self.states))}

    def _without_states(self, z: Nuisance) -> Nuisance:
        return {name: value for name, value in z.items() if name not in self.states.names}

    def log_density(self, x: Array, z: Nuisance, data: Data) -> Float[Array, ""]:
        """Log density with the sites summed out; their values in z are not looked at."""
        return self.inner.log_density(x, self._with_states(z), data)

    def __call__(self, key: Array, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """The sites drawn jointly from their conditional given x and the rest of z; the others as they are."""
        return self._without_states(self.inner(key, x, self._with_states(z), data))

    def most_probable(self, x: Array, z: Nuisance, data: Data) -> Nuisance:
        """The most probable joint values of the sites given x and the rest of z; the others as they are."""
        return self._without_states(self.inner.most_probable(x, self._with_states(z), data))

    def log_marginals(self, x: Array, z: Nuisance, data: Data) -> Float[Array, "sites K"]:
        """Log probabilities of the values of every site given x and the rest of z; NaN for those not summed."""
        return self.inner.log_marginals(x, self._with_states(z), data)[: self.structure.num_sites]

    def probabilities(self, x: Array, z: Nuisance, data: Data) -> Iterator[tuple[np.ndarray, Array]]:
        """The marginals of the sites."""
        yield from self.inner.probabilities(x, self._with_states(z), data)

    def log_beliefs(
        self, x: Array, z: Nuisance, data: Data, terms: Float[Array, "K sites"], zeros: Float[Array, "K sites"]
    ) -> Float[Array, "K sites"]:
        """Log weights of the values of every site, up to a constant for each, where sites have further terms."""
        missing = ((0, 0), (0, len(self.states.elements) - self.structure.num_sites))
        wide = [jnp.pad(array, missing) for array in (terms, zeros)]
        return self.inner.log_beliefs(x, self._with_states(z), data, *wide)[:, : self.structure.num_sites]


def build_state_summation(
    structure: Structure,
    match: RememberedStates,
    components: Sequence[Component],
    patterns: Sequence[Pattern] = PATTERNS,
) -> StateSummation:
    """The sums along paths of states, and over some components of the cut program that have no states."""
    states = match.states
    tables = [build_state_tables(states, groups, match.paths) for groups in match.by_size]
    is_state = np.arange(len(states.elements)) >= states.num_sites
    inner = build_summation(states.structure, components, patterns, tables, is_state)
    return StateSummation(structure, inner.summed[: states.num_sites], inner, states)


def build_sums_over(
    structure: Structure, candidates: np.ndarray, patterns: Sequence[Pattern] = PATTERNS
) -> Summation | StateSummation | None:
    """The sums over all candidates (a mask), along paths of states where that is worth it; None if too large."""
    components = find_components(structure, candidates, patterns)
    match = find_states_worth(structure, components, candidates, patterns)
    if match is not None:
        components = find_components(match.states.structure, beside(match, candidates), patterns)
    if not all(component.alone or component.shape is not None for component in components):
        return None
    if match is not None:
        return build_state_summation(structure, match, components, patterns)
    return build_summation(structure, components, patterns)


def find_states_worth(
    structure: Structure, components: Sequence[Component], candidates: np.ndarray, patterns: Sequence[Pattern]
) -> RememberedStates | None:
    """Paths of states for the candidates (a mask) that join many sites, if sums along them cost much less."""
    joined = sp.csr_array(structure.scopes[:, np.flatnonzero(candidates)])
    if np.diff(joined.indptr).max(initial=0) < STATES_WORTH_LOOKING:
        return None
    match = find_match(patterns, Candidates(structure, candidates))
    if match is None:
        return None
    on_path = np.isin(np.arange(structure.num_sites), match.sites)
    affected = [component for component in components if on_path[component.sites].any()]
    costs, drawing = (sum(getattr(c, work) for c in affected) for work in ("summing", "drawing"))
    is_cheap = match.cost <= max(MOST_PATH_ENTRIES, SUM_WORTH * drawing)
    return match if is_cheap and costs > STATES_GAIN * match.cost else None


def beside(match: RememberedStates, candidates: np.ndarray) -> np.ndarray:
    """The candidates that are not summed out along paths, as a mask over the sites of the cut program."""
    left = np.pad(candidates, (0, len(match.states.elements) - len(candidates)))
    left[match.sites] = False
    return left


def describe_states(match: RememberedStates) -> str:
    """Why sites are summed out along paths, in words."""
    most = max(path.most_states for path in match.paths.values())
    joint = max(num_joint_values(group, match.states.reachable) for group in match.groups)
    number = f"{joint:,.0f}" if joint < MOST_ENTRIES else f"{joint:.0e}"
    return (
        f"through what the program keeps of them: {most:,} states at most, where {number} joint values lead; "
        f"{match.cost:,.0f} entries"
    )
