"""Which sums of sites take the place of one of their terms.

Survivors s and recruits g of which data and later survivors see only n = s + g meet in threes: what follows from n
depends on s and on g. With n as a site of its own, in the place of g, the law of g joins n to s, and all else sees n
alone. That is so where, once sums are known, g meets nothing but its partner.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from sumout.errors import note_unforeseen
from sumout.jaxpr.sums_of_inputs import Added, find_sums, partners
from sumout.jaxpr.walk import cut
from sumout.model.program import DiscreteSite, Program
from sumout.model.recoded import CountSum, with_sums_as_sites
from sumout.model.supports import Finite
from sumout.structure.structure import Structure, facts_of, flat_density, read_as_it_is

MOST_TERMS = 8  # rounds in which sums of sums are looked for


def sums_as_sites(program: Program, names: Collection[str]) -> Program:
    """The program with sums of some of its sites in the place of terms; itself where there are none.

    Args:
        program: as it is to be read.
        names: sites of whole numbers that may be terms, as the program names them.
    """
    for _ in range(MOST_TERMS):
        try:
            chosen = _choose(program, names)
        except Exception as error:
            note_unforeseen("looking for sums of counts", error)
            chosen = []
        if not chosen:
            break
        program = with_sums_as_sites(program, chosen)
        names = [*names, *(one.name for one in chosen)]
    return program


def _choose(program: Program, names: Collection[str]) -> list[CountSum]:
    closed = flat_density(program)
    named = dict(zip(closed.jaxpr.invars[1:], sorted(program.z), strict=False))
    sums = find_sums(closed, {v: name for v, name in named.items() if name in names})
    if not sums:
        return []
    meeting = _Meeting(program, sums)
    chosen: list[CountSum] = []
    for pair in dict.fromkeys(frozenset(copy.name for copy in one.terms) for one in sums):
        taken = {name for one in chosen for name in (one.kept, one.replaced)}
        if not taken.isdisjoint(pair):
            continue
        for kept, replaced in (sorted(pair), sorted(pair, reverse=True)):
            together = partners(sums, replaced, kept, program.z[replaced].num_elements)
            if together is not None and meeting.only_sum_matters(replaced, kept):
                chosen.append(_sum(program, kept, replaced, together))
                break
    return chosen


def _sum(program: Program, kept: str, replaced: str, together: np.ndarray) -> CountSum:
    support = program.z[replaced].support
    assert isinstance(support, Finite)
    values, allowed = support.rows()
    # One end for all elements, so that one table serves them all: what lies beyond that of an element is not left out.
    return CountSum(kept, replaced, together, int(values[:, 0].min()), int(values[allowed].max()), support.shape)


class _Meeting:
    """Which sites meet in factors once sums of sites are known, as if these were sites, too."""

    def __init__(self, program: Program, sums: list[Added]):
        closed = flat_density(program)
        arguments = {f"sum {i}": one.result for i, one in enumerate(sums)}
        sites = {
            name: DiscreteSite(Finite(np.arange(2, dtype=v.aval.dtype), v.aval.shape))  # pyright: ignore[reportAttributeAccessIssue]
            for name, v in arguments.items()
        }
        part = cut(closed, closed.jaxpr.outvars, arguments.values())
        x, *rest = closed.jaxpr.invars
        every = dict(zip(sorted(program.z), rest, strict=False)) | arguments
        invars = [x, *(every[name] for name in sorted(every)), *rest[len(program.z) :]]
        made = replace(program, z={**program.z, **sites}, source=program.source or program)
        made.remember("flat", lambda: type(closed)(part.jaxpr.replace(invars=invars), part.consts))
        made.remember("facts", lambda: facts_of(program))
        self._structure: Structure = read_as_it_is(made)
        names = list(self._structure.site_numbers)
        owner = np.zeros(self._structure.num_sites, np.int64)
        for number, name in enumerate(names):
            owner[self._structure.site_numbers[name]] = number
        self._pairs = {frozenset((names[a], names[b])) for a, b in owner[self._structure.edges].tolist()}

    def only_sum_matters(self, replaced: str, kept: str) -> bool:
        """Whether a site meets nothing but its partner."""
        return {name for pair in self._pairs if replaced in pair for name in pair} <= {replaced, kept}
