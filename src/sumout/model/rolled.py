"""A program that was written as a loop, as if it had been written with arrays.

Its functions are traced once, rolled up (`jaxpr/reroll.py`), and from then on used as jaxprs: the model itself is not
run again. Sites that the loop has numbered are one array (`packing.py`).
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from sumout.jaxpr.reroll import reroll, stack_results
from sumout.jaxpr.simplify import simplify
from sumout.jaxpr.walk import all_equations, cut
from sumout.model.packing import FEWEST, Packs, find_packs
from sumout.model.program import DiscreteSite, Part, Program
from sumout.model.supports import Finite

LONG = 256  # equations, as traced; a program that is shorter than that is no long loop


def roll_up(program: Program, apart: Collection[str] = ()) -> Program:
    """The program with arrays in the place of loops; itself if it has none.

    Args:
        program: the user's.
        apart: names of discrete sites that are to stay by themselves.
    """
    if program.source is not None:
        return program
    apart = frozenset(name for name in apart if name in program.z)
    return program.remember(("rolled up", apart), lambda: _roll_up(program, apart))


def _roll_up(program: Program, apart: frozenset[str]) -> Program:
    kinds = {name: _kind(site) for name, site in program.z.items()}
    kinds |= {name: ("cut", program.z[name].shape) for name in program.upper}  # wherever they end
    packs = find_packs(kinds, {*apart, *program.forward})
    if not packs and len(program.observed) < FEWEST and not _has_loop(program):
        return program
    rolling = _Rolling(program, packs)

    def rolled(fn: Any) -> Any:
        return None if fn is None else Rolled(rolling, fn)

    log_joint = rolled(program.log_joint)
    if not packs and not log_joint.is_shorter:
        return program
    likelihood, terms = rolled(program.log_likelihood_named), rolled(program.log_terms_named)
    draw_forward = program.draw_forward_named
    return replace(
        program,
        source=program,
        packs=packs,
        z=packs.pack(program.z, _joint_site),
        log_joint=log_joint,
        constrain_named=rolled(program.constrain_named),
        log_likelihood_named=likelihood,
        log_joint_without_data=rolled(program.log_joint_without_data),
        log_terms_named=terms,
        log_joint_without_jacobian=rolled(program.log_joint_without_jacobian),
        draw_forward_named=draw_forward
        and (lambda key, x, z, data: draw_forward(key, program.unravel(x), packs.unpack(z), data)),
        observed=program.observed if likelihood is None else likelihood.packs.pack(program.observed),
        laws=program.laws if terms is None else terms.packs.first_of(program.laws),
    )


def roll_up_like(rolled: Program, program: Program, apart: Collection[str] = ()) -> Program:
    """A program rolled up as another one was, of the same code, with other data; later it is what `roll_up` finds."""
    apart = frozenset(name for name in apart if name in program.z)
    return program.remember(("rolled up", apart), lambda: _roll_up_like(rolled, program))


def _roll_up_like(rolled: Program, program: Program) -> Program:
    if rolled.source is None:
        return program
    likelihood = rolled.log_likelihood_named
    observed = program.observed if likelihood is None else likelihood.packs.pack(program.observed)  # pyright: ignore[reportFunctionMemberAccess]
    return replace(rolled, source=program, data=program.data, observed=observed, constant=program.constant)


def _kind(site: DiscreteSite) -> Hashable:
    """Equal for sites that can be rows of one array."""
    support = site.support
    if isinstance(support, Finite):
        allowed = None if support.allowed is None else support.allowed.tobytes()
        return support.shape, support.values.dtype, support.values.shape, support.values.tobytes(), allowed
    return support


def _joint_site(sites: list[DiscreteSite]) -> DiscreteSite:
    """An array of sites of one kind: equal, or finite ones that end at different values."""
    support, count = sites[0].support, len(sites)
    shape = (count, *support.shape)
    finite = [site.support for site in sites if isinstance(site.support, Finite)]
    if len({_kind(site) for site in sites}) > 1:
        most = max(one.num_values for one in finite)
        rows = [one.rows() for one in finite]
        values = [np.pad(part, ((0, 0), (0, most - part.shape[1])), mode="edge") for part, _ in rows]
        allowed = [np.pad(part, ((0, 0), (0, most - part.shape[1]))) for _, part in rows]
        is_allowed = np.concatenate(allowed)
        listed = np.concatenate(values)
        longest = listed[np.argmax(is_allowed.sum(axis=1))]
        is_prefix = ((listed == longest) | ~is_allowed).all()
        return DiscreteSite(
            Finite(np.where(is_allowed, listed, longest if is_prefix else listed[:, :1]), shape, is_allowed)
        )
    if isinstance(support, Finite) and support.values.ndim > 1:
        values, allowed = np.tile(support.values, (count, 1)), support.allowed
        return DiscreteSite(Finite(values, shape, None if allowed is None else np.tile(allowed, (count, 1))))
    return DiscreteSite(replace(support, shape=shape))


def _row_of(array: Any, row: int) -> Any:
    """By a slice, which takes less time to trace than an index."""
    return lax.index_in_dim(array, row, keepdims=False)


def _has_loop(program: Program) -> bool:
    """Whether there is something to roll up in the density, which is traced for other uses anyway."""
    closed = jax.make_jaxpr(program.log_density)(*program.abstract_arguments())
    if sum(1 for _ in all_equations(closed.jaxpr)) < LONG:
        return False
    simple = simplify(closed)
    return reroll(simple) is not simple


@dataclass(frozen=True, eq=False)
class _Made:
    """A function of flat x, packed z and data, rolled up.

    Attributes:
        closed: as a jaxpr.
        packs: by part (None: the whole function) which of its named results are one array.
        result: likewise a tree of the numbers of its outputs.
        is_shorter: whether there was something to roll up.
    """

    closed: ClosedJaxpr
    packs: dict[str | None, Packs]
    result: dict[str | None, Any]
    is_shorter: bool


class _Rolling:
    """Traces and rolls up the functions of a program, each once; parts of one whole together.

    Args:
        program: the user's.
        packs: which of its discrete sites are one array.
    """

    def __init__(self, program: Program, packs: Packs):
        self.program, self._packs = program, packs
        self._made: dict[Any, _Made] = {}
        self._observed = {name: (np.shape(value), np.asarray(value).dtype) for name, value in program.observed.items()}

    def make(self, fn: Any) -> _Made:
        """The function rolled up, or the whole that it is a part of."""
        whole = fn.whole if isinstance(fn, Part) else fn
        with self.program.alone():
            if whole not in self._made:
                self._made[whole] = self._roll(whole, has_parts=isinstance(fn, Part))
            return self._made[whole]

    def _roll(self, fn: Callable[..., Any], has_parts: bool) -> _Made:
        def of_packed(x: Any, z: Any, data: Any) -> Any:
            if fn is self.program.log_joint and not self._packs:
                return self.program.log_density(x, z, data)  # which has been traced
            return fn(self.program.unravel(x), self._packs.unpack(z, row_of=_row_of), data)

        x, z, data = self.program.abstract_arguments()
        stacked = self._packs.pack(z, lambda like: jax.ShapeDtypeStruct((len(like), *like[0].shape), like[0].dtype))
        closed, shapes = jax.make_jaxpr(of_packed, return_shape=True)(x, stacked, data)
        leaves, form = jax.tree.flatten(shapes)
        numbers = jax.tree.unflatten(form, range(len(leaves)))
        parts: dict[str | None, Any] = numbers if has_parts else {None: numbers}
        packs = {name: self._find_packs(part, leaves) for name, part in parts.items()}
        groups: list[list[int]] = []
        result: dict[str | None, Any] = {}
        for name, part in parts.items():
            packed = packs[name].pack(part, list) if isinstance(part, Mapping) else part
            rows, tree = jax.tree.flatten(packed, is_leaf=lambda leaf: isinstance(leaf, list))
            result[name] = jax.tree.unflatten(tree, range(len(groups), len(groups) + len(rows)))
            groups += [row if isinstance(row, list) else [row] for row in rows]
        whole = stack_results(simplify(closed), groups)
        rolled = reroll(whole)
        return _Made(simplify(rolled), packs, result, rolled is not whole)

    def _find_packs(self, part: Any, leaves: list[Any]) -> Packs:
        """Of named results of one shape, type and law, and of data of one shape."""
        if not isinstance(part, Mapping):
            return Packs()
        laws = self.program.laws
        return find_packs(
            {
                name: (leaves[i].shape, leaves[i].dtype, laws.get(name), self._observed.get(name))
                for name, i in part.items()
            }
        )


class Rolled:
    """A function of flat x, packed z and data, rolled up when it is first needed.

    Args:
        rolling: of its program.
        fn: as the program has it: of named x and z.
    """

    def __init__(self, rolling: _Rolling, fn: Any):
        self._rolling, self._fn = rolling, fn
        self._part = fn.name if isinstance(fn, Part) else None

    def __call__(self, x: Any, z: Any, data: Any) -> Any:
        """What the function returns, numbered names packed."""
        outputs = jaxpr_as_fun(self._closed)(*jax.tree.leaves((x, z, data)))
        return jax.tree.unflatten(jax.tree.structure(self._made.result[self._part]), outputs)

    @cached_property
    def packs(self) -> Packs:
        """Which of its results are one array."""
        return self._made.packs[self._part]

    @property
    def is_shorter(self) -> bool:
        """Whether there was something to roll up."""
        return self._made.is_shorter

    @property
    def _made(self) -> _Made:
        return self._rolling.make(self._fn)

    @cached_property
    def _closed(self) -> ClosedJaxpr:
        closed = self._made.closed
        outputs = [closed.jaxpr.outvars[i] for i in jax.tree.leaves(self._made.result[self._part])]
        return simplify(cut(closed, outputs))
