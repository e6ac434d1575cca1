"""What sums over chains side by side cost where one table serves them all: products of matrices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from sumout.compile.policy import FEW_RUNS, MATRIX_GAIN, PRODUCT_VALUES
from sumout.eliminate.components import Component
from sumout.eliminate.settings import make_settings, place_numbers
from sumout.model.program import Data, Nuisance
from sumout.structure.structure import Structure


def with_shared_tables(structure: Structure, components: Sequence[Component]) -> list[Component]:
    """The components, of which many chains that have their tables in common are counted at what they cost."""
    chains = [component for component in components if _is_chain_of_many_values(component)]
    if len(chains) <= FEW_RUNS:
        return list(components)
    candidates = np.zeros(structure.num_sites, bool)
    for component in components:
        candidates[component.sites] = True
    is_shared = _sites_with_shared_tables(structure, candidates, max(c.num_values for c in chains))
    cheaper = {id(c): replace(c, summing=c.summing / MATRIX_GAIN) for c in chains if is_shared[c.sites].all()}
    return [cheaper.get(id(c), c) for c in components] if len(cheaper) > FEW_RUNS else list(components)


def _is_chain_of_many_values(component: Component) -> bool:
    shape = component.shape
    is_chain = shape is not None and shape.members.shape[1] == 1 and shape.order.width == 1
    return is_chain and component.num_values >= PRODUCT_VALUES


def _sites_with_shared_tables(structure: Structure, candidates: np.ndarray, num_values: int) -> np.ndarray:
    """Which sites are in no factor of two candidates that differs from element to element of its array."""
    roles, works = structure.find_roles(candidates, 2)
    settings = make_settings(structure, candidates, num_values)
    sources = {name: setting.source for name, setting in settings.items()}
    is_one = np.zeros(len(works), bool)

    def look(x: Any, z: Nuisance, data: Data) -> Any:
        version = place_numbers(z, settings, jnp.zeros((), int))
        factors = structure.factors_by_role(x, [version, version], data, roles, sources)
        is_one[:] = [factor is not None and factor.content.size == 1 for factor in factors]
        return x

    jax.eval_shape(look, *structure.program.abstract_arguments())
    scopes = sp.csr_array(structure.scopes[:, np.flatnonzero(candidates)])
    rows = np.flatnonzero(np.diff(scopes.indptr) == 2)
    other = rows[~(is_one & works)[structure.factor_array(rows)]]
    found = np.ones(structure.num_sites, bool)
    found[np.unique(structure.scopes[other].indices)] = False
    return found
