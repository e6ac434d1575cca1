"""A program with the sum of two counts as a site in the place of one of them.

    log p(x, s, g, y) = log p(x, s, n − s, y)        n = s + g

Where only n matters of g, beside its own law, sites that met in threes (s, g, and what follows from s + g) meet in
pairs. Values of n − s that g does not have are impossible. Draws and results are told in s and g.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array

from sumout.jaxpr.flatten import flatten, write_out
from sumout.jaxpr.rows import take_rows
from sumout.jaxpr.sums_of_inputs import Copy, run_with_sums
from sumout.model.packing import Packs
from sumout.model.program import DiscreteSite, Nuisance, Program
from sumout.model.supports import Finite


@dataclass(frozen=True, eq=False)
class CountSum:
    """A sum of two sites that takes the place of one of them.

    Attributes:
        kept: the name of the one that stays.
        replaced: of the other.
        partners: for each element of the replaced site the element of the kept one that it is added to.
        lower: the smallest value of the replaced site.
        upper: its largest value.
        shape: of its array.
    """

    kept: str
    replaced: str
    partners: np.ndarray
    lower: int
    upper: int
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of the sum."""
        return f"{self.kept} + {self.replaced}"

    def replaced_of(self, total: Array, kept: Array) -> tuple[Array, Array]:
        """The replaced site, within its support, and whether it is what the sum says."""
        said = total - take_rows(kept.reshape(-1), self.partners).reshape(self.shape).astype(total.dtype)
        inside = jnp.clip(said, self.lower, self.upper)
        return inside, inside == said

    def support(self, kept: Finite) -> Finite:
        """Of the sum: all whole numbers from the least to the largest that each element can be."""
        values, allowed = kept.rows()
        highest = np.where(allowed, values, values[:, :1]).max(axis=1)[self.partners] + self.upper
        lowest = int(values[:, 0].min()) + self.lower
        listed = np.arange(lowest, int(highest.max()) + 1)
        inside = listed <= highest[:, None]
        return Finite(np.broadcast_to(listed, inside.shape).copy(), self.shape, inside)


@dataclass(frozen=True)
class SumCodes(Packs):
    """Which sites are sums of sites, beside what is packed.

    Attributes:
        sums: the sums.
        packs: of the program that has the sites themselves.
    """

    sums: tuple[CountSum, ...] = ()
    packs: Packs = field(default_factory=Packs)

    def __bool__(self) -> bool:
        return True

    def pack(self, named: Mapping[str, Any], stack: Callable[[list[Any]], Any] = np.stack) -> dict[str, Any]:
        """Values of the user's sites as values of those of the program; with any axes in front."""
        values = self.packs.pack(named, stack)
        for one in self.sums:
            if one.replaced in values and one.kept in values:
                kept, replaced = np.asarray(values[one.kept]), np.asarray(values[one.replaced])
                values[one.name] = replaced + self._partners(one, kept, replaced.ndim - len(one.shape))
        return {name: value for name, value in values.items() if name not in {one.replaced for one in self.sums}}

    def unpack(
        self, arrays: Mapping[str, Any], axis: int = 0, row_of: Callable[[Any, int], Any] | None = None
    ) -> dict[str, Any]:
        """The reverse, with the sites of the program along an axis."""
        found = dict(arrays)
        for one in self.sums:
            if one.name in found and one.kept in found:
                total = found[one.name]
                found[one.replaced] = total - self._partners(one, found[one.kept], total.ndim - len(one.shape))
        return self.packs.unpack({n: v for n, v in found.items() if n not in self._names}, axis, row_of)

    def unpack_rows(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """What is said of the elements of sites; of those that are known by a sum nothing is said."""
        return self.packs.unpack_rows({name: array for name, array in arrays.items() if name not in self._names})

    def names(self, name: str) -> tuple[str, ...]:
        """The user's names behind a name."""
        inner = next((one.replaced for one in self.sums if one.name == name), name)
        return self.packs.names(inner)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.sums)

    @staticmethod
    def _partners(one: CountSum, kept: Any, axes: int) -> Any:
        front = kept.shape[:axes]
        return kept.reshape(*front, -1)[..., one.partners].reshape(*front, *one.shape)

    def decode(self, z: Nuisance) -> tuple[Nuisance, Array]:
        """Values of the sites themselves, within their supports, and the log density of that they are right."""
        found, log_is_right = dict(z), jnp.zeros(())
        for one in self.sums:
            found[one.replaced], is_right = one.replaced_of(found.pop(one.name), z[one.kept])
            log_is_right += jnp.where(is_right, 0.0, -jnp.inf).sum()
        return found, log_is_right


