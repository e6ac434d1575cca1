"""What the graphs of a PyMC model are functions of: value variables and data, all of known shapes.

JAX needs shapes when it traces. PyTensor folds them into constants where the shapes of a graph's inputs are known, so
every input is replaced by one whose type has the shape that it has now. An array that is used by value all the same
(a number of steps, a mask that selects) is kept as a constant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pymc as pm
from pymc.logprob.utils import replace_rvs_by_values
from pymc.pytensorf import constant_fold
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.basic import as_tensor, constant, full
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType

from sumout.errors import ModelError
from sumout.model.arguments import as_jax, most_traced
from sumout.model.pymc_graphs import Function, make_function
from sumout.model.pymc_rows import Cut
from sumout.model.pymc_supports import is_dirac, is_discrete
from sumout.model.validation import first_line

Shapes = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a model's graphs.

    Attributes:
        values: the value variables, named as their latents.
        shapes: of each latent, as the user sees it and on the real line.
        arrays: the arrays that can be data, by name.
        traced: which of them are.
        replaced: what takes the place of the model's own variables, in the order in which it does.
        data_variables: the inputs that are data, by their names.
        functions: of all inputs, for the graphs that they were read for.
        row_axes: of the arrays that a cut has left some rows of, along which axis.
    """

    values: tuple[Any, ...]
    shapes: Shapes
    arrays: Mapping[str, np.ndarray]
    traced: tuple[bool, ...]
    replaced: tuple[dict[Any, Any], ...]
    data_variables: tuple[Any, ...]
    functions: Mapping[str, Function]
    row_axes: Mapping[str, int]

    @property
    def data(self) -> dict[str, jax.Array]:
        """The arrays that are arguments of compiled code."""
        return as_jax({v.name: self.arrays[v.name] for v in self.data_variables})  # pyright: ignore[reportReturnType]

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of the arrays that are used by value."""
        return tuple(name for name, traced in zip(self.arrays, self.traced, strict=True) if not traced)

    @property
    def variables(self) -> list[Any]:
        """All inputs, in order."""
        return [*self.values, *self.data_variables]

    def arguments(self, values: Mapping[str, Any], data: Mapping[str, Any]) -> list[Any]:
        """Arrays in the order of the inputs."""
        return [*(values[v.name] for v in self.values), *(data[v.name] for v in self.data_variables)]

    def place(self, graphs: Sequence[Variable], others: Mapping[Any, Any] | None = None) -> list[Variable]:
        """The graphs with these inputs, and with other variables replaced as well."""
        placed = list(graphs)
        for replacement in (*self.replaced, dict(others or {})):
            placed = clone_replace(placed, replacement, rebuild_strict=False)
        return placed

    def value_of(self, variable: Any) -> np.ndarray:
        """What an expression of data alone is at present."""
        if isinstance(variable, Constant):
            return np.asarray(variable.data)
        run = make_function(self.data_variables, self.place([variable]))
        return np.asarray(run(*self.data.values())[0])


def shared_variables(graphs: Iterable[Variable]) -> list[Any]:
    """The shared variables of some graphs."""
    return [v for v in graph_inputs(graphs) if isinstance(v, SharedVariable)]


def read_inputs(
    model: pm.Model, outputs: Mapping[str, Sequence[Variable]], latent: Sequence[Any], cut: Cut | None = None
) -> Inputs:
    """The inputs of a model, with as many arrays as arguments as can be.

    Args:
        model: the model.
        outputs: graphs of its density, and of all that is shown.
        latent: its latents, but for those that can take one value only.
        cut: leaves some rows of a dimension only.
    """
    graphs = [graph for some in outputs.values() for graph in some]
    lengths: dict[Any, Any] = {v: v.get_value() for v in model.dim_lengths.values() if isinstance(v, SharedVariable)}
    found, row_axes = _find_data(model, graphs, set(lengths)), {}
    if cut is not None:
        lengths[model.dim_lengths[cut.dim]] = np.array(cut.num)
        dims = model.named_vars_to_dims
        row_axes = {name: cut.axis_of(name, array.shape, dims) for name, (_, array) in found.items()}
        row_axes = {name: axis for name, axis in row_axes.items() if axis is not None}
        found = {name: (own, cut.first(name, array, dims)) for name, (own, array) in found.items()}
    shapes = find_shapes(model, latent, lengths | dict(found.values()))
    values = {}
    for rv in latent:
        own = model.rvs_to_values[rv]
        values[own] = TensorType(own.type.dtype, shape=shapes[rv.name][1])(rv.name)
    dirac = [_resolve(model, rv) for rv in reversed(model.free_RVs) if is_dirac(rv)]
    known = {v: constant(length) for v, length in lengths.items()}

    def attempt(traced: tuple[bool, ...]) -> Inputs:
        placed, variables = {**values, **known}, []
        for (name, (own, array)), is_traced in zip(found.items(), traced, strict=True):
            if is_traced:
                placed[own] = TensorType(array.dtype, shape=array.shape)(name)
                variables.append(placed[own])
            else:
                placed[own] = constant(array)
        arrays = {name: array for name, (_, array) in found.items()}
        made = Inputs(tuple(values.values()), shapes, arrays, traced, (*dirac, placed), tuple(variables), {}, row_axes)
        run = {
            name: make_function(made.variables, made.place(some), model.check_bounds) for name, some in outputs.items()
        }
        shapes_of = [jax.ShapeDtypeStruct(v.type.shape, v.type.dtype) for v in made.variables]
        for function in run.values():
            jax.eval_shape(function, *shapes_of)
        return replace(made, functions=run)

    try:
        return most_traced(attempt, tuple(True for _ in found))
    except ModelError:
        raise
    except NotImplementedError as error:
        raise ModelError(
            f"a part of the model has no JAX form: {first_line(error)} Write that part with other PyTensor operations."
        ) from error
    except Exception as error:
        raise ModelError(f"the model's log density cannot be traced by JAX: {first_line(error)}") from error


def _resolve(model: pm.Model, rv: Any) -> dict[Any, Any]:
    """The value of a latent that can take only one, in the place of its value variable."""
    value = rv.owner.inputs[-1]
    own = model.rvs_to_values[rv]
    only = by_values(model, [value if value.type.ndim == rv.type.ndim else full(rv.shape, value)])[0]
    return {own: as_tensor(only).astype(own.type.dtype)}


def _find_data(model: pm.Model, graphs: Sequence[Variable], lengths: set[Any]) -> dict[str, tuple[Any, np.ndarray]]:
    """Shared variables and observed arrays with their present values, by names of their own."""
    found: dict[str, tuple[Any, np.ndarray]] = {}
    for rv in observed_variables(model):
        own = model.rvs_to_values[rv]
        if isinstance(own, Constant):
            found[rv.name] = own, np.asarray(own.data)
    for i, own in enumerate(shared_variables(graphs)):
        if own in lengths or isinstance(own.type, RandomType):
            continue
        if not isinstance(own.type, TensorType):
            raise ModelError(f"the shared variable '{own.name}' holds no array, but {type(own.get_value()).__name__}.")
        name = own.name or f"shared_{i}"
        while name in found or (name in model.named_vars and model.named_vars[name] is not own):
            name += "_"
        found[name] = own, np.asarray(own.get_value())
    return found


def observed_variables(model: pm.Model) -> list[Any]:
    """The observed variables, each once: posterior predictive sampling leaves some in PyMC's list a second time."""
    return list(
        dict.fromkeys(rv for rv in model.observed_RVs if rv in model.rvs_to_values and rv not in model.free_RVs)
    )


