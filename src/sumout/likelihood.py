"""The log likelihood of every datum with its local z summed out, for leave-one-out cross-validation.

What counts for datum i is how well the others predict it, log p(y_i | x, y_{−i}); where data are independent given x,
as in a mixture, that is log p(y_i | x). With site s the only one the datum depends on,

    log p(y_i | x, y_{−i}) = −log Σ_k p(z_s = k | x, y) / p(y_i | z_s = k, x),

for which the exact marginals of the sites are all that is needed (Bürkner, Gabry and Vehtari 2021).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.marginal.summation import Summation
from sumout.marginal.tables import make_settings, place_numbers
from sumout.nuisance.gibbs import log_sum_columns
from sumout.plan import Plan
from sumout.program import Data, Nuisance, Program
from sumout.reading.structure import element_scopes


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The log likelihood of every datum of a program.

    Attributes:
        program: whose data they are.
        summation: the sites that are summed out.
        owners: for each observed array the site each datum depends on, −1 for none.
    """

    program: Program
    summation: Summation
    owners: dict[str, np.ndarray]

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """For each observed array the log likelihoods of its data."""
        log_marginals = self.summation.log_marginals(x, z, data)
        count = log_marginals.shape[1]
        settings = make_settings(self.summation.structure, self.summation.summed, count)

        def at(number: Array) -> dict[str, Array]:
            placed = place_numbers(z, settings, number)
            full = {name: jnp.broadcast_to(value, z[name].shape) for name, value in placed.items()}
            return self.program.log_likelihood(x, full, data)

        tables = jax.vmap(at)(jnp.arange(count))
        return {name: self._one(tables[name], log_marginals, owner) for name, owner in self.owners.items()}

    def _one(self, table: Array, log_marginals: Array, owner: np.ndarray) -> Array:
        shape = table.shape[1:]
        table = table.reshape(table.shape[0], -1)
        marginals = log_marginals[np.maximum(owner, 0)].T
        cavity = jnp.where(marginals == -jnp.inf, -jnp.inf, marginals - table)
        return jnp.where(owner >= 0, -log_sum_columns(cavity), table[0]).reshape(shape)


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
    scopes = element_scopes(program, lambda *args: [program.log_likelihood(*args)[name] for name in names])
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
    return Likelihood(program, plan.summation, owners)
