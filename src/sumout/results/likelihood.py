"""The log likelihood of every datum, for leave-one-out cross-validation.

What counts for datum i is how well the others predict it, log p(y_i | x, y_{−i}); where data are independent given x,
as in a mixture, that is log p(y_i | x). Draws of x from p(x | y), weighed by 1 / p(y_i | x, y_{−i}), are draws from
p(x | y_{−i}). There are three ways to it, of which each observed array takes the first that is open:

- *By beliefs*: every datum depends on one summed site at most (`likelihood_by_beliefs.py`).
- *By sums*: all its sites are summed out, and one more sum for each datum costs little (`likelihood_by_sums.py`).
- *Given the others*: some sites are drawn, or sums would cost too much (`likelihood_given_others.py`). Each datum has
  its own sites summed out, all others are held at their draws.

Where sites are held, they count as x does: draws of (x, z_{−S}) are weighed by 1 / p(y_i | x, z_{−S}, y_{−i}). That is
as right, since under the posterior E[1 / p(y_i | x, z_{−S}, y_{−i})] = 1 / p(y_i | y_{−i}) whatever S is, but the
weights vary more; the Pareto k of `loo` says whether they vary too much. It is an estimate over z, and marked as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array

from sumout.compile.policy import LIKELIHOOD_ENTRIES
from sumout.jaxpr.flatten import flatten
from sumout.model.program import Data, Nuisance, Program
from sumout.plan.plan import Plan
from sumout.results.likelihood_by_beliefs import build_likelihood_by_beliefs
from sumout.results.likelihood_by_sums import build_likelihood_by_sums
from sumout.results.likelihood_given_others import build_likelihood_given_others
from sumout.structure.structure import element_scopes, facts_of


class Part(Protocol):
    """The log likelihood of some of the observed arrays."""

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """By name."""
        ...


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The log likelihood of every datum of a program.

    Attributes:
        parts: each of some of the observed arrays.
        notes: by name of array on what it is conditional beside x and the other data, in words.
    """

    parts: tuple[Part, ...]
    notes: Mapping[str, str]

    def __call__(self, x: Array, z: Nuisance, data: Data) -> dict[str, Array]:
        """For each observed array the log likelihoods of its data."""
        found: dict[str, Array] = {}
        for part in self.parts:
            found |= part(x, z, data)
        return found

    @property
    def words(self) -> str:
        """What is to be said of it; nothing where z is summed out throughout."""
        if not self.notes:
            return ""
        each = "; ".join(f"'{name}' is {words}" for name, words in self.notes.items())
        return f"an estimate over z: {each}. Fit for leave-one-out, as far as its Pareto k are small"


def build_likelihood(plan: Plan) -> Likelihood | str:
    """The log likelihood of every datum, or in words why there is none."""
    program = plan.structure.program
    if program.log_likelihood_named is None or program.log_joint_without_data is None:
        return "the model does not say which of its terms are data, or it scales them"
    names = list(program.observed)
    shapes = jax.eval_shape(program.log_likelihood, *program.abstract_arguments())
    if not names or set(shapes) != set(names):
        return "the model has no observed site"
    summed = np.zeros(plan.structure.num_sites, bool) if plan.summation is None else plan.summation.summed
    scopes = dict(zip(names, element_scopes(program, _flat(program, names)), strict=True))
    left = {name for name, scope in scopes.items() if scope[:, np.flatnonzero(~summed)].nnz}
    parts: list[Part] = []
    single = [name for name in names if name not in left and np.diff(scopes[name].indptr).max(initial=0) <= 1]
    joint = [name for name in names if name not in left and name not in single]
    if plan.summation is None:
        left, single, joint = set(names), [], []
    if single:
        owners = {name: _owner(scopes[name]) for name in single}
        found = build_likelihood_by_beliefs(plan, without_data(program, single), _flat(program, single), owners)
        parts += [found] if found is not None else []
        left |= set(single) if found is None else set()
    num_data = sum(int(np.prod(shapes[name].shape)) for name in joint)
    if joint and (num_data + 1) * plan.summing <= LIKELIHOOD_ENTRIES:
        found = build_likelihood_by_sums(plan, without_data(program, joint), joint)
        parts += [found] if found is not None else []
        left |= set(joint) if found is None else set()
    else:
        left |= set(joint)
    held = [name for name, numbers in plan.structure.site_numbers.items() if not summed[numbers].all()]
    users = ", ".join(user for name in held for user in program.packs.names(name))
    notes = {name: f"given the draws of {users}" for name in names if held}
    if left:
        chosen = [name for name in names if name in left]
        others = build_likelihood_given_others(without_data(program, chosen), program, {n: scopes[n] for n in chosen})
        parts.append(others)
        notes |= others.notes
    return Likelihood(tuple(parts), notes)


def _owner(scope: sp.csr_array) -> np.ndarray:
    """The site of each datum that has one at most; −1 for none."""
    met = np.diff(scope.indptr)
    owner = np.full(len(met), -1)
    owner[met == 1] = scope.indices
    return owner


def _flat(program: Program, names: list[str]) -> Any:
    """The log densities of some data, as they are read."""
    return flatten(lambda *args: [program.log_likelihood(*args)[name] for name in names], *program.abstract_arguments())


def without_data(program: Program, names: list[str]) -> Program:
    """The program without the terms of some of its data."""
    bare, likelihood = program.log_joint_without_data, program.log_likelihood_named
    assert bare is not None and likelihood is not None
    kept = [name for name in program.observed if name not in names]
    if not kept:
        return _with_facts_of(program, replace(program, log_joint=bare))

    def log_joint(x: Any, z: Nuisance, data: Data) -> Array:
        terms = likelihood(x, z, data)
        return bare(x, z, data) + sum(terms[name].sum() for name in kept)

    return _with_facts_of(program, replace(program, log_joint=log_joint))


def _with_facts_of(program: Program, other: Program) -> Program:
    """The other, of the same data: what is asked about their values when it is read counts for the program, too."""
    other.remember("facts", lambda: facts_of(program))
    return other
