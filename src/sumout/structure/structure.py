"""`Structure`: the factors of a program, their scopes, and the graph of its discrete sites."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array

from sumout.errors import OptionError, note_unforeseen
from sumout.jaxpr.equations import traced_once, without_collection
from sumout.jaxpr.flatten import flatten
from sumout.jaxpr.spread import Spread
from sumout.model.front_ends import as_program
from sumout.model.program import Data, Nuisance, Program
from sumout.model.rolled import roll_up
from sumout.structure.factors import Factorisation, factorise
from sumout.structure.graph import Graph, connect
from sumout.structure.interpret import Env, Reader
from sumout.structure.known_values import Facts
from sumout.structure.roles import Members, Roles, assign_roles
from sumout.structure.scopes import EMPTY, Abstract, Scopes, as_known, dependent


@dataclass(frozen=True, eq=False)
class Structure:
    """How the discrete sites of a program depend on each other, read off its traced code.

    Attributes:
        program: what was read.
        opaque: names of the primitives the reading could not see into.
        factorisation: the log density taken apart.
    """

    program: Program
    opaque: tuple[str, ...]
    factorisation: Factorisation
    _scopes: Scopes
    _ids: tuple[np.ndarray, ...]  # scopes of each factor array, zero where an element never counts

    def factors(self, x: Array, z: Nuisance, data: Data) -> tuple[Array, ...]:
        """The unsummed terms that depend on z; with `rest` they add up to the log density.

        A site of which all elements have one value may be given with size 1 along every axis.
        """
        return tuple(factor.full for factor in self.spread_factors(x, z, data))

    def spread_factors(self, x: Array, z: Nuisance, data: Data) -> tuple[Spread, ...]:
        """The same, each kept as small as its content."""
        return self._factors(x, z, data)

    def live_factors(self, x: Array, z: Nuisance, data: Data) -> tuple[Spread, ...]:
        """The same, with any value where an element does not count."""
        return self._live_factors(x, z, data)

    def rest(self, x: Array, z: Nuisance, data: Data) -> Array:
        """The part of the log density in which z does not occur (z is asked for by the program, not used)."""
        return self._rest(x, z, data)

    @cached_property
    def _factors(self) -> Callable[[Array, Nuisance, Data], tuple[Spread, ...]]:
        return traced_once(lambda x, z, data: self.factorisation.evaluate(*jax.tree.leaves((x, z, data)))[0])

    @cached_property
    def _live_factors(self) -> Callable[[Array, Nuisance, Data], tuple[Spread, ...]]:
        evaluate = self.factorisation.evaluate
        return traced_once(lambda x, z, data: evaluate(*jax.tree.leaves((x, z, data)), only_live=True)[0])

    @cached_property
    def _rest(self) -> Callable[[Array, Nuisance, Data], Array]:
        return traced_once(lambda x, z, data: self.factorisation.evaluate(*jax.tree.leaves((x, z, data)))[1])

    def log_density(self, x: Array, z: Nuisance, data: Data) -> Array:
        """The log density of the program, as it was written out to be read."""
        return jaxpr_as_fun(self.factorisation.closed)(*jax.tree.leaves((x, z, data)))[0]

    def find_roles(self, is_set: np.ndarray, size: int) -> tuple[Roles, np.ndarray]:
        """How to evaluate the factors of `size` of the sites in a mask by role, and for which factor arrays that works.

        The role of a site in a factor is its place among the sites of the mask it depends on, in ascending order.
        """
        closed, leaves = self.factorisation.closed, dict(self.factorisation.live_leaves)
        env = Reader(self._scopes).run(closed.jaxpr, closed.consts, operands_of(self.program))
        try:
            roles = assign_roles(closed, env, Members(self._scopes, is_set, size), size, leaves)
        except Exception as error:
            note_unforeseen("finding roles", error)
            return Roles(size), np.zeros(len(leaves), bool)
        works = [self.factorisation.has_met(leaf, roles) for leaf in self.factorisation.leaves]
        return roles, np.array(works, bool)

    def factors_by_role(
        self, x: Array, versions: Sequence[Nuisance], data: Data, roles: Roles, sources: Mapping[str, Hashable]
    ) -> tuple[Spread | None, ...]:
        """The factor arrays with the site of each role at its value in the version of that number.

        Sites of the same source that are held as one number have the same value in a version.
        """
        leaves = [jax.tree.leaves((x, z, data)) for z in versions]
        of_z = [sources.get(name) for name in sorted(versions[0])]
        of_all = [None, *of_z, *(None for _ in jax.tree.leaves(data))]
        return self.factorisation.evaluate_versions(leaves, roles, of_all)

    @property
    def factor_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the factor arrays."""
        return tuple(ids.shape for ids in self._ids)

    def factor_array(self, elements: np.ndarray) -> np.ndarray:
        """Which factor array each element (a row of `scopes`) is in."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.factor_shapes])
        return np.searchsorted(ends, elements, side="right")

    @cached_property
    def is_live(self) -> np.ndarray:
        """Which factor elements count at all; one that a slice or a known mask leaves out is zero."""
        return np.concatenate([np.zeros(0, bool), *(live.ravel() for live in self.factorisation.live)])

    @cached_property
    def _factor_numbers(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int64), *(ids.ravel() for ids in self._ids)])

    @cached_property
    def scopes(self) -> sp.csr_array:
        """Which factor element (rows, all arrays one after the other) depends on which site (columns)."""
        return self._scopes.matrix(self._factor_numbers)

    @cached_property
    def scopes_by_site(self) -> sp.csr_array:
        """The transpose of `scopes`, for looking up the factors of a site."""
        return self.scopes.T.tocsr()

    @cached_property
    def graph(self) -> Graph:
        """Neighbours, components and colours."""
        numbers = np.unique(self._factor_numbers)
        return connect(self._scopes.matrix(numbers[numbers != EMPTY]))

    @cached_property
    def site_numbers(self) -> dict[str, np.ndarray]:
        """For each name the numbers of its elements among all discrete elements."""
        sizes = [site.num_elements for site in self.program.z.values()]
        ends = np.cumsum(sizes)
        return {name: np.arange(end - size, end) for name, size, end in zip(self.program.z, sizes, ends, strict=True)}

    @cached_property
    def user_site_numbers(self) -> dict[str, np.ndarray]:
        """The same by the names in the user's program, of which several may be one array here."""
        shaped = {
            name: numbers.reshape(self.program.z[name].support.shape) for name, numbers in self.site_numbers.items()
        }
        return {name: np.ravel(numbers) for name, numbers in self.program.packs.unpack_rows(shaped).items()}

    @property
    def num_sites(self) -> int:
        """Number of discrete elements."""
        return self.program.num_z

    @property
    def num_edges(self) -> int:
        """Number of pairs of sites that share a factor."""
        return self.graph.num_edges

    @property
    def edges(self) -> np.ndarray:
        """The pairs themselves, `(num_edges, 2)`."""
        return self.graph.edges

    @property
    def colours(self) -> np.ndarray:
        """A colour for each site; neighbours never share one."""
        return self.graph.colours

    @property
    def num_colours(self) -> int:
        """Number of colours."""
        return int(self.colours.max(initial=-1)) + 1

    @property
    def components(self) -> np.ndarray:
        """The component each site is in."""
        return self.graph.components

    @property
    def num_components(self) -> int:
        """Number of components."""
        return int(self.components.max(initial=-1)) + 1

    def __repr__(self) -> str:
        return (
            f"Structure({self.program.name}: {self.num_sites} sites, {self.num_edges} edges, "
            f"{self.num_colours} colours, {self.num_components} components)"
        )


