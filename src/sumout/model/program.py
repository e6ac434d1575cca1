"""`Program` and its sites: all that the rest of the library sees of a model.

A program is log p(x, z, y) as one JAX function, with x moved to the real line:

    log_density(x, z, data) = log p(t(x), z, y) + log |∂t/∂x|

x is one flat vector of unconstrained reals. z is a dict of named arrays holding support values. data is whatever
pytree of arrays the model was given; it is always an argument, never a constant inside compiled code.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sumout.calls import html_of
from sumout.errors import ModelError, OptionError
from sumout.model.kin import Kin
from sumout.model.packing import Packs
from sumout.model.prediction import Predictor
from sumout.model.supports import Implicit, Support

if TYPE_CHECKING:  # which has programs in it
    from sumout.model.row_program import Attempt, Plate

T = TypeVar("T")
Data = Any
Nuisance = dict[str, Array]


@dataclass(frozen=True)
class ContinuousSite:
    """A continuous latent: the shape the user sees, the shape on the real line, and whether it is there already."""

    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    is_real: bool = False

    @property
    def size(self) -> int:
        """Number of unconstrained coordinates."""
        return int(np.prod(self.unconstrained_shape))


@dataclass(frozen=True)
class DiscreteSite:
    """A nuisance variable, or an array of them: one node of the graph for each element."""

    support: Support

    @property
    def num_elements(self) -> int:
        """How many elements (nodes of the graph) the site has."""
        return int(np.prod(self.support.shape))

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one element; only an implicit one can be other than scalar."""
        return self.support.event_shape if isinstance(self.support, Implicit) else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array as the model sees it."""
        return self.support.shape + self.event_shape

    @property
    def dtype(self) -> Any:
        """The type the array has inside the model, as JAX's settings allow it."""
        return jax.dtypes.canonicalize_dtype(self.support.dtype)


@dataclass(frozen=True, eq=False)
class Part:
    """One of several functions of which a front end can compute all at once.

    Attributes:
        direct: the function itself.
        whole: the function that returns the results of all of them, by name.
        name: of this one.
    """

    direct: Callable[..., Any]
    whole: Callable[..., Any]
    name: str

    def __call__(self, *args: Any) -> Any:
        """The function itself."""
        return self.direct(*args)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CountTerms:
    """What is known of the terms of a density for sums over counts that are cut.

    Attributes:
        terms: by name the logarithm of every element of every term.
        suprema: likewise an upper bound on it, where one is known, whatever the values of discrete sites that it does
            not depend on.
        tails: by name of count an upper bound on the log probability, by its law, of values beyond the end, where the
            law is known and normalised.
        values: the continuous latents, to see what depends on z.
        parameters: by name of count what its tail follows from, where that is monotone in each of these alone.
    """

    terms: dict[str, Array]
    suprema: dict[str, Array]
    tails: dict[str, Array]
    values: dict[str, Array]
    parameters: dict[str, tuple[Array, ...]]


