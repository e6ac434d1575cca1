"""A program that was written as a loop, as if it had been written with arrays.

Its functions are traced once, rolled up (`jaxpr/reroll.py`), and from then on used as jaxprs: the model itself is not
run again. Sites that the loop has numbered are one array (`packing.py`).
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
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
    packs = find_packs({name: _kind(site) for name, site in program.z.items()}, {*apart, *program.forward})
    if not packs and len(program.observed) < FEWEST and _count_equations(program) < LONG:
        return program
    rolling = _Rolling(program, packs)
    kinds = {name: (np.shape(value), np.asarray(value).dtype) for name, value in program.observed.items()}

    def rolled(fn: Any) -> Any:
        return None if fn is None else Rolled(rolling, fn, lambda name: (kinds.get(name), program.laws.get(name)))

    log_joint = rolled(program.log_joint)
    if not packs and not log_joint.is_shorter:
        return program
    likelihood, terms = rolled(program.log_likelihood_named), rolled(program.log_terms_named)
    draw_forward = program.draw_forward_named
    return replace(
        program,
        source=program,
        packs=packs,
        z=packs.pack(program.z, lambda sites: _joint_site(sites)),
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


def _kind(site: DiscreteSite) -> Hashable:
    """Equal for sites that can be rows of one array."""
    support = site.support
    if isinstance(support, Finite):
        allowed = None if support.allowed is None else support.allowed.tobytes()
        return support.shape, support.values.dtype, support.values.shape, support.values.tobytes(), allowed
    return support


def _joint_site(sites: list[DiscreteSite]) -> DiscreteSite:
    """An array of equal sites."""
    support, count = sites[0].support, len(sites)
    shape = (count, *support.shape)
    if isinstance(support, Finite) and support.values.ndim > 1:
        values, allowed = np.tile(support.values, (count, 1)), support.allowed
        return DiscreteSite(Finite(values, shape, None if allowed is None else np.tile(allowed, (count, 1))))
    return DiscreteSite(replace(support, shape=shape))


def _count_equations(program: Program) -> int:
    closed = jax.make_jaxpr(program.log_density)(*program.abstract_arguments())
    return sum(1 for _ in all_equations(closed.jaxpr))


@dataclass(frozen=True, eq=False)
class _Traced:
    """A function of flat x, packed z and data as a simplified jaxpr, and what it returns."""

    closed: ClosedJaxpr
    result: Any  # a tree of the numbers of its outputs


@dataclass(frozen=True, eq=False)
class _Rolling:
    """Traces the functions of a program, each once; parts of one whole, together."""

    program: Program
    packs: Packs
    traced: dict[Any, _Traced] = field(default_factory=dict)

    def trace(self, fn: Any) -> _Traced:
        """The function, or the whole that it is a part of and its part."""
        if not isinstance(fn, Part):
            return self._trace(fn)
        whole = self._trace(fn.whole)
        return _Traced(whole.closed, whole.result[fn.name])

    def _trace(self, fn: Callable[..., Any]) -> _Traced:
        if fn not in self.traced:

            def of_packed(x: Any, z: Any, data: Any) -> Any:
                return fn(self.program.unravel(x), self.packs.unpack(z), data)

            x, z, data = self.program.abstract_arguments()
            stacked = self.packs.pack(z, lambda like: jax.ShapeDtypeStruct((len(like), *like[0].shape), like[0].dtype))
            closed, shapes = jax.make_jaxpr(of_packed, return_shape=True)(x, stacked, data)
            leaves, tree = jax.tree.flatten(shapes)
            self.traced[fn] = _Traced(simplify(closed), jax.tree.unflatten(tree, range(len(leaves))))
        return self.traced[fn]


class Rolled:
    """A function of flat x, packed z and data, rolled up when it is first needed.

    Args:
        rolling: of its program.
        fn: as the program has it: of named x and z.
        kind: of a named result; those of different kinds are not packed together.
    """

    def __init__(self, rolling: _Rolling, fn: Any, kind: Callable[[str], Hashable]):
        self._rolling, self._fn, self._kind = rolling, fn, kind
        self._made: tuple[Any, ClosedJaxpr, bool] | None = None

    def __call__(self, x: Any, z: Any, data: Any) -> Any:
        """What the function returns, numbered names packed."""
        result, closed, _ = self._make()
        outputs = jaxpr_as_fun(closed)(*jax.tree.leaves((x, z, data)))
        return jax.tree.map(lambda i: outputs[i], result)

    @cached_property
    def packs(self) -> Packs:
        """Which of its results are one array."""
        traced = self._rolling.trace(self._fn)
        if not isinstance(traced.result, Mapping):
            return Packs()
        types = {name: traced.closed.jaxpr.outvars[i].aval for name, i in traced.result.items()}
        return find_packs({name: (t.shape, t.dtype, self._kind(name)) for name, t in types.items()})

    @property
    def is_shorter(self) -> bool:
        """Whether there was something to roll up."""
        return self._make()[2]

    def _make(self) -> tuple[Any, ClosedJaxpr, bool]:
        if self._made is None:
            with self._rolling.program.alone():
                self._made = self._made or self._roll()
        return self._made

    def _roll(self) -> tuple[Any, ClosedJaxpr, bool]:
        traced, packs = self._rolling.trace(self._fn), self.packs
        wanted, form = jax.tree.flatten(traced.result)
        part = cut(traced.closed, [traced.closed.jaxpr.outvars[i] for i in wanted])
        result = jax.tree.unflatten(form, range(len(wanted)))
        if packs:
            packed = packs.pack(result, lambda rows: rows)
            groups = [rows if name in packs.members else [rows] for name, rows in packed.items()]
            part, result = stack_results(part, groups), dict(zip(packed, range(len(groups)), strict=True))
        rolled = reroll(part)
        return result, simplify(rolled), rolled is not part
