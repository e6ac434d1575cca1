"""The log likelihood of every datum with its local z summed out, for leave-one-out cross-validation.

What counts for datum i is how well the others predict it, log p(y_i | x, y_{−i}); where data are independent given x,
as in a mixture, that is log p(y_i | x). With site s the only one the datum depends on,

    log p(y_i | x, y_{−i}) = −log Σ_k p(z_s = k | x, y) / p(y_i | z_s = k, x),

for which the exact marginals of the sites are all that is needed (Bürkner, Gabry and Vehtari 2021). Where the density
of the datum changes at one value of the site only, as with a switch point, the sum has two terms: the probability of
all values before that one over the density there, and likewise after.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array

from sumout.marginal.summation import Summation
from sumout.marginal.tables import make_settings, place_numbers
from sumout.nuisance.gibbs import log_sum_columns
from sumout.nuisance.values import num_values
from sumout.plan import Plan
from sumout.program import Data, Nuisance, Program
from sumout.reading.changes import find_changes
from sumout.reading.flatten import flatten
from sumout.reading.structure import element_scopes

MANY = 16  # values


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The log likelihood of every datum of a program.

    Attributes:
        program: whose data they are.
        summation: the sites that are summed out.
        owners: for each observed array the site each datum depends on, −1 for none.
        changes: likewise the number of the value at which the density of each datum changes, 0 where it never does;
            None where some change more than once, or the sites have few values.
    """

    program: Program
    summation: Summation
    owners: dict[str, np.ndarray]
    changes: dict[str, np.ndarray] | None = None

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """For each observed array the log likelihoods of its data."""
        log_marginals = self.summation.log_marginals(x, z, data)
        count = log_marginals.shape[1]
        settings = make_settings(self.summation.structure, self.summation.summed, count)

        def at(number: Array) -> dict[str, Array]:
            placed = place_numbers(z, settings, number)
            full = {name: jnp.broadcast_to(value, z[name].shape) for name, value in placed.items()}
            return self.program.log_likelihood(x, full, data)

        if self.changes is not None:
            ends = jax.vmap(at)(jnp.array([0, count - 1]))
            return {name: self._between(ends[name], log_marginals, name) for name in self.owners}
        tables = jax.vmap(at)(jnp.arange(count))
        return {name: self._one(tables[name], log_marginals, owner) for name, owner in self.owners.items()}

    def _one(self, table: Array, log_marginals: Array, owner: np.ndarray) -> Array:
        shape = table.shape[1:]
        table = table.reshape(table.shape[0], -1)
        marginals = log_marginals[np.maximum(owner, 0)].T
        cavity = jnp.where(marginals == -jnp.inf, -jnp.inf, marginals - table)
        return jnp.where(owner >= 0, -log_sum_columns(cavity), table[0]).reshape(shape)

    def _between(self, ends: Array, log_marginals: Array, name: str) -> Array:
        """From the densities at the first value and at the last."""
        assert self.changes is not None
        owner, change = self.owners[name], self.changes[name].ravel()
        both = jnp.stack([log_marginals.T, log_marginals.T[::-1]], axis=1)
        totals = jax.lax.scan(_add, jnp.full(both.shape[1:], -jnp.inf), both)[1]  # before and after each value
        until, since = totals[:, 0, 0].T, totals[::-1, 1, 1].T
        site = np.maximum(owner, 0)
        marginals = jnp.stack([until[site, change], since[site, change]])
        table = ends.reshape(2, -1)
        cavity = jnp.where(marginals == -jnp.inf, -jnp.inf, marginals - table)
        return jnp.where(owner >= 0, -log_sum_columns(cavity), table[0]).reshape(ends.shape[1:])


def _add(total: Array, step: Array) -> tuple[Array, Array]:
    """Of logarithms, one by one."""
    return jnp.logaddexp(total, step), jnp.stack([total, jnp.logaddexp(total, step)])


def build_likelihood(plan: Plan) -> Likelihood | str:
    """The log likelihood of every datum, or in words why there is none."""
    program = plan.structure.program
    if program.log_likelihood_named is None:
        return "the model does not say which of its terms are data, or it scales them"
    if plan.summation is None:
        return "no discrete site is summed out"
    names = list(program.observed)
    summed = plan.summation.summed
    shapes = jax.eval_shape(program.log_likelihood, *program.abstract_arguments())
    if not names or set(shapes) != set(names):
        return "the model has no observed site"
    closed = flatten(
        lambda *args: [program.log_likelihood(*args)[name] for name in names], *program.abstract_arguments()
    )
    scopes = element_scopes(program, closed)
    owners = {}
    for name, scope in zip(names, scopes, strict=True):
        drawn = np.diff(scope[:, np.flatnonzero(~summed)].tocsr().indptr)
        met = np.diff(scope.indptr)
        if drawn.any():
            return f"data in '{name}' depend on a discrete site that is drawn, not summed out"
        if (met > 1).any():
            return f"data in '{name}' depend on {met.max()} discrete sites each; one at most can be handled"
        owner = np.full(scope.shape[0], -1)  # pyright: ignore[reportOptionalSubscript]
        owner[met == 1] = scope.indices
        owners[name] = owner
    return Likelihood(program, plan.summation, owners, _find_changes(closed, names, plan.summation))


def _find_changes(closed: ClosedJaxpr, names: list[str], summation: Summation) -> dict[str, np.ndarray] | None:
    """At which value of its site the density of each datum changes, if once at most and the values are many."""
    program = summation.structure.program
    count = int(num_values(summation.structure)[summation.summed].max(initial=1))
    places = dict(zip(sorted(program.z), closed.jaxpr.invars[1:], strict=False))
    settings = make_settings(summation.structure, summation.summed, count)
    outputs = closed.jaxpr.outvars
    is_plain = all(setting.chosen is None and not program.z[name].event_shape for name, setting in settings.items())
    if count < MANY or not is_plain or any(isinstance(v, Literal) for v in outputs):
        return None
    sites = {
        places[name]: np.broadcast_to(setting.values, (count, program.z[name].num_elements))
        .reshape(count, *program.z[name].shape)
        .astype(program.z[name].dtype)
        for name, setting in settings.items()
    }
    data = closed.jaxpr.invars[1 + len(program.z) :]
    known = dict(zip(data, jax.tree.leaves(program.data), strict=True))
    changes = find_changes(closed, [v for v in outputs if not isinstance(v, Literal)], sites, known)
    found = {name: at for name, at in zip(names, changes, strict=True) if at is not None}
    return found if len(found) == len(names) else None