def with_sums_as_sites(base: Program, sums: Collection[CountSum]) -> Program:
    """A program of finite sites with some of them replaced by their sums with others."""
    codes = SumCodes(sums=tuple(sums), packs=base.packs)
    of_replaced = {one.replaced: one for one in sums}
    sites = {}
    for name, site in base.z.items():
        one = of_replaced.get(name)
        if one is None:
            sites[name] = site
        else:
            kept = base.z[one.kept].support
            assert isinstance(kept, Finite)
            sites[one.name] = DiscreteSite(one.support(kept))

    def decoded(fn: Any) -> Any:
        return None if fn is None else Decoded(base, codes, fn)

    def rewritten(fn: Any, is_density: bool) -> Any:
        return None if fn is None else Rewritten(base, codes, fn, is_density)

    density = rewritten(base.log_joint, True)
    made = replace(
        base,
        source=base.source or base,
        packs=codes,
        z=sites,
        log_joint=lambda x, z, data: decoded(base.log_joint)(x, z, data) + codes.decode(z)[1],
        constrain_named=decoded(base.constrain_named),
        log_likelihood_named=rewritten(base.log_likelihood_named, False),
        log_joint_without_data=rewritten(base.log_joint_without_data, True),
        log_terms_named=decoded(base.log_terms_named),
        log_joint_without_jacobian=rewritten(base.log_joint_without_jacobian, True),
        draw_forward_named=base.draw_forward_named
        and (lambda key, x, z, data: base.draw_forward(key, x, codes.decode(z)[0], data)),
    )
    # Read is what computes with the sums; the guard compares it with the density as it was.
    made.remember("flat", lambda: flatten(density, *made.abstract_arguments()))
    return made


class Decoded:
    """A function of a program as one of sums: it is given the sites themselves."""

    def __init__(self, base: Program, codes: SumCodes, fn: Any):
        self._base, self._codes, self._fn = base, codes, fn
        self.packs = getattr(fn, "packs", Packs())

    def __call__(self, x: Any, z: Any, data: Any) -> Any:
        """What the function returns."""
        return self._fn(self._base.given(x), self._codes.decode(z)[0], data)


class Rewritten(Decoded):
    """The same, with the sums used wherever the function adds up their terms.

    Args:
        base: the program of the sites themselves.
        codes: the sums.
        fn: one of its functions.
        is_density: whether it is zero where a site is outside its support.
    """

    def __init__(self, base: Program, codes: SumCodes, fn: Any, is_density: bool):
        super().__init__(base, codes, fn)
        self._is_density = is_density

    def __call__(self, x: Any, z: Any, data: Any) -> Any:
        """What the function returns."""
        closed, form = self._written_out
        sites, log_is_right = self._codes.decode(z)
        by_replaced = {one.replaced: one for one in self._codes.sums}

        def sum_of(a: Copy, b: Copy) -> Any:
            for own, other in ((a, b), (b, a)):
                one = by_replaced.get(own.name)
                if one is not None and one.kept == other.name and (one.partners[own.elements] == other.elements).all():
                    return take_rows(z[one.name].reshape(-1), own.elements.ravel())
            return None

        named = dict(zip(closed.jaxpr.invars[1:], sorted(sites), strict=False))
        outputs = run_with_sums(closed, named, jax.tree.leaves((x, sites, data)), sum_of)
        result = jax.tree.unflatten(form, outputs)
        return result + log_is_right if self._is_density else result

    @cached_property
    def _written_out(self) -> tuple[ClosedJaxpr, Any]:
        x, z, data = self._base.abstract_arguments()
        fn, base = self._fn, self._base
        closed, shapes = jax.make_jaxpr(lambda x, z, data: fn(base.given(x), z, data), return_shape=True)(x, z, data)
        return write_out(closed, 1, len(z)), jax.tree.structure(shapes)
