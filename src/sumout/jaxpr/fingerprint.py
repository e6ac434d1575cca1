"""A short name for what a jaxpr computes, constants included: equal names, equal code.

Variables are numbered, as they are other objects in every trace. Of functions among the parameters (the derivative rule
of a `custom_jvp` call, say) only the names count.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(*jaxprs: ClosedJaxpr) -> str:
    """The same for jaxprs that compute the same in the same way."""
    digest = hashlib.blake2b(digest_size=16)
    for closed in jaxprs:
        _Writer(digest).value(closed)
    return digest.hexdigest()


class _Writer:
    """Puts a jaxpr into a digest, piece by piece."""

    def __init__(self, digest: Any):
        self._digest = digest
        self._numbers: dict[Var, int] = {}

    def _put(self, *pieces: Any) -> None:
        self._digest.update("\x1f".join(map(str, pieces)).encode() + b"\x1e")

    def value(self, value: Any) -> None:
        """A parameter, whatever it is."""
        if isinstance(value, ClosedJaxpr):
            self._put("closed", len(value.consts))
            for const in value.consts:
                self.value(const)
            _Writer(self._digest)._jaxpr(value.jaxpr)
        elif isinstance(value, Jaxpr):
            _Writer(self._digest)._jaxpr(value)
        elif isinstance(value, np.ndarray | np.generic | jax.Array):
            self._array(value)
        elif isinstance(value, Mapping):
            self._put("dict", len(value))
            for name in sorted(value, key=str):
                self._put(name)
                self.value(value[name])
        elif isinstance(value, tuple | list):
            self._put(type(value).__name__, len(value))
            for part in value:
                self.value(part)
        elif callable(value):
            self._put("function", getattr(value, "__qualname__", type(value).__name__))
        else:
            self._put(type(value).__name__, ADDRESS.sub("", repr(value)))

    def _array(self, array: Any) -> None:
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
            array = jax.random.key_data(array)
        known = np.ascontiguousarray(array)
        self._put("array", known.dtype, np.shape(array))
        self._digest.update(known.tobytes())

    def _jaxpr(self, jaxpr: Jaxpr) -> None:
        self._put("jaxpr", len(jaxpr.constvars), len(jaxpr.invars), len(jaxpr.eqns))
        for variable in (*jaxpr.constvars, *jaxpr.invars):
            self._bound(variable)
        for eqn in jaxpr.eqns:
            self._put(eqn.primitive.name)
            for atom in eqn.invars:
                self._atom(atom)
            self.value(eqn.params)
            for variable in eqn.outvars:
                self._bound(variable)
        for atom in jaxpr.outvars:
            self._atom(atom)

    def _bound(self, variable: Var) -> None:
        self._numbers[variable] = len(self._numbers)
        self._put(variable.aval)

    def _atom(self, atom: Any) -> None:
        if isinstance(atom, Literal):
            self._put("literal", atom.aval)
            self.value(atom.val)
        else:
            self._put(self._numbers[atom])
