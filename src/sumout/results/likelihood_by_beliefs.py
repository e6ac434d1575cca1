"""The log likelihood of data that each depend on one site that is summed out, from the beliefs about the sites.

With site s the only one the datum depends on, and w(k) the weight of z_s = k when all data count but those of s,

    log p(y_i | x, y_{−i}) = log Σ_k w(k) Π_j p(y_j | z_s = k, x) − log Σ_k w(k) Π_{j ≠ i} p(y_j | z_s = k, x),

j running through the data of s: for all data together one pass over the exact marginals of the sites is enough
(Bürkner, Gabry and Vehtari 2021). Nothing is divided by p(y_i | z_s = k, x), which is zero where the datum rules out a
value of its site: the sums are over the density without data, to which the terms of the data are added, and terms of −∞
are counted instead. Value k counts in the second sum if no datum but i itself rules it out.

Where the density of the datum changes at one value of the site only, as with a switch point, the second sum has two
terms: the weights of all values before that one over the density there, and likewise after.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array, Float

from sumout.compile.policy import MANY_VALUES
from sumout.eliminate.settings import make_settings, place_numbers
from sumout.eliminate.state_summation import StateSummation, build_sums_over
from sumout.eliminate.summation import Summation, as_index
from sumout.model.program import Data, Nuisance, Program
from sumout.patterns.change_points import ChangePoints, build_running
from sumout.patterns.find_changes import find_changes
from sumout.plan.plan import Plan
from sumout.structure.structure import data_operands, read_as_it_is
from sumout.tables.blocks import num_values
from sumout.tables.factor_sums import share
from sumout.tables.logsumexp import log_sum_exp


@dataclass(frozen=True, eq=False)
class LikelihoodByBeliefs:
    """The log likelihood of data with one summed site each at most.

    Attributes:
        program: whose data they are.
        summation: the sums over z of its density without data.
        owners: for each of the observed arrays the site each datum depends on, −1 for none.
        changes: likewise the number of the value at which the density of each datum changes, 0 where it never does;
            None where some change more than once, or the sites have few values.
    """

    program: Program
    summation: Summation | StateSummation
    owners: dict[str, np.ndarray]
    changes: dict[str, np.ndarray] | None

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """For each observed array the log likelihoods of its data."""
        structure, summed = self.summation.structure, self.summation.summed
        count = _most_values(self.summation)
        settings = make_settings(structure, summed, count)

        def at(number: Array) -> dict[str, Array]:
            placed = place_numbers(z, settings, number)
            full = {name: jnp.broadcast_to(value, z[name].shape) for name, value in placed.items()}
            terms = self.program.log_likelihood(x, full, data)
            return {name: terms[name] for name in self.owners}

        numbers = jnp.arange(count) if self.changes is None else jnp.array([0, count - 1])
        shapes, terms, is_zero = {}, {}, {}
        for name, table in jax.vmap(at)(numbers).items():
            shapes[name], flat = table.shape[1:], table.reshape(len(numbers), -1)
            is_zero[name] = jnp.isnan(flat) | (flat == -jnp.inf)
            terms[name] = jnp.where(is_zero[name], 0.0, flat)
        met = self._met
        real = jnp.result_type(float)
        added = jnp.zeros((2, count, len(met)), real)
        for name, sums in self._sums.items():
            added += jax.vmap(sums)(jnp.stack([terms[name], is_zero[name].astype(real)]))
        further, zeros = jnp.zeros((2, count, structure.num_sites), real).at[..., as_index(met)].set(added)
        weights = self.summation.log_beliefs(x, z, data, further, zeros)[:, as_index(met)]
        zeros = zeros[:, as_index(met)]
        leave_out = self._leave_out if self.changes is None else self._leave_out_between
        all_data = log_sum_exp(jnp.where(zeros == 0, weights, -jnp.inf))
        found = {}
        for name, owner in self.owners.items():
            alone = jnp.where(is_zero[name][0], -jnp.inf, terms[name][0])
            if (owner >= 0).any():
                site = np.searchsorted(met, np.maximum(owner, met[0]))
                cavity = log_sum_exp(leave_out(name, site, terms[name], is_zero[name], weights, zeros))
                alone = jnp.where(owner >= 0, all_data[as_index(site)] - cavity, alone)
            found[name] = alone.reshape(shapes[name])
        return found

    @cached_property
    def _met(self) -> np.ndarray:
        """The sites that data depend on."""
        return np.unique(np.concatenate([owner[owner >= 0] for owner in self.owners.values()]))

    @property
    def _sums(self) -> dict[str, Callable[[Array], Array]]:
        """How the terms of data, at all values or at the first and the last, are added up for each value and site."""
        owners = {name: owner for name, owner in self.owners.items() if (owner >= 0).any()}
        places = {name: np.where(owner < 0, -1, np.searchsorted(self._met, owner)) for name, owner in owners.items()}
        size, count = len(self._met), _most_values(self.summation)
        if self.changes is None:
            return {name: _add_all(owner, size) for name, owner in places.items()}
        return {name: _add_between(owner, size, count, self.changes[name]) for name, owner in places.items()}

    def _leave_out(
        self, name: str, site: np.ndarray, terms: Array, is_zero: Array, weights: Array, zeros: Array
    ) -> Float[Array, "K n"]:
        """The log weights of the values of each datum's site without the datum."""
        del name
        index = as_index(site)
        return jnp.where(zeros[:, index] == is_zero, weights[:, index] - terms, -jnp.inf)

    def _leave_out_between(
        self, name: str, site: np.ndarray, terms: Array, is_zero: Array, weights: Array, zeros: Array
    ) -> Float[Array, "2 n"]:
        """The same, for all values before the one at which the density of the datum changes, and for all others."""
        assert self.changes is not None
        change, rows = self.changes[name].ravel(), is_zero.astype(int)
        # By how many zeros a value has: none, or one, which then is the datum's own where that is zero.
        each = jnp.where(jnp.stack([zeros == 0, zeros == 1], axis=1), weights[:, None], -jnp.inf)
        both = jnp.stack([each, each[::-1]], axis=1)  # values from the first on, and from the last
        nothing = jnp.full(both.shape[1:], -jnp.inf, both.dtype)
        totals = jnp.concatenate([nothing[None], jax.lax.scan(_add, nothing, both)[1]])  # of the first k of them
        before, after = totals[change, 0, rows[0], site], totals[len(weights) - change, 1, rows[1], site]
        return jnp.stack([before, after]) - terms