def all_variables(model: pm.Model) -> list[Any]:
    """All that has a law."""
    return [*model.free_RVs, *observed_variables(model)]


def transforms_of(model: pm.Model) -> dict[Any, Any]:
    """How latents are moved to the real line. PyMC would move counts that it holds as floats, which must stay."""
    return {rv: None if is_discrete(rv) else transform for rv, transform in model.rvs_to_transforms.items()}


def by_values(model: pm.Model, graphs: Sequence[Any]) -> list[Any]:
    """Graphs with value variables in the place of random ones."""
    return replace_rvs_by_values(graphs, rvs_to_values=model.rvs_to_values, rvs_to_transforms=transforms_of(model))


def find_shapes(model: pm.Model, latent: Sequence[Any], given: Mapping[Any, np.ndarray]) -> Shapes:
    """Shapes of the latents as the user sees them, and on the real line, with these values of shared variables."""
    graphs = []
    for rv in latent:
        transform = transforms_of(model)[rv]
        moved = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        graphs += [as_tensor(rv.shape, dtype="int64", ndim=1), as_tensor(moved.shape, dtype="int64", ndim=1)]
    shared = [v for v in shared_variables(graphs) if isinstance(v.type, TensorType)]
    present = {v: constant(given[v] if v in given else v.get_value()) for v in shared}
    folded: Any = constant_fold(clone_replace(graphs, present, rebuild_strict=False), raise_not_constant=False)  # pyright: ignore[reportArgumentType]
    if all(isinstance(shape, np.ndarray) for shape in folded):
        pairs = [tuple(int(size) for size in shape) for shape in folded]
    else:  # a size that is drawn, or computed in a way that PyTensor does not fold
        evaluated = model.eval_rv_shapes()
        names = [name for rv in latent for name in (rv.name, model.rvs_to_values[rv].name)]
        pairs = [tuple(int(size) for size in evaluated[name]) for name in names]
    return {rv.name: (pairs[2 * i], pairs[2 * i + 1]) for i, rv in enumerate(latent)}


def labels_of(model: pm.Model) -> dict[str, np.ndarray]:
    """Labels of dimensions, as arrays of one type."""
    given = {name: values for name, values in model.coords.items() if values is not None}
    labels = {name: pd.Index(values, tupleize_cols=False).to_numpy() for name, values in given.items()}
    return {name: array.astype(str) if array.dtype == object else array for name, array in labels.items()}
