"""Which term of a log density is not finite, by name."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.compiling.ahead import QUICK_COMPILE
from sumout.program import Data, Nuisance, Program
from sumout.reading.structure import Structure, read


def describe_failure(
    program: Program, log_density: Callable[[Array, Nuisance, Data], Array], x: Any, z: Mapping[str, Any], tries: str
) -> str:
    """Say what is not finite where no start was found, as closely as can be told; x and z have a leading axis."""
    one = {name: jnp.asarray(value[-1]) for name, value in z.items()}
    value, gradient = jax.value_and_grad(log_density)(jnp.asarray(x[-1]), one, program.data)
    lines = [f"no start with a finite log density was found for '{program.name}' in {tries}."]
    lines += blame(program, x, z)
    if not math.isfinite(value):
        lines.append(f"At the last one the log density is {float(value)}.")
    broken = [name for name, g in program.unravel(gradient).items() if not np.isfinite(np.asarray(g)).all()]
    if broken:
        lines.append(f"Its gradient is not finite in {', '.join(broken)}.")
    values = jax.jit(program.constrain)(jnp.asarray(x[-1]), one, program.data)  # as NumPyro checks numbers it sees
    shown = [
        f"{name} = {np.array2string(np.asarray(v), precision=3, threshold=4)}"
        for name, v in [*values.items(), *one.items()]
    ]
    lines.append("There: " + "; ".join(shown[:8]) + ".")
    lines.append("Check that the data lie in the support of their distributions and that priors are not degenerate.")
    return " ".join(lines)


def blame(program: Program, x: Any, z: Mapping[str, Any]) -> list[str]:
    """In words, the terms that are not finite at most of these points; x and z have a leading axis."""
    found = _blame_terms(program, x, z) if program.log_terms_named is not None else _blame_factors(read(program), x, z)
    for name, array in program.data.items():
        values = np.asarray(array)
        if values.dtype.kind in "fc" and not np.isfinite(values).all():
            what = "NaN" if np.isnan(values).any() else "infinite values"
            found.append(f"The data '{name or 'data'}' contain {what}; remove them or mask them in the model.")
    return found


def _blame_terms(program: Program, x: Any, z: Mapping[str, Any]) -> list[str]:
    terms_named = program.log_terms_named
    assert terms_named is not None

    def terms(x: Any, z: Nuisance, data: Any) -> dict[str, Any]:
        return terms_named(program.unravel(x), z, data)

    compiled = jax.jit(jax.vmap(terms, in_axes=(0, 0, None)), compiler_options=QUICK_COMPILE)
    values = {name: np.asarray(v, float) for name, v in compiled(jnp.asarray(x), z, program.data).items()}
    share = {name: (~np.isfinite(v)).reshape(len(v), -1).any(axis=1).mean() for name, v in values.items() if v.size}
    worst = max(share.values(), default=0.0)
    return [_describe(program, name, values[name]) for name in share if share[name] == worst > 0]


def _describe(program: Program, name: str, values: np.ndarray) -> str:
    """One term that is not finite: how many of its elements, and the first of its data."""
    broken = ~np.isfinite(values)
    elements = broken.all(axis=0) if broken.all(axis=0).any() else broken.any(axis=0)
    index = tuple(int(i) for i in np.argwhere(elements)[0])
    seen = values[(..., *index)]
    what = "NaN" if np.isnan(seen).any() else "+∞" if (seen == np.inf).any() else "−∞"
    law = f" ({program.laws[name]})" if name in program.laws else ""
    many = f" for {int(elements.sum())} of its {elements.size} elements" if elements.size > 1 else ""
    words = f"The log density of '{name}'{law} is {what}{many}"
    datum = program.observed.get(name)
    if datum is not None and np.shape(datum)[: len(index)] == elements.shape:
        place = f"[{', '.join(map(str, index))}]" if index else ""
        words += f"; there its value is {name}{place} = {np.asarray(datum)[index]}"
    return words + "."


def _blame_factors(structure: Structure, x: Any, z: Mapping[str, Any]) -> list[str]:
    """Of a plain density, the factors: they are known by the discrete sites they depend on."""

    def parts(x: Any, z: Nuisance, data: Any) -> tuple[Any, Any]:
        return structure.factors(x, z, data), structure.rest(x, z, data)

    compiled = jax.jit(jax.vmap(parts, in_axes=(0, 0, None)), compiler_options=QUICK_COMPILE)
    factors, rest = compiled(jnp.asarray(x), z, structure.program.data)
    flat = np.concatenate([np.zeros((len(x), 0)), *(np.asarray(f).reshape(len(x), -1) for f in factors)], axis=1)
    broken = ~np.isfinite(flat[:, structure.is_live])
    always = broken.all(axis=0) if broken.all(axis=0).any() else broken.any(axis=0)
    found = []
    if always.any():
        sites = np.asarray(structure.scopes[np.flatnonzero(structure.is_live)[always]].sum(axis=0)).ravel() > 0
        names = [f"'{name}'" for name, numbers in structure.site_numbers.items() if sites[numbers].any()]
        found.append(f"The terms that depend on {', '.join(names)} are not finite.")
    if not np.isfinite(np.asarray(rest)).all():
        found.append("The part of the log density in which no discrete variable occurs is not finite.")
    return found
