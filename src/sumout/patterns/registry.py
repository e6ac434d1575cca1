"""All patterns. Without any of them every answer is the same, but takes longer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sumout.moves.gibbs import Gibbs
from sumout.patterns.change_points import ChangePoints
from sumout.patterns.contract import BlockTable, Pattern
from sumout.patterns.quadratic_gibbs import QuadraticForms
from sumout.patterns.remembered_states import DeterministicStates
from sumout.patterns.scaled_messages import ScaledMessages
from sumout.patterns.slices import Slices
from sumout.tables.blocks import Block

PATTERNS: tuple[Pattern, ...] = (
    ChangePoints(),
    QuadraticForms(),
    DeterministicStates(),
    Slices(),
    ScaledMessages(),
)


def find_match(patterns: Sequence[Pattern], subject: Any) -> Any | None:
    """What can take the place of the subject at least cost; None if no pattern matches."""
    found = [pattern.match(subject) for pattern in patterns if isinstance(subject, pattern.subject)]
    found = [match for match in found if match is not None]
    return min(found, key=lambda match: match.cost) if len(found) > 1 else next(iter(found), None)


def build_gibbs(block: Block, values: np.ndarray, allowed: np.ndarray, patterns: Sequence[Pattern] = PATTERNS) -> Gibbs:
    """The Gibbs update of a block, its table filled as a pattern says if one matches."""
    matched = find_match(patterns, BlockTable(block, values, allowed))
    return Gibbs(block, values, None if allowed.all() else allowed, matched)
