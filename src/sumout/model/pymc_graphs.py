"""PyTensor graphs of a PyMC model → JAX functions.

PyTensor has a JAX form of nearly every operation. Three things are mended on the way there:

- A check of parameters, `switch(all(p ≥ 0), log p, −∞)`, is one number over all elements of a law and of its
  parameters, and would join all sites that any of them depend on. Here each element of a law is checked by those
  elements of the conditions that belong to it. The sum over all elements is −∞ in the same places.
- Scans, and other operations with a graph inside, are copied first: their JAX form rewrites that graph in place, and
  it is the user's.
- The scaled complementary error function, for which PyTensor asks for another package.

PyTensor sets JAX's precision when its JAX forms are imported. It is set back at once.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfcx
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.mode import JAX
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import graph_inputs
from pytensor.link.utils import fgraph_to_python
from pytensor.scalar.basic import AND, Composite
from pytensor.scalar.math import Erfcx
from pytensor.scan.op import Scan
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.random.type import RandomType

from sumout.errors import ModelError
from sumout.model.validation import RUNNING, one_at_a_time

Function = Callable[..., list[Any]]


class LikeFirst(Op):
    """A JAX function whose result has the shape and type of its first argument."""

    __props__ = ("function",)

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def make_node(self, *inputs: Any) -> Apply:
        """Apply it."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute it where all arguments are known."""
        found = np.asarray(self.function(*map(jnp.asarray, inputs)))
        output_storage[0][0] = found.astype(node.outputs[0].type.dtype)

    def infer_shape(self, fgraph: Any, node: Apply, input_shapes: Any) -> Any:
        """That of the first argument."""
        del fgraph, node
        return [input_shapes[0]]


