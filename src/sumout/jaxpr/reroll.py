"""Loops that Python has unrolled, rolled up again: equations that are repeated become one equation on an array.

A model that is written as a loop over N points is traced to N copies of the same equations, and all that is done with
a program (reading, differentiating, compiling) then takes N times as long. Here equations are gathered that compute the
same function of corresponding operands:

    the class of a result = (primitive, parameters, classes of the operands)

with all slices of one size from one array in the same class wherever they start, and all numbers of one type, too. The
members of a class become the rows of one array, computed by the primitive's own rule for batches (`jax.vmap`). Operands
are in turn rows of such arrays, mostly all of them in their order, so that y[0], y[1], … is y itself again. A chain
z_t | z_{t−1} is no exception: z is given, and all transitions are one class. So are the nodes of a tree.

A class has an operand in every class its key names, so that classes are in order and none depends on itself. What is
put together term by term, lp + a_1 + a_2 + …, by `.at[i].set`, or by `jnp.stack`, would differ for each i: sums and
updates of this kind are taken as one equation with many operands.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, Var

from sumout.errors import note_unforeseen
from sumout.jaxpr.chains import Sum, Updates, find_sums, find_updates, join_concatenations
from sumout.jaxpr.equations import bind
from sumout.jaxpr.rows import Windows, take_rows, take_windows
from sumout.jaxpr.same_equation import ParameterKeys
from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.walk import Atom

FEWEST_EQUATIONS = 64  # in all: a shorter program is compiled in no time
FEWEST = 4  # members of a class that is made one array

Place = tuple[int, int]  # a class, and the number of a result of its equations


def reroll(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same with repeated equations as one; the program itself if that saves little."""
    jaxpr, given = closed.jaxpr, closed
    if len(jaxpr.eqns) < FEWEST_EQUATIONS or jaxpr.effects or any(eqn.effects for eqn in jaxpr.eqns):
        return closed
    try:
        closed = ClosedJaxpr(join_concatenations(jaxpr), closed.consts)
        classes = _Classes(closed)
        if 2 * len(classes.found) > len(jaxpr.eqns):
            return given
        rolled = jax.make_jaxpr(lambda *args: _Run(classes, closed, args).results())(*_shapes(jaxpr.invars))
    except Exception as error:
        note_unforeseen("rolling up a loop", error)
        return given
    return rolled if 2 * len(rolled.jaxpr.eqns) < len(jaxpr.eqns) else given


def stack_results(closed: ClosedJaxpr, groups: Sequence[Sequence[int]]) -> ClosedJaxpr:
    """The same with some of its results stacked: for each group of more than one an array of its rows."""

    def stacked(*results: Any) -> list[Any]:
        return [jnp.stack([results[i] for i in g]) if len(g) > 1 else results[g[0]] for g in groups]

    jaxpr = closed.jaxpr
    last = simplify(jax.make_jaxpr(stacked)(*_shapes(jaxpr.outvars)))
    # Its equations after those of the program, whose results they take.
    taken: dict[Var, Atom] = dict(zip(last.jaxpr.invars, jaxpr.outvars, strict=True))
    after = [eqn.replace(invars=_taken(eqn.invars, taken)) for eqn in last.jaxpr.eqns]
    consts = [*jaxpr.constvars, *last.jaxpr.constvars], [*closed.consts, *last.consts]
    outputs = _taken(last.jaxpr.outvars, taken)
    return ClosedJaxpr(jaxpr.replace(constvars=consts[0], eqns=[*jaxpr.eqns, *after], outvars=outputs), consts[1])


def _taken(atoms: Sequence[Atom], taken: dict[Var, Atom]) -> list[Atom]:
    return [atom if isinstance(atom, Literal) else taken.get(atom, atom) for atom in atoms]


def _shapes(atoms: Sequence[Atom]) -> list[Any]:
    avals = [atom.aval for atom in atoms]
    return [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]


@dataclass
class _Class:
    """Equations, or whole sums and updates, of which the same is computed."""

    members: list[Any] = field(default_factory=list)

    @property
    def first(self) -> Any:
        return self.members[0]

    @property
    def is_batched(self) -> bool:
        return len(self.members) >= FEWEST