def read(program: Program | Any) -> Structure:
    """Read off a program how its discrete sites depend on each other.

    The program is traced, not run: nothing is declared by the user, and what the reading cannot see into counts as
    depending on everything.

    Args:
        program: from `sumout.program` or `sumout.density`, or a PyMC model.

    Example:
        >>> import jax.numpy as jnp, sumout
        >>> def ising(x, z, data):
        ...     return 0.5 * (z["s"][1:] == z["s"][:-1]).sum() - x["h"] ** 2
        >>> from numpyro.distributions import constraints
        >>> program = sumout.density(ising, x={"h": (constraints.real, ())}, z={"s": sumout.finite(2, shape=10)})
        >>> sumout.read(program)
        Structure(ising: 10 sites, 9 edges, 2 colours, 1 components)
    """
    program = as_program(program)
    if not isinstance(program, Program):
        raise OptionError(f"expected a Program from sumout.program or sumout.density, got {type(program).__name__}.")
    with without_collection():
        rolled = roll_up(program)
        return read_as_it_is(rolled)


def read_as_it_is(program: Program) -> Structure:
    """The same of a program in which no loops are to be rolled up any more."""
    return program.remember("structure", lambda: _read(program))


def _read(program: Program) -> Structure:
    closed = flat_density(program)
    scopes = Scopes(program.num_z)
    reader = Reader(scopes)
    env = reader.run(closed.jaxpr, closed.consts, operands_of(program))
    factorisation = _factorise(closed, env, program.num_z)
    ids = tuple(
        np.where(live, env[leaf].scopes, EMPTY)
        for leaf, live in zip(factorisation.leaves, factorisation.live, strict=True)
    )
    return Structure(program, tuple(sorted(reader.opaque)), factorisation, scopes, ids)


