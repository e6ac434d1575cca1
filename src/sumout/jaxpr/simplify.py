"""The same program in fewer equations.

A log density as it is written has much in it that never matters: normalising constants of priors without parameters,
checks of values that are given, sums over no axis, the same prior in each of several parts. Every equation is traced
again for each derivative, each batch of chains and each place of use, and then compiled. So calls are written out, what
follows from constants is computed, what does nothing is left out, what is computed twice is computed once, and what
nobody looks at is not computed at all. The jaxpr is edited as it stands: that takes microseconds for an equation, where
tracing takes a hundred times as long.

An array that repeats one number is never laid out for that: it stays a number and its shape.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, new_jaxpr_eqn, no_effects
from jax.interpreters import partial_eval

from sumout.errors import note_unforeseen
from sumout.jaxpr.numpy_evaluation import compute, is_known_to_numpy
from sumout.jaxpr.primitives import Kind, row_of
from sumout.jaxpr.ranges import Range, bounded, decided, range_of, range_of_result
from sumout.jaxpr.walk import Atom, body, run, variables

WHOLE = frozenset(("random_words",))  # of calls, those that are long and often the same: traced once, they stay calls
MOST_KNOWN = 1024  # elements of a constant that is computed with: a larger one makes the program no shorter


def simplify(closed: ClosedJaxpr, *, is_final: bool = False) -> ClosedJaxpr:
    """The same in fewer equations.

    Args:
        closed: what to simplify.
        is_final: whether it will not be differentiated any more; then functions with derivatives of their own are
            written out, too.
    """
    try:
        return _simplify(closed, is_final)
    except Exception as error:
        note_unforeseen("simplification", error)
        return closed


def _simplify(closed: ClosedJaxpr, is_final: bool) -> ClosedJaxpr:
    editor = _Editor(is_final)
    jaxpr = closed.jaxpr
    arguments = [Var(v.aval) for v in jaxpr.invars]
    consts = [editor.constant(value, v) for v, value in zip(jaxpr.constvars, closed.consts, strict=True)]
    outputs = editor.write(jaxpr, consts, arguments)
    edited = Jaxpr(list(editor.constants), arguments, outputs, editor.equations, jaxpr.effects, jaxpr.debug_info)
    return without_dead(ClosedJaxpr(edited, list(editor.constants.values())))


def without_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same without equations and constants that nothing depends on."""
    jaxpr = closed.jaxpr
    live, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=[True] * len(jaxpr.invars))
    used = set(variables(live.outvars)).union(*(variables(eqn.invars) for eqn in live.eqns))
    kept = [(v, value) for v, value in zip(live.constvars, closed.consts, strict=True) if v in used]
    return ClosedJaxpr(live.replace(constvars=[v for v, _ in kept]), [value for _, value in kept])


