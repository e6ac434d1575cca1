"""The log likelihood of data by one more sum over z for each of them.

    log p(y_i | x, y_{−i}) = log Σ_z p(z, y | x) − log Σ_z p(z, y_{−i} | x)

Each datum has a switch among the data, with which its term is left out. So it does not matter how many sites meet in a
datum, nor what values of them it rules out. Sites that are not summed out are held.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sumout.eliminate.state_summation import StateSummation, build_sums_over
from sumout.eliminate.summation import Summation
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.plan import Plan
from sumout.structure.structure import read

SWITCHES = "(data that count)"  # among the data; no argument of a model has such a name


@dataclass(frozen=True, eq=False)
class LikelihoodBySums:
    """The log likelihood of data, each left out in its turn.

    Attributes:
        summation: the sums over z, of the program with switches.
        shapes: of the observed arrays.
    """

    summation: Summation | StateSummation
    shapes: dict[str, tuple[int, ...]]

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """For each observed array the log likelihoods of its data."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])
        numbers = jnp.arange(ends[-1])

        def without(left_out: Array) -> Array:
            return self.summation.log_density(x, z, _with_switches(data, numbers != left_out))

        totals = jax.lax.map(without, jnp.arange(ends[-1] + 1))  # the last one leaves out none
        parts = jnp.split(totals[-1] - totals[:-1], ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


def build_likelihood_by_sums(plan: Plan, bare: Program, names: list[str]) -> LikelihoodBySums | None:
    """The log likelihood of some arrays; None where the program with switches cannot be summed.

    Args:
        plan: says which sites are summed out.
        bare: the program without the terms of these data.
        names: of the arrays.
    """
    program = plan.structure.program
    assert plan.summation is not None
    terms = jax.eval_shape(program.log_likelihood, *program.abstract_arguments())
    shapes = {name: terms[name].shape for name in names}
    structure = read(_switched(program, bare, names, sum(int(np.prod(shape)) for shape in shapes.values())))
    summation = build_sums_over(structure, plan.summation.summed, plan.patterns)
    return None if summation is None else LikelihoodBySums(summation, shapes)


def _switched(program: Program, bare: Program, names: list[str], num_data: int) -> Program:
    """The program with a switch for each datum."""
    likelihood = program.log_likelihood_named
    assert likelihood is not None

    def log_joint(x: Any, z: Nuisance, data: Data) -> Array:
        is_kept, data = _without_switches(data)
        terms = likelihood(x, z, data)
        flat = jnp.concatenate([terms[name].ravel() for name in names])
        return bare.log_joint(x, z, data) + jnp.where(is_kept, flat, 0.0).sum()

    data = _with_switches(program.data, np.ones(num_data, bool))
    return replace(program, log_joint=log_joint, data=data, free=(*program.free, SWITCHES))


def _with_switches(data: Data, is_kept: Any) -> Data:
    return {**data, SWITCHES: is_kept}  # a program that says what its data are has them by name


def _without_switches(data: Data) -> tuple[Any, Data]:
    return data[SWITCHES], {name: value for name, value in data.items() if name != SWITCHES}
