"""Names that a loop has numbered, z_0, z_1, …, as the rows of one array.

A dict of a thousand scalars is a thousand arguments of compiled code and a thousand results. Inside, those that are of
one kind are therefore one array, under a name that says which they are; the user sees their own names only.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

FEWEST = 8  # names that are made one

T = TypeVar("T")


@dataclass(frozen=True)
class Packs:
    """Which names are one array.

    Attributes:
        members: by the name of the array those of its rows; names that are in none are left as they are.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.members)

    def pack(self, named: Mapping[str, Any], stack: Callable[[list[Any]], Any] = np.stack) -> dict[str, Any]:
        """Named values with those of a pack stacked, in the place of its first name."""
        of_name = {name: pack for pack, names in self.members.items() for name in names}
        order = dict.fromkeys(of_name.get(name, name) for name in named)
        return {
            name: stack([named[member] for member in self.members[name]]) if name in self.members else named[name]
            for name in order
        }

    def unpack(
        self, arrays: Mapping[str, Any], axis: int = 0, row_of: Callable[[Any, int], Any] | None = None
    ) -> dict[str, Any]:
        """The reverse, with the rows of a pack along an axis; `row_of` takes one by other means than an index."""
        named: dict[str, Any] = {}
        before = (slice(None),) * axis
        row_of = row_of or (lambda array, row: array[(*before, row)])
        for name, array in arrays.items():
            if name in self.members:
                named.update((member, row_of(array, i)) for i, member in enumerate(self.members[name]))
            else:
                named[name] = array
        return named

    def unpack_rows(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The same for what is said of the elements, row by row."""
        return self.unpack(arrays)

    def first_of(self, named: Mapping[str, T]) -> dict[str, T]:
        """What is said of the first name of a pack said of all of it."""
        return self.pack(named, lambda values: values[0])

    def names(self, name: str) -> tuple[str, ...]:
        """The user's names behind a name."""
        return self.members.get(name, (name,))


def find_packs(kinds: Mapping[str, Hashable], apart: Collection[str] = ()) -> Packs:
    """Of names of given kinds those that differ in their numbers only; names in `apart` stay by themselves."""
    groups: dict[Hashable, list[str]] = {}
    for name, kind in kinds.items():
        if name not in apart and any(map(str.isdigit, name)):
            groups.setdefault((re.sub(r"\d+", "#", name), kind), []).append(name)
    packs = (sorted(names, key=_numbers) for names in groups.values() if len(names) >= FEWEST)
    return Packs({_label(names, kinds): tuple(names) for names in packs})


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def _label(names: list[str], taken: Iterable[str]) -> str:
    """What to call them all: from the first to the last."""
    label = f"{names[0]}…{names[-1]}"
    return f"{label} ({len(names)})" if label in taken else label