class _Editor:
    """Writes equations one after the other, those that it cannot do without."""

    def __init__(self, is_final: bool):
        self.is_final = is_final
        self.equations: list[Any] = []
        self.constants: dict[Var, Any] = {}
        self._numbers: dict[Var, Literal] = {}  # that an array repeats
        self._negated: dict[Var, Atom] = {}
        self._ranges: dict[Var, Range] = {}
        self._reshaped: dict[Var, Atom] = {}
        self._written: dict[Any, list[Atom]] = {}

    def constant(self, value: Any, like: Var) -> Atom:
        """A value that is known."""
        if np.size(value) == 1 and _is_plain(value):
            return self._spread(np.asarray(value).reshape(()), like.aval)
        variable = Var(like.aval)
        self.constants[variable] = value
        return variable

    def write(self, jaxpr: Jaxpr, consts: Sequence[Atom], args: Sequence[Atom]) -> list[Atom]:
        """The equations of a jaxpr at these arguments; what its results are."""
        return run(jaxpr, consts, args, self._equation, lambda literal: literal)

    def _equation(self, eqn: Any, operands: list[Atom]) -> list[Atom]:
        """What the results of an equation are, once what it takes has been written."""
        if self._is_written_out(eqn):
            jaxpr, consts = body(eqn)
            known = [self.constant(value, v) for v, value in zip(jaxpr.constvars, consts, strict=True)]
            return self.write(jaxpr, known, operands)
        if eqn.effects:
            return self._as_it_is(eqn, operands)
        if len(eqn.outvars) == 1:
            same = _attempt(self._same, eqn, operands)
            if same is not None:
                return [same]
            outcome = _attempt(self._decided, eqn, operands)
            if outcome is not None:
                return [outcome]
        key = _signature(eqn, operands, self.is_final)
        if key is not None and key in self._written:
            return self._written[key]
        results = _attempt(self._folded, eqn, operands)
        results = results or _attempt(self._reduced, eqn, operands) or self._as_it_is(eqn, operands)
        if key is not None:
            self._written[key] = results
        return results

    def _is_written_out(self, eqn: Any) -> bool:
        row = row_of(eqn)
        return (row.is_call if self.is_final else row.kind is Kind.CALL) and eqn.params.get("name") not in WHOLE

    def _as_it_is(self, eqn: Any, operands: list[Atom]) -> list[Atom]:
        results = [Var(v.aval) for v in eqn.outvars]  # none is dropped: the same equation may come again
        self.equations.append(eqn.replace(invars=operands, outvars=results))
        if eqn.primitive.name == "broadcast_in_dim" and isinstance(operands[0], Literal):
            self._numbers[results[0]] = operands[0]
        if eqn.primitive.name == "neg":
            self._negated[results[0]] = operands[0]
        if len(results) == 1 and (found := range_of_result(eqn, list(map(self._range, operands)))):
            self._ranges[results[0]] = found
        if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is None:
            self._reshaped[results[0]] = self._before_reshape(operands[0])
        return list(results)

    def _range(self, atom: Atom) -> Range | None:
        """Between which numbers its elements are; None if that is not known."""
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return range_of(np.asarray(atom.val, aval.dtype)) if _is_plain(atom.val) else None
        if atom in self.constants and atom not in self._ranges:
            found = self._known(atom)
            return None if found is None else range_of(found)
        return self._ranges.get(atom)

    def _decided(self, eqn: Any, operands: list[Atom]) -> Atom | None:
        """What an equation comes to by the ranges of its operands: a truth, or one of them; None for most."""
        out, ranges = eqn.outvars[0].aval, list(map(self._range, operands))
        truth = decided(eqn, ranges)
        if truth is not None:
            return self._spread(np.asarray(truth), out)
        kept = bounded(eqn, ranges, [self._number(operand) is not None for operand in operands])
        return None if kept is None else _fitting(operands[kept], out)

    def _before_reshape(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self._reshaped.get(atom, atom)

    def _reduced(self, eqn: Any, operands: list[Atom]) -> list[Atom] | None:
        """The result of a reduction of what was reshaped for it: of the array itself, whose axes mean something."""
        if row_of(eqn).kind is not Kind.REDUCTION or len(operands) != 1 or len(eqn.outvars) != 1:
            return None
        whole, out = self._before_reshape(operands[0]), eqn.outvars[0].aval
        axes = same_axes(operands[0].aval.shape, whole.aval.shape, eqn.params["axes"])
        if whole is operands[0] or axes is None:
            return None
        kept = tuple(n for axis, n in enumerate(whole.aval.shape) if axis not in axes)
        if kept != out.shape:
            return None
        return self._as_it_is(eqn.replace(params={**eqn.params, "axes": axes}), [whole])

    def _number(self, atom: Atom) -> Any:
        """The number that it is or repeats; None if it is not known, or not one."""
        literal = atom if isinstance(atom, Literal) else self._numbers.get(atom)
        return None if literal is None else np.asarray(literal.val)

    def _known(self, atom: Atom) -> Any:
        """Its value; None if that is not known, or large."""
        if isinstance(atom, Literal):
            return np.asarray(atom.val)
        value = self.constants.get(atom)
        return np.asarray(value) if _is_plain(value) and atom.aval.size <= MOST_KNOWN else None

    def _folded(self, eqn: Any, operands: list[Atom]) -> list[Atom] | None:
        """The results of an equation between constants."""
        if not is_known_to_numpy(eqn) or len(eqn.outvars) != 1 or not operands:
            return None
        out = eqn.outvars[0].aval
        if _is_extended(out):
            return None
        numbers = [self._number(operand) for operand in operands]
        if all(number is not None for number in numbers):
            number = self._folded_number(eqn, numbers, operands[0].aval.shape)
            if number is not None:
                return [self._spread(number, out)]
        known = [self._known(operand) for operand in operands]
        if any(value is None for value in known) or out.size > max(value.size for value in known):
            return None
        (value,) = compute(eqn, known)
        value = np.asarray(value)
        return [self.constant(value.astype(out.dtype), eqn.outvars[0])] if value.shape == out.shape else None

    def _folded_number(self, eqn: Any, numbers: list[Any], shape: tuple[int, ...]) -> Any:
        """The one number that a result repeats whose operands, of that shape, each repeat one; None if it does not."""
        row = row_of(eqn)
        if row.is_movement:
            return numbers[0] if len({number.tobytes() for number in numbers}) == 1 else None
        if row.is_elementwise:
            return compute(eqn, numbers)[0]
        if row.of_equal is not None and all(shape[axis] for axis in eqn.params["axes"]):
            return row.of_equal(numbers[0], np.prod([shape[axis] for axis in eqn.params["axes"]]))
        return None

    def _spread(self, number: Any, aval: Any) -> Atom:
        """An array that repeats a number, or the number itself."""
        literal = Literal(np.asarray(number).astype(aval.dtype)[()], aval.update(shape=()))
        if aval.shape == ():
            return literal
        params = {"shape": aval.shape, "broadcast_dimensions": (), "sharding": None}
        like = new_jaxpr_eqn([literal], [Var(aval)], lax.broadcast_in_dim_p, params, no_effects)
        return self._as_it_is(like, [literal])[0]

    def _same(self, eqn: Any, operands: list[Atom]) -> Atom | None:
        """The operand that an equation hands on as it is; None if there is none."""
        row, params, out = row_of(eqn), eqn.params, eqn.outvars[0].aval
        if not operands:
            return None
        first = operands[0]
        if row.kind is Kind.SELECT:
            which = self._number(first)
            return None if which is None else _fitting(operands[1 + int(which)], out)
        if row.keeps_order or row.kind is Kind.CONVERSION:
            is_transposed = row.name == "reshape" and params["dimensions"] is not None
            return None if is_transposed else _fitting(first, out)
        if row.kind is Kind.REDUCTION and not params["axes"]:
            return _fitting(first, out)
        if row.name == "transpose" and tuple(params["permutation"]) == tuple(range(len(out.shape))):
            return first
        if row.name == "neg":
            return None if isinstance(first, Literal) else self._negated.get(first)
        if row.name == "stop_gradient" and self.is_final:
            return _fitting(first, out)
        if row.neutral is not None:
            if self._number(operands[1]) == row.neutral:
                return _fitting(first, out)
            if row.commutes and self._number(first) == row.neutral:
                return _fitting(operands[1], out)
        return None


def same_axes(shape: Sequence[int], other: Sequence[int], axes: Sequence[int]) -> tuple[int, ...] | None:
    """The axes of an array of another shape that together are some axes of this one; None if there are none such."""
    found: list[int] = []
    i = j = 0
    while i < len(shape) and j < len(other):
        ends = [i + 1, j + 1]
        while (one := prod(shape[i : ends[0]])) != (two := prod(other[j : ends[1]])):
            ends[int(one > two)] += 1
            if ends[0] > len(shape) or ends[1] > len(other):
                return None
        inside = {axis in axes for axis in range(i, ends[0])}
        if len(inside) > 1:
            return None
        found += range(j, ends[1]) if inside == {True} else ()
        i, j = ends
    # What is left has size 1, and may be reduced as well.
    return (*found, *range(j, len(other))) if all(axis in axes for axis in range(i, len(shape))) else None


def _attempt(edit: Callable[[Any, list[Atom]], Any], eqn: Any, operands: list[Atom]) -> Any:
    """What an edit makes of an equation; None if it fails for a reason nobody foresaw."""
    try:
        return edit(eqn, operands)
    except Exception as error:
        note_unforeseen(f"simplifying {eqn.primitive.name}", error)
        return None


def _fitting(atom: Atom, aval: Any) -> Atom | None:
    """The atom, if it can stand for a result of that shape and type."""
    return atom if atom.aval.shape == aval.shape and atom.aval.dtype == aval.dtype else None


def _is_plain(value: Any) -> bool:
    """Whether it is a number, or an array of numbers, that is there; not a key, nor what is being traced."""
    return value is not None and not isinstance(value, Tracer) and not _is_extended(jax.typeof(value))


def _is_extended(aval: Any) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)


def _signature(eqn: Any, operands: list[Atom], is_final: bool) -> Any:
    """What two equations have in common that compute the same; None if that cannot be told.

    Primitives of one name compute the same, but may be differentiated by different rules.
    """
    if row_of(eqn).kind is Kind.BARRIER:
        return None
    values = [np.asarray(v.val) if isinstance(v, Literal) else None for v in operands]
    atoms = tuple(
        v if value is None else (value.dtype, value.tobytes()) for v, value in zip(operands, values, strict=True)
    )
    params = tuple(sorted(eqn.params.items(), key=lambda item: item[0]))
    key = eqn.primitive.name if is_final else eqn.primitive, atoms, params
    try:
        hash(key)
    except TypeError:
        return None
    return key
