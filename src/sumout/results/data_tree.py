"""From draws as the loop makes them to an `xarray.DataTree` in ArviZ's schema."""

import copy
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compile.ahead import Ahead
from sumout.compile.policy import BLOCK, BLOCK_BYTES, USUAL_DRAWS
from sumout.jaxpr.equations import traced_once
from sumout.model.arguments import as_jax
from sumout.model.packing import Packs
from sumout.model.program import Data, Nuisance, Program
from sumout.model.supports import Finite
from sumout.randomness import Key, fold_in
from sumout.results.kept import keeps, recorded_types
from sumout.results.likelihood import Likelihood
from sumout.threads import in_threads, is_done

if TYPE_CHECKING:  # takes half a second to import
    import xarray as xr

STAT_NAMES = {"log_density": "lp"}

LIKELIHOOD = "log_likelihood"  # the group, and the attribute of the posterior that says what it is

WITH_DIMS = ("posterior", "prior", "posterior_predictive", "prior_predictive")  # groups of the user's variables

Groups = dict[str, dict[str, np.ndarray]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Draws:
    """Draws as the loop makes them, with axes (chain, draw) once collected.

    Attributes:
        x: unconstrained.
        z: all of it.
        gradient: of the target's log density at x, with a z that suits x.
        info: of the kernel, over the steps between draws.
        number: of the draw, warm-up included.
    """

    x: Any
    z: Any
    gradient: Any
    info: Any
    number: Any


class EachDraw:
    """A function of the arrays of a draw and of data, compiled once to be computed at every draw of a run.

    The draws are taken one by one, so that a value does not depend on its block, not even in the last place.
    """

    def __init__(self, program: Program, fn: Callable[..., Any]):
        self.program = program
        simple = traced_once(fn, is_final=True)
        one_by_one = lambda rows, data: jax.lax.map(lambda row: simple(*row, data), rows)  # noqa: E731
        self.block = block_for(program)
        self._run = Ahead(one_by_one, times=USUAL_DRAWS // self.block)

    def prepare(self, *row: Any) -> None:
        """Begin to compile for such rows, of which shapes and types are given."""
        block = jax.tree.map(lambda a: jax.ShapeDtypeStruct((self.block, *a.shape), a.dtype), row)
        self._run.prepare(block, self.program.abstract_arguments()[2])

    @property
    def is_ready(self) -> bool:
        """Whether all that was prepared is compiled."""
        return self._run.is_ready

    def __call__(self, *rows: Any, is_over: Callable[[], bool] = lambda: False) -> tuple[int, Any]:
        """The function at all draws; arrays have axes (chain, draw) in front, given and returned.

        Args:
            *rows: the arrays.
            is_over: polled: whether to stop, with the draws at which it is computed by then.

        Returns:
            How many draws of each chain these are, from the first one on, and the values there.
        """
        chains, draws = jax.tree.leaves(rows)[0].shape[:2]
        # Draw by draw: the first blocks hold the first draws of all chains.
        draw, chain = np.divmod(np.arange(chains * draws), chains)
        starts = range(0, chains * draws, self.block)
        data = as_jax(self.program.data)

        def block(start: int) -> Any:
            here = slice(start, start + self.block)
            return jax.tree.map(lambda a: as_jax(_filled(a[chain[here], draw[here]], self.block)), rows)

        compiling = self._run.prepare(block(0), data)
        if not is_done(compiling, is_over):
            return 0, None
        compiled = compiling.result()
        shapes = self._run.shapes(block(0), data)
        whole = jax.tree.map(lambda a: np.empty((chains, draws, *a.shape[1:]), a.dtype), shapes)

        def fill(start: int) -> None:
            here = slice(start, start + self.block)

            def place(result: np.ndarray, part: Any) -> None:
                result[chain[here], draw[here]] = np.asarray(part)[: len(chain[here])]

            jax.tree.map(place, whole, compiled(block(start), data))

        made = in_threads(fill, starts, os.cpu_count(), is_over)
        done = min(draws, len(made) * self.block // chains)
        return done, jax.tree.map(lambda a: a[:, :done], whole) if done else None


def block_for(program: Program) -> int:
    """How many draws of a program are post-processed in one call: fewer where a draw, or what is computed, is large."""
    arrays = jax.tree.leaves(program.abstract_arguments())
    size = sum(a.size * a.dtype.itemsize for a in arrays)
    return int(np.clip(BLOCK_BYTES // max(size, 1), 1, BLOCK))


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """A whole block, padded by copies of the first row."""
    missing = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)]) if missing else rows


class PostProcessing:
    """From draws to named arrays: x and deterministics in the user's coordinates, z in its support values, likelihoods.

    Sites of z on which nothing depends are drawn here, from their law given all else: the loop does without them.

    Args:
        program: whose draws they are.
        likelihood: of every datum, or in words why there is none.
        neglected: what sums over counts leave out, a function of x, z and data; None where nothing is cut.
        kept: names of the variables that the posterior has; all if None.
    """

    def __init__(
        self,
        program: Program,
        likelihood: Likelihood | str,
        neglected: Callable[..., Array] | None = None,
        kept: frozenset[str] | None = None,
    ):
        self.program, self.likelihood, self.kept = program, likelihood, kept
        packs = getattr(program.constrain_named, "packs", Packs())

        def process(key: Array, x: Array, z: Nuisance, data: Data) -> dict[str, Any]:
            # What is not recorded has no say in what follows.
            z = {
                name: z[name].astype(site.dtype) if name in z else jnp.zeros(site.shape, site.dtype)
                for name, site in program.z.items()
            }
            z = program.draw_forward(key, x, z, data)
            values = program.constrain(x, z, data) | {name: z[name] for name in program.forward}
            groups: dict[str, Any] = {"posterior": {n: a for n, a in values.items() if keeps(kept, packs, n)}}
            if not isinstance(likelihood, str):
                groups[LIKELIHOOD] = likelihood(x, z, data)
            if neglected is not None:
                groups["sample_stats"] = {"neglected": neglected(x, z, data)}
            return groups

        self._process = EachDraw(program, process)
        # What is watched while a run goes on is looked up in the draws.
        self.recorded = recorded_types(program, process, None if neglected is not None else kept)

    def of(self, program: Program) -> "PostProcessing":
        """The same of a program with the same code and other data; what is compiled is shared."""
        other = copy.copy(self)
        other.program = program
        other._process = copy.copy(self._process)
        other._process.program = program
        return other

    def prepare(self) -> None:
        """Begin to compile, and import what the result is made of."""
        x, z, _ = self.program.abstract_arguments()
        z = {name: jax.ShapeDtypeStruct(z[name].shape, kind) for name, kind in self.recorded.items()}
        self._process.prepare(jax.ShapeDtypeStruct((2,), np.uint32), x, z)
        import xarray  # noqa: F401  (takes half a second)

    @property
    def is_ready(self) -> bool:
        """Whether draws can be processed without waiting."""
        return self._process.is_ready

    @property
    def block(self) -> int:
        """How many draws of all chains are processed in one call."""
        return self._process.block

    def groups(self, draws: Draws, key: Key, is_over: Callable[[], bool] = lambda: False) -> Groups:
        """All arrays, by group and name, with axes (chain, draw) in front.

        Args:
            draws: to be processed.
            key: for what is drawn here.
            is_over: polled: whether to stop, with the first draws of each chain that are processed by then; no groups
                if there are none.
        """
        keys = np.zeros((*draws.number.shape, 2), np.uint32)
        for chain in range(len(keys)) if self.program.forward else ():
            keys[chain] = fold_in(fold_in(key, chain), draws.number[chain])
        done, named = self._process(keys, draws.x, draws.z, is_over=is_over)
        if not done:
            return {}
        draws = jax.tree.map(lambda a: a[:, :done], draws)
        drawn = {name: np.asarray(value) for name, value in draws.z.items()}
        drawn = self.program.packs.unpack(drawn, axis=2)
        posterior = {**drawn, **self.program.user_values(named.pop("posterior"), axis=2)}
        if LIKELIHOOD in named:
            packs = getattr(self.program.log_likelihood_named, "packs", Packs())
            named[LIKELIHOOD] = packs.unpack(named[LIKELIHOOD], axis=2)
        names = [name for name in posterior if name not in drawn] + list(drawn)
        names = [name for name in names if self.kept is None or name in self.kept]
        order = {name: i for i, name in enumerate(self.program.order)}
        names.sort(key=lambda name: order.get(name, len(order)))
        stats = {STAT_NAMES.get(str(name), str(name)): np.asarray(value) for name, value in vars(draws.info).items()}
        stats |= named.pop("sample_stats", {})
        return {
            "posterior": {name: posterior[name] for name in names},
            "unconstrained_posterior": self._by_name(draws.x),
            "unconstrained_gradient": self._by_name(draws.gradient),
            "sample_stats": stats,
            **named,
        }

    def attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of the result: those given, its discrete variables, what is held fixed, why no likelihood."""
        found = self.likelihood
        words = f"left out: {found}" if isinstance(found, str) else found.words
        likelihood = {LIKELIHOOD: words} if words else {}
        notes = {"notes": list(self.program.notes)} if self.program.notes else {}
        known = {"inference_library": "sumout", "inference_library_version": version("sumout")}
        ends = {"count_ends": describe_upper(self.program.upper)} if self.program.upper else {}
        tuning = {"tuning_steps": attrs["tune"]} if "tune" in attrs else {}
        categories = [name for name in self._source.z if is_category(self._source, name)]
        discrete = [name for name in self._source.z if self.kept is None or name in self.kept]
        names = {"discrete": discrete, "categories": [name for name in categories if name in discrete]}
        return {**known, **attrs, **ends, **tuning, **likelihood, **notes, **names}

    @property
    def _source(self) -> Program:
        """As the user wrote it."""
        return self.program.source or self.program

    @property
    def observed(self) -> Mapping[str, Any]:
        """The data by the user's names."""
        return self._source.observed

    @property
    def dims(self) -> dict[str, list[str]]:
        """Names of dimensions, by variable."""
        return {name: list(dims) for name, dims in self.program.dims.items()}

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinates of x on the real line."""
        return [
            name if not site.unconstrained_shape else f"{name}[{', '.join(map(str, index))}]"
            for name, site in self.program.x.items()
            for index in np.ndindex(site.unconstrained_shape)
        ]

    def _by_name(self, x: np.ndarray) -> dict[str, np.ndarray]:
        named, start = {}, 0
        for name, site in self.program.x.items():
            named[name] = x[..., start : start + site.size].reshape(*x.shape[:2], *site.unconstrained_shape)
            start += site.size
        return named


def describe_upper(upper: Mapping[str, np.ndarray]) -> str:
    """Where sums over counts were cut, as an attribute of a result."""
    return json.dumps({name: np.asarray(end).tolist() for name, end in upper.items()})


def build_tree(
    groups: Groups,
    tuned: Mapping[str, Any],
    observed: Mapping[str, Any],
    *,
    constant: Mapping[str, Any],
    coords: Mapping[str, Any],
    dims: Mapping[str, list[str]],
    coordinates: list[str],
    attrs: Mapping[str, Any],
) -> "xr.DataTree":
    """A tree of the draws.

    Args:
        groups: arrays of all draws, by group and name.
        tuned: what the warm-up has tuned: one number for each chain, or one for each chain and coordinate.
        observed: the data.
        constant: data that are not observations.
        coords: labels along dimensions.
        dims: names of dimensions, by variable.
        coordinates: names of the coordinates of x on the real line.
        attrs: of the posterior.
    """
    import xarray as xr  # takes half a second to import

    made_by = {"created_at": datetime.now(UTC).isoformat(), "creation_library": "sumout"}
    known = {"observed_data": observed, "constant_data": constant}
    lengths = {dim: len(labels) for dim, labels in coords.items()}
    drawn = [(2, arrays) for name, arrays in groups.items() if name in WITH_DIMS]
    for first, arrays in (*drawn, (0, observed), (0, constant)):
        for name, value in arrays.items():
            lengths = dict(zip(dims.get(name, ()), np.shape(value)[first:], strict=False)) | lengths
    labels = _Labels(dims, lengths, coords)
    whole = {name: labels.dataset(arrays, ["chain", "draw"]) for name, arrays in groups.items()}
    whole |= {name: labels.dataset(arrays, []) for name, arrays in known.items() if arrays}
    tree = xr.DataTree.from_dict({name: dataset.assign_attrs(made_by) for name, dataset in whole.items()})
    if tuned:
        axes = ("chain", "coordinate", "other_coordinate")
        arrays = {name: (axes[: np.ndim(value)], np.asarray(value)) for name, value in tuned.items()}
        tree["tuned"] = xr.DataTree(xr.Dataset(arrays, coords={"coordinate": coordinates}))
    if "posterior" in groups:
        tree["posterior"].attrs.update({name: as_attribute(value) for name, value in attrs.items()})
        if LIKELIHOOD in tree.children and LIKELIHOOD in attrs:
            tree[LIKELIHOOD].attrs["note"] = attrs[LIKELIHOOD]
    return tree


def is_category(program: Program, name: str) -> bool:
    """Whether the values of a discrete site are names rather than numbers, as far as its law or its support tells."""
    if name in program.laws:
        return program.laws[name].startswith("Categorical")
    support = program.z[name].support
    if not isinstance(support, Finite) or support.values.ndim > 1 or support.dtype.kind not in "iu":
        return False
    return support.num_values > 2 and bool((support.values == np.arange(support.num_values)).all())


def as_attribute(value: Any) -> Any:
    """An attribute in a form that netCDF, Zarr and JSON take: text, a number or a list; truths as 1 and 0."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, tuple | list):
        return [as_attribute(part) for part in value]
    is_number = isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    return value if is_number else str(value)


@dataclass(frozen=True)
class _Labels:
    """Names of dimensions and labels along them.

    Attributes:
        dims: names of dimensions, by variable.
        lengths: of the dimensions. On the real line a variable may be shorter; then it has one of its own.
        coords: labels along dimensions.
    """

    dims: Mapping[str, list[str]]
    lengths: Mapping[str, int]
    coords: Mapping[str, Any]

    def dataset(self, arrays: Mapping[str, Any], first: list[str]) -> "xr.Dataset":
        """Variables with dimensions named as the user, or else ArviZ, names them, after the first ones."""
        import xarray as xr

        variables, coords = {}, {}
        for name, value in arrays.items():
            array = np.asarray(value)
            axes = list(first)
            for i, size in enumerate(array.shape[len(first) :]):
                dim = self.dims[name][i] if i < len(self.dims.get(name, ())) else None
                axes.append(dim if dim is not None and self.lengths.get(dim) == size else f"{name}_dim_{i}")
            variables[name] = axes, array
            for axis, size in zip(axes, array.shape, strict=True):
                coords[axis] = self.coords[axis] if axis in self.coords else np.arange(size)
        return xr.Dataset(variables, coords)
