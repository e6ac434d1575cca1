"""Arrays over several devices, and code compiled for them.

XLA partitions a program by itself once it is told where its arguments lie (GSPMD: Xu et al. 2021, arXiv:2105.04663):
each device computes what follows from its rows, and sums over rows become sums over devices. All that is not data is
held as a whole by every device, arguments and results alike, so that every process can read it.

Devices hold equally many rows. Where their number is no multiple, some are added at the end, and the first thing that
compiled code does is to leave them out again.

Devices wait for each other in every sum over them: of two such calls at once each could wait for the other for ever.
So all calls for one mesh are made one after the other.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sumout.errors import ProcessError

Axes = tuple[str, ...]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spread:
    """An array over the devices of a mesh, with rows to spare at the end.

    Attributes:
        array: with these rows.
        shape: without them.
    """

    array: Any
    shape: tuple[int, ...] = field(metadata={"static": True})


def spread(mesh: Mesh, array: Any, axes: Mapping[int, Axes]) -> Spread:
    """An array over devices.

    Args:
        mesh: the devices.
        array: as a whole, the same in every process.
        axes: for some of its dimensions, the axes of the mesh over which it is cut up.
    """
    host = np.asarray(array)
    parts = {dim: int(np.prod([mesh.shape[axis] for axis in names])) for dim, names in axes.items()}
    shape = tuple(-(-size // parts.get(dim, 1)) * parts.get(dim, 1) for dim, size in enumerate(host.shape))
    place = NamedSharding(mesh, PartitionSpec(*(axes.get(dim) for dim in range(host.ndim))))

    def part(index: Any) -> np.ndarray:
        inside = host[index]
        wanted = [len(range(*where.indices(size))) for where, size in zip(index, shape, strict=True)]
        missing = [(0, want - have) for want, have in zip(wanted, inside.shape, strict=True)]
        return np.pad(inside, missing) if any(rest for _, rest in missing) else inside

    return Spread(jax.make_array_from_callback(shape, place, part, dtype=array.dtype), host.shape)


def mesh_of(tree: Any) -> Mesh | None:
    """The mesh over which arrays are spread; None if each of them lies on one device."""
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            return sharding.mesh  # pyright: ignore[reportReturnType]
    return None


def trace_spread(mesh: Mesh, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A function traced for arguments of which some are spread; the others, and its results, are whole everywhere."""
    whole = NamedSharding(mesh, PartitionSpec())

    def described(leaf: Any) -> jax.ShapeDtypeStruct:
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=leaf.sharding if _is_on(mesh, leaf) else whole)

    on_rows = jax.jit(lambda *args: fn(*jax.tree.map(_trimmed, args, is_leaf=_is_spread)), out_shardings=whole)
    return on_rows.trace(*jax.tree.map(described, args))


class SpreadCall:
    """Compiled code that takes arrays from wherever they are.

    Several processes run it together, so it must be the same in all of them, to the order in which it adds up what they
    tell each other: that is looked at before the first call.
    """

    def __init__(self, mesh: Mesh, compiled: Any):
        self._mesh, self._compiled = mesh, compiled
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._is_same = jax.process_count() == 1

    def __call__(self, *args: Any) -> Any:
        """Run it, and wait for the results."""
        if not self._is_same:
            _compare_code(self._compiled.as_text())
            self._is_same = True
        return jax.block_until_ready(self._compiled(*jax.tree.map(self._everywhere, args)))

    def _everywhere(self, leaf: Any) -> jax.Array:
        if _is_on(self._mesh, leaf):
            return leaf
        host = np.asarray(leaf)
        dtype = jax.dtypes.canonicalize_dtype(host.dtype)
        return jax.make_array_from_callback(
            host.shape, self._whole, lambda index: host[index].astype(dtype), dtype=dtype
        )


def _compare_code(text: str) -> None:
    """Refuse code that is not the same in all processes."""
    from jax.experimental import multihost_utils  # experimental: other releases may not have it

    computed = re.sub(r"metadata=\{[^}]*\}", "", text)  # lines of files
    said = multihost_utils.process_allgather(np.frombuffer(hashlib.blake2b(computed.encode()).digest(), np.uint8))
    if (said != said[:1]).any():
        raise ProcessError(
            "the processes of this run have compiled different code for the same program, and cannot compute together. "
            "Start all of them with the same releases of Python, JAX and sumout, and with PYTHONHASHSEED=0, as the "
            "order of Python's sets may be in the code."
        )


def _is_on(mesh: Mesh, leaf: Any) -> bool:
    sharding = getattr(leaf, "sharding", None)
    return isinstance(sharding, NamedSharding) and sharding.mesh == mesh


def _is_spread(node: Any) -> bool:
    return isinstance(node, Spread)


def _trimmed(node: Any) -> Any:
    """An array without the rows to spare."""
    if not _is_spread(node):
        return node
    return node.array if node.array.shape == node.shape else node.array[tuple(map(slice, node.shape))]
