"""Where the log density is not finite: everywhere, at some points, or beyond an edge that gradients do not see.

The checks say where. Which terms are not finite, or have no finite gradient, and at which values of z, is found by
evaluating them one by one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array

from sumout.checks.examination import NUM_POINTS, ROUNDS, Examination, Finding
from sumout.compile.ahead import QUICK_COMPILE
from sumout.errors import StartError
from sumout.jaxpr.flatten import flatten
from sumout.model.initial_values import value_number
from sumout.model.program import Data, Nuisance, Program
from sumout.model.supports import Finite
from sumout.structure.structure import Structure, read
from sumout.threads import attentive_jit

FEWEST_NATS = 1000.0  # a log density that tends to −∞ smoothly has fallen this far before it overflows
BISECTIONS = 40  # to 1e-12 of the distance
MOST_EDGES = 3  # points beyond an edge to look at
MOST_POINTS = 4  # x at which terms are evaluated
MOST_BRANCHES = 8  # values of z that are tried, all sites at the same


def check_start(exam: Examination) -> Iterator[Finding]:
    """There must be a point from which a chain can start."""
    if not exam.is_sound.any():
        attempts = f"{(ROUNDS + 1) * NUM_POINTS} random points"
        yield Finding(explain_no_start(exam.program, exam.program.log_density, exam.x, exam.z, attempts), StartError)


def check_nan(exam: Examination) -> Iterator[Finding]:
    """NaN at some points: a proposal there is rejected without a reason."""
    if not exam.is_sound.any():
        return
    is_nan = np.isnan(exam.tried) | (exam.tried == np.inf)
    if is_nan.any():
        points, tries = (where[:NUM_POINTS] for where in np.nonzero(is_nan))
        told = nonfinite_terms(
            exam.program, exam.tried_x[points], {n: z[points, tries] for n, z in exam.tried_z.items()}
        )
        yield Finding(
            f"the log density is NaN or infinite at {is_nan.sum()} of {is_nan.size} random points. {' '.join(told)} "
            "Look for a scale that can be negative, a logarithm or root of something negative, 0/0 or an overflow, and "
            "give the variable behind it the support it needs."
        )
    broken = np.isfinite(exam.values) & ~np.isfinite(exam.gradients).all(axis=1)
    if broken.any():
        told = nonfinite_gradients(exam.program, exam.x[broken], {name: z[broken] for name, z in exam.z.items()})
        named = sorted({exam.name(int(i)) for i in np.flatnonzero((~np.isfinite(exam.gradients[broken])).any(axis=0))})
        yield Finding(
            f"the gradient with respect to {', '.join(named[:5])} is not finite at {broken.sum()} of {NUM_POINTS} "
            f"random points where the log density is. {' '.join(told)} A jnp.where by x does not help: the derivative "
            "of the case that is not chosen is computed, too."
        )


def check_edges(exam: Examination) -> Iterator[Finding]:
    """A density that drops to zero discontinuously: the gradient leads chains right to the edge."""
    if not len(exam.anchors) or exam.program.num_x == 0:
        return
    anchor = int(exam.anchors[0])
    for point in np.flatnonzero(exam.values == -np.inf)[:MOST_EDGES]:
        if np.isfinite(exam.evaluate_at(anchor, exam.x[point][None])[0][0]):
            continue  # it is z that is impossible there
        inside, outside = _bisect(exam, anchor, exam.x[point])
        height = exam.evaluate_at(anchor, inside[None])[0][0]
        if exam.values[anchor] - height > FEWEST_NATS:
            continue
        told = ""
        if exam.program.log_terms_named is not None:
            z = {name: value[None] for name, value in exam.at(anchor).items()}
            told = " " + " ".join(nonfinite_terms(exam.program, outside[None], z))
        yield Finding(
            f"the log density drops from {height:.1f} to −∞ discontinuously as "
            f"{', '.join(_movers(exam, anchor, outside))} changes.{told} The support of something seems "
            "to depend on x, and gradients do not see where it ends: give the variable the support that the data leave "
            "it (an interval, a shifted or scaled variable)."
        )
        return


def _bisect(exam: Examination, anchor: int, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last finite point, as far as can be told, on the way from an anchor to a point, and the first beyond."""
    inside = exam.x[anchor]
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        is_finite = np.isfinite(exam.evaluate_at(anchor, (inside + middle * (outside - inside))[None])[0][0])
        low, high = (middle, high) if is_finite else (low, middle)
    return inside + low * (outside - inside), inside + high * (outside - inside)


