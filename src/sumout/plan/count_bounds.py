"""What a sum over unbounded counts leaves out when it is cut: an upper bound for every x.

The counts of a component c of sites that share terms are cut at U. The mass that is left out has some count beyond its
end; the first such, in the order in which the model draws them, is beyond it by its law, whatever its parents within
the tables, and all other terms are at most their suprema:

    neglected_c / total_c  ≤  Σ_{i ∈ c} max_{parents} P(n_i > U_i) · Π_terms sup / Π_terms (at the most probable z)

The total is at least the weight of one z. Terms that share no site with the component cancel. A count has no bound if
the supremum of one of its component's terms is not known, or depends on discrete sites itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, Float

from sumout.compile.policy import MOST_JOINT_VALUES
from sumout.errors import note_unforeseen
from sumout.jaxpr.degrees import find_degrees
from sumout.jaxpr.flatten import flatten
from sumout.jaxpr.walk import shape_of
from sumout.model.program import CountTerms, Data, DiscreteSite, Nuisance, Program
from sumout.model.supports import Count, Finite
from sumout.structure.graph import Graph, connect
from sumout.structure.structure import element_scopes

MOST_CORNERS = 64  # of the values of parents

Ends = Mapping[str, np.ndarray]  # the largest value of every element of a count that is kept


def count_bounds(program: Program) -> "CountBounds | None":
    """What is known of the counts of a program as the user wrote it, with nothing cut; None where that is nothing."""
    if program.count_terms_named is None or program.source is not None or program.upper:
        return None

    def build() -> CountBounds | None:
        try:
            return CountBounds(program)
        except Exception as error:
            note_unforeseen("looking for bounds of counts", error)
            return None

    return program.remember("count bounds", build)


class CountBounds:
    """Which counts of a program have a bound, and the bound.

    Args:
        program: as the user wrote it, with nothing cut.

    Attributes:
        names: of the counts that have one.
        why_not: of the other counts, why.
        graph: of all discrete elements, by terms.
        scopes: which element of the terms depends on which discrete element.
    """

    def __init__(self, program: Program):
        self.program = program
        supports = {name: site.support for name, site in program.z.items()}
        self._lowest = {n: np.full(s.shape, s.lower) for n, s in supports.items() if isinstance(s, Count)}
        closed = flatten(lambda x, z, data: self._terms(x, z, data, self._lowest), *program.abstract_arguments())
        abstract = program.abstract_arguments()
        shapes = jax.eval_shape(lambda x, z, data: self._terms(x, z, data, self._lowest), *abstract)
        found: CountTerms = jax.tree.unflatten(jax.tree.structure(shapes), element_scopes(program, closed))
        self._bounded = sorted(found.suprema)
        self.scopes = sp.csr_array(sp.vstack([found.terms[name] for name in sorted(found.terms)]), dtype=bool)
        self.graph: Graph = connect(_distinct(self.scopes))
        self._component = _first_label(self.scopes, self.graph.components)
        self._numbers = _numbers(program)
        self.why_not: dict[str, str] = {}
        spoilt = self._spoilt(found)
        for name in self._lowest:
            why = spoilt[self._numbers[name]]
            said = next((reason for reason in why if reason), "")
            if name not in found.tails:
                said = "the tails of its law are not known"
            if said:
                self.why_not[name] = said
        self.names = [name for name in self._lowest if name not in self.why_not and name not in program.forward]
        scopes = [sp.csr_array(found.tails[name], dtype=bool) for name in self.names]
        none = sp.csr_array((0, program.num_z), dtype=bool)
        self._laws = sp.csr_array(sp.vstack([none, *scopes]))  # of each element of the bounded counts: its parents
        laws = _distinct(self._laws) if self._laws.nnz else none
        # Parents of one law never share a colour, so that all laws together see all joint values of their parents.
        self._colours = np.where(np.bincount(laws.indices, minlength=program.num_z) > 0, connect(laws).colours, -1)
        used = np.flatnonzero(self._colours >= 0)
        self.parents = [name for name, numbers in self._numbers.items() if np.isin(numbers, used).any()]
        self._is_ordered = all(_is_affine(program, closed, found, shapes, name) for name in self.names)
        self._members = np.concatenate([np.zeros(0, np.int64), *(self._numbers[name] for name in self.names)])

    def _terms(self, x: Array, z: Nuisance, data: Data, upper: Any) -> CountTerms:
        assert self.program.count_terms_named is not None
        return self.program.count_terms_named(self.program.unravel(x), z, data, upper)

    def _spoilt(self, found: CountTerms) -> np.ndarray:
        """For each discrete element why its component has no bound; empty if it has one."""
        components = self.graph.components
        reasons = np.full(int(components.max(initial=-1)) + 1, "", object)
        for name, scopes in found.terms.items():
            touched = _first_label(scopes, components)
            if name not in found.suprema:
                bad, said = touched >= 0, f"no bound is known on the density of '{name}'"
            else:
                depends = np.diff(sp.csr_array(found.suprema[name]).indptr) > 0
                bad, said = (touched >= 0) & depends, f"the bound on the density of '{name}' depends on discrete sites"
            reasons[touched[bad]] = said
        for name, scopes in found.values.items():
            touched = components[np.unique(sp.csr_array(scopes).indices)]
            reasons[touched] = f"the support of '{name}' depends on it"
        return reasons[components]

    def ends(self, by_element: Any) -> dict[str, Any]:
        """Numbers for the elements of all bounded counts, by name."""
        found, start = {}, 0
        for name in self.names:
            site = self.program.z[name]
            found[name] = by_element[start : start + site.num_elements].reshape(site.shape)
            start += site.num_elements
        return found

    def by_element(self, ends: Mapping[str, Any]) -> np.ndarray:
        """The reverse."""
        return np.concatenate([np.zeros(0, np.int64), *(np.asarray(ends[name]).ravel() for name in self.names)])

    @cached_property
    def lower(self) -> np.ndarray:
        """The smallest values of the elements of all bounded counts."""
        return self.by_element(self._lowest)

    def log_terms(self, x: Array, z: Nuisance, data: Data) -> Float[Array, " elements"]:
        """Every element of every term."""
        terms = self._terms(x, z, data, self._lowest).terms
        return jnp.concatenate([terms[name].ravel() for name in sorted(terms)])

    def log_gaps(self, x: Array, z: Nuisance, data: Data) -> Float[Array, " counts"]:
        """For the element of every bounded count how far its component's terms are below their suprema."""
        found = self._terms(x, z, data, self._lowest)
        gaps = [
            jnp.ravel(found.suprema[name] - term) if name in found.suprema else jnp.zeros(term.size)
            for name, term in sorted(found.terms.items())
        ]
        inside = self._component >= 0
        gap = jnp.where(inside, jnp.concatenate(gaps), 0.0)
        num = int(self.graph.components.max(initial=-1)) + 1
        by_component = jnp.zeros(num).at[np.maximum(self._component, 0)].add(gap)
        return by_component[self.graph.components[self._members]]

    def log_tails(self, x: Array, z: Nuisance, data: Data, upper: Any, states: Sequence[Any]) -> Array:
        """For the elements of all bounded counts the largest tail beyond an end over states of their parents."""
        upper = {**self._lowest, **upper}

        def at(state: Nuisance) -> Array:
            tails = self._terms(x, {**z, **state}, data, upper).tails
            shaped = [jnp.broadcast_to(tails[name], self.program.z[name].shape).ravel() for name in self.names]
            return jnp.concatenate(shaped)

        if len(states) == 1:
            return at(states[0])
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *states)
        return jax.lax.map(at, stacked).max(axis=0)

    @property
    def at_corners(self) -> bool:
        """Whether tails are longest at corners of the values of parents, and these are few."""
        return self._is_ordered and 2**self.num_colours <= MOST_CORNERS

    @property
    def num_colours(self) -> int:
        """Of the parents of counts; those of one law never share one."""
        return int(self._colours.max(initial=-1)) + 1

    def colours_of(self, name: str) -> np.ndarray:
        """The colour of every element of a site, −1 where it is no parent."""
        return self._colours[self._numbers[name]]

    def lowest(self, name: str) -> np.ndarray:
        """The smallest value of every element of a count."""
        return self._lowest[name]

    def parents_of_elements(self, is_chosen: np.ndarray) -> np.ndarray:
        """For each element of the bounded counts its parents among those chosen, `(counts, most parents)`; −1: none."""
        rows = self._laws[:, self._members].multiply(is_chosen[None]).tocsr()
        sizes = np.diff(rows.indptr)
        found = np.full((len(sizes), int(sizes.max(initial=0))), -1)
        for i in np.flatnonzero(sizes):
            found[i, : sizes[i]] = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        return found

    def states(self, cut: Program) -> list[dict[str, np.ndarray]] | None:
        """Values of parents that show every law the joint values of its own; None if they are too many."""
        lengths = np.zeros(self.program.num_z, np.int64)
        rows = {}
        for name in self.parents:
            support = cut.z[name].support
            if not isinstance(support, Finite):
                return None
            rows[name] = support.rows()
            lengths[self._numbers[name]] = rows[name][1].sum(axis=1)
        numbers = [range(int(lengths[self._colours == colour].max())) for colour in range(self.num_colours)]
        if np.prod([float(len(each)) for each in numbers]) > MOST_JOINT_VALUES:
            return None

        def placed(name: str, chosen: tuple[int, ...]) -> np.ndarray:
            own, (values, _) = self._numbers[name], rows[name]
            which = np.minimum(np.asarray([*chosen, 0])[self._colours[own]], lengths[own] - 1)
            return values[np.arange(len(own)), which].reshape(cut.z[name].shape).astype(cut.z[name].dtype)

        return [{name: placed(name, chosen) for name in self.parents} for chosen in product(*numbers)]