@dataclass(frozen=True, eq=False)
class Program:
    """A model ready for inference; made by `sumout.program` or `sumout.density`, not by hand.

    Attributes:
        x: the continuous sites, in the order of the flat vector.
        z: the discrete sites, in the order of the graph's nodes.
        data: the arrays the model was given.
        log_joint: `(x as named unconstrained arrays, z, data) -> log density`, Jacobian included.
        constrain_named: `(x as named unconstrained arrays, z, data) -> named values` for the user.
        log_likelihood_named: `(x as named unconstrained arrays, z, data) -> log density of every datum`, by name; None
            where the model does not say which of its terms are data.
        log_joint_without_data: like `log_joint`, but without the terms of `log_likelihood_named`; None likewise.
        log_terms_named: like `log_likelihood_named` for every term of the density that has a name, latent sites and
            factors included; None where terms have no names.
        log_joint_without_jacobian: like `log_joint`, but the density of x in the user's own coordinates; None where it
            is not known.
        draw_forward_named: `(key, x as named unconstrained arrays, z, data) -> named values` of the sites in `forward`;
            None if there are none.
        count_terms_named: `(x as named unconstrained arrays, z, data, upper) -> CountTerms`, with the ends of counts by
            name in `upper`; None where nothing is known of the laws.
        upper: of counts that are cut, by name, the largest value of each element that is kept.
        forward: names of the discrete sites that only their own law depends on. It sums to one over them, and so it is
            not part of `log_joint`; they are drawn from it when all else is known.
        observed: named arrays for the `observed_data` group of a result.
        constant: named arrays for the `constant_data` group of a result: data that no site is an observation of.
        coords: labels of the dimensions that have any.
        order: names of latents and deterministics in the order in which the model has them; empty for x and
            deterministics, then z.
        initial: for some sites a value from which to start: of x on the real line, of z its own.
        laws: of the named terms, their distribution and its support in words.
        dims: names of the dimensions of a variable, where the model names them.
        fixed: names of the array arguments the model uses by value, so that they could not be kept as arguments.
        by_value: names of the data whose values the supports or the shapes of sites follow from.
        unread: names of the arguments that the model's code never reads.
        free: names of the data that may change from call to call, so that the reading does not look at their values.
        arguments_as_data: `(*args, **kwargs) -> data` of another call of the same model, and what of it is no data, by
            path; None where the model takes no arguments.
        with_arrays: `(arrays by name) -> program` of the same model with these in the place of its own; None where the
            model cannot be given others.
        plates: by name the plates of rows that are independent given all that is outside.
        with_rows: `(plate, number of rows) -> ways to make the program of so few rows` (`model/row_program.py`); None
            where the model cannot be given fewer.
        few: the program of a few rows, where those of this one are on the disk (`model/on_disk.py`).
        log_joint_left_out: `(names, x as named unconstrained arrays, z, data) -> log density` without these terms.
        log_joint_left_out_without_jacobian: likewise in the user's own coordinates.
        kin: other programs of the same model, for what was compiled for them.
        predictor: draws data from the laws of the observed sites; None where the model has no laws.
        notes: sentences on what the front end has held fixed, for whoever asks what is done.
        changed_outside: names of the arrays that the model refers to, but was not given, and that have been changed
            since the program was made.
        name: what to call the model when speaking of it.
        source: the user's program that this one is a rolled up form of (`model/rolled.py`); its functions take x flat.
        packs: which of the source's discrete sites are one array here.
        memory: what has been computed for it: structures, plans, compiled functions. See `remember`.
    """

    x: Mapping[str, ContinuousSite]
    z: Mapping[str, DiscreteSite]
    data: Data
    log_joint: Callable[[dict[str, Array], Nuisance, Data], Array]
    constrain_named: Callable[[dict[str, Array], Nuisance, Data], dict[str, Array]]
    log_likelihood_named: Callable[[dict[str, Array], Nuisance, Data], dict[str, Array]] | None = None
    log_joint_without_data: Callable[[dict[str, Array], Nuisance, Data], Array] | None = None
    log_terms_named: Callable[[dict[str, Array], Nuisance, Data], dict[str, Array]] | None = None
    log_joint_without_jacobian: Callable[[dict[str, Array], Nuisance, Data], Array] | None = None
    draw_forward_named: Callable[[Array, dict[str, Array], Nuisance, Data], Nuisance] | None = None
    count_terms_named: Callable[[dict[str, Array], Nuisance, Data, Nuisance], "CountTerms"] | None = None
    upper: Mapping[str, np.ndarray] = field(default_factory=dict)
    forward: tuple[str, ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)
    constant: Mapping[str, Any] = field(default_factory=dict)
    coords: Mapping[str, np.ndarray] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    initial: Mapping[str, np.ndarray] = field(default_factory=dict)
    laws: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    by_value: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    arguments_as_data: Callable[..., tuple[Data, dict[str, Any]]] | None = None
    with_arrays: "Callable[[dict[str, Any]], Program] | None" = None
    plates: "Mapping[str, Plate]" = field(default_factory=dict)
    with_rows: "Callable[[str, int], Sequence[Attempt]] | None" = None
    few: "Program | None" = None
    log_joint_left_out: Callable[..., Array] | None = None
    log_joint_left_out_without_jacobian: Callable[..., Array] | None = None
    kin: Kin = field(default_factory=Kin, repr=False)
    predictor: Predictor | None = None
    notes: tuple[str, ...] = ()
    changed_outside: Callable[[], tuple[str, ...]] = tuple
    name: str = "program"
    source: "Program | None" = None
    packs: Packs = field(default_factory=Packs)
    memory: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        for name, site in self.z.items():
            if site.num_elements == 0:
                raise ModelError(
                    f"discrete site '{name}' has the shape {site.shape}, so it has no elements: leave it out, or give "
                    "it a size of at least 1 (are the data empty?)."
                )

    def __repr__(self) -> str:
        return "\n".join(describe_program(self))

    def _repr_html_(self) -> str:
        return html_of(self)

    def remember(self, label: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned when it was first called under this label; in single and double precision apart."""
        label = (label, jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
        with self.alone():
            if label not in self.memory:
                self.memory[label] = make()
            return self.memory[label]

    def alone(self) -> AbstractContextManager[Any]:
        """A lock, so that of several threads one computes what is to be remembered."""
        # Not made with the program, as programs can be pickled and locks cannot.
        return self.memory.setdefault(RLock, RLock())

    @property
    def num_x(self) -> int:
        """Length of the flat vector x."""
        return sum(site.size for site in self.x.values())

    @property
    def num_z(self) -> int:
        """Number of discrete elements, over all sites."""
        return sum(site.num_elements for site in self.z.values())

    def unravel(self, x: Float[Array, " num_x"]) -> dict[str, Array]:
        """The flat vector as named unconstrained arrays."""
        named, start = {}, 0
        for name, site in self.x.items():
            named[name] = x[start : start + site.size].reshape(site.unconstrained_shape)
            start += site.size
        return named

    def given(self, x: Float[Array, " num_x"]) -> Any:
        """What the functions of the program take."""
        return self.unravel(x) if self.source is None else x

    @cached_property
    def log_density(self) -> Callable[[Float[Array, " num_x"], Nuisance, Data], Float[Array, ""]]:
        """log p(x, z, y) at unconstrained x, log |J| included; differentiable in x."""
        # Jitted, so that it is traced once however often other compiled code calls it.
        return jax.jit(lambda x, z, data: self.log_joint(self.given(x), z, data))

    @cached_property
    def log_likelihood(self) -> Callable[[Float[Array, " num_x"], Nuisance, Data], dict[str, Array]]:
        """The log density of every datum, by name, where the program knows it; traced once likewise."""
        named = self.log_likelihood_named
        assert named is not None
        return jax.jit(lambda x, z, data: named(self.given(x), z, data))

    def log_terms(self, x: Float[Array, " num_x"], z: Nuisance, data: Data) -> dict[str, Array]:
        """Every term of the density that has a name, where terms have names."""
        assert self.log_terms_named is not None
        return self.log_terms_named(self.given(x), z, data)

    def constrain(self, x: Float[Array, " num_x"], z: Nuisance, data: Data) -> dict[str, Array]:
        """Named values of x as the user knows them, and the deterministics."""
        return self.constrain_named(self.given(x), z, data)

    def user_values(self, values: Mapping[str, Any], axis: int = 0) -> dict[str, Any]:
        """What `constrain` returned by the user's names; what is packed has its rows along an axis."""
        return getattr(self.constrain_named, "packs", Packs()).unpack(values, axis)

    def draw_forward(self, key: Array, x: Float[Array, " num_x"], z: Nuisance, data: Data) -> Nuisance:
        """Z with the sites that are drawn forward drawn from their law given x and the others."""
        if self.draw_forward_named is None:
            return z
        return {**z, **self.draw_forward_named(key, self.given(x), z, data)}

    def with_data(self, **data: Any) -> "Program":
        """The same model with other data, for which nothing is compiled as long as its structure remains the same.

        All that depends on values is found out anew: what the data say about supports and about what is missing, and
        whether they lie inside the supports of their sites. Where the structure of the model follows from them (an
        index, a mask) and is another one now, sums and moves are built and compiled for it.

        Args:
            **data: arrays by their names in `program.data`, of the same shapes and types; or a whole argument of the
                model that has several, such as a dict. What is not given stays.

        Example:
            >>> import numpy as np, numpyro, numpyro.distributions as dist, sumout
            >>> def mixture(y):
            ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
            ...     with numpyro.plate("points", len(y)):
            ...         z = numpyro.sample("z", dist.Bernoulli(0.5))
            ...         numpyro.sample("y", dist.Normal(mu * z, 1), obs=y)
            >>> monday = sumout.program(mixture, np.array([5.1, 0.2, 4.8]))
            >>> tuesday = monday.with_data(y=np.array([0.1, 5.3, 5.0]))
            >>> tuesday.observed["y"].tolist() == tuesday.data["y"].tolist()
            True
        """
        if self.with_arrays is None:
            raise OptionError(
                f"with_data: '{self.name}' was not made from a model with arguments. Data of a PyMC model are changed "
                "by pm.set_data, after which sumout.sample(model) finds what was compiled; else make a new program."
            )
        return self.with_arrays(data)

    def refuse_on_disk(self) -> NoReturn:
        """The error where all rows would be needed in memory, but are on the disk."""
        raise OptionError(
            f"'{self.name}' has rows on the disk, which only minibatches read: give sumout.sample or sumout.maximize "
            f"minibatch={{{next(iter(self.plates), 'n')!r}: 1000}}. For all else make the program from rows in memory, "
            "some or all."
        )

    def without_jacobian(self) -> "Program":
        """The program with the density of x in the user's own coordinates, still as a function of unconstrained x."""
        if self.log_joint_without_jacobian is None:
            raise ModelError(
                f"'{self.name}' does not know its log density without the Jacobian, as it was not made by "
                "sumout.program or sumout.density; ask for the mode on the real line with jacobian=True."
            )
        return replace(self, log_joint=self.log_joint_without_jacobian)

    def abstract_arguments(self) -> tuple[Any, Any, Any]:
        """Shapes and types of `(x, z, data)`, for tracing."""
        if self.few is not None:
            self.refuse_on_disk()
        x = jax.ShapeDtypeStruct((self.num_x,), jnp.result_type(float))
        z = {name: jax.ShapeDtypeStruct(site.shape, site.dtype) for name, site in self.z.items()}
        data = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), self.data)
        return x, z, data