def _movers(exam: Examination, anchor: int, outside: np.ndarray) -> list[str]:
    """Names of the variables of which one alone leads across the edge; all, where it takes several."""
    alone, start = [], 0
    for name, site in exam.program.x.items():
        x = np.array(exam.x[anchor])
        x[start : start + site.size] = outside[start : start + site.size]
        start += site.size
        if not np.isfinite(exam.evaluate_at(anchor, x[None])[0][0]):
            alone.append(f"'{name}'")
    return alone or [f"'{name}'" for name in exam.program.x][:5]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a log density.

    Attributes:
        names: as they are called in messages.
        sites: for each term its name in the program; None where it has none.
        values: `(x, z, data) -> the array of each term`, differentiated as the program is.
    """

    names: Sequence[str]
    sites: Sequence[str | None]
    values: Callable[[Array, Nuisance, Data], Sequence[Array]]


def explain_no_start(
    program: Program, log_density: Callable[[Array, Nuisance, Data], Array], x: Any, z: Mapping[str, Any], attempts: str
) -> str:
    """The message where no start was found: what is not finite there; x and z have a leading axis."""
    one = {name: jnp.asarray(value[-1]) for name, value in z.items()}
    last = jnp.asarray(x[-1]), one, program.data
    value, gradient = attentive_jit(jax.value_and_grad(log_density), compiler_options=QUICK_COMPILE)(*last)
    is_finite = math.isfinite(value)
    lines = [f"no start with a finite log density and gradient was found for '{program.name}' in {attempts}."]
    lines += nonfinite_terms(program, x, z) if not is_finite else nonfinite_gradients(program, x, z)
    if not is_finite:
        lines.append(f"At the last one the log density is {float(value)}.")
    broken = [name for name, g in program.unravel(gradient).items() if not np.isfinite(np.asarray(g)).all()]
    if broken and is_finite:
        lines.append(f"Its gradient is not finite in {', '.join(broken)}.")
    values = attentive_jit(program.constrain)(*last)  # compiled, as NumPyro would check numbers it can see
    shown = [
        f"{name} = {np.array2string(np.asarray(v), precision=3, threshold=4)}"
        for name, v in [*values.items(), *one.items()]
    ]
    lines.append("There: " + "; ".join(shown[:8]) + ".")
    return " ".join(lines)


def nonfinite_terms(program: Program, x: Any, z: Mapping[str, Any]) -> list[str]:
    """The terms that are not finite at these points, in words; if there are such, those that are so whatever z."""
    found = _nonfinite_values(program, x, z)
    for name, array in program.data.items():
        values = np.asarray(array)
        if values.dtype.kind in "fc" and not np.isfinite(values).all():
            what = "NaN" if np.isnan(values).any() else "infinite values"
            found.append(f"The data '{name or 'data'}' contain {what}; remove them or mask them in the model.")
    return found


def nonfinite_gradients(program: Program, x: Any, z: Mapping[str, Any]) -> list[str]:
    """The terms that are finite at these points but have no finite gradient, in words."""
    terms, branches = _terms_of(program), Branches(program, z)

    def gradients(x: Array, z: Nuisance, data: Data) -> list[Array]:
        def total(x: Array, number: int) -> Array:
            values = terms.values(x, z, data)[number]
            return jnp.where(jnp.isfinite(values), values, 0.0).sum()  # where the density is zero no gradient is needed

        return [jax.grad(total)(x, number) for number in range(len(terms.names))]

    broken = [~np.isfinite(found) for found in branches.evaluate(gradients, x, program.data)]  # (point, branch, num_x)
    lines = []
    for name, where in zip(terms.names, broken, strict=True):
        if where.any():
            by_name: Any = program.unravel(jnp.asarray(where.any(axis=(0, 1))))
            named = [n for n, part in by_name.items() if np.any(part)]
            lines.append(
                f"{name} is finite, but its gradient with respect to {', '.join(named)} is not"
                f"{branches.describe(where.any(axis=(0, 2)))}: look for a root, a power or a logarithm at its "
                "singularity, or for an overflow, and keep its argument away from there."
            )
    return lines


def _nonfinite_values(program: Program, x: Any, z: Mapping[str, Any]) -> list[str]:
    terms, branches = _terms_of(program), Branches(program, z)
    tables = [np.asarray(v, float) for v in branches.evaluate(terms.values, x, program.data)]
    broken = [~np.isfinite(v) for v in tables]
    # Elements that are broken at all points, whatever z; else at all points for some z; else at some.
    measures = (lambda b: b.all(axis=(0, 1)), lambda b: b.all(axis=0).any(axis=0), lambda b: b.any(axis=(0, 1)))
    for measure in measures:
        elements = [measure(b) for b in broken]
        if any(e.any() for e in elements):
            return [
                _describe(program, terms, i, tables[i], np.asarray(elements[i]), branches)
                for i in range(len(tables))
                if elements[i].any()
            ]
    return []


def _describe(
    program: Program, terms: Terms, number: int, values: np.ndarray, elements: Any, branches: "Branches"
) -> str:
    """One term that is not finite: how many of its elements, at which z, the first of its data, and what to do."""
    index = tuple(int(i) for i in np.argwhere(elements)[0])
    seen = values[(..., *index)]  # (point, branch)
    seen_broken = seen[~np.isfinite(seen)]
    what = "NaN" if np.isnan(seen_broken).any() else "+∞" if (seen_broken == np.inf).any() else "−∞"
    many = f" for {int(elements.sum())} of its {elements.size} elements" if elements.size > 1 else ""
    words = f"{terms.names[number]} is {what}{many}{branches.describe((~np.isfinite(seen)).any(axis=0))}"
    site = terms.sites[number]
    datum = None if site is None else program.observed.get(site)
    if datum is not None and np.shape(datum)[: len(index)] == elements.shape:
        place = f"[{', '.join(map(str, index))}]" if index else ""
        words += f"; there its value is {site}{place} = {np.asarray(datum)[index]}"
    return f"{words}. {_advice(what, datum is not None, bool((~np.isfinite(seen)).all()))}"


def _advice(what: str, is_observed: bool, is_always: bool) -> str:
    if what == "NaN":
        return "Look for a negative scale, a logarithm or root of something negative, 0/0 or an overflow behind it."
    if what == "+∞":
        return "Look for a scale of zero or a density without bound, and give it a prior that keeps away from there."
    if not is_always:
        return (
            "Other values of z have probability zero by other terms, or were not tried together: look for terms that "
            "contradict it."
        )
    if is_observed:
        return "Its parameters give that value probability zero: check the value, and what the parameters can be."
    return "The density is zero everywhere: look at the supports of what it depends on."


class Branches:
    """Values of z at which terms are evaluated: those given, all sites at their first value, at their second and so on.

    Args:
        program: whose sites they are.
        z: values for each point.
    """

    def __init__(self, program: Program, z: Mapping[str, Any]):
        self.program, self.given = program, {name: np.asarray(value) for name, value in z.items()}
        counts = [s.support.num_values for s in program.z.values() if isinstance(s.support, Finite)]
        self.num_values = min(max(counts, default=0), MOST_BRANCHES)

    def evaluate(self, function: Callable[..., Any], x: Any, data: Data) -> list[np.ndarray]:
        """The arrays that a function of x, z and data gives, with axes (point, branch) in front."""
        x = np.asarray(x)[-MOST_POINTS:]
        every = [self._at(number, len(x)) for number in range(self.num_values + 1)]
        z = {name: np.stack([one[name] for one in every], axis=1) for name in self.program.z}
        over_z = jax.vmap(function, in_axes=(None, 0, None), axis_size=len(every))
        compiled = attentive_jit(
            jax.vmap(over_z, in_axes=(0, 0, None), axis_size=len(x)), compiler_options=QUICK_COMPILE
        )
        return [np.asarray(a) for a in compiled(jnp.asarray(x), z, data)]

    def describe(self, where: Any) -> str:
        """At which branches something is seen, in words; empty where it does not depend on z."""
        if not self.num_values or not self.program.z:
            return ""
        if where.all():
            return ", whatever the values of z that were tried"
        shown = []
        for number in np.flatnonzero(where[1:]):
            named = {name: self._values(name, int(number)) for name in self.program.z if self._is_finite(name)}
            shown.append(", ".join(f"{name} = {value.ravel()[0]}" for name, value in named.items()))
        return f" at {' or '.join(shown)}" if shown else " at the values of z given below"

    def _at(self, number: int, count: int) -> dict[str, np.ndarray]:
        """Z of a branch at so many points: as given or, where sites are finite, at the value of that number less 1."""
        at = {}
        for name in self.program.z:
            given = self.given[name][-count:]
            if number and self._is_finite(name):
                given = np.broadcast_to(self._values(name, number - 1), given.shape)
            at[name] = given
        return at

    def _is_finite(self, name: str) -> bool:
        return isinstance(self.program.z[name].support, Finite)

    def _values(self, name: str, number: int) -> np.ndarray:
        return value_number(self.program.z[name], number)


def _terms_of(program: Program) -> Terms:
    return _factors_of(read(program)) if program.log_terms_named is None else _named_terms_of(program)


def _named_terms_of(program: Program) -> Terms:
    named = program.log_terms
    arguments = program.abstract_arguments()
    sites = [name for name, shape in jax.eval_shape(named, *arguments).items() if math.prod(shape.shape)]
    closed = flatten(lambda *args: [named(*args)[name] for name in sites], *arguments)
    names = [_name_term(name, program.laws.get(name, "")) for name in sites]
    return Terms(names, sites, lambda *args: jaxpr_as_fun(closed)(*jax.tree.leaves(args)))


def _name_term(site: str, law: str) -> str:
    if law.startswith("Unit"):  # what NumPyro makes of a factor
        return f"The factor '{site}'"
    return f"The log density of '{site}'" + (f" ({law})" if law else "")


def _factors_of(structure: Structure) -> Terms:
    """Of a plain density, the factors: they are known by the discrete sites they depend on."""
    scopes, names = structure.scopes, []
    ends = np.cumsum([math.prod(shape) for shape in structure.factor_shapes])
    for start, end in zip([0, *ends], ends, strict=False):
        met = np.asarray(scopes[start:end].sum(axis=0)).ravel() > 0
        sites = [f"'{name}'" for name, numbers in structure.site_numbers.items() if met[numbers].any()]
        names.append(f"The term that depends on {', '.join(sites)}")
    rest = "The part of the log density in which no discrete variable occurs"

    def values(x: Array, z: Nuisance, data: Data) -> list[Array]:
        factors = structure.factors(x, z, data)
        masked = [jnp.where(live, f, 0.0) for f, live in zip(factors, structure.factorisation.live, strict=True)]
        return [*masked, structure.rest(x, z, data)]

    return Terms([*names, rest], [None] * (len(names) + 1), values)