class _Classes:
    """All classes of a program in an order in which they can be computed, and where each variable is to be found."""

    def __init__(self, closed: ClosedJaxpr):
        jaxpr = closed.jaxpr
        self.found: list[_Class] = []
        self.place: dict[Var, tuple[Place, int]] = {}  # of a variable, and its row
        self._number: dict[Any, int] = {}
        self._parameters = ParameterKeys()
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        alike = Counter(v.aval for v in inputs)
        for i, v in enumerate(inputs):
            self._add(("input", v.aval) if alike[v.aval] >= FEWEST else ("input", i), v, [v])
        sums = find_sums(jaxpr, FEWEST)
        updates = find_updates(closed, FEWEST)
        for eqn in jaxpr.eqns:
            out = eqn.outvars[0] if eqn.outvars else None
            if out in sums.inner or out in updates.inner:
                continue
            if out in sums.whole:
                member: Any = sums.whole[out]
                terms = Counter((sign, self._key(atom)) for sign, atom in member.terms)
                self._add(("sum", out.aval, frozenset(terms.items())), member, eqn.outvars)
            elif out in updates.whole:
                self._add(("updates", out), updates.whole[out], eqn.outvars)
            else:
                self._add(self._equation_key(eqn), eqn, eqn.outvars)

    def _add(self, key: Any, member: Any, results: Sequence[Var]) -> None:
        number = self._number.setdefault(key, len(self.found))
        if number == len(self.found):
            self.found.append(_Class())
        members = self.found[number].members
        for i, v in enumerate(results):
            self.place[v] = (number, i), len(members)
        members.append(member)

    def _key(self, atom: Atom) -> Any:
        return atom.aval if isinstance(atom, Literal) else self.place[atom][0]

    def _equation_key(self, eqn: Any) -> Any:
        operands = tuple(map(self._key, eqn.invars))
        if eqn.primitive.name == "slice":
            return "slice", operands, eqn.outvars[0].aval, eqn.params["strides"]
        return eqn.primitive, operands, self._parameters(eqn)


