"""Whether two equations do the same: a key of the parameters of an equation that is equal for those that do.

Most parameters are plain values. Functions that an equation calls are compared equation by equation, as JAX traces them
anew at every call. So are functions with a derivative rule of their own, whose rule must be the same function.
"""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.extend.linear_util import WrappedFun

from sumout.jaxpr.walk import opened

PARTIAL = ("_add_args_", "_prepend_static_args")  # JAX's names for arguments that a rule is given beforehand

WRAPPING = ("lift_jvp.", "_custom_jvp_call_dce.")  # its functions that pass a rule on


class ParameterKeys:
    """Keys of the parameters of equations that exist as long as this does.

    Equations that come from one traced function share their parameters, so that a key is made once for all of them.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def __call__(self, eqn: Any) -> Any:
        """Equal for equations of one primitive that have the same parameters; hashable."""
        if not eqn.params:
            return ()
        key = self._known.get(id(eqn.params))
        if key is None:
            key = self._known[id(eqn.params)] = _Hashed(_parameters_key(eqn))
        return key


class _Hashed:
    """A long key that is hashed once."""

    __slots__ = ("hash", "key")

    def __init__(self, key: Any):
        self.key, self.hash = key, hash(key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Hashed) and self.hash == other.hash and self.key == other.key)

    def __hash__(self) -> int:
        return self.hash


def _parameters_key(eqn: Any) -> Any:
    return tuple((name, _key(value)) for name, value in sorted(eqn.params.items(), key=lambda item: item[0]))


def _key(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr | Jaxpr):
        return _function_key(value)
    if isinstance(value, WrappedFun):
        return _rule_key(value)
    if isinstance(value, tuple | list):
        return tuple(map(_key, value))
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return type(value), value  # 1 and True are not the same


class _Itself:
    """Equal to nothing but the same object."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _function_key(function: ClosedJaxpr | Jaxpr) -> Any:
    jaxpr, consts = opened(function)
    numbers = {v: i for i, v in enumerate([*jaxpr.constvars, *jaxpr.invars])}

    def atom(a: Any) -> Any:
        if isinstance(a, Literal):
            value = np.asarray(a.val)
            return a.aval, value.tobytes()
        return numbers[a]

    equations = []
    for eqn in jaxpr.eqns:
        operands = tuple(map(atom, eqn.invars))
        for v in eqn.outvars:
            numbers[v] = len(numbers)
        equations.append((eqn.primitive, operands, _parameters_key(eqn), tuple(v.aval for v in eqn.outvars)))
    types = tuple(v.aval for v in [*jaxpr.constvars, *jaxpr.invars])
    return types, tuple(map(_Itself, consts)), tuple(equations), tuple(map(atom, jaxpr.outvars))


def _rule_key(rule: WrappedFun) -> Any:
    """A derivative rule: the user's function, which JAX has wrapped up, once for each trace it has been through."""
    inner = rule
    while _is_wrapping(inner.f):
        found = _find_wrapped(inner.f)
        if found is None or any(getattr(gen, "__name__", "") in PARTIAL for gen, _ in found.transforms):
            return _Itself(rule)
        inner = found
    return _Itself(rule if inner is rule else inner.f)


def _is_wrapping(function: Any) -> bool:
    """Whether it is a closure that JAX makes around a rule, and not the rule itself."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    return module.startswith("jax._src.interpreters.") or name.startswith(WRAPPING)


def _find_wrapped(function: Any) -> WrappedFun | None:
    """The wrapped function that a closure of JAX's holds."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not set
            continue
        found = content if isinstance(content, WrappedFun) else None
        if found is None and _is_wrapping(content):
            found = _find_wrapped(content)
        if found is not None:
            return found
    return None
