"""The one way through the equations of a jaxpr, forwards and backwards.

A pass over a program finds something for every variable (a value, a scope, a degree, a weight), kept in an environment:
a dict by variable. It says what one equation does; reading operands, storing results and entering what an equation
calls is done here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxprs_in_params

T = TypeVar("T")

Atom = Any  # a Var or a Literal


def value_of(literal: Literal) -> Any:
    """What a literal is in a pass over values."""
    return literal.val


def variables(atoms: Iterable[Atom]) -> list[Any]:
    """Those atoms that are not literals."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def shape_of(atom: Atom) -> tuple[int, ...]:
    """Of a variable or literal."""
    return atom.aval.shape


def read(env: dict[Var, T], atoms: Iterable[Atom], of_literal: Callable[[Literal], T] = value_of) -> list[T]:
    """What was found for each of some variables and literals."""
    return [of_literal(atom) if isinstance(atom, Literal) else env[atom] for atom in atoms]


def arguments(jaxpr: Jaxpr, consts: Iterable[T], args: Iterable[T]) -> dict[Var, T]:
    """The environment that a walk starts from."""
    return dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))


def walk(
    eqns: Iterable[Any],
    env: dict[Var, T],
    step: Callable[[Any, list[T]], Iterable[T]],
    of_literal: Callable[[Literal], T] = value_of,
) -> dict[Var, T]:
    """Walk forwards: `step(eqn, operands)` gives the results of an equation, which go into `env`."""
    for eqn in eqns:
        operands = [of_literal(v) if isinstance(v, Literal) else env[v] for v in eqn.invars]
        env.update(zip(eqn.outvars, step(eqn, operands), strict=True))
    return env


def run(
    jaxpr: Jaxpr,
    consts: Iterable[T],
    args: Iterable[T],
    step: Callable[[Any, list[T]], Iterable[T]],
    of_literal: Callable[[Literal], T] = value_of,
) -> list[T]:
    """The results of a jaxpr by a walk through its equations."""
    env = walk(jaxpr.eqns, arguments(jaxpr, consts, args), step, of_literal)
    return read(env, jaxpr.outvars, of_literal)


def walk_back(
    eqns: Sequence[Any],
    env: dict[Var, T],
    step: Callable[[Any, list[T | None]], Iterable[T | None]],
    join: Callable[[T, T], T],
) -> dict[Var, T]:
    """Walk backwards through those equations that lead to a variable in `env`, into which all goes that is found.

    Args:
        eqns: in the order in which they are run.
        env: what is known of the variables that the walk starts from.
        step: from an equation and what was found for its results, None where nothing was, what its operands get by
            way of it; None for an operand that gets nothing.
        join: puts together what a variable gets by way of several equations.
    """
    for eqn in reversed(eqns):
        found = [env.get(v) for v in eqn.outvars]
        if all(one is None for one in found):
            continue
        for atom, part in zip(eqn.invars, step(eqn, found), strict=True):
            if part is not None and not isinstance(atom, Literal):
                env[atom] = join(env[atom], part) if atom in env else part
    return env


def needed(eqns: Sequence[Any], outputs: Iterable[Atom], given: Collection[Var] = ()) -> list[Any]:
    """The equations that lead to some variables, in their order; nothing needs to lead to those in `given`."""
    kept, given = [], set(given)

    def step(eqn: Any, _: Any) -> list[bool | None]:
        kept.append(eqn)
        return [None if isinstance(v, Literal) or v in given else True for v in eqn.invars]

    walk_back(eqns, dict.fromkeys(set(variables(outputs)) - given, True), step, lambda one, _: one)
    return kept[::-1]


def cut(closed: ClosedJaxpr, outputs: Sequence[Atom], given: Collection[Var] = ()) -> ClosedJaxpr:
    """The part of a program that `outputs` need; variables in `given` are arguments, after those there are already."""
    jaxpr, given = closed.jaxpr, list(dict.fromkeys(given))
    invars = [*jaxpr.invars, *(v for v in given if v not in jaxpr.invars)]
    # What an equation computes beside what is needed of it is not to take the place of an argument.
    spare = set(given)
    eqns = [
        eqn
        if spare.isdisjoint(eqn.outvars)
        else eqn.replace(outvars=[Var(v.aval) if v in spare else v for v in eqn.outvars])
        for eqn in needed(jaxpr.eqns, outputs, given)
    ]
    return ClosedJaxpr(jaxpr.replace(invars=invars, outvars=list(outputs), eqns=eqns), closed.consts)


def following(closed: ClosedJaxpr, start: Iterable[Var]) -> set[Var]:
    """Some variables, and all that are computed from them."""
    found = set(start)
    for eqn in closed.jaxpr.eqns:
        if not found.isdisjoint(variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


# What an equation calls.


def opened(closed: ClosedJaxpr | Jaxpr) -> tuple[Jaxpr, Sequence[Any]]:
    """A jaxpr and its constants."""
    return (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, ())


def body(eqn: Any) -> tuple[Jaxpr, Sequence[Any]]:
    """The function that an equation calls, and its constants."""
    return opened(next(eqn.params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in eqn.params))


def all_equations(jaxpr: Jaxpr, seen: set[int] | None = None) -> Iterator[Any]:
    """Of a jaxpr and of all that it calls, each once."""
    seen = set() if seen is None else seen
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    for eqn in jaxpr.eqns:
        yield eqn
        yield from equations_within(eqn, seen)


def equations_within(eqn: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Of all that an equation calls, each once."""
    for inner in jaxprs_in_params(eqn.params):
        yield from all_equations(inner, seen)


def names_in(closed: ClosedJaxpr) -> set[str]:
    """Names of all primitives that are run."""
    return {eqn.primitive.name for eqn in all_equations(closed.jaxpr)}