def _is_affine(program: Program, closed: ClosedJaxpr, found: CountTerms, shapes: Any, name: str) -> bool:
    """Whether the law of a count depends on other sites by one of its parameters, and on each of them linearly."""
    if name not in found.parameters:
        return False
    outputs: Any = jax.tree.unflatten(jax.tree.structure(shapes), closed.jaxpr.outvars)
    of_z = closed.jaxpr.invars[1 : 1 + len(program.z)]
    degrees = find_degrees(closed, {v: np.ones(shape_of(v), np.int64) for v in of_z})
    pairs = zip(found.parameters[name], outputs.parameters[name], strict=True)
    steering = [output for scopes, output in pairs if sp.csr_array(scopes).nnz]
    return not steering or (len(steering) == 1 and degrees.highest(steering[0]) <= 1)


def cut_program(program: Program, upper: Ends) -> Program:
    """The program with counts that end: the same density, over fewer values."""
    if not upper:
        return program
    label = "cut", tuple((name, np.asarray(end).tobytes()) for name, end in sorted(upper.items()))
    return program.remember(label, lambda: _cut(program, upper))


def _cut(program: Program, upper: Ends) -> Program:
    sites = dict(program.z)
    for name, end in upper.items():
        support = program.z[name].support
        assert isinstance(support, Count)
        lengths = np.ravel(end) - support.lower + 1
        values = np.arange(support.lower, support.lower + lengths.max())
        if (lengths == lengths.max()).all():
            sites[name] = DiscreteSite(Finite(values, support.shape))
            continue
        # The same values for all elements, whatever is allowed: what follows from a value is then computed once.
        allowed = np.arange(len(values)) < lengths[:, None]
        sites[name] = DiscreteSite(Finite(np.tile(values, (len(lengths), 1)), support.shape, allowed))
    return replace(program, z=sites, upper=dict(upper))


def _numbers(program: Program) -> dict[str, np.ndarray]:
    ends = np.cumsum([site.num_elements for site in program.z.values()])
    return {
        name: np.arange(end - site.num_elements, end) for (name, site), end in zip(program.z.items(), ends, strict=True)
    }


def _distinct(scopes: sp.csr_array) -> sp.csr_array:
    """Rows that are not empty, each once."""
    rows = sp.csr_array(scopes).sorted_indices()
    kept: dict[bytes, int] = {}
    for row in np.flatnonzero(np.diff(rows.indptr)).tolist():
        kept.setdefault(rows.indices[rows.indptr[row] : rows.indptr[row + 1]].tobytes(), row)
    return rows[list(kept.values())]


def _first_label(scopes: Any, labels: np.ndarray) -> np.ndarray:
    """For each row the label of the first site in it, −1 where there is none; those of all are the same."""
    rows = sp.csr_array(scopes)
    found = np.full(rows.shape[0], -1)  # pyright: ignore[reportOptionalSubscript]
    full = np.diff(rows.indptr) > 0
    found[full] = labels[rows.indices[rows.indptr[:-1][full]]]
    return found