def zero_unless(log_density: Any, *conditions: Any) -> Any:
    """The log density of each element, −∞ where one of its own conditions does not hold.

    Axes of a condition that the density does not have belong to its parameters (the last one of a vector of
    probabilities): the condition must hold along all of them.

    >>> zero_unless(jnp.zeros(2), jnp.array([[True, False], [True, True]]), jnp.array([True])).tolist()
    [-inf, 0.0]
    """
    log_density = jnp.asarray(log_density)
    for condition in map(jnp.asarray, conditions):
        while not _fits(condition.shape, log_density.shape):
            condition = condition.all(axis=-1)
        log_density = jnp.where(condition, log_density, -jnp.inf)
    return log_density


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether an array can be broadcast to a shape."""
    pairs = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(size in (1, other) for size, other in pairs)


def _nan_unless(value: Any, *conditions: Any) -> Any:
    return jnp.where(jnp.stack([jnp.asarray(condition).all() for condition in conditions]).all(), value, jnp.nan)


def make_function(inputs: Sequence[Variable], outputs: Sequence[Variable], is_checked: bool = False) -> Function:
    """A JAX function of the inputs, which may be in another precision than the graph says.

    Args:
        inputs: variables without an owner.
        outputs: graphs of them.
        is_checked: whether parameters are checked.
    """
    if not outputs:
        return lambda *_: []
    generators = _generators(outputs, inputs)
    with RUNNING, _quiet():
        graph = FunctionGraph([*inputs, *generators], list(outputs), clone=True).clone(clone_inner_graphs=True)
        _mend(graph, is_checked)
        JAX.optimizer.rewrite(graph)  # pyright: ignore[reportAttributeAccessIssue]
        _mend(graph, is_checked)
        if generators:
            _refuse_randomness(graph)
    types = [getattr(variable.type, "dtype", None) for variable in inputs]
    made: dict[bool, Callable[..., Any]] = {}  # by precision, in which constants are, too

    @one_at_a_time
    def call(*arguments: Any) -> list[Any]:
        with _quiet():
            precision = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
            if precision not in made:
                made[precision] = _as_jax(graph)
            given = [a if t is None else _typed(a, t) for a, t in zip(arguments, types, strict=True)]
            return list(made[precision](*given, *(None for _ in generators)))

    return call


def _generators(outputs: Sequence[Variable], inputs: Sequence[Variable]) -> list[Any]:
    """Generators of random numbers that graphs refer to, of which at most shapes of draws should be asked for."""
    return [v for v in graph_inputs(outputs) if isinstance(v.type, RandomType) and v not in inputs]


def _refuse_randomness(graph: FunctionGraph) -> None:
    """Refuse a density that is drawn anew whenever it is looked at."""
    for node in graph.toposort():
        if not any(isinstance(v.type, RandomType) for v in node.inputs):
            continue
        kind = type(node.op).__name__.removesuffix("RV").removesuffix("Op")
        if "Minibatch" in kind:
            raise ModelError(
                "the model takes random minibatches of its data (pm.Minibatch), so that its log density is another one "
                'at every look. Give all data as pm.Data with a name for their rows, dims="n", without total_size, and '
                'have sumout take the minibatches: sumout.sample(model, minibatch={"n": 1000}).'
            )
        raise ModelError(
            f"the log density depends on a random variable of law {kind} that is not part of the model (made by "
            "`.dist()`, or drawn by PyTensor). Give it a name in the model."
        )


def _mend(graph: FunctionGraph, is_checked: bool) -> None:
    """Replace, here and in inner graphs, what has no JAX form that serves."""
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            inner = node.op.clone()
            _mend(inner.fgraph, is_checked)
            graph.replace_all(list(zip(node.outputs, inner.make_node(*node.inputs).outputs, strict=True)))
        elif isinstance(node.op, HasInnerGraph):
            _mend(node.op.fgraph, is_checked)
        elif isinstance(node.op, CheckParameterValue):
            graph.replace(node.outputs[0], _spread(node) if is_checked else node.inputs[0])
        elif isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Erfcx):
            graph.replace(node.outputs[0], LikeFirst(erfcx).make_node(node.inputs[0]).outputs[0])


def _spread(node: Apply) -> Variable:
    """A check of parameters, element by element."""
    value, *scalars = node.inputs
    conditions = [condition for scalar in scalars for condition in _elements(scalar)]
    if not conditions:
        return value
    is_density = node.op.can_be_replaced_by_ninf  # pyright: ignore[reportAttributeAccessIssue]
    return LikeFirst(zero_unless if is_density else _nan_unless).make_node(value, *conditions).outputs[0]


def _elements(condition: Variable) -> Iterator[Variable]:
    """The arrays of which all elements must be true for a condition to be."""
    if isinstance(condition, Constant) and np.all(condition.data):
        return
    op: Any = getattr(condition.owner, "op", None)
    operands: Any = getattr(condition.owner, "inputs", ())
    is_and = isinstance(op, Elemwise) and isinstance(op.scalar_op, AND)
    is_all = isinstance(op, All) and (op.axis is None or len(op.axis) == operands[0].type.ndim)
    is_open = is_and or is_all or isinstance(op, ScalarFromTensor | TensorFromScalar | MakeVector)
    if not is_open:
        yield condition
        return
    for variable in operands:
        yield from _elements(variable)


def _import_conversion() -> Any:
    """PyTensor's conversions to JAX; in a thread where JAX's settings are those of the process, not of a context."""
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    try:
        from pytensor.link.jax.dispatch import jax_funcify, jax_typify
    finally:
        jax.config.update("jax_enable_x64", before)
    jax_funcify.register(LikeFirst, lambda op, **_: op.function)
    return jax_funcify, jax_typify


def _as_jax(graph: FunctionGraph) -> Callable[..., Any]:
    with ThreadPoolExecutor(1) as new_thread:
        funcify, typify = new_thread.submit(_import_conversion).result()

    def convert(op: Any, node: Any = None, **options: Any) -> Callable[..., Any]:
        return _in_its_type(funcify(op, node=node, **options), node)

    with jax.ensure_compile_time_eval():  # constants are to outlive the trace that this may happen in
        return fgraph_to_python(graph, convert, type_conversion_fn=typify, fgraph_name="pymc_graph")


def _in_its_type(function: Callable[..., Any], node: Apply) -> Callable[..., Any]:
    """An operation with results, and operands of arithmetic, of the types that PyTensor says.

    JAX gives way to a float32 where it meets whole numbers, or what comes from a Python number; PyTensor does not.
    """
    types = [getattr(output.type, "dtype", None) for output in node.outputs]
    is_float = [isinstance(dtype, str) and dtype.startswith("float") for dtype in types]
    if not any(is_float):  # shapes among them must stay what Python can count with
        return function
    is_arithmetic = isinstance(node.op, Elemwise) and not isinstance(node.op.scalar_op, Composite)
    given = [np.dtype(getattr(v.type, "dtype", None) or "V").kind for v in node.inputs]
    moved = [kind == "f" or (kind in "iu" and "f" not in given) for kind in given]

    def run(*operands: Any) -> Any:
        if is_arithmetic:
            operands = tuple(_typed(a, types[0]) if move else a for a, move in zip(operands, moved, strict=True))
        results = function(*operands)
        if not isinstance(results, list | tuple):
            return _typed(results, types[0])
        return [_typed(r, t) if yes else r for r, t, yes in zip(results, types, is_float, strict=True)]

    return run


def _typed(array: Any, dtype: Any) -> Any:
    """The array in the graph's type, as far as JAX's precision allows."""
    return jnp.asarray(array).astype(jax.dtypes.canonicalize_dtype(dtype))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings that 64-bit types of the graph are 32-bit ones here, which is what JAX is set to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Ee]xplicitly requested dtype")
        warnings.filterwarnings("ignore", message=".*overflow encountered in cast")
        warnings.filterwarnings("ignore", message=".*could not link to a BLAS")  # which JAX has
        yield