MOST_NAMED = 6  # sites, or data, in a line
MOST_LENGTH = 110  # of a line


def describe_program(program: Program) -> list[str]:
    """A program in at most five lines: its size, its latents, its data, and whom to ask for more."""
    num_data = sum(int(np.prod(np.shape(value))) for value in program.observed.values())
    numbers = {"continuous coordinate": program.num_x, "discrete site": program.num_z, "observation": num_data}
    lines = [f"{program.name}: {', '.join(counted(number, thing) for thing, number in numbers.items())}"]
    continuous = [_shaped(name, site.shape) for name, site in program.x.items()]
    discrete = [f"{_shaped(name, site.shape)} in {site.support}" for name, site in program.z.items()]
    data = [_shaped(name, np.shape(value)) for name, value in program.observed.items()]
    for label, named in (("continuous", continuous), ("discrete", discrete), ("observed", data)):
        if named:
            lines.append(f"  {label}: {_listed(named, MOST_LENGTH - len(label))}")
    return [*lines, "  sumout.explain(program) says what will be done; sumout.sample(program) does it"]


def counted(number: int, thing: str) -> str:
    """As in "1 site" and "2 sites"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _shaped(name: str, shape: tuple[int, ...]) -> str:
    return f"{name} ({' × '.join(f'{size:,}' for size in shape)})" if shape else name


def _listed(names: list[str], length: int) -> str:
    """As many as have room."""
    kept = next(n for n in range(min(len(names), MOST_NAMED), 0, -1) if n == 1 or len(", ".join(names[:n])) <= length)
    return ", ".join(names[:kept]) + (f" and {len(names) - kept:,} more" if len(names) > kept else "")
