"""Where the data of a run lie: the rows of plates over the devices of a mesh (`compile/spread.py` has how).

Any array of the data with as many elements along an axis as the plate has rows is cut up along it. That is a matter of
where numbers are, never of what they are: XLA keeps the meaning of the program, rows that meet in a factor or hang
together in a chain included, and devices then tell each other what they need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from sumout.compile.spread import Axes, spread
from sumout.errors import OptionError
from sumout.model.program import Data, Program
from sumout.run.processes import ONE_PROCESS, Processes


@dataclass(frozen=True)
class Placement:
    """Rows over the axes of a mesh.

    Attributes:
        mesh: the devices.
        rows: numbers of rows, each with the axes of the mesh over which arrays of so many are cut up; none where the
            mesh only says which processes share the chains.
    """

    mesh: Mesh
    rows: tuple[tuple[int, Axes], ...] = ()

    def axes(self, array: Any) -> dict[int, Axes]:
        """For the dimensions of an array that have rows, the axes of the mesh."""
        shape = np.shape(array)
        return {shape.index(size): axes for size, axes in reversed(self.rows) if size in shape}


def place(placement: Placement | None, program: Program) -> Data:
    """The data of a program, its rows on their devices."""
    if placement is None or not placement.rows:
        return program.data

    def rows_on_devices() -> Data:
        return jax.tree.map(lambda array: spread(placement.mesh, array, placement.axes(array)), program.data)

    return program.remember(("placed", placement), rows_on_devices)


def choose_placement(program: Program, mesh: Any, shard: Any) -> Placement | None:
    """What `mesh` and `shard` of `sumout.sample` ask for; None where neither is given."""
    if mesh is None:
        if shard is not None:
            raise OptionError(f"sample: shard={shard!r} without mesh: give a mesh of devices, jax.make_mesh((2,), …).")
        return None
    if not isinstance(mesh, Mesh):
        raise OptionError(f'sample: mesh={mesh!r}: expected a mesh of JAX\'s, such as jax.make_mesh((2,), ("data",)).')
    if shard is not None and not (isinstance(shard, Mapping) and shard):
        raise OptionError(
            f'sample: shard={shard!r}: expected a dict from a plate to an axis of the mesh, {{"n": "data"}}.'
        )
    missing = {device.process_index for device in jax.devices()} - {
        device.process_index for device in mesh.devices.flat
    }
    if missing:
        raise OptionError(
            f"sample: the mesh has no device of process {min(missing)}, and all {jax.process_count()} processes must "
            "take part: make it of all of jax.devices()."
        )
    rows = tuple((rows_of(program, name), _axes_of(mesh, name, axes)) for name, axes in (shard or {}).items())
    _check_axes(mesh, rows)
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(program.data)]
    for name, (size, _) in zip(shard or {}, rows, strict=True):
        if not any(size in shape for shape in shapes):
            raise OptionError(
                f"sample: no array among the data of '{program.name}' has {size} rows, as '{name}' has, so that there "
                "is nothing to shard: pass the data as arguments of the model, and use them as arrays, not by value."
            )
    # Meshes whose axes are part of types would ask the model for them; here XLA finds out.
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    return Placement(automatic, rows if mesh.size > 1 else ())


def processes_of(placement: Placement | None) -> Processes:
    """The processes that work on a run: without a placement each is alone with its own."""
    if placement is None or jax.process_count() == 1:
        return ONE_PROCESS
    return Processes(jax.process_count(), jax.process_index(), share_chains=not placement.rows)


def rows_of(program: Program, name: str) -> int:
    """How many rows a name stands for: a plate, a dimension that the model names, or an array of data."""
    if name in program.plates:
        return program.plates[name].size
    named = {**program.observed, **program.constant}
    for array, dims in program.dims.items():
        if name in dims and array in named:
            return np.shape(named[array])[dims.index(name)]
    data = program.data if isinstance(program.data, Mapping) else {}
    arrays = {path: np.shape(array) for path, array in data.items() if np.shape(array)}
    if name in arrays:
        return arrays[name][0]
    dims = {dim for array, dims in program.dims.items() if array in named for dim in dims}
    known = ", ".join(f"'{known}'" for known in dict.fromkeys([*program.plates, *sorted(dims), *arrays])) or "none"
    raise OptionError(
        f"sample: shard names '{name}', which is no plate of '{program.name}', no dimension and no array of its data; "
        f'there are: {known}. A NumPyro model marks its rows by `with numpyro.plate("n", N):`, a plain density by '
        "`rows=` of sumout.density; the name of an array stands for its first axis."
    )


def _axes_of(mesh: Mesh, name: str, axes: Any) -> Axes:
    """The axes of the mesh that are asked for."""
    found = (axes,) if isinstance(axes, str) else axes
    if not isinstance(found, tuple) or not found or not set(found) <= set(mesh.axis_names):
        known = ", ".join(f"'{axis}' ({size} devices)" for axis, size in mesh.shape.items())
        raise OptionError(f"sample: shard={{'{name}': {axes!r}}}: the mesh has no such axis; it has {known}.")
    return found


def _check_axes(mesh: Mesh, rows: tuple[tuple[int, Axes], ...]) -> None:
    """Refuse an axis that is used twice, and one that is not used while others are."""
    used = [axis for _, axes in rows for axis in axes]
    for axis, size in mesh.shape.items():
        if used.count(axis) > 1:
            raise OptionError(f"sample: shard uses the axis '{axis}' of the mesh twice; arrays may have both rows.")
        if rows and axis not in used and size > 1:
            raise OptionError(
                f"sample: shard does not use the axis '{axis}' of the mesh, so that its {size} devices would all do "
                f'the same: give it rows, or make the mesh of one axis, jax.make_mesh(({mesh.size},), ("data",)).'
            )