def _add(total: Array, step: Array) -> tuple[Array, Array]:
    """Log weights, one by one; `jnp.logaddexp` looks for NaN as well, and takes half as long again to compile."""
    highest = jnp.maximum(total, step)
    added = highest + jnp.log1p(jnp.exp(jnp.minimum(total, step) - highest))
    added = jnp.where(highest == -jnp.inf, highest, added)
    return added, added


def _add_all(owner: np.ndarray, size: int) -> Callable[[Array], Array]:
    elements = np.flatnonzero(owner >= 0)
    owned: Any = share(elements, owner[elements], owner.shape, size)
    return jax.vmap(lambda flat: owned.sums(flat, size))


def _add_between(owner: np.ndarray, size: int, count: int, changes: np.ndarray) -> Callable[[Array], Array]:
    elements = np.flatnonzero(owner >= 0)
    running = build_running(elements, owner[elements], changes, size, count)
    return lambda ends: running(*ends)


def _most_values(summation: Summation | StateSummation) -> int:
    return int(num_values(summation.structure)[summation.summed].max(initial=1))


def build_likelihood_by_beliefs(
    plan: Plan, bare: Program, closed: ClosedJaxpr, owners: dict[str, np.ndarray]
) -> LikelihoodByBeliefs | None:
    """The log likelihood of data that each depend on one summed site at most; None where the rest cannot be summed.

    Args:
        plan: says which sites are summed out.
        bare: the program without the terms of these data.
        closed: their log densities, as the model has them, one output for each array.
        owners: for each array the site each datum depends on, −1 for none.
    """
    assert plan.summation is not None
    summation = build_sums_over(read_as_it_is(bare), plan.summation.summed, plan.patterns)
    if summation is None:
        return None
    changes = _find_changes(closed, list(owners), summation) if ChangePoints() in plan.patterns else None
    return LikelihoodByBeliefs(plan.structure.program, summation, owners, changes)


def _find_changes(
    closed: ClosedJaxpr, names: list[str], summation: Summation | StateSummation
) -> dict[str, np.ndarray] | None:
    """At which value of its site the density of each datum changes, if once at most and the values are many."""
    program = summation.structure.program
    count = _most_values(summation)
    places = dict(zip(sorted(program.z), closed.jaxpr.invars[1:], strict=False))
    settings = make_settings(summation.structure, summation.summed, count)
    outputs = closed.jaxpr.outvars
    is_plain = all(setting.chosen is None and not program.z[name].event_shape for name, setting in settings.items())
    if count < MANY_VALUES or not is_plain or any(isinstance(v, Literal) for v in outputs):
        return None
    sites = {
        places[name]: np.broadcast_to(setting.values, (count, program.z[name].num_elements))
        .reshape(count, *program.z[name].shape)
        .astype(program.z[name].dtype)
        for name, setting in settings.items()
    }
    data = closed.jaxpr.invars[1 + len(program.z) :]
    known = {v: leaf for v, leaf in zip(data, data_operands(program), strict=True) if leaf.known is not None}
    changes = find_changes(closed, [v for v in outputs if not isinstance(v, Literal)], sites, known)
    found = {name: at for name, at in zip(names, changes, strict=True) if at is not None}
    return found if len(found) == len(names) else None