def flat_density(program: Program) -> ClosedJaxpr:
    """The log density as it is read."""
    return program.remember("flat", lambda: flatten(program.log_density, *program.abstract_arguments()))


def _factorise(closed: ClosedJaxpr, env: Env, num_sites: int) -> Factorisation:
    """The log density taken apart; if that fails for a reason nobody foresaw, in one piece."""
    try:
        return factorise(closed, env, num_sites)
    except Exception as error:
        note_unforeseen("taking the log density apart", error)
    leaves = [v for v in closed.jaxpr.outvars if not isinstance(v, Literal) and env[v].ids is not None]
    return Factorisation(closed, tuple(leaves), tuple(np.ones((), bool) for _ in leaves), ())


def element_scopes(program: Program, closed: ClosedJaxpr) -> list[sp.csr_array]:
    """For each array that a flat function of x, z and data returns, which of its elements depend on which site."""
    scopes = Scopes(program.num_z)
    env = Reader(scopes).run(closed.jaxpr, closed.consts, operands_of(program))
    found = []
    for variable in closed.jaxpr.outvars:
        shape = variable.aval.shape
        ids = np.zeros(shape, np.int64) if isinstance(variable, Literal) else env[variable].scopes
        found.append(scopes.matrix(ids.ravel()))
    return found


def operands_of(program: Program, x: Abstract | None = None) -> list[Abstract]:
    """The arguments of the log density as the reading sees them: x and free data unknown, each site itself."""
    x = x or Abstract((program.num_x,))
    return [*jax.tree.leaves((x, _site_ids(program)), is_leaf=_is_abstract), *data_operands(program)]


def data_operands(program: Program) -> list[Abstract]:
    """The arrays of the data as the reading sees them: unknown where they may change, else known."""
    flat = jax.tree_util.tree_leaves_with_path(program.data)
    is_free = [bool(path) and getattr(path[0], "key", None) in program.free for path, _ in flat]
    return [
        Abstract(np.shape(leaf), known=None if free else known)
        for (_, leaf), free, known in zip(flat, is_free, facts_of(program).leaves, strict=True)
    ]


def facts_of(program: Program) -> Facts:
    """What readings of the program have asked about the values of its data."""
    return program.remember("facts", lambda: Facts([as_known(leaf) for leaf in jax.tree.leaves(program.data)]))


def _is_abstract(leaf: Any) -> bool:
    return isinstance(leaf, Abstract)


def _site_ids(program: Program) -> dict[str, Abstract]:
    """Every element of every discrete site as itself."""
    named, start = {}, 1
    for name, site in program.z.items():
        numbers = np.arange(start, start + site.num_elements).reshape(site.support.shape)
        spread = numbers.reshape(numbers.shape + (1,) * len(site.event_shape))
        named[name] = dependent(site.shape, np.broadcast_to(spread, site.shape))
        start += site.num_elements
    return named
