"""A program cut where what it computes from z alone has few values: there it sees states instead of all earlier z.

    log p(x, z, y) = Σ factors(x, z, s)        s_t = f(s_{t−1}, z_t)

On the way from z to the factors the last arrays that follow from finite sites and data alone are looked for, and whose
elements have few values (`reachable.py`). Where an element follows from many sites its array becomes an argument of the
program, as if it were a discrete site: its elements are the states s. The program cut so is read like any other, and a
factor that sees a state depends on that, not on the sites from which it follows. What becomes of states that follow
from each other is told by their variables.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Var

from sumout.errors import note_unforeseen
from sumout.jaxpr.walk import cut, following, walk_back
from sumout.model.program import DiscreteSite, Program
from sumout.model.supports import Finite
from sumout.structure.reachable import NOTHING, UNKNOWN, Reachable, TooManyError
from sumout.structure.reachable_rules import Found, ReachableReader
from sumout.structure.scopes import Abstract
from sumout.structure.structure import Structure, data_operands, facts_of, read

FEWEST_SITES = 3  # from which an element follows that becomes a state: of two, all joint values are few
STATE = "state {}"  # what the arrays of states are called; a name of no site of a user


@dataclass(frozen=True, eq=False)
class States:
    """A program cut at states.

    Attributes:
        structure: the reading of the cut program, whose last discrete sites are states.
        names: of the arrays of states.
        num_sites: how many discrete sites the program itself has: the others are states.
        reachable: the variables from which sites and states follow.
        elements: for each site and state, its element there; `UNKNOWN` for a site that is not summed out.
    """

    structure: Structure
    names: tuple[str, ...]
    num_sites: int
    reachable: Reachable
    elements: np.ndarray

    @cached_property
    def variable_of(self) -> np.ndarray:
        """For each site and state the variable it follows from; `NOTHING` for one that is constant, or unknown."""
        return np.array([self.reachable.of(int(number))[0] for number in self.elements])

    def values_by_variable(self, site: int) -> np.ndarray:
        """The number of the value that a site or state has for each value of its variable."""
        return self._places[self._label(site)]

    def _label(self, site: int) -> tuple[int, int]:
        name = self._name_of[site]
        return name, self.reachable.of(int(self.elements[site]))[1]

    @cached_property
    def _name_of(self) -> np.ndarray:
        found = np.zeros(len(self.elements), np.int64)
        for number, sites in enumerate(self.structure.site_numbers.values()):
            found[sites] = number
        return found

    @cached_property
    def _places(self) -> dict[tuple[int, int], np.ndarray]:
        found: dict[tuple[int, int], np.ndarray] = {}
        names = list(self.structure.site_numbers)
        for site in np.flatnonzero(self.elements != UNKNOWN).tolist():
            label = self._label(site)
            if label not in found:
                name = names[label[0]]
                support = self.structure.program.z[name].support
                assert isinstance(support, Finite)
                listed = support.rows()[0][site - self.structure.site_numbers[name][0]]
                values = self.reachable.arrays[label[1]]
                found[label] = np.argmin(_distance(values[:, None], listed[None]), axis=1)
        return found

    def name_of(self, site: int) -> int:
        """The number of the name of a site or state."""
        return int(self._name_of[site])


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where((a == b) | ((a != a) & (b != b)), 0.0, np.abs(a.astype(float) - b.astype(float)) + 1e-300)


def find_states(structure: Structure, candidates: np.ndarray) -> States | None:
    """The program of a structure, cut at states that follow from some of its sites (a mask); None if there are none."""
    try:
        return _find_states(structure, candidates)
    except TooManyError:
        return None
    except Exception as error:
        note_unforeseen("finding states", error)
        return None


def _find_states(structure: Structure, candidates: np.ndarray) -> States | None:
    closed, program = structure.factorisation.closed, structure.program
    x, *rest = closed.jaxpr.invars
    sites = dict(zip(sorted(program.z), rest, strict=False))
    data = rest[len(sites) :]
    reachable = Reachable()
    named = {
        name: _site_elements(reachable, structure, name, candidates)
        for name in sites
        if candidates[structure.site_numbers[name]].any()
    }
    operands: list[Found] = [None, *(named.get(name) for name in sites), *data_operands(program)]
    moving = following(closed, [sites[name] for name in named])
    unknown = following(closed, [x, *(v for name, v in sites.items() if name not in named)])
    unknown = following(closed, [*unknown, *_free(data, data_operands(program))])
    edge = _edge(structure, moving - unknown)
    if not edge:
        return None
    part = cut(closed, edge)
    env = ReachableReader(reachable).run(part.jaxpr, part.consts, operands)
    chosen = _choose(structure, reachable, env, moving - unknown, set(sites.values()))
    if not chosen:
        return None
    made = _cut(program, closed, reachable, chosen)
    whole = read(made)
    # The states, last of all, are named in the order in which they were chosen.
    elements = np.concatenate(
        [
            *(named[name].ravel() if name in named else np.full(len(numbers), UNKNOWN)
              for name, numbers in structure.site_numbers.items()),
            *(found.ravel() for found in chosen.values()),
        ]
    )  # fmt: skip
    names = tuple(STATE.format(i) for i in range(len(chosen)))
    return States(whole, names, structure.num_sites, reachable, elements)


def _free(data: list[Any], operands: list[Abstract]) -> list[Any]:
    return [v for v, operand in zip(data, operands, strict=True) if operand.known is None]


def _site_elements(reachable: Reachable, structure: Structure, name: str, candidates: np.ndarray) -> np.ndarray:
    """The elements of an array of sites."""
    site = structure.program.z[name]
    numbers, support = structure.site_numbers[name], site.support
    assert isinstance(support, Finite)
    values = support.rows()[0].astype(site.dtype)
    found = [
        reachable.site(name, int(number), row) if candidates[number] else UNKNOWN
        for number, row in zip(numbers, values, strict=True)
    ]
    return np.array(found, np.int64).reshape(site.shape)


def _edge(structure: Structure, determined: set[Any]) -> list[Any]:
    """The last variables on the way to the factors that follow from sites and data alone."""
    edge: dict[Any, None] = {}

    def step(eqn: Any, wanted: list[bool | None]) -> list[bool | None]:
        reached = [v for v, is_wanted in zip(eqn.outvars, wanted, strict=True) if is_wanted]
        edge.update(dict.fromkeys(v for v in reached if v in determined))
        return [True if any(v not in determined for v in reached) else None] * len(eqn.invars)

    factorisation = structure.factorisation
    walk_back(factorisation.closed.jaxpr.eqns, dict.fromkeys(factorisation.leaves, True), step, lambda one, _: one)
    return list(edge)


def _choose(
    structure: Structure, reachable: Reachable, env: dict[Any, Found], determined: set[Any], sites: set[Any]
) -> dict[Var, np.ndarray]:
    """The arrays to cut at, with their elements: the last with few values, if some follow from many sites."""
    chosen: dict[Any, np.ndarray] = {}

    def step(eqn: Any, wanted: list[bool | None]) -> list[bool | None]:
        reached = [v for v, is_wanted in zip(eqn.outvars, wanted, strict=True) if is_wanted and v not in chosen]
        is_left = False
        for variable in reached:
            found = env.get(variable) if variable in determined else None
            if isinstance(found, np.ndarray) and (found != UNKNOWN).all():
                if _num_sites(reachable, found) >= FEWEST_SITES:
                    chosen[variable] = found
            else:
                is_left = True
        return [True if is_left else None] * len(eqn.invars)

    factorisation = structure.factorisation
    walk_back(factorisation.closed.jaxpr.eqns, dict.fromkeys(factorisation.leaves, True), step, lambda one, _: one)
    return {v: found for v, found in chosen.items() if v not in sites}


def _num_sites(reachable: Reachable, found: np.ndarray) -> int:
    """From how many sites an element follows, at most."""
    variables = {reachable.of(number)[0] for number in np.unique(found).tolist()} - {NOTHING}
    return max((reachable.variables[variable].num_sites for variable in variables), default=0)


def _cut(program: Program, closed: ClosedJaxpr, reachable: Reachable, chosen: dict[Var, np.ndarray]) -> Program:
    """The program with the arrays as discrete sites."""
    part = cut(closed, closed.jaxpr.outvars, chosen)
    states, arguments = {}, {}
    for i, (variable, found) in enumerate(chosen.items()):
        arrays = [reachable.arrays[reachable.of(number)[1]] for number in np.unique(found).tolist()]
        aval: Any = variable.aval
        values = np.unique(np.concatenate(arrays)).astype(aval.dtype)
        states[STATE.format(i)] = DiscreteSite(Finite(values, aval.shape))
        arguments[STATE.format(i)] = variable
    x, *rest = closed.jaxpr.invars
    every = dict(zip(sorted(program.z), rest, strict=False)) | arguments
    invars = [x, *(every[name] for name in sorted(every)), *rest[len(program.z) :]]
    flat = ClosedJaxpr(part.jaxpr.replace(invars=invars), part.consts)
    made = replace(program, z={**program.z, **states}, source=program.source or program)
    made.remember("flat", lambda: flat)
    made.remember("facts", lambda: facts_of(program))
    return made


def state_arguments(states: States) -> Iterator[tuple[str, Any]]:
    """For each array of states values of its shape and type; which they are does not matter."""
    for name in states.names:
        site = states.structure.program.z[name]
        assert isinstance(site.support, Finite)
        yield name, jnp.broadcast_to(jax.numpy.asarray(site.support.values[0], site.dtype), site.shape)