class _Run:
    """Computes class after class, each as one array if it has many members."""

    def __init__(self, classes: _Classes, closed: ClosedJaxpr, args: Sequence[Any]):
        self._classes, self._jaxpr = classes, closed.jaxpr
        self._values: dict[Var, Any] = {}  # of variables that stand alone, or have been taken out of their array
        self._arrays: dict[Place, Any] = {}
        given = dict(zip([*self._jaxpr.constvars, *self._jaxpr.invars], [*closed.consts, *args], strict=True))
        for number, one in enumerate(classes.found):
            if isinstance(one.first, Var):
                self._values.update((v, given[v]) for v in one.members)
                continue
            self._compute(number, one)

    def results(self) -> list[Any]:
        """Of the program."""
        return [self._value(atom) for atom in self._jaxpr.outvars]

    def _compute(self, number: int, one: _Class) -> None:
        first = one.first
        if isinstance(first, Updates):
            for member in one.members:
                self._values[member.result] = self._update(member)
            return
        if isinstance(first, Sum):
            if one.is_batched:
                self._arrays[number, 0] = self._sum(one.members)
            else:
                self._values.update((member.result, self._sum([member])) for member in one.members)
            return
        if one.is_batched:
            for i, array in enumerate(self._batch(one.members)):
                self._arrays[number, i] = array
            return
        for eqn in one.members:
            self._values.update(zip(eqn.outvars, self._alone(eqn), strict=True))

    def _value(self, atom: Atom) -> Any:
        """One variable or literal by itself."""
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self._values:
            place, row = self._classes.place[atom]
            self._values[atom] = lax.index_in_dim(self._arrays[place], row, keepdims=False)
        return self._values[atom]

    def _alone(self, eqn: Any) -> list[Any]:
        """An equation without others like it; one that puts many operands together takes them from their arrays."""
        is_joint = eqn.primitive.name in ("concatenate", "stack") and len(eqn.invars) >= FEWEST
        if not is_joint:
            return bind(eqn, [self._value(atom) for atom in eqn.invars])
        if eqn.primitive.name == "stack":
            return [jnp.moveaxis(self._stacked(eqn.invars), 0, eqn.params["axis"])]
        axis, pieces = eqn.params["dimension"], []
        start = 0
        for end in range(1, len(eqn.invars) + 1):
            shape = eqn.invars[start].aval.shape
            if end < len(eqn.invars) and eqn.invars[end].aval.shape == shape:
                continue
            rows = jnp.moveaxis(self._stacked(eqn.invars[start:end]), 0, axis)
            pieces.append(rows.reshape(*shape[:axis], (end - start) * shape[axis], *shape[axis + 1 :]))
            start = end
        return [pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis=axis)]

    def _batch(self, eqns: Sequence[Any]) -> list[Any]:
        """The results of equations of one class, each as an array of rows."""
        first = eqns[0]
        if first.primitive.name == "slice":
            return [self._windows(eqns)]
        columns = [self._column([eqn.invars[i] for eqn in eqns]) for i in range(len(first.invars))]
        axes = [None if is_same else 0 for _, is_same in columns]
        operands = [value for value, _ in columns]
        if all(axis is None for axis in axes):  # by equations that differ in nothing
            return [jnp.broadcast_to(value, (len(eqns), *jnp.shape(value))) for value in bind(first, operands)]
        return list(jax.vmap(lambda *operands: bind(first, operands), in_axes=axes)(*operands))

    def _windows(self, eqns: Sequence[Any]) -> Any:
        """Slices of the same size from one array, or from rows of one."""
        sources = [eqn.invars[0] for eqn in eqns]
        starts = np.array([eqn.params["start_indices"] for eqn in eqns])
        shape = eqns[0].outvars[0].aval.shape
        strides = eqns[0].params["strides"] or (1,) * len(shape)
        array, is_same = self._column(list(dict.fromkeys(sources)))
        if is_same:
            return take_windows(array, Windows(starts, shape, strides))
        row = {source: i for i, source in enumerate(dict.fromkeys(sources))}
        starts = np.column_stack([[row[source] for source in sources], starts])
        found = take_windows(array, Windows(starts, (1, *shape), (1, *strides)))
        return lax.squeeze(found, (1,))

    def _column(self, atoms: Sequence[Atom]) -> tuple[Any, bool]:
        """One operand of many equations: an array of rows, or what is the same for all of them."""
        if all(atom is atoms[0] for atom in atoms):
            return self._value(atoms[0]), True
        if all(isinstance(atom, Literal) for atom in atoms):
            values = np.array([atom.val for atom in atoms], atoms[0].aval.dtype)
            if all(value.tobytes() == values[0].tobytes() for value in values):
                return atoms[0].val, True
        return self._stacked(atoms), False

    def _stacked(self, atoms: Sequence[Atom]) -> Any:
        """An array with these rows."""
        by_place: dict[Place | None, list[int]] = {}
        for i, atom in enumerate(atoms):
            place = None if isinstance(atom, Literal) else self._classes.place[atom][0]
            by_place.setdefault(place, []).append(i)
        pieces = [self._rows(place, [atoms[i] for i in which]) for place, which in by_place.items()]
        if len(pieces) == 1:
            return pieces[0]
        order = np.concatenate(list(by_place.values()))
        return take_rows(jnp.concatenate(pieces), np.argsort(order))

    def _rows(self, place: Place | None, atoms: Sequence[Atom]) -> Any:
        """The same for atoms of one class, or for literals."""
        if place is None:
            return np.array([atom.val for atom in atoms], atoms[0].aval.dtype)
        if place in self._arrays:
            return take_rows(self._arrays[place], np.array([self._classes.place[atom][1] for atom in atoms]))
        distinct = list(dict.fromkeys(atoms))
        row = {atom: i for i, atom in enumerate(distinct)}
        return take_rows(jnp.stack([self._value(atom) for atom in distinct]), np.array([row[atom] for atom in atoms]))

    def _sum(self, sums: Sequence[Sum]) -> Any:
        """Sums of terms of the same classes, one in each row; of a single sum just that."""
        groups: list[dict[Any, list[Atom]]] = []
        for one in sums:
            groups.append({})
            for sign, atom in one.terms:
                place = None if isinstance(atom, Literal) else self._classes.place[atom][0]
                groups[-1].setdefault((sign, place), []).append(atom)
        total: Any = None
        for sign, place in groups[0]:
            part = self._sum_rows(place, [group[sign, place] for group in groups])
            signed = part if sign > 0 else -part
            total = signed if total is None else total + signed
        return total

    def _sum_rows(self, place: Place | None, terms: Sequence[list[Atom]]) -> Any:
        """The same for terms of one class."""
        if place is not None:  # in the order of their array, as sums do not mind
            terms = [sorted(atoms, key=lambda atom: self._classes.place[atom][1]) for atoms in terms]
        count = len(terms[0])
        if len(terms) == 1:
            return self._value(terms[0][0]) if count == 1 else _add_up(self._stacked(terms[0]), 0)
        rows = self._stacked([atom for atoms in terms for atom in atoms])
        return rows if count == 1 else _add_up(rows.reshape(len(terms), count, *rows.shape[1:]), 1)

    def _update(self, chain: Updates) -> Any:
        """All updates of an array at once."""
        base, updates = self._value(chain.base), self._stacked(chain.updates)
        shape, width = jnp.shape(base), chain.indices.shape[1]
        if not chain.is_added:
            flat = np.ravel_multi_index(tuple(chain.indices.T), shape[:width])
            if flat.size == np.prod(shape[:width]):  # nothing is left of what was there
                return take_rows(updates, np.argsort(flat)).reshape(shape).astype(base.dtype)
            return base.at[tuple(chain.indices.T)].set(updates, unique_indices=True)
        return base.at[tuple(chain.indices.T)].add(updates)


def _add_up(rows: Any, axis: int) -> Any:
    return jnp.sum(rows, axis=axis, dtype=rows.dtype)
